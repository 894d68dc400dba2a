//! The transaction of a client of a sharded database, as far as only Howdah knows it.
//!
//! ```text
//!             BEGIN            a message says its shard              PostgreSQL says T
//!  AtServer --------> Unsent ---------------------------> Beginning --------------------> AtServer
//!                      ^  ^                                   |                           or Guessed
//!                      |  '-- the server is gone or refuses --'                              |
//!                      '------------------- the guess was wrong -----------------------------'
//! ```
//!
//! A client whose transaction is `Unsent` has no server. While its transaction is `Beginning`, its
//! messages are held. So a server that gets a client's message has the client's transaction.

use howdah_wire::backend::Status;

use crate::effect::names_isolation;
use crate::limits;
use crate::shard::bound_text::Decision;
use howdah_shard::NoKey;

/// A command that fails in each transaction that has just begun.
const FAILS: &[u8] = b"\n;ROLLBACK TO SAVEPOINT howdah_has_refused_a_statement";

/// What of a client's transaction only Howdah knows.
#[derive(Debug, Default)]
pub enum Transaction {
    /// There is none, or the client's server has it.
    #[default]
    AtServer,
    /// Howdah has answered the BEGIN. No server knows of it.
    Unsent(UnsentBegin),
    /// The BEGIN is on its way to the client's server.
    Beginning(UnsentBegin),
    /// The server has it, on a guess: no statement has said its shard.
    Guessed(Guess),
}

/// A transaction that Howdah has begun for a client.
#[derive(Clone, Debug, Default)]
pub struct UnsentBegin {
    /// The client's BEGIN, and what is repeated behind it.
    text: Box<[u8]>,
    /// A message of the client has failed since.
    failed: bool,
    /// The client's first message does not say the shard.
    guesses: bool,
    /// It is to fail at its server.
    fails_there: bool,
    /// The SQLSTATE and the message with which PostgreSQL has refused the BEGIN.
    refused: Option<(String, String)>,
}

/// A transaction of which no statement has said its shard. It can be rolled back and begun elsewhere.
#[derive(Debug, Default)]
pub struct Guess {
    /// The BEGIN with which Howdah has begun it; empty if the BEGIN is among the commands.
    begin: Box<[u8]>,
    /// The commands to repeat, in order.
    commands: Vec<Box<[u8]>>,
    /// How many statements have run.
    count: usize,
    /// How long the texts are, in bytes.
    size: usize,
}

/// What follows PostgreSQL's answer to a BEGIN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AfterBegin {
    /// The client's messages go.
    Goes,
    /// A message of the client has failed meanwhile: the server is not needed.
    Over,
    /// PostgreSQL has refused the BEGIN: the client's message fails with this SQLSTATE and message.
    Refused(String, String),
}

impl Transaction {
    /// A transaction that Howdah has begun.
    pub fn begun(text: &[u8]) -> Transaction {
        Transaction::Unsent(UnsentBegin {
            text: text.into(),
            ..UnsentBegin::default()
        })
    }

    /// The transaction, if no server has it.
    pub fn to_unsent(&self) -> Transaction {
        match self {
            Transaction::Unsent(begun) => Transaction::Unsent(begun.clone()),
            _ => Transaction::AtServer,
        }
    }

    /// The state that the client is told, while no server has the transaction.
    pub fn status(&self) -> Status {
        match self {
            Transaction::Unsent(begun) | Transaction::Beginning(begun) if begun.failed => {
                Status::Failed
            }
            Transaction::Unsent(_) | Transaction::Beginning(_) => Status::Transaction,
            Transaction::AtServer | Transaction::Guessed(_) => Status::Idle,
        }
    }

    /// True if Howdah has begun a transaction that no server has.
    pub fn is_begun(&self) -> bool {
        matches!(self, Transaction::Unsent(_) | Transaction::Beginning(_))
    }

