//! Why a server is closed instead of returned to its pool.

/// Why a server is closed instead of going back to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It may answer yet what a failed COPY seemed to have eaten.
    CopyFailed,
    /// It said that it goes down, and its client was told.
    Crashed,
    /// Likewise, and nobody was told.
    CrashedUnheard,
    /// A Query ran inside an open group, and PostgreSQL keeps the group's transaction.
    QueryInGroup,
    /// It does not have a statement that it had.
    StatementsLost,
    /// What became of a cancel request to it is not known.
    CancelFailed,
    /// It said what nobody asked for.
    Dirty,
    /// What its client left in it can't be cleaned away.
    StateStays,
    /// PostgreSQL has refused settings that went along with their client's first messages.
    SettingsRefused,
    /// It listens for nobody.
    Listens,
    /// PostgreSQL refused the reset query.
    ResetFailed,
    /// PostgreSQL refused the check query.
    TestFailed,
    /// An administrator, or new settings, want it so; why, for the log.
    Ordered(&'static str),
}

impl Ending {
    /// In words, for the log.
    pub fn text(self) -> &'static str {
        match self {
            Ending::CopyFailed => "copy failed",
            Ending::Crashed | Ending::CrashedUnheard => "server conn crashed?",
            Ending::QueryInGroup => "query inside an open group",
            Ending::StatementsLost => "prepared statements lost",
            Ending::CancelFailed => "cancel request failed",
            Ending::Dirty => "idle server got dirty",
            Ending::StateStays => "left in a state that stays",
            Ending::SettingsRefused => "settings refused",
            Ending::Listens => "listens for nobody",
            Ending::ResetFailed => "reset query failed",
            Ending::TestFailed => "test query failed",
            Ending::Ordered(why) => why,
        }
    }
}
