//! An entry of the ledger: the answers that a message will get, and the changes they confirm.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::effect::Names;
use crate::effect::first::Alters;
use crate::queries::watched::Watched;
use crate::statement::{Named, Statement};

/// The answer that an entry waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Query or FunctionCall: any messages, up to ReadyForQuery.
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
    /// CopyDone or CopyFail: no reply. Marks the end of the COPY of an earlier entry.
    CopyEnd,
    /// The messages by which Howdah sets the client's settings on the server: everything up to the
    /// CommandComplete of their COMMIT.
    Settings,
    /// A ParseComplete that Howdah makes.
    MadeParse,
    /// A CloseComplete that Howdah makes.
    MadeClose,
}

impl Reply {
    /// True if the reply ends with ReadyForQuery.
    pub fn gets_ready(self) -> bool {
        matches!(self, Reply::Query | Reply::Sync)
    }
}

/// How much of PostgreSQL's answer the client sees. After a command that resets settings (`RESET
/// ALL`), Howdah runs a command of its own that sets the values of the client's login. Howdah
/// joins both answers into the one that PostgreSQL would give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// The whole answer; nothing of it if the entry is swallowed.
    #[default]
    Whole,
    /// The answer to the client's command. Howdah hides the values that settings have at this
    /// point. If the command is a Query, its ReadyForQuery follows after Howdah's command.
    Begun,
    /// The answer to Howdah's command. The client sees only the new values of settings, and the
    /// ReadyForQuery.
    Rest,
    /// Both commands are in one Query, and more commands of the client may follow.
    Both {
        /// Number of commands still to end, up to and including the one that resets settings.
        before: u8,
        /// Number of Howdah's commands after that one, still to end.
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

/// One entry of the ledger: a message, and how Howdah handles its answer.
#[derive(Debug)]
pub struct Entry {
    /// The answer that the entry waits for.
    pub reply: Reply,
    /// Howdah reads the reply, and the client does not see it.
    pub swallow: bool,
    /// The client's Parse of its unnamed statement. PostgreSQL drops the old statement even if the
    /// Parse fails.
    pub unnamed: bool,
    /// The message may make PostgreSQL forget statements, or may change the meaning of texts.
    /// Until this entry is answered, no message that names a statement may pass.
    pub barrier: bool,
    /// How its first command changes the meaning of later texts, as far as its text shows.
    pub alters: Alters,
    /// A Query inside a group of extended messages: no Sync has ended the group, and the group may
    /// have begun a transaction.
    pub inside: bool,
    /// The number of the client's statement name, to find it again if the message fails. For a
    /// Close of a remembered portal, the portal's number. Otherwise 0.
    pub named: u64,
    /// Changes that PostgreSQL's answer confirms, and rare properties; usually none.
    pub effects: Option<Box<Consequences>>,
}

/// Changes that PostgreSQL's answer confirms, and rare properties of an entry.
#[derive(Debug, Default)]
pub struct Consequences {
    /// A change of the client's statement names.
    pub name: Option<Box<NameOp>>,
    /// The changes of names by SQL's PREPARE and DEALLOCATE in a Query, in the order of their
    /// answers.
    pub sql_names: Option<Box<VecDeque<NameOp>>>,
    /// A change of the server's statements.
    pub set: Option<Box<SetOp>>,
    /// A change of the server's unnamed statement.
    pub unnamed: Option<UnnamedOp>,
    /// The statement that it describes.
    pub described: Option<Box<Described>>,
    /// The query that it runs, if watched. The query ends with the answer.
    pub watched: Option<Box<Watched>>,
    /// Where PostgreSQL looks names up afterwards, if the message changes that ([`Alters::Path`]).
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

    /// Marks the client's Parse of its unnamed statement.
    pub fn drops_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// True if PostgreSQL sends no answer: the entry is done once it is in front.
    pub fn is_made(&self) -> bool {
        matches!(
            self.reply,
            Reply::MadeParse | Reply::MadeClose | Reply::CopyEnd
        )
    }

    /// The changes and rare properties of this entry.
    pub fn effects(&self) -> &Consequences {
        const NOTHING: &Consequences = &Consequences {
            name: None,
            sql_names: None,
            set: None,
            unnamed: None,
            described: None,
            watched: None,
            names: Names::Same,
            part: Part::Whole,
        };
        self.effects.as_deref().unwrap_or(NOTHING)
    }

    /// Like [`Self::effects`], but mutable.
    pub fn effects_mut(&mut self) -> &mut Consequences {
        self.effects.get_or_insert_default()
    }

    /// True if the client does not see the next part of the answer.
    #[inline]
    pub fn is_hidden(&self) -> bool {
        self.swallow || self.part().is_ours()
    }

    /// How much of the answer the client sees.
    #[inline]
    pub fn part(&self) -> Part {
        self.effects().part
    }

    /// True if the client does not see the ReadyForQuery of this entry.
    #[inline]
    pub fn hides_ready(&self) -> bool {
        // After `Part::Begun`, the client sees the one at the end of Howdah's own command.
        self.swallow || self.part() == Part::Begun
    }

    /// Adds a change of a client's statement name, if there is one.
    #[inline(always)] // Rare: a call would cost more.
    pub fn changes_name(&mut self, change: Option<Box<NameOp>>) {
        if change.is_some() {
            self.effects_mut().name = change;
        }
    }

    /// Takes out the change of a name, for another entry.
    pub fn takes_name(&mut self) -> Option<Box<NameOp>> {
        self.effects.as_mut()?.name.take()
    }

    /// Adds a change of the server's unnamed statement, if there is one.
    #[inline(always)] // Rare, like above.
    pub fn changes_unnamed(&mut self, change: Option<UnnamedOp>) {
        if change.is_some() {
            self.effects_mut().unnamed = change;
        }
    }

    /// Notes that PostgreSQL may look names up elsewhere after this entry.
    pub fn looks_elsewhere(&mut self, names: Names) {
        self.alters = Alters::Path;
        if names != Names::Anywhere {
            self.effects_mut().names = names;
        }
    }

    /// Adds the query that it runs, if watched.
    pub fn watch_for(&mut self, query: Option<Box<Watched>>) {
        if query.is_some() {
            self.effects_mut().watched = query;
        }
    }

    /// The query that it runs, if watched.
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

/// A change of the client's statement names, made once PostgreSQL has confirmed the message.
#[derive(Clone, Debug)]
pub struct NameOp {
    /// The client's name; empty for the unnamed statement.
    pub name: Box<[u8]>,
    /// The group of messages that contains the message.
    pub group: u32,
    /// The change.
    pub change: Change,
}

/// A change of a name.
#[derive(Clone, Debug)]
pub enum Change {
    /// The name now means this statement.
    Define(Named),
    /// The name no longer exists.
    Forget,
    /// No change: PostgreSQL will refuse the message, which has a name of Howdah's instead of the
    /// client's name.
    Nothing,
    /// Like `Nothing`, but the client's error gives this reason.
    Refused(Refusal),
}

/// Why Howdah refuses a client's message about a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The schema has changed: the statement would return other columns than the client was told.
    Changed,
    /// PostgreSQL would read its constants with other settings than at the client's Parse.
    Settings,
    /// The statement would pin its client, and too many clients keep a server (`pin_limit`).
    Pins,
    /// The text is too long to be remembered.
    TooLong,
    /// The texts of this client, or of its pool, take too much memory.
    TooMuch,
    /// The client has too many names.
    TooManyNames,
    /// The statement belongs to another shard, or nobody knows to which. The client knows the rest.
    Shard,
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
    /// The group of messages that contains the message.
    pub group: u32,
    /// The new unnamed statement; `None` if there will be none.
    pub statement: Option<Arc<Statement>>,
}

/// A description that Howdah reads.
#[derive(Clone, Debug)]
pub struct Described {
    /// The client's name for the statement. `None` if Howdah asks for itself, to compare the
    /// description with the one that the client got.
    pub asked: Option<Asked>,
    /// The statement's key on the server.
    pub key: u128,
    /// The body of the ParameterDescription, once it has come.
    pub parameters: Option<Box<[u8]>>,
}

/// The client's name for a statement, in a Describe.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The name.
    pub name: Box<[u8]>,
    /// The number of the name.
    pub number: u64,
}
