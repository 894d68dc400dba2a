//! The effects of a text, as a value.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use crate::bound::{Call, Values};
use crate::kinds::Kinds;
use crate::limits;
use crate::name::is_naming;
use crate::{ListenCommands, StatementCommand};

/// A setting that a text sets or resets for the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mention {
    /// Sets this setting. Names are in lower case.
    Set(Box<[u8]>),
    /// Resets this setting to its value at login.
    Back(Box<[u8]>),
    /// Resets all settings.
    AllBack,
}

impl Mention {
    /// The setting; `None` for all settings.
    pub(super) fn name(&self) -> Option<&[u8]> {
        match self {
            Mention::Set(name) | Mention::Back(name) => Some(name),
            Mention::AllBack => None,
        }
    }
}

/// Where PostgreSQL looks names up after a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Names {
    /// In the same places as before.
    #[default]
    Same,
    /// Where the search path or role set by the text says. The number is a hash of these settings:
    /// after texts with equal numbers, names mean the same.
    By(u64),
    /// In unknown places.
    Anywhere,
}

impl Names {
    /// Where PostgreSQL looks names up after two texts, this one first.
    #[must_use]
    pub fn then(self, more: Names) -> Names {
        match (self, more) {
            (names, Names::Same) | (Names::Same, names) => names,
            (Names::By(one), Names::By(other)) => {
                Names::By(FixedState::default().hash_one((one, other)))
            }
            _ => Names::Anywhere,
        }
    }
}

/// The possible effects of running a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Their kinds.
    pub kinds: Kinds,
    /// The settings that the text sets or resets, in the order of the text.
    pub settings: Vec<Mention>,
    /// Channels of LISTEN and UNLISTEN, if they are certain.
    pub channels: Option<Box<ListenCommands>>,
    /// Calls of `set_config` with arguments from the Bind.
    pub calls: Vec<Call>,
    /// SQL's PREPARE, EXECUTE and DEALLOCATE (but not DEALLOCATE ALL), in the order of the text.
    pub statements: Vec<StatementCommand>,
    /// Where PostgreSQL looks names up afterwards, as far as the text shows.
    pub names: Names,
}

