//! An entry of the ledger: the answers that a message will have, and what takes effect with them.

use std::sync::Arc;

use crate::effect::Names;
use crate::effect::first::Alters;
use crate::queries::watched::Watched;
use crate::statement::{Named, Statement};

/// What an entry awaits.
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
    /// A Flush with a body: an error.
    Refused,
    /// CopyDone or CopyFail: no reply. Marks where a COPY that begins in front of it ends.
    CopyEnd,
    /// A group of ours that gives the server its client's settings: all up to the CommandComplete of
    /// its COMMIT.
    Settings,
    /// A ParseComplete of ours.
    MadeParse,
    /// A CloseComplete of ours.
    MadeClose,
}

/// How much of what PostgreSQL answers is the client's to see. A command that takes settings back is
/// followed by one of ours that gives them the values of the client's login: together they answer as
/// PostgreSQL would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All, or nothing if it is swallowed.
    Whole,
    /// The client's command: settings have values that nobody is to see. If it is a Query, the
    /// ReadyForQuery comes with what is ours behind it.
    Begun,
    /// What is ours: of the answer only what settings have become, and the ReadyForQuery.
    Rest,
    /// Both in one Query, in which others of the client's may follow.
    Both {
        /// How many commands are yet to end up to and with the one that takes settings back.
        before: u8,
        /// How many of ours are yet to end behind it.
        ours: u16,
    },
}

impl Part {
    /// What PostgreSQL answers now is to a command of ours.
    pub fn is_ours(self) -> bool {
        match self {
            Part::Rest => true,
            Part::Both { before, ours } => before == 0 && ours > 0,
            Part::Whole | Part::Begun => false,
        }
    }

    /// What it is once a command has ended.
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

/// One entry.
#[derive(Debug)]
pub struct Entry {
    /// What it awaits.
    pub reply: Reply,
    /// The reply is ours to read and not the client's to see.
    pub swallow: bool,
    /// The client's Parse of its unnamed statement, which drops the old one even if it fails.
    pub unnamed: bool,
    /// It may make PostgreSQL forget statements, or parse texts as something else: nothing that
    /// names one may pass before its end.
    pub barrier: bool,
    /// The first of its commands does this to texts that are parsed behind it, by its own text.
    pub alters: Alters,
    /// A Query inside a group of extended messages that no Sync has ended, and that may have begun a
    /// transaction.
    pub inside: bool,
    /// How much of the answer the client sees.
    pub part: Part,
    /// If it is a message about one of the client's named statements: that name's number, to find
    /// it again if the message fails. If it is a Close of a portal that is kept in mind: that
    /// portal's number. Else 0.
    pub named: u64,
    /// What takes effect when PostgreSQL has agreed, and with it: nothing, as a rule.
    pub effects: Option<Box<Consequences>>,
}

/// What an entry changes once it is answered.
#[derive(Debug, Default)]
pub struct Consequences {
    /// Of its client's names.
    pub name: Option<Box<NameOp>>,
    /// Of the server's statements.
    pub set: Option<Box<SetOp>>,
    /// Of the server's unnamed statement.
    pub unnamed: Option<UnnamedOp>,
    /// What is known of the statement that it describes.
    pub described: Option<Box<Described>>,
    /// The query that it runs, if somebody wants to know of that: it has ended then.
    pub watched: Option<Box<Watched>>,
    /// Where names are looked for behind it, if it alters that ([`Alters::Path`]).
    pub names: Names,
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
            part: Part::Whole,
            named: 0,
            effects: None,
        }
    }

    /// It is the client's Parse of its unnamed statement, which drops the old one even if it fails.
    pub fn drops_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// PostgreSQL does not answer it: it is done once it stands in front.
    pub fn is_made(&self) -> bool {
        matches!(
            self.reply,
            Reply::MadeParse | Reply::MadeClose | Reply::CopyEnd
        )
    }

    /// What takes effect with its answer.
    pub fn effects(&self) -> &Consequences {
        const NOTHING: &Consequences = &Consequences {
            name: None,
            set: None,
            unnamed: None,
            described: None,
            watched: None,
            names: Names::Same,
        };
        self.effects.as_deref().unwrap_or(NOTHING)
    }

    /// Likewise, to add to that.
    pub fn effects_mut(&mut self) -> &mut Consequences {
        self.effects.get_or_insert_default()
    }

    /// It changes one of its client's names, or none.
    #[inline]
    pub fn changes_name(&mut self, change: Option<Box<NameOp>>) {
        if change.is_some() {
            self.effects_mut().name = change;
        }
    }

    /// That change goes elsewhere.
    pub fn takes_name(&mut self) -> Option<Box<NameOp>> {
        self.effects.as_mut()?.name.take()
    }

    /// It changes the server's unnamed statement, or does not.
    #[inline]
    pub fn changes_unnamed(&mut self, change: Option<UnnamedOp>) {
        if change.is_some() {
            self.effects_mut().unnamed = change;
        }
    }

    /// Behind it, names may be looked for elsewhere.
    pub fn looks_elsewhere(&mut self, names: Names) {
        self.alters = Alters::Path;
        if names != Names::Anywhere {
            self.effects_mut().names = names;
        }
    }

    /// Somebody wants to know of the query that it runs, or nobody.
    pub fn watch_for(&mut self, query: Option<Box<Watched>>) {
        if query.is_some() {
            self.effects_mut().watched = query;
        }
    }

    /// The query that it runs, if somebody wants to know of it.
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

/// What a client's message does to its names, once PostgreSQL has agreed.
#[derive(Clone, Debug)]
pub struct NameOp {
    /// The client's name; empty for the unnamed statement.
    pub name: Box<[u8]>,
    /// The group it was said in.
    pub group: u32,
    /// What changes.
    pub change: Change,
}

/// A change of a name.
#[derive(Clone, Debug)]
pub enum Change {
    /// It now means this statement.
    Define(Named),
    /// It no longer exists.
    Forget,
    /// Nothing: PostgreSQL will refuse it, with a name of ours in the place of this one.
    Nothing,
    /// Likewise, and the error that the client is told says why.
    Refused(Refusal),
}

/// Why a statement can't be used on a server that does not have it as it was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The schema has changed: there it would be something else than its client was told.
    Changed,
    /// Its constants would be read under other settings than its client's at its Parse.
    Settings,
    /// It would keep its server for its client, and too many do (`pin_limit`).
    Pins,
    /// Its text is longer than can be remembered.
    TooLong,
    /// The texts of its client, or of all clients, are more than can be remembered.
    TooMuch,
}

/// What was sent that changes a server's statements, once PostgreSQL has agreed.
#[derive(Clone, Copy, Debug)]
pub struct SetOp {
    /// Under which key.
    pub key: u128,
    /// True for a Parse, false for a Close.
    pub add: bool,
}

/// What was sent that changes a server's unnamed statement, once PostgreSQL has agreed.
#[derive(Clone, Debug)]
pub struct UnnamedOp {
    /// The group it was sent in.
    pub group: u32,
    /// What it is then.
    pub statement: Option<Arc<Statement>>,
}

/// A description that is read, not only passed on.
#[derive(Clone, Debug)]
pub struct Described {
    /// The client's name for it; none if the client waits to hear whether the statement is what it
    /// was told.
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
