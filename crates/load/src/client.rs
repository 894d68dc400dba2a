//! One client: a connection, the model of its session, and the loop that runs operations on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::behaviours::Behaviour;
use crate::connection::{Connection, Leave};
use crate::expect::expect_all;
use crate::failure::{Failure, Kind, Outcome};
use crate::lists::{Board, History};
use crate::login::login;
use crate::messages;
use crate::random::Random;
use crate::session::{Block, Part, Session};
use crate::statement::{Call, Statement};
use crate::tally::{Report, Tally};
use crate::url::Url;

/// Values that all clients of a run share.
pub struct Run {
    /// Where to connect.
    pub url: Url,
    /// The protocol version at login.
    pub version: u32,
    /// How long a reply may take.
    pub limit: Duration,
    /// The name of this run, in the rows that it writes.
    pub name: String,
    /// How long a client rests after each operation.
    pub pause: Duration,
    /// Set to end the run early.
    pub stop: AtomicBool,
    /// Prints the first differences.
    pub report: Report,
    /// The lists to which all clients append.
    pub board: Board,
}

/// A client's operations that must, or must not, be found in the tables at the end.
#[derive(Debug, Default)]
pub struct Books {
    /// Transfers whose commit was acknowledged.
    pub transferred: BTreeSet<i32>,
    /// Transfers without an answer to their commit.
    pub transferred_perhaps: BTreeSet<i32>,
    /// Inserts that were sent completely before the client disconnected. Each may have run once.
    pub vanished_perhaps: BTreeSet<i32>,
    /// The rows of the client's keys in a sharded table.
    pub kept: BTreeMap<i64, BTreeSet<i32>>,
    /// The keys whose rows are not known.
    pub unsure: BTreeSet<i64>,
    /// Appends to lists, and what was seen of these.
    pub lists: History,
}

/// One client.
pub struct Client<'r> {
    /// The run.
    pub run: &'r Run,
    /// Its number.
    pub id: usize,
    /// The client's own random numbers.
    pub random: Random,
    /// The model of the client's session, with the messages to send and to expect.
    pub session: Session,
    /// Its cancel key.
    pub key: Vec<u8>,
    /// The expected contents of the tables at the end.
    pub books: Books,
    connection: Option<Connection>,
    serial: i32,
}

