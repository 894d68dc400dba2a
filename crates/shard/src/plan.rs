//! Plans: what is known about a text before its values, and where its values say that it goes.

use crate::facts::Facts;
use crate::map::{Map, Shard, ShardSet};
use crate::proof::Values;
use crate::refusal::{Refusal, RefusalReason};
use crate::scan::ConstantKind;

/// What is known about texts with one shape.
#[derive(Debug, Default)]
pub struct Plan {
    /// The text may run on one shard, and be repeated on another: it only reads, locks no rows, and
    /// a repetition does not matter.
    pub guess: bool,
    /// The text writes rows.
    pub writes: bool,
    /// A name that no catalogue has is taken for a temporary table's: the catalogues have to be
    /// newer than the text before the plan counts.
    pub has_unknown_name: bool,
    pub(crate) commands: Vec<Command>,
}

/// A command of a text.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) class: Class,
    pub(crate) facts: Facts,
}

/// Where a command without a key goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Rows,
    Begin,
    End,
    Savepoint,
    Setting,
    First,
    Here,
    Temporary,
}

/// Where a statement goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Its rows are there, and only there.
    Shard(Shard),
    /// Nothing in the statement says where. It goes where the transaction is, else by its kind.
    NoKey(NoKey),
    /// Nowhere.
    Refused(Refusal),
}

/// A statement that belongs to no shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoKey {
    /// No table, or rows that do not exist: any shard.
    Any,
    /// PostgreSQL's own tables: the first shard.
    Catalogue,
    /// Advisory locks, LISTEN, NOTIFY: the first shard, even inside a transaction.
    First,
    /// Replicated tables only.
    Replicated {
        /// Where their rows are written.
        home: Shard,
        /// Rows are written or locked: only there.
        write: bool,
    },
    /// Begins a transaction.
    Begin,
    /// Ends a transaction.
    End,
    /// SAVEPOINT, RELEASE, ROLLBACK TO.
    Savepoint,
    /// SET, RESET, SHOW, DISCARD, DEALLOCATE.
    Setting,
    /// A cursor or temporary table: where the client's server is.
    Here,
    /// Creates a temporary table: any shard, whose server the client then keeps.
    Temporary,
}

impl Plan {
    /// Where the text goes with these values.
    pub fn place(&self, map: &Map, values: &Values<'_>) -> Verdict {
        let mut verdict = None;
        let mut refused: Option<Refusal> = None;
        for command in &self.commands {
            // What a refused command proves counts, too.
            let next = match command.place(map, values) {
                Ok(next) => Some(next),
                Err(refusal) => {
                    let proved = refusal.proved.map(Verdict::Shard);
                    if refused
                        .as_ref()
                        .is_none_or(|before| refusal.firm && !before.firm)
                    {
                        refused = Some(refusal);
                    }
                    proved
                }
            };
            verdict = match (verdict, next) {
                (Some(before), Some(next)) => match both(map, before, next) {
                    Ok(verdict) => Some(verdict),
                    Err(refusal) => return Verdict::Refused(refusal),
                },
                (before, next) => before.or(next),
            };
        }
        match (refused, verdict) {
            (Some(mut refusal), verdict) => {
                refusal.proved = verdict.as_ref().and_then(Verdict::must);
                Verdict::Refused(refusal)
            }
            (None, verdict) => verdict.unwrap_or(Verdict::NoKey(NoKey::Any)),
        }
    }

    /// The shards on which all names of the text mean what they mean here.
    pub fn shards(&self, map: &Map) -> ShardSet {
        let commands = self.commands.iter();
        commands.fold(map.all(), |shards, command| shards.and(command.facts.may))
    }

    /// A refusal if a name of the text means something else on a shard that nothing in the text
    /// proves: for what goes where its transaction is, or is a guess.
    pub fn check(&self, map: &Map, shard: Shard) -> Result<(), Refusal> {
        let mut commands = self.commands.iter();
        commands.try_for_each(|command| command.may(map, shard))
    }

    /// How many commands the text has.
    pub fn count(&self) -> usize {
        self.commands.len()
    }
}

