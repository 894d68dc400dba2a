//! An entry of the ledger: the answers that a message will have, and what takes effect with them.

use std::sync::Arc;

use crate::effect::Names;
use crate::effect::first::Alters;
use crate::queries::watched::Watched;
use crate::statement::{Named, Statement};

/// The answer that an entry awaits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Query or FunctionCall: anything, up to ReadyForQuery.
    Query,
    /// Sync: ReadyForQuery.
    Sync,
    /// Parse: ParseComplete.
    Parse,
    /// Bind: BindComplete.
    Bind,
    /// Close: CloseComplete.
    Close,
    /// Describe: RowDescription or NoData, for a statement after ParameterDescription.
    Describe,
    /// Execute: CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    /// A Flush with a body, which PostgreSQL refuses with an error.
    Refused,
    /// CopyDone or CopyFail: no reply. Marks the end of a COPY that begins before this entry.
    CopyEnd,
    /// A group of messages by which Howdah gives the server its client's settings: everything up to
    /// the CommandComplete of its COMMIT.
    Settings,
    /// A ParseComplete that Howdah makes.
    MadeParse,
    /// A CloseComplete that Howdah makes.
    MadeClose,
}

/// How much of PostgreSQL's answer the client sees. Behind a command that resets settings (`RESET
/// ALL`), Howdah runs a command of its own that sets them to the values of the client's login. The
/// answers to both are joined into the one that PostgreSQL would give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// All of it; nothing if the entry is swallowed.
    #[default]
    Whole,
    /// The answer to the client's command. The values that settings have at this point stay hidden.
    /// If the command is a Query, its ReadyForQuery comes with Howdah's command behind it.
    Begun,
    /// The answer to Howdah's command. The client sees only the new values of settings, and the
    /// ReadyForQuery.
    Rest,
    /// Both commands in one Query, in which further commands of the client may follow.
    Both {
        /// How many commands have yet to end, up to and including the one that resets settings.
        before: u8,
        /// How many of Howdah's commands have yet to end behind that one.
        ours: u16,
    },
}

impl Part {
    /// True while PostgreSQL answers a command of Howdah's.
    pub fn is_ours(self) -> bool {
        match self {
            Part::Rest => true,
            Part::Both { before, ours } => before == 0 && ours > 0,
            Part::Whole | Part::Begun => false,
        }
    }

    /// The next value, once a command has ended.
    #[must_use]
    pub fn next(self) -> Part {
        match self {
            Part::Both { before: 0, ours } => Part::Both {
                before: 0,
                ours: ours.saturating_sub(1),
            },
            Part::Both { before, ours } => Part::Both {
                before: before - 1,
                ours,
            },
            part => part,
        }
    }
}

/// One entry of the ledger: a message, and what becomes of its answer.
#[derive(Debug)]
pub struct Entry {
    /// The answer that it awaits.
    pub reply: Reply,
    /// Howdah reads the reply, and the client does not see it.
    pub swallow: bool,
    /// This is the client's Parse of its unnamed statement. PostgreSQL drops the old unnamed
    /// statement even if the Parse fails.
    pub unnamed: bool,
    /// This message may make PostgreSQL forget statements, or give texts another meaning. No
    /// message that names a statement may pass until this entry is answered.
    pub barrier: bool,
    /// What its first command does to the meaning of texts that are parsed behind it, as far as the
    /// command's text tells.
    pub alters: Alters,
    /// This is a Query inside a group of extended messages. No Sync has ended the group, and the
    /// group may have begun a transaction.
    pub inside: bool,
    /// For a message about one of the client's named statements: the name's number, to find the
    /// name again if the message fails. For a Close of a portal that is remembered: the portal's
    /// number. Otherwise 0.
    pub named: u64,
    /// What takes effect once PostgreSQL has confirmed the message, and what few entries have besides;
    /// usually nothing.
    pub effects: Option<Box<Consequences>>,
}

/// What an entry changes once it is answered, and what few entries are besides.
#[derive(Debug, Default)]
pub struct Consequences {
    /// A change of its client's names.
    pub name: Option<Box<NameOp>>,
    /// A change of the server's statements.
    pub set: Option<Box<SetOp>>,
    /// A change of the server's unnamed statement.
    pub unnamed: Option<UnnamedOp>,
    /// The statement that it describes.
    pub described: Option<Box<Described>>,
    /// The query that it runs, if queries are watched. With the answer the query has ended.
    pub watched: Option<Box<Watched>>,
    /// Where PostgreSQL looks names up behind it, if the message changes that ([`Alters::Path`]).
    pub names: Names,
    /// How much of the answer the client sees.
    pub part: Part,
}

impl Entry {
    /// An entry whose reply the client sees.
    pub fn forward(reply: Reply) -> Self {
        Entry {
            reply,
            swallow: false,
            unnamed: false,
            barrier: false,
            alters: Alters::Nothing,
            inside: false,
            named: 0,
            effects: None,
        }
    }

