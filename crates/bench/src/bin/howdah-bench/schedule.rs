//! The order of runs, the runs still to do, and their storage.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::design::Cell;
use crate::record::{CellRecord, Figures, Record, Run};

/// All runs of a contest: in turn within each cell, round after round.
pub struct Schedule<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// The contenders.
    pub names: &'a [&'static str],
    /// The number of rounds.
    pub rounds: usize,
    /// The file of the record.
    pub file: &'a Path,
}

/// The next run.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// The index of the contender's name.
    pub contender: usize,
    /// From 0.
    pub round: usize,
    /// Consecutive steps of one cell in one round have the same number.
    pub visit: usize,
}

/// The progress of a contest.
#[derive(Clone, Copy)]
pub struct Progress {
    /// Runs done, now and earlier.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// The estimated time for the rest.
    pub left: Duration,
}

impl Schedule<'_> {
    /// Calls `run` for all runs that `record` lacks or that failed, and saves the record after
    /// each. If saving fails (a full disk), warns and tries again after the next run.
    ///
    /// # Errors
    /// The record could not be written after the last run, or `run` can't go on.
    pub fn play(
        &self,
        record: &mut Record,
        mut run: impl FnMut(Step<'_>, &mut Record) -> io::Result<Result<Figures, String>>,
        mut tell: impl FnMut(Step<'_>, &Result<Figures, String>, Progress),
        mut warn: impl FnMut(&str),
    ) -> io::Result<()> {
        record.lay_out(self.cells.iter().map(|cell| CellRecord {
            key: cell.key(),
            group: cell.group.clone(),
            row: cell.row(),
            runs: Vec::new(),
        }));
        let steps = self.steps();
        let (began, mut skipped) = (Instant::now(), 0);
        let mut kept = Ok(());
        for (number, step) in steps.iter().enumerate() {
            let (key, name) = (step.cell.key(), self.names[step.contender]);
            if record
                .cell(&key)
                .is_some_and(|cell| cell.has(name, step.round))
            {
                skipped += 1;
                continue;
            }
            let outcome = run(*step, record)?;
            let (done, total) = (number + 1, steps.len());
            let each = began.elapsed() / (done - skipped).max(1) as u32;
            let left = each * (total - done) as u32;
            tell(*step, &outcome, Progress { done, total, left });
            if let Some(cell) = record.cell_mut(&key) {
                cell.note(Run {
                    contender: name.to_owned(),
                    round: step.round,
                    outcome,
                });
            }
            kept = record.save(self.file);
            if let Err(error) = &kept {
                warn(&format!("{error}; tried again after the next run"));
            }
        }
        kept
    }

    /// All steps. The first contender changes from cell to cell.
    fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for round in 0..self.rounds {
            for (number, cell) in self.cells.iter().enumerate() {
                for turn in 0..self.names.len() {
                    steps.push(Step {
                        cell,
                        contender: (turn + round + number) % self.names.len(),
                        round,
                        visit: round * self.cells.len() + number,
                    });
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Choice, Design};

    fn cells(most_clients: usize) -> Vec<Cell> {
        Design::Scaling.cells(Choice {
            quick: false,
            workers: Some(1),
            least_clients: 1,
            most_clients,
        })
    }

    fn fine() -> Result<Figures, String> {
        Ok(Figures::default())
    }

    /// Plays three contenders with `run`. Returns the number of runs, and the warnings.
    fn play(
        cells: &[Cell],
        file: &Path,
        record: &mut Record,
        mut run: impl FnMut(Step<'_>) -> Result<Figures, String>,
    ) -> (usize, Vec<String>, io::Result<()>) {
        let schedule = Schedule {
            cells,
            names: &["postgresql", "howdah", "pgbouncer"],
            rounds: 2,
            file,
        };
        let (mut done, mut warnings) = (0, Vec::new());
        let played = schedule.play(
            record,
            |step, _| {
                done += 1;
                Ok(run(step))
            },
            |_, _, _| (),
            |warning| warnings.push(warning.to_owned()),
        );
        (done, warnings, played)
    }

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("schedule-{name}-{}.json", std::process::id()))
    }

    #[test]
    fn what_failed_is_done_again_and_nothing_else() {
        let (cells, file, mut record) = (cells(32), file("again"), Record::default());
        let (done, ..) = play(&cells, &file, &mut record, |step| match step.contender {
            2 => Err("it hangs".to_owned()),
            _ => fine(),
        });
        assert_eq!(done, 2 * 2 * 3);
        let mut record = Record::load(&file).unwrap();
        let mut again = Vec::new();
        let (.., played) = play(&cells, &file, &mut record, |step| {
            again.push(step.contender);
            fine()
        });
        played.unwrap();
        assert_eq!(again, [2; 4]);
        let (done, ..) = play(&cells, &file, &mut record, |_| fine());
        assert_eq!(done, 0);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn fewer_cells_keep_what_the_others_have() {
        let (all, file, mut record) = (cells(64), file("fewer"), Record::default());
        let (done, ..) = play(&all, &file, &mut record, |_| fine());
        assert_eq!(done, 3 * 2 * 3);
        let (done, ..) = play(&cells(16), &file, &mut record, |_| fine());
        assert_eq!((done, record.cells.len()), (0, 3));
        assert!(record.cells.iter().all(|cell| cell.runs.len() == 6));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_cannot_go_on_ends_and_keeps_what_was_done() {
        let (cells, file, mut record) = (cells(16), file("ends"), Record::default());
        let schedule = Schedule {
            cells: &cells,
            names: &["postgresql", "howdah"],
            rounds: 1,
            file: &file,
        };
        let played = schedule.play(
            &mut record,
            |step, _| match step.contender {
                0 => Ok(fine()),
                _ => Err(io::Error::other("PostgreSQL ended")),
            },
            |_, _, _| (),
            |_| (),
        );
        assert_eq!(played.unwrap_err().to_string(), "PostgreSQL ended");
        assert_eq!(Record::load(&file).unwrap().cells[0].runs.len(), 1);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn each_is_first_in_turn() {
        let cells = cells(64);
        let mut firsts = Vec::new();
        let (file, mut visit) = (file("turns"), None);
        let (done, ..) = play(&cells, &file, &mut Record::default(), |step| {
            if visit.replace(step.visit) != Some(step.visit) {
                firsts.push(step.contender);
            }
            fine()
        });
        assert_eq!((done, firsts), (18, vec![0, 1, 2, 1, 2, 0]));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_record_without_room_is_told_and_the_run_goes_on() {
        let cells = cells(16);
        let nowhere = Path::new("/no/such/folder/record.json");
        let (done, warnings, played) = play(&cells, nowhere, &mut Record::default(), |_| fine());
        assert_eq!((done, warnings.len()), (6, 6));
        assert!(warnings[0].contains("can't be written"), "{warnings:?}");
        assert!(played.is_err());
    }
}