impl<'r> Client<'r> {
    /// Client `id` of `run`, not connected yet.
    pub fn new(run: &'r Run, id: usize, seed: u64) -> Client<'r> {
        Client {
            run,
            id,
            random: Random::new(seed, id as u64 + 1),
            session: Session::default(),
            key: Vec::new(),
            books: Books::default(),
            connection: None,
            serial: 0,
        }
    }

    /// The connection, which an operation always has.
    pub fn connection(&mut self) -> &mut Connection {
        self.connection
            .as_mut()
            .expect("operations run on a connected client")
    }

    /// A number that is unique among the operations of this client.
    pub fn serial(&mut self) -> i32 {
        self.serial += 1;
        self.serial
    }

    /// A text that is unique among all clients and operations.
    pub fn mark(&mut self) -> String {
        let serial = self.serial();
        format!("c{}n{serial}", self.id)
    }

    /// A call of `statement` with this client's mark.
    pub fn call(&mut self, statement: &Statement) -> Call {
        let mark = self.mark();
        statement.call(&mut self.random, &mark, self.serial)
    }

    /// Sends the session's messages and compares all replies.
    pub fn go(&mut self) -> Outcome {
        self.send()?;
        self.expect()
    }

    /// Sends the session's messages.
    pub fn send(&mut self) -> Outcome {
        let out = std::mem::take(&mut self.session.out);
        self.connection().send(&out)
    }

    /// Compares all replies.
    pub fn expect(&mut self) -> Outcome {
        let connection = self
            .connection
            .as_mut()
            .expect("operations run on a connected client");
        expect_all(connection, &mut self.session.want)
    }

    /// Sends a simple query and compares its reply.
    pub fn query(&mut self, sql: &str, parts: &[Part]) -> Outcome {
        self.session.query(sql, parts);
        self.go()
    }

    /// Verifies with a query that this client gets its own reply.
    pub fn prove(&mut self) -> Outcome {
        let mark = self.mark();
        let columns = vec![messages::column("m", messages::oid::TEXT)];
        let rows = vec![vec![crate::session::text(mark.clone())]];
        self.query(
            &format!("select '{mark}'::text as m"),
            &[Part::Rows(columns, rows)],
        )
    }

    /// The rows of a query that must succeed, as text. For work outside of the load.
    pub fn rows(&mut self, sql: &str) -> Outcome<Vec<Vec<Option<String>>>> {
        let mut out = Vec::new();
        messages::query(&mut out, sql);
        let connection = self.connection();
        connection.send(&out)?;
        let mut rows = Vec::new();
        loop {
            let message = connection.next()?;
            match message.tag {
                b'D' => rows.push(messages::values(&message.body)),
                b'E' => return Err(crate::expect::difference(connection, &[], &message)),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
    }

    /// Connects and logs in with `settings`.
    pub fn connect(&mut self, settings: &[(&str, &str)]) -> Outcome {
        self.session = Session::default();
        self.books.lists.connects();
        let mut connection = Connection::open(&self.run.url, self.run.limit)?;
        let result = login(&mut connection, &self.run.url, self.run.version, settings);
        self.connection = Some(connection);
        let greeting = result?;
        self.key = greeting.key;
        self.session = Session::new(greeting.settings);
        Ok(())
    }

    /// Ends the connection abruptly.
    pub fn leave(&mut self, how: Leave) {
        if let Some(connection) = self.connection.take() {
            connection.leave(how);
        }
        self.session = Session::default();
    }

    /// Sends Terminate and waits for the other side to close.
    pub fn quit(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            let mut out = Vec::new();
            messages::bare(&mut out, b'X');
            let sent = connection.send(&out);
            if sent.is_ok() {
                // Other checks notice a connection that stays open. Here it must only cause no
                // delay.
                let _ = connection.wait_for_end(Duration::from_secs(2));
            }
        }
    }

    fn operate(&mut self, behaviour: &Behaviour) -> Outcome {
        if self.connection.is_none() {
            self.connect(&[])?;
        }
        let pieces = self.random.one_in(24).then(|| self.random.between(1, 30));
        let name = format!(
            "{} (client {}, after n{})",
            behaviour.name, self.id, self.serial
        );
        let connection = self.connection();
        connection.note(name);
        connection.pieces = pieces;
        (behaviour.run)(self)?;
        if self.session.block() != Block::Idle || !self.session.want.is_empty() {
            return Err(Failure::new(
                Kind::Wrong,
                "the load itself left an operation unfinished",
            ));
        }
        if let Some(connection) = self.connection.as_mut()
            && connection.has_surplus()
        {
            let message = connection.next()?;
            return Err(crate::expect::difference(connection, &[], &message));
        }
        Ok(())
    }

    /// Runs operations until `end`, drawn from `behaviours` by weight.
    pub fn work(&mut self, behaviours: &[(&Behaviour, usize)], end: Instant, tally: &mut Tally) {
        let total: usize = behaviours.iter().map(|(_, weight)| weight).sum();
        while Instant::now() < end && !self.run.stop.load(Ordering::Relaxed) {
            let mut draw = self.random.below(total);
            let chosen = behaviours.iter().find(|(_, weight)| {
                let hit = draw < *weight;
                draw = draw.saturating_sub(*weight);
                hit
            });
            let (behaviour, _) = chosen.expect("the draw is below the sum of the weights");
            let result = self.operate(behaviour);
            tally.count(behaviour.name, &result);
            if let Err(failure) = result {
                let history = self.connection.as_ref().map_or(vec![], Connection::history);
                self.run
                    .report
                    .print(behaviour.name, self.id, &failure, &history);
                self.leave(Leave::Fin);
                std::thread::sleep(Duration::from_millis(20));
            }
            if !self.run.pause.is_zero() {
                std::thread::sleep(self.run.pause);
            }
        }
        self.quit();
    }
}