impl Verdict {
    /// This verdict for a text with a hint. A hint places what is not proved; against a proof it is
    /// an error.
    #[must_use]
    pub fn with_hint(self, map: &Map, hint: Shard) -> Verdict {
        if let Verdict::Refused(refusal) = &self
            && refusal.firm
        {
            return self;
        }
        match self.must() {
            Some(shard) if shard != hint => {
                let (here, there) = (map.name_of(hint), map.name_of(shard));
                Verdict::Refused(
                    Refusal::unproved("the hint contradicts the statement")
                        .because(RefusalReason::Hint)
                        .detail(format!(
                            "The statement belongs to shard \"{there}\", not \"{here}\"."
                        ))
                        .hint("Leave the hint out, or correct it.")
                        .firm(),
                )
            }
            _ => Verdict::Shard(hint),
        }
    }

    /// The only shard that is right, also for what is refused for another reason.
    pub fn must(&self) -> Option<Shard> {
        match self {
            Verdict::Shard(shard) => Some(*shard),
            Verdict::NoKey(NoKey::First) => Some(Shard(0)),
            Verdict::NoKey(NoKey::Replicated { home, write: true }) => Some(*home),
            Verdict::Refused(refusal) => refusal.proved,
            Verdict::NoKey(_) => None,
        }
    }
}

/// Where two commands of a text go together.
fn both(map: &Map, one: Verdict, other: Verdict) -> Result<Verdict, Refusal> {
    match (one.must(), other.must()) {
        (Some(first), Some(second)) if first != second => {
            let (first, second) = (map.name_of(first), map.name_of(second));
            Err(
                Refusal::unproved("the commands of the text belong to several shards")
                    .because(RefusalReason::Several)
                    .detail(format!(
                        "One belongs to shard \"{first}\", another to \"{second}\"."
                    ))
                    .hint("Send each command in a text of its own.")
                    .firm(),
            )
        }
        (Some(_), Some(_)) if one == other => Ok(one),
        (Some(shard), Some(_)) => Ok(Verdict::Shard(shard)),
        (Some(_), None) => Ok(one),
        (None, Some(_)) => Ok(other),
        // What is on the client's server only, then the first that says more than nothing.
        (None, None) if other == Verdict::NoKey(NoKey::Here) => Ok(other),
        (None, None) if one == Verdict::NoKey(NoKey::Any) => Ok(other),
        (None, None) => Ok(one),
    }
}

impl Command {
    /// A command that is refused, of which nothing else is known.
    pub(crate) fn refused(map: &Map, refusal: Refusal) -> Command {
        let mut facts = Facts::new(map);
        facts.guess = false;
        facts.refuse(refusal);
        let class = Class::Rows;
        Command { class, facts }
    }

    fn place(&self, map: &Map, values: &Values<'_>) -> Result<Verdict, Refusal> {
        let placed = self.placed(map, values);
        let Some(refused) = &self.facts.refused else {
            return placed;
        };
        let mut refused = refused.clone();
        match placed {
            Err(other) if other.firm => return Err(other),
            Err(other) => refused.proved = other.proved,
            Ok(verdict) => refused.proved = verdict.must(),
        }
        Err(refused)
    }

    fn placed(&self, map: &Map, values: &Values<'_>) -> Result<Verdict, Refusal> {
        let Facts {
            proof,
            goals,
            fixed,
            ..
        } = &self.facts;
        self.check_settings(values)?;
        let first = self.facts.first || self.class == Class::First;
        let mut must = None;
        let first_shard = (Shard(0), "What belongs to the first shard");
        let fixed = fixed.iter().map(|(shard, what)| (*shard, what.as_str()));
        for (shard, what) in first.then_some(first_shard).into_iter().chain(fixed) {
            match must {
                Some((other, before)) if other != shard => {
                    return Err(several(map, (other, before), (shard, what)));
                }
                _ => must = Some((shard, what)),
            }
        }
        let may = |shard: Shard| self.may(map, shard);
        let proved = match goals.is_empty() {
            true => None,
            false => proof.shard(map, goals, values, may)?,
        };
        match (proved, must) {
            (Some(shard), Some((other, what))) if shard != other => {
                let key = format!("The key of {}", goals[0].what);
                Err(several(map, (shard, &key), (other, what)))
            }
            (Some(shard), _) => Ok(Verdict::Shard(shard)),
            (None, Some((shard, _))) => {
                may(shard)?;
                Ok(self.without_key(shard, first))
            }
            (None, None) => Ok(Verdict::NoKey(self.kind())),
        }
    }