    /// Marks the client's Parse of its unnamed statement. PostgreSQL drops the old one even if the
    /// Parse fails.
    pub fn drops_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// True if PostgreSQL does not answer this entry: it is done once it is in front.
    pub fn is_made(&self) -> bool {
        matches!(
            self.reply,
            Reply::MadeParse | Reply::MadeClose | Reply::CopyEnd
        )
    }

    /// What takes effect with the answer, and what few entries have besides.
    pub fn effects(&self) -> &Consequences {
        const NOTHING: &Consequences = &Consequences {
            name: None,
            set: None,
            unnamed: None,
            described: None,
            watched: None,
            names: Names::Same,
            part: Part::Whole,
        };
        self.effects.as_deref().unwrap_or(NOTHING)
    }

    /// The same, to add to.
    pub fn effects_mut(&mut self) -> &mut Consequences {
        self.effects.get_or_insert_default()
    }

    /// The client does not see what comes next of the answer.
    #[inline]
    pub fn is_hidden(&self) -> bool {
        self.swallow || self.part().is_ours()
    }

    /// How much of the answer the client sees.
    #[inline]
    pub fn part(&self) -> Part {
        self.effects().part
    }

    /// Adds a change of one of its client's names, if there is one.
    #[inline(always)] // Seldom: a call would cost more.
    pub fn changes_name(&mut self, change: Option<Box<NameOp>>) {
        if change.is_some() {
            self.effects_mut().name = change;
        }
    }

    /// Takes that change away, for another entry.
    pub fn takes_name(&mut self) -> Option<Box<NameOp>> {
        self.effects.as_mut()?.name.take()
    }

    /// Adds a change of the server's unnamed statement, if there is one.
    #[inline(always)] // Seldom, too.
    pub fn changes_unnamed(&mut self, change: Option<UnnamedOp>) {
        if change.is_some() {
            self.effects_mut().unnamed = change;
        }
    }

    /// Notes that PostgreSQL may look names up elsewhere behind this entry.
    pub fn looks_elsewhere(&mut self, names: Names) {
        self.alters = Alters::Path;
        if names != Names::Anywhere {
            self.effects_mut().names = names;
        }
    }

    /// Adds the query that it runs, if queries are watched.
    pub fn watch_for(&mut self, query: Option<Box<Watched>>) {
        if query.is_some() {
            self.effects_mut().watched = query;
        }
    }

    /// The query that it runs, if queries are watched.
    pub fn watched(&mut self) -> Option<&mut Watched> {
        self.effects.as_mut()?.watched.as_deref_mut()
    }

    /// An entry whose reply the client does not see.
    pub fn swallow(reply: Reply) -> Self {
        Entry {
            swallow: true,
            ..Entry::forward(reply)
        }
    }
}

/// A change that a client's message makes to the client's names, once PostgreSQL has confirmed the
/// message.
#[derive(Clone, Debug)]
pub struct NameOp {
    /// The client's name; empty for the unnamed statement.
    pub name: Box<[u8]>,
    /// The group of messages that it was sent in.
    pub group: u32,
    /// What changes.
    pub change: Change,
}

/// A change of a name.
#[derive(Clone, Debug)]
pub enum Change {
    /// The name now means this statement.
    Define(Named),
    /// The name no longer exists.
    Forget,
    /// Nothing changes: PostgreSQL will refuse the message, in which a name of Howdah's stands in
    /// the place of the client's name.
    Nothing,
    /// The same, and the client's error gives this reason.
    Refused(Refusal),
}

/// Why a statement can't be used on a server that would have to parse it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The schema has changed: the statement would return other columns than its client was told.
    Changed,
    /// Its constants would be read under other settings than those at the client's Parse.
    Settings,
    /// The statement would keep its server for its client, and too many clients keep one
    /// (`pin_limit`).
    Pins,
    /// Its text is longer than can be remembered.
    TooLong,
    /// The texts of its client, or of all clients, take more memory than there is for them.
    TooMuch,
}

/// A change of a server's statements, made once PostgreSQL has confirmed the message.
#[derive(Clone, Copy, Debug)]
pub struct SetOp {
    /// The key of the statement.
    pub key: u128,
    /// True for a Parse, false for a Close.
    pub add: bool,
}

/// A change of a server's unnamed statement, made once PostgreSQL has confirmed the message.
#[derive(Clone, Debug)]
pub struct UnnamedOp {
    /// The group of messages that it was sent in.
    pub group: u32,
    /// The new unnamed statement; `None` if there is none.
    pub statement: Option<Arc<Statement>>,
}

/// A description that Howdah reads, besides relaying it.
#[derive(Clone, Debug)]
pub struct Described {
    /// The client's name for the statement. `None` if Howdah asks, to compare the statement with
    /// what the client was told.
    pub asked: Option<Asked>,
    /// The key of the statement on the server.
    pub key: u128,
    /// The body of the ParameterDescription, if it has come.
    pub parameters: Option<Box<[u8]>>,
}

/// A client's name for a statement that it asks about.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The name.
    pub name: Box<[u8]>,
    /// Its number.
    pub number: u64,
}
