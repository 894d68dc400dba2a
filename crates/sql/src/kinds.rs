//! Kinds of effects.

/// A set of kinds of effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds(u32);

impl Kinds {
    /// No effect.
    pub const NOTHING: Kinds = Kinds(0);
    /// BEGIN, START TRANSACTION.
    pub const BEGINS: Kinds = Kinds(1);
    /// COMMIT, ROLLBACK, and other commands that end a transaction or a part of it.
    pub const ENDS: Kinds = Kinds(1 << 1);
    /// Sets or resets the settings that [`crate::Effects::settings`] lists.
    pub const SETS: Kinds = Kinds(1 << 2);
    /// The session has settings that can't move to another server.
    pub const SETS_ANY: Kinds = Kinds(1 << 3);
    /// SQL's PREPARE.
    pub const PREPARES: Kinds = Kinds(1 << 4);
    /// DEALLOCATE.
    pub const DEALLOCATES: Kinds = Kinds(1 << 5);
    /// Creates a temporary object.
    pub const TEMPORARY: Kinds = Kinds(1 << 6);
    /// Drops objects, perhaps temporary ones.
    pub const DROPS: Kinds = Kinds(1 << 7);
    /// Changes the schema.
    pub const SCHEMA: Kinds = Kinds(1 << 8);
    /// Takes an advisory lock for the session.
    pub const LOCKS: Kinds = Kinds(1 << 9);
    /// Releases advisory locks.
    pub const UNLOCKS: Kinds = Kinds(1 << 10);
    /// LISTEN.
    pub const LISTENS: Kinds = Kinds(1 << 11);
    /// UNLISTEN.
    pub const UNLISTENS: Kinds = Kinds(1 << 12);
    /// NOTIFY.
    pub const NOTIFIES: Kinds = Kinds(1 << 13);
    /// Declares a cursor that outlives the transaction.
    pub const HOLDS: Kinds = Kinds(1 << 14);
    /// CLOSE.
    pub const CLOSES: Kinds = Kinds(1 << 15);
    /// Leaves state that only the end of the session removes: LOAD, `setseed`, `dblink_connect`.
    pub const STAYS: Kinds = Kinds(1 << 16);
    /// `currval`, `lastval`.
    pub const SEQUENCES: Kinds = Kinds(1 << 17);
    /// DISCARD ALL.
    pub const DISCARDS_ALL: Kinds = Kinds(1 << 18);
    /// As far as the text shows, `ON COMMIT DROP` follows all temporary objects.
    pub const DROPS_AT_END: Kinds = Kinds(1 << 19);
    /// `pg_listening_channels`.
    pub const ASKS_CHANNELS: Kinds = Kinds(1 << 20);
    /// Sets the settings that the Bind names, if any: see [`crate::Effects::bound`].
    pub const SETS_BOUND: Kinds = Kinds(1 << 21);
    /// Sets `search_path` or a role, perhaps only until the end of the transaction: PostgreSQL
    /// then looks names up elsewhere.
    pub const NAMES: Kinds = Kinds(1 << 22);

    /// May do anything to the session: the server is cleaned before another client gets it.
    pub const DOUBT: Kinds = Kinds(1 << 23);
    /// A COPY, beside commands about prepared statements.
    pub const COPIES: Kinds = Kinds(1 << 25);
    /// Creates an object, which is temporary if the search path begins with `pg_temp`.
    pub const CREATES: Kinds = Kinds(1 << 24);

    /// Effects that may leave state that can't move to another server.
    pub const PINNING: Kinds = Kinds(
        Self::PREPARES.0
            | Self::TEMPORARY.0
            | Self::LOCKS.0
            | Self::LISTENS.0
            | Self::HOLDS.0
            | Self::STAYS.0,
    );

    /// True for the empty set.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has any kind of `of`.
    #[inline]
    pub const fn any(self, of: Kinds) -> bool {
        self.0 & of.0 != 0
    }

    /// Adds kinds.
    #[inline]
    pub fn add(&mut self, more: Kinds) {
        self.0 |= more.0;
    }

    /// The union of both sets.
    #[must_use]
    #[inline]
    pub const fn and(self, more: Kinds) -> Kinds {
        Kinds(self.0 | more.0)
    }

    /// The intersection of both sets.
    #[must_use]
    #[inline]
    pub fn only(self, these: Kinds) -> Kinds {
        Kinds(self.0 & these.0)
    }

    /// The kinds that are not in `these`.
    #[must_use]
    #[inline]
    pub fn without(self, these: Kinds) -> Kinds {
        Kinds(self.0 & !these.0)
    }
}
