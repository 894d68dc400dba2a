//! What a text may do, as a value.

use super::Channels;
use super::bound::Call;
use crate::limits;

/// Kinds of effects, a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds(u32);

impl Kinds {
    /// No effect.
    pub const NOTHING: Kinds = Kinds(0);
    /// BEGIN, START TRANSACTION.
    pub const BEGINS: Kinds = Kinds(1);
    /// COMMIT, ROLLBACK, and whatever else ends a transaction or a part of it.
    pub const ENDS: Kinds = Kinds(1 << 1);
    /// It sets or resets the settings that are mentioned.
    pub const SETS: Kinds = Kinds(1 << 2);
    /// It may set a setting that is not mentioned.
    pub const SETS_ANY: Kinds = Kinds(1 << 3);
    /// SQL's PREPARE.
    pub const PREPARES: Kinds = Kinds(1 << 4);
    /// DEALLOCATE.
    pub const DEALLOCATES: Kinds = Kinds(1 << 5);
    /// It makes something temporary.
    pub const TEMPORARY: Kinds = Kinds(1 << 6);
    /// It drops something, perhaps something temporary.
    pub const DROPS: Kinds = Kinds(1 << 7);
    /// It changes the schema.
    pub const SCHEMA: Kinds = Kinds(1 << 8);
    /// It takes an advisory lock of the session.
    pub const LOCKS: Kinds = Kinds(1 << 9);
    /// It gives advisory locks back.
    pub const UNLOCKS: Kinds = Kinds(1 << 10);
    /// LISTEN.
    pub const LISTENS: Kinds = Kinds(1 << 11);
    /// UNLISTEN.
    pub const UNLISTENS: Kinds = Kinds(1 << 12);
    /// NOTIFY.
    pub const NOTIFIES: Kinds = Kinds(1 << 13);
    /// It declares a cursor that outlives the transaction.
    pub const HOLDS: Kinds = Kinds(1 << 14);
    /// CLOSE.
    pub const CLOSES: Kinds = Kinds(1 << 15);
    /// It leaves what only the end of the session takes away: LOAD, `setseed`, `dblink_connect`.
    pub const STAYS: Kinds = Kinds(1 << 16);
    /// `currval`, `lastval`.
    pub const SEQUENCES: Kinds = Kinds(1 << 17);
    /// DISCARD ALL.
    pub const DISCARDS_ALL: Kinds = Kinds(1 << 18);
    /// What it makes is `ON COMMIT DROP`, as far as the words tell.
    pub const DROPS_AT_END: Kinds = Kinds(1 << 19);
    /// `pg_listening_channels`.
    pub const ASKS_CHANNELS: Kinds = Kinds(1 << 20);
    /// It sets what its Bind says, or nothing: see [`Effects::bound`].
    pub const SETS_BOUND: Kinds = Kinds(1 << 21);

    /// What is likely to keep a server for its client behind the transaction.
    const KEEPING: Kinds = Kinds(Self::PINNING.0 | Self::SETS_ANY.0);

    /// What may leave something behind that can't be set on another server.
    pub const PINNING: Kinds = Kinds(
        Self::PREPARES.0
            | Self::TEMPORARY.0
            | Self::LOCKS.0
            | Self::LISTENS.0
            | Self::HOLDS.0
            | Self::STAYS.0,
    );

    /// Whatever a text may do that can't be read.
    pub const DOUBT: Kinds = Kinds(
        Self::SETS_ANY.0
            | Self::PREPARES.0
            | Self::TEMPORARY.0
            | Self::LOCKS.0
            | Self::LISTENS.0
            | Self::HOLDS.0
            | Self::SCHEMA.0
            | Self::ENDS.0,
    );

    /// None.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Any of these is among them.
    pub const fn any(self, of: Kinds) -> bool {
        self.0 & of.0 != 0
    }

    /// Adds some.
    pub fn add(&mut self, more: Kinds) {
        self.0 |= more.0;
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, more: Kinds) -> Kinds {
        Kinds(self.0 | more.0)
    }

