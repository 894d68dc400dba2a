//! Why a server is closed instead of returned to its pool.

/// Why a server is closed instead of going back to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It may still answer messages that a failed COPY seemed to have eaten.
    CopyFailed,
    /// It has reported that it shuts down, and its client was told.
    Crashed,
    /// It has reported that it shuts down, and no client was told.
    CrashedUnheard,
    /// A Query ran inside an open group, and PostgreSQL keeps the group's transaction.
    QueryInGroup,
    /// It does not have a statement that it had.
    StatementsLost,
    /// It is not known whether a cancel request has reached it.
    CancelFailed,
    /// It has sent an answer to nothing.
    Dirty,
    /// The state that its client has left can't be cleaned away.
    StateStays,
    /// PostgreSQL has refused settings that were sent along with the client's first messages.
    SettingsRefused,
    /// It is a listening connection, and no client listens any more.
    Listens,
    /// PostgreSQL refused the reset query.
    ResetFailed,
    /// PostgreSQL refused the check query.
    TestFailed,
    /// An administrator or new settings demand it; the reason, for the log.
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
