//! Draws the state.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Row, Table as Grid, TableState, Wrap};

use crate::arguments::USAGE;
use crate::state::State;
use crate::table::Table;
use crate::view::{Summary, View, printable, verdicts};

/// The widest a column gets.
const WIDEST: usize = 40;

/// The least lines below the heading: tabs, three of a table, and the foot.
const AROUND_HEADING: usize = 5;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let mut heading = heading(state, frame.area().width);
    let room = usize::from(frame.area().height).saturating_sub(AROUND_HEADING);
    heading.truncate(room.max(2));
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(heading.len() as u16),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading), head);
    frame.render_widget(tab_line(state), tabs);
    draw_table(frame, state, body);
    frame.render_widget(foot_line(state), foot);
    if state.help {
        frame.render_widget(Clear, frame.area());
        let help = Paragraph::new(USAGE).wrap(Wrap { trim: false });
        frame.render_widget(help, frame.area());
    }
}

/// The most lines of the verdict, of which there is one for the worst pool.
const VERDICT_LINES: usize = 3;

/// The lines above the tables. Nothing is cut that fits into a few lines.
fn heading(state: &State, width: u16) -> Vec<Line<'static>> {
    let version = state.now.as_ref().map_or("", |now| now.version.as_str());
    let mut first = vec![Span::from(state.target.clone()).bold(), Span::from("  ")];
    match &state.lost {
        Some(_) => first.push(Span::from("lost").red().bold()),
        None => first.push(Span::from(version.to_string()).dim()),
    }
    if state.paused {
        first.insert(1, Span::from(" paused").yellow().bold());
    }
    let mut lines = vec![Line::from(first)];
    let width = usize::from(width);
    if let Some(why) = &state.lost {
        let why = folded(&printable(why), width, " ");
        lines.extend(why.into_iter().map(|line| Line::from(line).red()));
    }
    let Some(now) = &state.now else {
        lines.push(Line::from("looking"));
        return lines;
    };
    let summary = Summary::of(now, state.before()).text();
    lines.extend(folded(&summary, width, "; ").into_iter().map(Line::from));
    if let Some(verdict) = verdicts(now).first() {
        let mut text = folded(&printable(verdict), width, " ");
        text.truncate(VERDICT_LINES);
        lines.extend(
            text.into_iter()
                .map(|line| Line::from(line).yellow().bold()),
        );
    }
    lines
}

/// A text in lines of at most this width, divided where `between` stands.
fn folded(text: &str, width: usize, between: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(between) {
        let fits =
            |line: &&mut String| line.chars().count() + part.trim_end().chars().count() <= width;
        match lines.last_mut().filter(fits) {
            Some(line) => line.push_str(part),
            None => lines.push(part.to_string()),
        }
    }
    lines
}

fn tab_line(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, view) in View::MAIN.iter().enumerate() {
        let text = format!(" {} {} ", at + 1, view.name());
        let chosen = *view == state.view;
        spans.push(if chosen {
            Span::from(text).reversed()
        } else {
            Span::from(text).dim()
        });
    }
    if let View::Pool(..) = &state.view {
        // The name of a pool matters more than what else there is.
        let name = format!(" {} ", state.view.name());
        spans.insert(0, Span::from(name).reversed());
    }
    Line::from(spans)
}

fn foot_line(state: &State) -> Line<'static> {
    if state.filtering || !state.filter.is_empty() {
        let cursor = if state.filtering { "_" } else { "" };
        return Line::from(format!("/{}{cursor}", state.filter)).yellow();
    }
    Line::from("q quit  ? help  Enter into a pool  / filter  < > r sort").dim()
}

