//! The notifications that a client must receive: each notification on its channels once, in the order of
//! commits. A notification must come no later than the idle ReadyForQuery of a statement that was sent after
//! it, or whose transaction ended after it.

use std::collections::{BTreeMap, BTreeSet};

use howdah_wire::frame::{cstr, u32_be};

use crate::board::Shared;
use crate::session::Listening;
use crate::sql::Token;

/// How the error begins that clients get when the connection is lost that listens for them.
pub const LISTENER_LOST: &str = "the connection that listens for clients is lost";

/// A time in which a client listens to a channel, in positions of the board.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// No notification before this position may come.
    may_from: usize,
    /// All notifications from this position on must come ...
    must_from: usize,
    /// ... up to this position.
    must_to: usize,
    /// No notification from this position on may come.
    may_to: usize,
}

/// The notifications of one client.
pub struct Hearing {
    client: u32,
    board: Shared,
    /// The process id that the client was told at login.
    pub login: u32,
    /// The client has sent Terminate: later notifications need not come.
    pub leaves: bool,
    /// The client's own notifications have this process id, if the text shows that it notifies.
    pub own_are_known: bool,
    /// The pooler may end the client because the connection that listens is lost: behind an idle
    /// ReadyForQuery that lacks notifications.
    pub may_end: bool,
    /// What the last idle ReadyForQuery lacked.
    late: Option<String>,
    spans: BTreeMap<String, Vec<Span>>,
    /// The notifications that came, by position.
    told: BTreeSet<usize>,
    /// Notifications since the last idle ReadyForQuery. Whether the client listens to their
    /// channels is known only at the next one.
    unchecked: Vec<(usize, u32)>,
    /// Statements that ran since then.
    ran: Vec<Token>,
    /// Changes of the client's channels since then.
    changes: Vec<Listening>,
    /// Positions of the board: when the message that is being answered was sent; when the first
    /// message of its transaction was sent; and the position that the last idle ReadyForQuery came
    /// after.
    sent: usize,
    first: usize,
    ready: usize,
}

impl Hearing {
    /// A client that listens to no channel.
    pub fn new(client: u32, board: Shared) -> Hearing {
        Hearing {
            client,
            board,
            login: 0,
            leaves: false,
            own_are_known: false,
            may_end: false,
            late: None,
            spans: BTreeMap::new(),
            told: BTreeSet::new(),
            unchecked: Vec::new(),
            ran: Vec::new(),
            changes: Vec::new(),
            sent: 0,
            first: 0,
            ready: 0,
        }
    }

    /// The board's position.
    pub fn position(&self) -> usize {
        self.board.borrow().position()
    }

    /// The next answer belongs to a message that was sent at this position. `idle`: it may be the
    /// first of a transaction.
    pub fn follows(&mut self, sent: usize, idle: bool) {
        self.sent = sent;
        if idle {
            self.first = sent;
        }
    }

    /// A statement of the client ran.
    pub fn ran(&mut self, token: Token) {
        self.ran.push(token);
    }

    /// The client's transaction was committed, and with it this change of its channels.
    pub fn changes(&mut self, change: Listening) {
        self.changes.push(change);
    }

    fn change(&mut self, change: &Listening) {
        let end = change
            .token
            .and_then(|token| self.board.borrow().end_of(token));
        let here = self.position();
        let end = end.map_or(here, |(before, _)| before);
        if change.listens {
            let name = change.channel.clone().unwrap_or_default();
            let spans = self.spans.entry(name).or_default();
            if spans.last().is_none_or(|span| span.may_to < usize::MAX) {
                spans.push(Span {
                    may_from: self.sent.min(end),
                    must_from: end,
                    must_to: usize::MAX,
                    may_to: usize::MAX,
                });
            }
            return;
        }
        // A notification that comes during a transaction is not delivered after an UNLISTEN in it.
        let must_to = if change.in_block {
            self.ready
        } else {
            self.first
        };
        for (name, spans) in &mut self.spans {
            let open = spans.last_mut().filter(|span| span.may_to == usize::MAX);
            if let Some(span) = open
                && change
                    .channel
                    .as_ref()
                    .is_none_or(|channel| channel == name)
            {
                span.must_to = must_to;
                span.may_to = end;
            }
        }
    }