impl Effects {
    /// True if the text has no effect that Howdah looks for.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        self.kinds.is_empty() && self.statements.is_empty()
    }

    /// True if the text may leave state in its session, remove state from it, or create an object
    /// that may be temporary.
    #[inline]
    pub fn touches_session(&self) -> bool {
        const PASSES: Kinds = Kinds::BEGINS
            .and(Kinds::ENDS)
            .and(Kinds::SCHEMA)
            .and(Kinds::NOTIFIES)
            .and(Kinds::ASKS_CHANNELS)
            .and(Kinds::COPIES)
            .and(Kinds::NAMES);
        !self.kinds.without(PASSES).is_empty()
    }

    /// True if the text will probably pin its client after the transaction.
    pub fn keeps_server(&self) -> bool {
        let without = if self.kinds.any(Kinds::DROPS_AT_END) {
            Kinds::TEMPORARY
        } else {
            Kinds::NOTHING
        };
        self.kinds.without(without).any(Kinds::PINNING)
    }

    /// True if the effects matter at each Bind: the text may pin its client, perhaps from the next
    /// transaction on, or changes where names are looked up, or runs a statement by its name, or
    /// depends on which server listens.
    #[inline]
    pub fn matters_at_bind(&self) -> bool {
        const MAY: Kinds = Kinds::SEQUENCES
            .and(Kinds::SETS_BOUND)
            .and(Kinds::NAMES)
            .and(Kinds::UNLISTENS)
            .and(Kinds::ASKS_CHANNELS);
        self.kinds.any(MAY) || self.keeps_server() || !self.statements.is_empty()
    }

    /// True if the text executes a statement by its name.
    pub fn executes_by_name(&self) -> bool {
        let executes = |command: &StatementCommand| matches!(command, StatementCommand::Execute(_));
        self.statements.iter().any(executes)
    }

    /// Where PostgreSQL looks names up after the text.
    #[inline]
    pub fn names(&self) -> Names {
        if self.kinds.any(Kinds::DOUBT) {
            Names::Anywhere
        } else {
            self.names
        }
    }

    /// After the text, this setting decides where PostgreSQL looks names up. A `value` of `None`
    /// means any value.
    pub(super) fn looks_elsewhere(&mut self, name: &[u8], value: Option<&[u8]>) {
        let by = |value: &[u8]| Names::By(FixedState::default().hash_one((name, value)));
        self.kinds.add(Kinds::NAMES);
        self.names = self.names.then(value.map_or(Names::Anywhere, by));
    }

    pub(super) fn mention(&mut self, mention: Mention) {
        // Skips a mention that only repeats the last one of this setting.
        let known = self.settings.iter().rev();
        let known = known.map(|known| (known, known.name()));
        let mut known = known.filter(|(_, name)| name.is_none() || *name == mention.name());
        if known.next().is_some_and(|(known, _)| *known == mention) {
            return;
        }
        if self.settings.len() >= limits::MENTIONS {
            return self.doubt();
        }
        self.kinds.add(Kinds::SETS);
        if mention == Mention::Set(b"temp_buffers"[..].into()) {
            // PostgreSQL refuses to set `temp_buffers` on a server that has used a temporary table.
            self.kinds.add(Kinds::STAYS);
        }
        self.settings.push(mention);
    }

    /// Completes the effects. `drops_at_end`: `ON COMMIT DROP` follows each temporary object.
    pub(super) fn told(mut self, drops_at_end: bool) -> Effects {
        if drops_at_end && self.kinds.any(Kinds::TEMPORARY) {
            self.kinds.add(Kinds::DROPS_AT_END);
        }
        self
    }

    /// Adds the effects of a statement that the text executes. The channels are certain only if just
    /// one of the two has any.
    pub fn executes(&mut self, executed: &Effects) {
        const LISTEN: Kinds = Kinds::LISTENS.and(Kinds::UNLISTENS);
        match (self.kinds.any(LISTEN), executed.kinds.any(LISTEN)) {
            (true, true) => self.channels = None,
            (false, true) => self.channels.clone_from(&executed.channels),
            _ => {}
        }
        self.extend(executed.clone());
        self.kinds = self.kinds.without(Kinds::DROPS_AT_END);
    }

    /// The text can't be read with certainty.
    pub fn doubt(&mut self) {
        self.kinds
            .add(Kinds::DOUBT.and(Kinds::SCHEMA).and(Kinds::ENDS));
        self.looks_elsewhere(b"", None);
    }

    fn extend(&mut self, more: Effects) {
        if more.kinds.any(Kinds::NAMES) {
            self.names = if self.kinds.any(Kinds::NAMES) && self.names != more.names {
                Names::Anywhere
            } else {
                more.names
            };
        }
        self.kinds.add(more.kinds);
        for call in more.calls {
            self.calls(call);
        }
        self.statements.extend(more.statements);
        for mention in more.settings {
            if !self.settings.contains(&mention) {
                self.mention(mention);
            }
        }
    }
}

impl Effects {
    pub(super) fn calls(&mut self, call: Call) {
        if !call.is_bound() {
            return self.ran(&call, Some(&Values::default()));
        }
        if self.calls.contains(&call) {
            return;
        }
        if self.calls.len() < limits::CALLS {
            self.kinds.add(Kinds::SETS_BOUND);
            self.calls.push(call);
        } else {
            self.doubt()
        }
    }

    /// The effects with the parameters of a Bind; `bind` is the body of the Bind after its two
    /// names. Without a Bind, any setting may be set.
    #[must_use]
    pub fn bound(&self, bind: Option<&[u8]>) -> Effects {
        let mut found = self.clone();
        found.kinds = found.kinds.without(Kinds::SETS_BOUND);
        let values = bind.and_then(Values::read);
        for call in std::mem::take(&mut found.calls) {
            found.ran(&call, values.as_ref());
        }
        found
    }

    fn ran(&mut self, call: &Call, values: Option<&Values<'_>>) {
        let none = Values::default();
        let known = values.unwrap_or(&none);
        let name = call.name(known);
        if name.as_deref().is_none_or(is_naming) {
            let value = call.value(known).filter(|_| name.is_some());
            self.looks_elsewhere(name.as_deref().unwrap_or_default(), value);
        }
        match name {
            // No end of a transaction takes a seed back.
            Some(name) if *name == *b"seed" => self.sets(name),
            _ if call.is_local(known) => {}
            Some(name) => self.sets(name),
            None => self.doubt(),
        }
    }

    /// Adds a `set_config` of `name`. Some settings end with the transaction, and the value of
    /// `seed` can't be read back.
    pub(super) fn sets(&mut self, name: Box<[u8]>) {
        match &*name {
            b"seed" => self.kinds.add(Kinds::STAYS),
            name if crate::name::OF_TRANSACTIONS.contains(&name) => {}
            _ => self.mention(Mention::Set(name)),
        }
    }
}