fn draw_table(frame: &mut Frame<'_>, state: &mut State, area: Rect) {
    let table = state.table();
    state.selected = state.selected.min(table.rows.len().saturating_sub(1));
    if table.rows.is_empty() {
        let text = match state.view {
            View::Pool(..) => "nobody waits, nobody has a server",
            View::Queries => "no queries are counted (top_queries)",
            _ => "nothing",
        };
        frame.render_widget(Line::from(text).dim(), area);
        return;
    }
    let fitting = fitting(&table, area.width as usize, state.sort.column);
    let header = fitting.iter().map(|(at, _)| {
        let mark = match state.sort.column == Some(*at) {
            true if state.sort.downward => "v",
            true => "^",
            false => "",
        };
        format!("{}{mark}", table.columns[*at])
    });
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan));
    let rows = table.rows.iter().map(|row| {
        let cells = fitting.iter().map(|(at, _)| row[*at].clone());
        Row::new(cells).style(style(&state.view, &table, row))
    });
    let widths = fitting
        .iter()
        .map(|(_, width)| Constraint::Length(*width as u16));
    let grid = Grid::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selected = TableState::default().with_selected(state.selected);
    frame.render_stateful_widget(grid, area, &mut selected);
}

/// Those who wait stand out.
fn style(view: &View, table: &Table, row: &[String]) -> Style {
    let value = |name: &str| {
        table
            .column(name)
            .and_then(|at| row.get(at))
            .map_or("", String::as_str)
    };
    let waits = match view {
        View::Pools => value("waiting") != "0" && !value("waiting").is_empty(),
        View::Clients => value("state") == "waiting",
        View::Pool(..) => row.first().is_some_and(|what| what == "waits"),
        View::Holders => value("state").starts_with("idle in"),
        View::Queries => value("errors") != "0",
        View::Servers => false,
    };
    let keeps = match view {
        View::Holders => !value("kept for").is_empty(),
        View::Pool(..) => value("what").contains(", keeps "),
        _ => false,
    };
    if keeps {
        Style::new().fg(Color::Magenta)
    } else if waits {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    }
}