    /// Those that are among these, too.
    #[must_use]
    pub fn only(self, these: Kinds) -> Kinds {
        Kinds(self.0 & these.0)
    }

    /// Those that are not among these.
    #[must_use]
    pub fn without(self, these: Kinds) -> Kinds {
        Kinds(self.0 & !these.0)
    }
}

/// A setting that a text sets or resets for the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mention {
    /// Sets this one. Names are in lower case.
    Set(Box<[u8]>),
    /// Takes this one back to what it was at login.
    Back(Box<[u8]>),
    /// Takes all back.
    AllBack,
}

impl Mention {
    /// Which setting, unless all.
    pub(super) fn name(&self) -> Option<&[u8]> {
        match self {
            Mention::Set(name) | Mention::Back(name) => Some(name),
            Mention::AllBack => None,
        }
    }
}

/// What running a text may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Of which kinds.
    pub kinds: Kinds,
    /// Which settings, in the order of the text.
    pub settings: Vec<Mention>,
    /// Which channels its LISTEN and UNLISTEN commands name, if that is certain.
    pub channels: Option<Box<Channels>>,
    /// Calls of `set_config` whose arguments its Bind says.
    pub calls: Vec<Call>,
}

impl Effects {
    /// It does nothing that is looked for.
    pub fn is_nothing(&self) -> bool {
        self.kinds.is_empty()
    }

    /// It may leave something behind in its session, or take something away.
    pub fn touches_session(&self) -> bool {
        const PASSES: Kinds = Kinds::BEGINS
            .and(Kinds::ENDS)
            .and(Kinds::SCHEMA)
            .and(Kinds::NOTIFIES)
            .and(Kinds::ASKS_CHANNELS);
        !self.kinds.without(PASSES).is_empty()
    }

    /// Its client is likely to keep its server behind the transaction.
    pub fn keeps_server(&self) -> bool {
        let without = match self.kinds.any(Kinds::DROPS_AT_END) {
            true => Kinds::TEMPORARY,
            false => Kinds::NOTHING,
        };
        self.kinds.without(without).any(Kinds::KEEPING)
    }

    /// It may keep its server, on some search path or from the next transaction on.
    pub fn may_keep_server(&self) -> bool {
        let may = Kinds::SCHEMA.and(Kinds::SEQUENCES).and(Kinds::SETS_BOUND);
        self.kinds.any(may) || self.keeps_server()
    }

    pub(super) fn mention(&mut self, mention: Mention) {
        // The last that was said of it.
        let known = self.settings.iter().rev();
        let known = known.map(|known| (known, known.name()));
        let mut known = known.filter(|(_, name)| name.is_none() || *name == mention.name());
        if known.next().is_some_and(|(known, _)| *known == mention) {
            return;
        }
        if self.settings.len() >= limits::MENTIONS {
            self.kinds.add(Kinds::SETS_ANY);
            return;
        }
        self.kinds.add(Kinds::SETS);
        if mention == Mention::Set(b"temp_buffers"[..].into()) {
            // PostgreSQL refuses to set that on a server which has had a temporary table.
            self.kinds.add(Kinds::SETS_ANY);
        }
        self.settings.push(mention);
    }

    /// All is read. `drops_at_end`: each temporary thing is followed by `ON COMMIT DROP`.
    pub(super) fn told(mut self, drops_at_end: bool) -> Effects {
        if drops_at_end && self.kinds.any(Kinds::TEMPORARY) {
            self.kinds.add(Kinds::DROPS_AT_END);
        }
        self
    }

    /// Adds those of another text, or of another reading.
    pub(super) fn extend(&mut self, more: Effects) {
        self.kinds.add(more.kinds);
        for call in more.calls {
            self.calls(call);
        }
        for mention in more.settings {
            if !self.settings.contains(&mention) {
                self.mention(mention);
            }
        }
    }
}