    /// True if a BEGIN must go to the client's server first.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Transaction::Unsent(_))
    }

    /// True while PostgreSQL's answer to the BEGIN is awaited.
    pub fn is_beginning(&self) -> bool {
        matches!(self, Transaction::Beginning(_))
    }

    /// True while no statement of the transaction has said its shard.
    pub fn is_guessed(&self) -> bool {
        matches!(self, Transaction::Guessed(_))
    }

    /// The client's next message will follow the BEGIN: `guesses` if the message does not say the
    /// shard.
    pub fn guesses(&mut self, guesses: bool) {
        if let Transaction::Unsent(begun) = self {
            begun.guesses = guesses && !begun.fails_there;
        }
    }

    /// The BEGIN goes to the client's server. Returns its text.
    pub fn begins(&mut self) -> Box<[u8]> {
        match std::mem::take(self) {
            Transaction::Unsent(begun) => {
                let text = begun.text.clone();
                *self = Transaction::Beginning(begun);
                text
            }
            other => {
                *self = other;
                Box::default()
            }
        }
    }

    /// PostgreSQL has refused the BEGIN that is on its way.
    pub fn learns_refusal(&mut self, sqlstate: &str, message: &str) {
        if let Transaction::Beginning(begun) = self {
            begun.refused = Some((sqlstate.into(), message.into()));
        }
    }

    /// PostgreSQL has answered the BEGIN, and says this state.
    pub fn is_answered(&mut self, status: Status) -> AfterBegin {
        let Transaction::Beginning(mut begun) = std::mem::take(self) else {
            return AfterBegin::Goes;
        };
        if begun.failed {
            *self = Transaction::Unsent(begun);
            return AfterBegin::Over;
        }
        // In a failed block, PostgreSQL itself refuses what follows.
        if status != Status::Idle {
            if begun.guesses {
                *self = Transaction::Guessed(Guess {
                    size: begun.text.len(),
                    begin: begun.text,
                    ..Guess::default()
                });
            }
            return AfterBegin::Goes;
        }
        let refused = begun.refused.take();
        let (sqlstate, message) = refused.unwrap_or_else(|| {
            let message = "the transaction could not be begun";
            ("25P01".into(), message.into())
        });
        *self = Transaction::Unsent(begun);
        AfterBegin::Refused(sqlstate, message)
    }

    /// The client has no server any more: a BEGIN on its way has reached nobody, and no other
    /// transaction is left.
    pub fn loses_server(&mut self) {
        *self = match std::mem::take(self) {
            Transaction::Unsent(begun) | Transaction::Beginning(begun) => {
                Transaction::Unsent(begun)
            }
            Transaction::AtServer | Transaction::Guessed(_) => Transaction::AtServer,
        }
    }

    /// A message of the client has failed. A guess stays where it is: a repetition would fail, too.
    pub fn fails(&mut self) {
        match self {
            Transaction::Unsent(begun) | Transaction::Beginning(begun) => begun.failed = true,
            Transaction::Guessed(_) => *self = Transaction::AtServer,
            Transaction::AtServer => {}
        }
    }

    /// A failed transaction goes to a server, and fails there: PostgreSQL answers what ends it in an
    /// unusual way.
    pub fn fails_at_server(&mut self) {
        if let Transaction::Unsent(begun) = self
            && begun.failed
        {
            let mut text = begun.text.to_vec();
            text.extend_from_slice(FAILS);
            *self = Transaction::Unsent(UnsentBegin {
                text: text.into(),
                fails_there: true,
                ..UnsentBegin::default()
            });
        }
    }

    /// A group of messages begins a transaction at the client's server. The BEGIN is the first of the
    /// commands to repeat.
    pub fn begins_in_group(&mut self) {
        *self = Transaction::Guessed(Guess::default());
    }

    /// A statement of a guessed transaction goes to its server. If the statement says its shard, or
    /// may not run twice, the transaction stays there.
    pub fn goes_on(&mut self, decision: &Decision, text: Option<&[u8]>) {
        let Transaction::Guessed(guess) = self else {
            return;
        };
        if !guess.takes(decision, text) {
            *self = Transaction::AtServer;
        }
    }

    /// The guess was wrong: the server rolls the transaction back, and it begins elsewhere.
    pub fn begins_elsewhere(&mut self) {
        if let Transaction::Guessed(guess) = self {
            *self = Transaction::begun(&guess.repeated());
        }
    }
}

impl Guess {
    /// True if the transaction is a guess after this statement, too.
    fn takes(&mut self, decision: &Decision, text: Option<&[u8]>) -> bool {
        let Decision::Guess { kind, repeats } = decision else {
            return false;
        };
        self.count += 1;
        if *repeats {
            let Some(text) = text else { return false };
            self.size += text.len();
            self.commands.push(text.into());
        }
        // One snapshot is for reads on one server.
        let reads = matches!(kind, NoKey::Catalogue | NoKey::Replicated { .. });
        let isolated = || {
            let texts = self.commands.iter().chain([&self.begin]);
            texts.into_iter().any(|text| names_isolation(text))
        };
        self.count <= limits::GUESSED && self.size <= limits::GUESSED_TEXT && !(reads && isolated())
    }

    /// One text that does all again.
    fn repeated(&self) -> Vec<u8> {
        let mut text = self.begin.to_vec();
        for command in &self.commands {
            if !text.is_empty() {
                // The command before may end in a comment.
                text.extend_from_slice(b"\n;");
            }
            text.extend_from_slice(command);
        }
        text
    }
}