    /// The verdict for what must go to a shard, but not by a key.
    fn without_key(&self, shard: Shard, first: bool) -> Verdict {
        let is_replicated = |(_, what): &(Shard, String)| what.starts_with(REPLICATED);
        if self.facts.fixed.is_empty() && first {
            Verdict::NoKey(NoKey::First)
        } else if !first && self.facts.fixed.iter().all(is_replicated) {
            let (home, write) = (shard, true);
            Verdict::NoKey(NoKey::Replicated { home, write })
        } else {
            Verdict::Shard(shard)
        }
    }

    /// A setting of Howdah's own is not set behind its back.
    fn check_settings(&self, values: &Values<'_>) -> Result<(), Refusal> {
        for number in &self.facts.settings {
            let mut names = values.constants.of_number(*number, values.text);
            let is_ours = names.any(|name| {
                let is_plain = name.kind == ConstantKind::Text;
                name.value.filter(|_| is_plain).is_none_or(|name| {
                    let start = name.first_chunk::<7>();
                    start.is_some_and(|start| start.eq_ignore_ascii_case(b"howdah."))
                })
            });
            if is_ours {
                return Err(
                    Refusal::unproved("set_config does not set Howdah's settings")
                        .hint("Use SET or SET LOCAL.")
                        .firm(),
                );
            }
        }
        Ok(())
    }

    fn may(&self, map: &Map, shard: Shard) -> Result<(), Refusal> {
        // The parts of a spread map are no shards.
        if self.facts.may.has(shard) || map.is_spread() {
            return Ok(());
        }
        let table = self.facts.scarce.as_deref().unwrap_or_default();
        let name = map.name_of(shard);
        Err(
            Refusal::unproved("a table of the statement is not on its shard")
                .because(RefusalReason::Missing)
                .detail(format!(
                    "Shard \"{name}\" has no table \"{table}\" that the client may use."
                ))
                .hint("Create the table on each shard."),
        )
    }

    fn kind(&self) -> NoKey {
        match self.class {
            Class::Begin => NoKey::Begin,
            Class::End => NoKey::End,
            Class::Savepoint => NoKey::Savepoint,
            Class::Setting => NoKey::Setting,
            Class::First => NoKey::First,
            Class::Here => NoKey::Here,
            Class::Temporary => NoKey::Temporary,
            Class::Rows if self.facts.temporary => NoKey::Here,
            Class::Rows => match self.facts.replicated {
                Some(home) => NoKey::Replicated { home, write: false },
                None if self.facts.reads_catalogue => NoKey::Catalogue,
                None => NoKey::Any,
            },
        }
    }
}

/// How the reason begins for which a statement goes to a replicated table's home.
pub(crate) const REPLICATED: &str = "Replicated table";

fn several(map: &Map, one: (Shard, &str), other: (Shard, &str)) -> Refusal {
    let (first, second) = (map.name_of(one.0), map.name_of(other.0));
    let detail = format!(
        "{} is on shard \"{first}\", {} on \"{second}\".",
        one.1, other.1
    );
    Refusal::unproved("the statement touches several shards")
        .because(RefusalReason::Several)
        .detail(detail)
        .hint("Write a statement for each shard.")
        .firm()
}

impl Plan {
    /// How much memory the plan takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of_command = |command: &Command| {
            let Facts {
                proof,
                goals,
                fixed,
                ..
            } = &command.facts;
            500 + proof.bytes() + 100 * (goals.len() + fixed.len())
        };
        self.commands.iter().map(of_command).sum()
    }
}