/// Columns that fit, with their widths. The first one, and the one sorted by, are there in any case;
/// of the others those in front matter more, and empty ones not at all.
fn fitting(table: &Table, room: usize, sorted: Option<usize>) -> Vec<(usize, usize)> {
    let width = |at: usize| {
        let values = table.rows.iter().map(|row| row[at].chars().count());
        let title = table.columns[at].chars().count() + usize::from(sorted == Some(at));
        values.chain([title]).max().unwrap_or(0).clamp(1, WIDEST)
    };
    let mut order: Vec<usize> = (0..table.columns.len()).collect();
    order.sort_by_key(|at| (*at != 0, Some(*at) != sorted, *at));
    let mut left = room;
    let mut chosen = Vec::new();
    for at in order {
        let empty = table.rows.iter().all(|row| row[at].is_empty());
        let must = at == 0 || Some(at) == sorted;
        if empty && !must {
            continue;
        }
        let wanted = if at == 0 {
            width(at).min(room.saturating_sub(9).max(6))
        } else {
            width(at)
        };
        let space = usize::from(!chosen.is_empty());
        // A long text is of use even if it is cut.
        let wanted = if wanted + space > left && wanted == WIDEST && left > WIDEST / 2 {
            left - space
        } else {
            wanted
        };
        let taken = wanted + space;
        if taken <= left {
            left -= taken;
            chosen.push((at, wanted));
        }
    }
    chosen.sort_unstable();
    // A text that was cut takes what is left.
    if let Some((_, width)) = chosen.iter_mut().find(|(_, width)| *width == WIDEST) {
        *width += left;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::console::Snapshot;
    use crate::keys;

    fn table(text: &str) -> Table {
        let mut lines = text
            .lines()
            .map(|line| line.split('|').map(str::to_string).collect());
        Table {
            columns: lines.next().unwrap_or_default(),
            rows: lines.collect(),
        }
    }

    /// A pool that is full, as PgBouncer or we tell of it.
    fn snapshot(seconds: u64, ours: bool) -> Snapshot {
        let more = if ours { "|wait_reason|wait_place" } else { "" };
        let why = if ours { "|pool_full|1" } else { "" };
        let none = if ours { "||" } else { "" };
        Snapshot {
            at: Instant::now() + Duration::from_secs(seconds),
            version: "Howdah 0.1.0".into(),
            pools: table(
                "database|user|cl_active|cl_waiting|sv_active|sv_idle|maxwait|maxwait_us|pool_mode\n\
                 quiet|web|3|0|0|2|0|0|transaction\n\
                 shop|web|9|4|2|0|7|500000|transaction",
            ),
            stats: table(&format!(
                "database|total_xact_count|total_query_count|total_query_time|total_wait_time\n\
                 shop|{}|{}|{}|0",
                100 * seconds,
                200 * seconds,
                200_000 * seconds
            )),
            clients: table(&format!(
                "type|user|database|state|addr|port|wait|wait_us|application_name{more}\n\
                 C|web|shop|waiting|10.0.0.1|4000|7|500000|till{why}\n\
                 C|web|shop|active|10.0.0.2|4001|0|0|export{none}"
            )),
            servers: table(
                "type|user|database|state|addr|port|remote_pid\nS|web|shop|active|db|5432|77",
            ),
            holders: if ours {
                table(
                    "database|user|state|held_us|state_us|client_id|client_addr|application_name|server_id|remote_pid|kept_for|query\n\
                     shop|web|idle in transaction|90000000|80000000|5|10.0.0.2:4001|export|6|77||update stock",
                )
            } else {
                Table::default()
            },
            databases: table("name|pool_size\nshop|2"),
            verdicts: if ours {
                table(
                    "database|user|verdict\n\
                     shop|web|4 clients wait: the pool of 2 is full, and 2 of 2 are held idle in \
                     transaction, the longest by export for 80 s: a larger pool would not help",
                )
            } else {
                Table::default()
            },
            queries: if ours {
                table(&format!(
                    "database|user|calls|errors|rows|total_us|mean_us|p99_us|max_us|wait_us|fingerprint|query\n\
                     shop|web|{}|0|7|90000000|9000|20000|30000|0|00ff|select ? from stock",
                    100 + 50 * seconds
                ))
            } else {
                Table::default()
            },
        }
    }

    fn state(ours: bool) -> State {
        let mut state = State::new("db1:6432".into());
        state.take(snapshot(0, ours));
        state.take(snapshot(2, ours));
        state
    }

    fn drawn(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn press(state: &mut State, codes: &[KeyCode]) {
        for code in codes {
            keys::pressed(state, KeyEvent::new(*code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn the_cause_of_a_full_pool_is_two_looks_away() {
        let mut state = state(true);
        let screen = drawn(&mut state, 140, 10);
        let lines: Vec<_> = screen.lines().collect();
        assert!(
            lines[1]
                .starts_with("100 tx/s, 200 q/s; 4 clients wait of 16; 2 servers active, 2 idle"),
            "{screen}"
        );
        assert!(
            lines[2].starts_with("shop/web: 4 clients wait: the pool of 2 is full"),
            "{screen}"
        );
        assert!(
            lines[6].contains("shop")
                && lines[6].contains("pool_full")
                && lines[6].contains("7.5 s"),
            "{screen}"
        );
        press(&mut state, &[KeyCode::Enter]);
        let screen = drawn(&mut state, 100, 10);
        assert!(screen.contains("pool shop/web"), "{screen}");
        assert!(
            screen.contains("holds 90 s  idle in transaction 80 s"),
            "{screen}"
        );
        assert!(screen.contains("waits 7.5 s pool full"), "{screen}");
        press(&mut state, &[KeyCode::Esc]);
        assert_eq!(state.view, View::Pools);
    }

    #[test]
    fn queries_that_take_the_most_are_seen() {
        let mut state = state(true);
        press(&mut state, &[KeyCode::Char('5')]);
        let screen = drawn(&mut state, 100, 10);
        for word in [
            "select ? from stock",
            "90 s",
            "200",
            "50",
            "9.0 ms",
            "20 ms",
            "shop",
        ] {
            assert!(screen.contains(word), "{word}: {screen}");
        }
        assert!(drawn(&mut state, 20, 10).contains("select ?"), "{screen}");
        let mut theirs = self::state(false);
        press(&mut theirs, &[KeyCode::Char('5')]);
        assert!(drawn(&mut theirs, 60, 10).contains("no queries are counted"));
    }

    #[test]
    fn waits_that_no_server_ended_count() {
        let mut now = snapshot(2, true);
        let mut before = snapshot(0, true);
        for (snapshot, vain, waited) in [(&mut before, "10", "0"), (&mut now, "110", "600000")] {
            for (table, name, value) in [
                (&mut snapshot.pools, "waits_in_vain", vain),
                (&mut snapshot.stats, "total_wait_time", waited),
            ] {
                let at = table.columns.iter().position(|column| column == name);
                let at = at.unwrap_or_else(|| {
                    table.columns.push(name.into());
                    table.rows.iter_mut().for_each(|row| row.push("0".into()));
                    table.columns.len() - 1
                });
                table.rows.last_mut().unwrap()[at] = value.into();
            }
        }
        // 200 transactions, 100 waits in vain and 4 that are not over.
        let rates = crate::view::rates(&now, Some(&before));
        assert_eq!(rates["shop"].wait_us, 600_000.0 / 304.0);
    }

    #[test]
    fn pgbouncer_has_fewer_columns() {
        let mut state = state(false);
        assert!(drawn(&mut state, 140, 10).contains("7.5 s"));
        press(&mut state, &[KeyCode::Enter]);
        let screen = drawn(&mut state, 100, 10);
        assert!(
            screen.contains("holds") && screen.contains("export"),
            "{screen}"
        );
        press(&mut state, &[KeyCode::Char('4')]);
        assert!(drawn(&mut state, 100, 10).contains("nothing"));
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        for ours in [true, false] {
            for (width, height) in [(20, 10), (1, 1), (3, 2), (20, 3), (80, 24), (300, 4)] {
                let mut state = state(ours);
                for key in "12345?h/".chars() {
                    press(
                        &mut state,
                        &[KeyCode::Char(key), KeyCode::Char('>'), KeyCode::Esc],
                    );
                    drawn(&mut state, width, height);
                }
                press(
                    &mut state,
                    &[KeyCode::Char('1'), KeyCode::Enter, KeyCode::Down],
                );
                drawn(&mut state, width, height);
            }
        }
        let screen = drawn(&mut state(true), 20, 10);
        assert!(
            screen.contains("shop") && screen.contains("waiting"),
            "{screen}"
        );
    }

    #[test]
    fn rows_are_sorted_filtered_and_chosen() {
        let mut state = state(true);
        assert_eq!(
            state.table().value(0, "database"),
            "shop",
            "who waits comes first"
        );
        press(&mut state, &[KeyCode::Char('r')]);
        assert_eq!(state.table().value(0, "database"), "quiet");
        press(
            &mut state,
            &[
                KeyCode::Char('/'),
                KeyCode::Char('S'),
                KeyCode::Char('h'),
                KeyCode::Enter,
            ],
        );
        assert_eq!(state.table().rows.len(), 1);
        press(&mut state, &[KeyCode::Esc, KeyCode::End]);
        assert_eq!((state.table().rows.len(), state.selected), (2, 1));
        // Back to the first column, from where the one before is the last.
        press(&mut state, &[KeyCode::Left, KeyCode::Left, KeyCode::Left]);
        assert_eq!(state.sort.column, Some(state.table().columns.len() - 1));
        press(&mut state, &[KeyCode::Char('q')]);
        assert!(state.done);
    }

    #[test]
    fn a_lost_console_is_told_of() {
        let mut state = state(true);
        state.lost = Some("connection refused".into());
        assert!(drawn(&mut state, 80, 10).contains("connection refused"));
    }
}
