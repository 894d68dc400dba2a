//! Why Howdah closes a server instead of returning it to its pool.

/// Why Howdah closes a server instead of returning it to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The server may still answer messages that a failed COPY seemed to ignore.
    CopyFailed,
    /// The server has reported its shutdown, and its client was told.
    Crashed,
    /// The server has reported its shutdown, and no client was told.
    CrashedUnheard,
    /// A Query ran inside an open group, and PostgreSQL keeps the group's transaction.
    QueryInGroup,
    /// The server lacks a statement that it should have.
    StatementsLost,
    /// A cancel request may or may not have reached the server.
    CancelFailed,
    /// The server has sent an answer without a request.
    Dirty,
    /// Cleaning can't remove the state that the client has left.
    StateStays,
    /// PostgreSQL has refused settings that went along with the client's first messages.
    SettingsRefused,
    /// The server is a listening connection, and no client listens.
    Listens,
    /// PostgreSQL refused the reset query.
    ResetFailed,
    /// PostgreSQL refused the check query.
    TestFailed,
    /// The user that the server has logged in as will vanish: a client that keeps the server ends, too.
    UserEnds,
    /// An administrator or a new configuration demands the end. The reason is for the log.
    Ordered(&'static str),
}

impl Ending {
    /// The reason as text for the log.
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
            Ending::UserEnds => "its user ends",
            Ending::Ordered(why) => why,
        }
    }
}