    /// The client receives a notification.
    ///
    /// # Errors
    /// The client must not receive it.
    pub fn notified(&mut self, body: &[u8], idle: bool) -> Result<(), String> {
        self.goes_on()?;
        let (pid, channel, payload) = read(body).ok_or("is told something that can't be read")?;
        let board = self.board.borrow();
        let token = Token::read(&payload);
        let Some(at) = token.and_then(|token| board.find(token)) else {
            return Err(format!(
                "is told {payload} of {channel}, which was never said"
            ));
        };
        let note = &board.notes[at];
        if note.channel != channel {
            return Err(format!(
                "is told {payload} of {channel}, not of {}",
                note.channel
            ));
        }
        let own = note.token.client == self.client && pid == self.login;
        if pid != note.pid && !own {
            return Err(format!(
                "is told {payload} of process {pid}, not {}",
                note.pid
            ));
        }
        if self.told.contains(&at) {
            return Err(format!("is told {payload} of {channel} twice"));
        }
        // A client that keeps its server for one LISTEN hears its other channels through the
        // listener. Its own notifications on the first channel come from its server at once, before
        // earlier ones on the other channels. Two connections of PostgreSQL have no common order,
        // so only each single channel has an order.
        let early = |later: &usize| {
            let later = &board.notes[*later];
            later.token.client != self.client || later.channel == channel
        };
        if self.told.range(at..).any(early) {
            return Err(format!(
                "is told {payload} of {channel} behind what was said later"
            ));
        }
        drop(board);
        self.told.insert(at);
        self.unchecked.push((at, pid));
        if idle && self.changes.is_empty() {
            self.check_told()?;
        }
        Ok(())
    }

    /// Checks that the client was allowed to receive what it has received.
    fn check_told(&mut self) -> Result<(), String> {
        let board = self.board.borrow();
        for (at, pid) in self.unchecked.drain(..) {
            let note = &board.notes[at];
            let spans = self.spans.get(&note.channel).into_iter().flatten();
            let mut may = spans.filter(|span| (span.may_from..span.may_to).contains(&at));
            if may.next().is_none() {
                return Err(format!(
                    "is told {} of {}, to which it did not listen then",
                    note.token, note.channel
                ));
            }
            let own = note.token.client == self.client && note.shown && self.own_are_known;
            if own && pid != self.login {
                return Err(format!("is told its own {} as another's", note.token));
            }
        }
        Ok(())
    }

    /// The client receives an idle ReadyForQuery.
    ///
    /// # Errors
    /// A notification is missing, or one came that must not come.
    pub fn is_ready(&mut self) -> Result<(), String> {
        let board = self.board.borrow();
        let ends = self.ran.drain(..).filter_map(|token| board.end_of(token));
        let behind = ends.map(|(_, behind)| behind).max().unwrap_or(0);
        drop(board);
        for change in std::mem::take(&mut self.changes) {
            self.change(&change);
        }
        self.ready = behind.max(self.sent);
        self.check_told()?;
        let told = self.all_told(self.ready);
        if self.may_end {
            self.late = told.err();
            return Ok(());
        }
        told
    }

    /// The client receives another message than the end of its connection.
    ///
    /// # Errors
    /// The message before lacked a notification.
    pub fn goes_on(&mut self) -> Result<(), String> {
        self.late.take().map_or(Ok(()), Err)
    }

    /// All notifications before this position have come.
    ///
    /// # Errors
    /// One is missing.
    pub fn all_told(&self, position: usize) -> Result<(), String> {
        if self.leaves {
            return Ok(());
        }
        let board = self.board.borrow();
        for (name, span) in self
            .spans
            .iter()
            .flat_map(|(n, s)| s.iter().map(move |s| (n, s)))
        {
            let to = span.must_to.min(position);
            for at in span.must_from..to {
                let note = &board.notes[at];
                if note.channel == *name && !self.told.contains(&at) {
                    return Err(format!("is not told {} of {name} in time", note.token));
                }
            }
        }
        Ok(())
    }
}

fn read(body: &[u8]) -> Option<(u32, String, String)> {
    let (pid, rest) = u32_be(body)?;
    let (channel, rest) = cstr(rest)?;
    let (payload, _) = cstr(rest)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((pid, text(channel), text(payload)))
}
