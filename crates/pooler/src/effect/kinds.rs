//! Kinds of effects.

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
    /// It leaves something that only the end of the session removes: LOAD, `setseed`,
    /// `dblink_connect`.
    pub const STAYS: Kinds = Kinds(1 << 16);
    /// `currval`, `lastval`.
    pub const SEQUENCES: Kinds = Kinds(1 << 17);
    /// DISCARD ALL.
    pub const DISCARDS_ALL: Kinds = Kinds(1 << 18);
    /// All that it makes is `ON COMMIT DROP`, as far as the text shows.
    pub const DROPS_AT_END: Kinds = Kinds(1 << 19);
    /// `pg_listening_channels`.
    pub const ASKS_CHANNELS: Kinds = Kinds(1 << 20);
    /// It sets what its Bind says, if anything: see [`Effects::bound`].
    pub const SETS_BOUND: Kinds = Kinds(1 << 21);
    /// Behind it PostgreSQL looks names up elsewhere, perhaps only until the end of the
    /// transaction: it sets `search_path` or a role.
    pub const NAMES: Kinds = Kinds(1 << 22);

    /// Effects that will probably keep a server for its client after the transaction.
    pub(super) const KEEPING: Kinds = Kinds(Self::PINNING.0 | Self::SETS_ANY.0);

    /// Effects that may leave something that can't be moved to another server.
    pub const PINNING: Kinds = Kinds(
        Self::PREPARES.0
            | Self::TEMPORARY.0
            | Self::LOCKS.0
            | Self::LISTENS.0
            | Self::HOLDS.0
            | Self::STAYS.0,
    );

    /// The effects that a text may have if it can't be read.
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

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, more: Kinds) -> Kinds {
        Kinds(self.0 | more.0)
    }

    /// The intersection with these.
    #[must_use]
    pub fn only(self, these: Kinds) -> Kinds {
        Kinds(self.0 & these.0)
    }

    /// The difference: those that are not among these.
    #[must_use]
    pub fn without(self, these: Kinds) -> Kinds {
        Kinds(self.0 & !these.0)
    }
}
