//! A client: logs in, plays its script, and compares every reply with its [`Reference`].

use std::collections::VecDeque;

use howdah_daemon::tls::TlsSession;
use howdah_daemon::tls::session::{HandshakeStep, Opened};
use howdah_pooler::event::{Address, Time};
use howdah_wire::backend::{Fields, key_data, parameter_status};
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::grammar::{Act, End};
use crate::hearing::{Hearing, LISTENER_LOST};
use crate::journal::Journal;
use crate::postgres::{CRASHED, UNASKED};
use crate::reference::{Message, Reference};
use crate::seen::{READS_BACK, Seen};
use crate::session::{Keeping, Sense, Session};
use crate::settings::{KNOWN, Settings, position};
use crate::sharding::Sharding;
use crate::story::{Who, words};
use crate::tls::ToySession;
use crate::view::View;
use crate::wal::Position;
use crate::world::{Read, SocketId, World};

/// The error of a client that is as old as `client_lifetime` allows.
pub const LIFETIME: &str = "client_lifetime";

/// A client's properties and plans.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The client's number.
    pub id: u32,
    /// The database.
    pub database: String,
    /// The user.
    pub user: String,
    /// The settings that the client asks for at its login.
    pub asks: Vec<(String, String)>,
    /// The settings with which servers of the database begin.
    pub defaults: Vec<(String, String)>,
    /// The client's script.
    pub script: VecDeque<Act>,
    /// How the client ends.
    pub end: End,
    /// When the client connects.
    pub at: Time,
    /// The client's statements may be cancelled.
    pub cancellable: bool,
    /// This client or other clients change the schema.
    pub schema: bool,
    /// The client's statements are renamed, and parsed on each server that needs them.
    pub renamed: bool,
    /// Whether the client uses TLS.
    pub tls: Tls,
    /// The client's LISTEN is always shared: Howdah knows which notifications the client itself
    /// sent.
    pub own_are_known: bool,
    /// How servers are kept for it.
    pub keeping: Keeping,
    /// Its rows say how far their hosts are.
    pub has_roles: bool,
    /// No reply is older than what the client has written or seen.
    pub is_fresh: bool,
    /// Its statements may run at a standby.
    pub reads: bool,
    /// What a standby refuses always runs again.
    pub heals: bool,
    /// It talks before it is told that it is logged in.
    pub eager: bool,
    /// The minor version of the client's protocol.
    pub minor: u16,
    /// The shards of its database, and whether they may be lost.
    pub shards: Option<(Sharding, bool)>,
}

/// Whether and how a client begins TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    /// Without TLS.
    Never,
    /// With an SSLRequest. If it is refused, in clear text.
    Asks,
    /// Without an SSLRequest.
    AtOnce,
}

/// The state of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Away,
    /// The client has asked for TLS.
    Asking,
    /// The handshake is under way.
    Shaking,
    /// The client sends nothing more in the middle of its handshake.
    Stalling,
    LoggingIn,
    Talking,
    /// The client has sent Terminate.
    Leaving,
    /// The client has received a FATAL error.
    Doomed,
    Gone,
}

/// A simulated client.
pub struct Client {
    wish: Wish,
    stage: Stage,
    socket: Option<SocketId>,
    /// The bytes to send, not encrypted.
    out: Vec<u8>,
    secure: Option<Box<ToySession>>,
    /// The bytes to send, encrypted.
    sealed: Vec<u8>,
    /// How often the client has taken a new key.
    updates: u32,
    written: usize,
    inbox: Vec<u8>,
    reference: Reference,
    told: Vec<(String, String)>,
    /// The process id and secret for cancel requests.
    pub key: Option<(u32, Vec<u8>)>,
    rests_until: Time,
    deaf_until: Time,
    /// The client rests until it has received all notifications before this position.
    harks: Option<usize>,
    /// Some of the client's messages were not answered.
    disturbed: bool,
    /// The client has left in the middle of a COPY.
    deaf_for_good: bool,
    /// The client was warned that its session ends, because another one has crashed.
    warned: bool,
    /// How many acts were left at the last cancel request for this client.
    cancelled_before: Option<usize>,
    /// When the client was told that it is logged in.
    talks_since: Time,
    /// The last answer that the client got says that it is in no transaction.
    between: bool,
    /// KILL has ended the client's session, and the client has sent something after that.
    killed: bool,
}

impl Client {
    /// A client that will connect later.
    pub fn new(wish: Wish, world: &mut World) -> Client {
        world.alarm(wish.at);
        let view = View::of_reference(world.catalog(&wish.database), wish.id, wish.renamed);
        let mut session = Session::new(reference_settings(&wish), view);
        session.keeping = wish.keeping;
        let sense = wish.shards.clone();
        session.sense = sense.map(|(sharding, forgives)| Sense::new(sharding, forgives));
        session.shows = wish.has_roles.then_some(Position::UNKNOWN);
        let mut hearing = Hearing::new(wish.id, world.board(&wish.database));
        let latin = wish.asks.iter().any(|(name, _)| name == "client_encoding");
        hearing.own_are_known = wish.own_are_known && !latin;
        hearing.may_end = world.excuses.texts.contains(&LISTENER_LOST);
        let seen = Seen::new(wish.is_fresh.then(|| world.wal.clone()));
        let uncertain = wish.cancellable || wish.schema || wish.reads || wish.shards.is_some();
        let reference = Reference::new(session, (hearing, seen), uncertain, wish.heals);
        Client {
            wish,
            stage: Stage::Away,
            socket: None,
            out: Vec::new(),
            secure: None,
            sealed: Vec::new(),
            updates: 0,
            written: 0,
            inbox: Vec::new(),
            reference,
            told: Vec::new(),
            key: None,
            rests_until: Time(0),
            deaf_until: Time(0),
            harks: None,
            disturbed: false,
            deaf_for_good: false,
            warned: false,
            cancelled_before: None,
            talks_since: Time(0),
            between: false,
            killed: false,
        }
    }

    /// The client's number.
    pub fn id(&self) -> u32 {
        self.wish.id
    }

    /// True if the client asks for this database.
    pub fn is_of(&self, database: &str) -> bool {
        self.wish.database == database
    }

    /// The client has ended.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// The client is logged in.
    pub fn talks(&self) -> bool {
        self.stage == Stage::Talking
    }

    /// The client's statements may be cancelled.
    pub fn is_cancellable(&self) -> bool {
        self.wish.cancellable
    }

    /// The client waits for a slow statement that no cancel request was sent for yet.
    pub fn awaits_slow(&self) -> bool {
        self.reference.is_slow() && self.cancelled_before != Some(self.wish.script.len())
    }

    /// A cancel request for this client is sent.
    pub fn is_cancelled(&mut self, world: &World) {
        self.reference.cancels += 1;
        self.cancelled_before = Some(self.wish.script.len());
        if world.prompt_cancels {
            self.reference.cancelled_at = Some(world.now.0);
        }
    }

    /// The client's socket, if it has one.
    pub fn socket(&self) -> Option<SocketId> {
        self.socket
    }

    /// A description of what the client waits for.
    pub fn awaits(&self) -> String {
        format!(
            "{:?}, unsent {}, acts {}, {}",
            self.stage,
            self.unsent(),
            self.wish.script.len(),
            self.reference.awaits()
        )
    }

    /// Takes a step, or none.
    pub fn step(&mut self, front: &Address, world: &mut World) {
        match self.stage {
            Stage::Gone => return,
            Stage::Away if self.wish.at > world.now => return,
            Stage::Away => return self.connect(front, world),
            _ => {}
        }
        if world.chance.once_in(4) {
            return;
        }
        if self.stage == Stage::Stalling && self.rests_until <= world.now {
            return self.vanish(world.chance.once_in(2), world);
        }
        self.seal(world);
        self.write(world);
        if self.deaf_until <= world.now {
            self.read(world);
        }
        if self.stage == Stage::Talking {
            self.act(world);
        }
    }

    fn connect(&mut self, front: &Address, world: &mut World) {
        self.socket = world.connect_to_front(front);
        if self.socket.is_none() {
            self.stage = Stage::Gone;
            return;
        }
        match self.wish.tls {
            Tls::Asks => {
                self.out.extend_from_slice(&[0, 0, 0, 8, 4, 210, 22, 47]);
                self.stage = Stage::Asking;
            }
            Tls::AtOnce => self.shake_hands(world),
            Tls::Never => self.log_in(world),
        }
        let (id, now) = (self.wish.id, world.now);
        let wish = &self.wish;
        world.story.tell(now, Who::Client(id), || {
            format!(
                "connects to {} as {}, asks {:?}, ends {:?}",
                wish.database, wish.user, wish.asks, wish.end
            )
        });
    }

    fn log_in(&mut self, world: &mut World) {
        let mut parameters = vec![
            ("user".to_string(), self.wish.user.clone()),
            ("database".into(), self.wish.database.clone()),
        ];
        parameters.extend(self.wish.asks.iter().cloned());
        write::startup(&mut self.out, self.wish.minor, parameters);
        self.stage = Stage::LoggingIn;
        if self.wish.eager
            && let Some(Act::Send(messages)) = self.wish.script.front().cloned()
        {
            self.wish.script.pop_front();
            self.send(messages, world);
        }
    }

    /// Begins the TLS handshake.
    fn shake_hands(&mut self, world: &mut World) {
        let mut session = Box::new(ToySession::client(world.chance.number()));
        session.handshake();
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        self.secure = Some(session);
        self.stage = Stage::Shaking;
        if world.chance.once_in(12) {
            // The client's bytes are not TLS, or end too early.
            match world.chance.within(0..=2) {
                0 => self.sealed[world.chance.within(4..=9)] ^= 1,
                kind => self.sealed.truncate(kind * world.chance.within(1..=5)),
            }
            self.stall(world);
        }
    }

    fn stall(&mut self, world: &mut World) {
        self.stage = Stage::Stalling;
        self.disturbed = true;
        self.rests_until = Time(world.now.0 + world.chance.number() % 8_000_000_000);
        world.alarm(self.rests_until);
    }

    /// Encrypts the client's bytes. Sometimes takes a new key before.
    fn seal(&mut self, world: &mut World) {
        let Some(session) = &mut self.secure else {
            return;
        };
        if session.is_in_handshake() || self.stage == Stage::Stalling {
            return;
        }
        // The number is bounded, because each write may delay earlier bytes.
        if self.stage == Stage::Talking && self.updates < 20 && world.chance.once_in(25) {
            session.update_keys(world.chance.once_in(2));
            self.updates += 1;
        }
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        if !self.out.is_empty() {
            match session.seal(&self.out, std::mem::take(&mut self.sealed)) {
                Ok(sealed) => self.sealed = sealed,
                // The reading side will find the reason.
                Err(_) => self.sealed.clear(),
            }
            self.out.clear();
        }
    }

    /// The bytes that were not sent yet.
    fn unsent(&self) -> usize {
        self.out.len() + self.sealed.len()
    }

    fn receive_sealed(&mut self, bytes: &[u8], world: &mut World) {
        let Some(mut session) = self.secure.take() else {
            return;
        };
        session.feed(bytes);
        let (mut plain, mut len) = (Vec::new(), 0);
        let mut wrong = None;
        if session.is_in_handshake() {
            match session.handshake() {
                HandshakeStep::More => {}
                HandshakeStep::Done(_) if world.chance.once_in(20) => self.stall(world),
                HandshakeStep::Done(_) if self.stage == Stage::Shaking => self.log_in(world),
                HandshakeStep::Done(_) => {}
                HandshakeStep::Failed(why) => wrong = Some(why),
            }
        }
        if !session.is_in_handshake()
            && let Opened::Failed(why) = session.open(&mut plain, &mut len)
        {
            wrong = Some(why);
        }
        if self.stage != Stage::Stalling {
            self.sealed
                .extend(session.take_output().unwrap_or_default());
        }
        self.secure = Some(session);
        self.inbox.extend_from_slice(&plain[..len]);
        if let Some(why) = wrong.filter(|_| self.stage != Stage::Stalling) {
            let id = self.wish.id;
            let text = format!("client {id} reads what is no TLS: {why}");
            world.story.violate("tls", &[Who::Client(id)], text);
        }
    }

    fn write(&mut self, world: &mut World) {
        let Some(socket) = self.socket else { return };
        let out = match self.secure {
            Some(_) => &mut self.sealed,
            None => &mut self.out,
        };
        if out.is_empty() {
            return;
        }
        let mut most = world.chance.part(out.len());
        if let End::Vanish(after, reset) = self.wish.end
            && self.stage == Stage::Talking
        {
            most = most.min(after.saturating_sub(self.written));
            if most == 0 {
                return self.vanish(reset, world);
            }
        }
        let out = match self.secure {
            Some(_) => &mut self.sealed,
            None => &mut self.out,
        };
        match world.write(socket, &out[..most]) {
            Some(sent) => {
                out.drain(..sent);
                if self.stage == Stage::Talking {
                    self.written += sent;
                }
            }
            // The reading side will find the reason.
            None => out.clear(),
        }
    }

    fn vanish(&mut self, reset: bool, world: &mut World) {
        let (id, now) = (self.wish.id, world.now);
        let left = self.unsent();
        world.story.tell(now, Who::Client(id), || {
            format!("vanishes, {left} bytes unsent, reset: {reset}")
        });
        if let Some(session) = &mut self.secure
            && let Some(socket) = self.socket
            && world.chance.once_in(2)
        {
            // In the middle of a record, an alert is just more bytes that are not TLS.
            session.alert();
            let alert = session.take_output().unwrap_or_default();
            world.write(socket, &alert);
        }
        if let Some(socket) = self.socket
            && reset
        {
            world.reset(socket);
        }
        self.disturbed = true;
        self.leave(world);
    }

    fn leave(&mut self, world: &mut World) {
        if let Some(socket) = self.socket.take() {
            world.close(socket);
        }
        self.stage = Stage::Gone;
    }

    fn read(&mut self, world: &mut World) {
        let Some(socket) = self.socket else { return };
        let most = world.chance.part(20_000);
        match world.read(socket, most) {
            Read::Nothing => {}
            Read::Bytes(bytes) => {
                match self.secure {
                    Some(_) => self.receive_sealed(&bytes, world),
                    None => self.inbox.extend_from_slice(&bytes),
                }
                if self.stage == Stage::Asking {
                    let answer = std::mem::take(&mut self.inbox);
                    match &answer[..] {
                        b"N" => self.log_in(world),
                        b"S" => self.shake_hands(world),
                        _ => self.inbox = answer,
                    }
                }
                while self.stage != Stage::Gone
                    && let Some(message) = take(&mut self.inbox)
                {
                    self.message(&message, world);
                }
            }
            end => self.ended(&end, world),
        }
    }

    fn ended(&mut self, how: &Read, world: &mut World) {
        let (id, now) = (self.wish.id, world.now);
        let partial = words(&self.inbox);
        world.story.tell(now, Who::Client(id), || {
            format!("sees {how:?}, in the middle of: {partial}")
        });
        let expected = matches!(self.stage, Stage::Leaving | Stage::Doomed | Stage::Stalling);
        let cut = world.excuses.closes && !self.reference.is_answered();
        self.disturbed |= self.stage != Stage::Leaving || cut;
        if !expected && !world.excuses.closes {
            let text = format!("client {id} loses its connection: {}", self.awaits());
            world.story.violate("answered", &[Who::Client(id)], text);
        }
        self.leave(world);
    }

    fn message(&mut self, message: &[u8], world: &mut World) {
        let (id, now) = (self.wish.id, world.now);
        world
            .story
            .tell(now, Who::Client(id), || format!("-> {}", words(message)));
        let fields = Fields::new(&message[HEADER..]);
        let fatal = message[0] == backend::ERROR && fields.severity() == b"FATAL";
        if fatal {
            let text = String::from_utf8_lossy(fields.message()).into_owned();
            return self.fatal(&text, world);
        }
        let asynchronous = matches!(
            message[0],
            backend::NOTICE | backend::PARAMETER_STATUS | backend::NOTIFICATION
        );
        if !asynchronous {
            self.between = message.ends_with(b"\0\0\0\x05I") && message[0] == backend::READY;
        }
        if self.stage == Stage::LoggingIn {
            return self.login_message(message, world);
        }
        // The pooler itself may answer a Parse or a Close.
        let made = matches!(
            message[0],
            backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE
        );
        if self.killed && message[0] == backend::READY {
            let text = format!("client {id} goes on after KILL");
            world.story.violate("orders", &[Who::Client(id)], text);
        }
        if self.warned && !made {
            let text = format!("client {id} was told that its session ends, and goes on");
            world.story.violate("replies", &[Who::Client(id)], text);
        }
        if message[0] == backend::NOTICE && fields.sqlstate() == Some(CRASHED.as_bytes()) {
            self.warned = true;
            return;
        }
        let unasked = match message[0] {
            backend::NOTICE => fields.message().starts_with(UNASKED.as_bytes()),
            tag => {
                tag == backend::PARAMETER_STATUS
                    && message[HEADER..].starts_with(UNASKED.as_bytes())
            }
        };
        if unasked {
            return;
        }
        if message[0] == backend::NOTIFICATION {
            if let Err(why) = self.reference.notified(message) {
                let text = format!("client {id} {why}");
                world.story.violate("told", &[Who::Client(id)], text);
            }
            return;
        }
        // The pooler fails the COPY of a client that has left, and the client no longer reads.
        let failed = fields.message() == b"COPY from stdin failed: client disconnected";
        self.deaf_for_good |= self.stage == Stage::Leaving && failed;
        if self.deaf_for_good {
            return;
        }
        if let Err(why) = self.reference.received(message, now.0) {
            let text = format!("client {id} {why}");
            let told = why.contains(" told ");
            let checker = match told {
                true => "told",
                false if why.starts_with(READS_BACK) => "reads",
                false => "replies",
            };
            world.story.violate(checker, &[Who::Client(id)], text);
        }
    }

    fn fatal(&mut self, text: &str, world: &mut World) {
        let id = self.wish.id;
        self.stage = Stage::Doomed;
        self.disturbed = true;
        let invalid = self.wish.asks.iter().any(|(_, value)| value == "invalid");
        let own = invalid && text.starts_with("invalid value for parameter");
        let excused = world
            .excuses
            .texts
            .iter()
            .any(|start| text.starts_with(start));
        // Only a limited number of bytes is held for a client that is not logged in.
        let hasty = self.wish.eager && text == "unexpected message before the end of the login";
        if text == LIFETIME && !self.between {
            let text = format!("client {id} ends with its lifetime in the middle of its work");
            world.story.violate("answered", &[Who::Client(id)], text);
        }
        if !own && !excused && !hasty {
            let text = format!("client {id} is told without a reason: {text}");
            world.story.violate("answered", &[Who::Client(id)], text);
        }
    }

    fn login_message(&mut self, message: &[u8], world: &mut World) {
        let id = self.wish.id;
        let body = &message[HEADER..];
        match message[0] {
            backend::PARAMETER_STATUS => {
                if let Ok((name, value)) = parameter_status(body) {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.told.push((text(name), text(value)));
                }
            }
            backend::BACKEND_KEY_DATA => {
                self.key = key_data(body).ok().map(|(pid, key)| (pid, key.to_vec()));
                self.reference.hearing.login = self.key.as_ref().map_or(0, |(pid, _)| *pid);
            }
            backend::AUTHENTICATION | backend::NOTICE | backend::NEGOTIATE => {}
            backend::READY => {
                self.stage = Stage::Talking;
                self.talks_since = world.now;
                self.check_told(world);
            }
            tag => {
                let text = format!("client {id} gets {} at login", char::from(tag));
                world.story.violate("replies", &[Who::Client(id)], text);
            }
        }
    }

    /// Checks that the client was told its own settings, and PostgreSQL's values for the others.
    fn check_told(&mut self, world: &mut World) {
        let id = self.wish.id;
        for (name, value) in reference_settings(&self.wish).reported() {
            let told = self.told.iter().find(|(told, _)| told == name);
            if told.is_none_or(|(_, told)| told != value) {
                let text = format!("client {id} is told {told:?}, {name} is {value}");
                world.story.violate("settings", &[Who::Client(id)], text);
            }
        }
    }

    fn act(&mut self, world: &mut World) {
        if self.rests_until > world.now {
            return;
        }
        if let Some(position) = self.harks.take()
            && self.reference.is_idle()
            && let Err(why) = self.reference.hearing.all_told(position)
        {
            let id = self.wish.id;
            let text = format!("client {id}, idle, {why}");
            return world.story.violate("told", &[Who::Client(id)], text);
        }
        let Some(act) = self.wish.script.front() else {
            return self.part(world);
        };
        let until = |millis: u64| Time(world.now.0 + millis * 1_000_000);
        match act {
            Act::Await if !self.reference.is_answered() => return,
            Act::AwaitCopy if !self.reference.copies_in() && !self.reference.is_answered() => {
                return;
            }
            Act::Await | Act::AwaitCopy => {}
            Act::Send(messages) => {
                let messages = messages.clone();
                self.send(messages, world);
            }
            Act::Rest(millis) => {
                self.rests_until = until(*millis);
                world.alarm(self.rests_until);
            }
            Act::Hark(millis) => {
                self.rests_until = until(*millis);
                // Long enough for everything that may be slow.
                let harks = *millis >= 1500 && self.deaf_until <= world.now;
                self.harks = harks.then(|| self.reference.hearing.position());
                world.alarm(self.rests_until);
            }
            Act::Deafen(millis) => {
                self.deaf_until = until(*millis);
                world.alarm(self.deaf_until);
            }
        }
        self.wish.script.pop_front();
        world.activity += 1;
    }

    fn send(&mut self, messages: Vec<Message>, world: &mut World) {
        let (id, now) = (self.wish.id, world.now);
        let killed = world.killed.get(&self.wish.database);
        self.killed |= killed.is_some_and(|killed| self.talks_since < *killed)
            && self.stage == Stage::Talking
            && self.reference.is_answered();
        for message in messages {
            world.story.tell(now, Who::Client(id), || {
                format!("<- {} {}", char::from(message.tag), words(&message.body))
            });
            write::message(&mut self.out, message.tag, |buf| {
                buf.extend_from_slice(&message.body);
            });
            self.reference.sent(message, now);
        }
    }

    /// The script is over: the client ends.
    fn part(&mut self, world: &mut World) {
        let hasty = match self.wish.end {
            End::TerminateAtOnce => true,
            // Everything is sent.
            End::Vanish(..) => self.unsent() == 0,
            _ => false,
        };
        if !hasty && (self.unsent() > 0 || !self.reference.is_answered()) {
            return;
        }
        match self.wish.end {
            End::Terminate | End::TerminateAtOnce => {
                write::empty(&mut self.out, frontend::TERMINATE);
                self.stage = Stage::Leaving;
                self.reference.hearing.leaves = true;
                world.activity += 1;
            }
            End::Close => self.say_goodbye(world),
            End::Vanish(_, reset) => self.vanish(reset, world),
        }
    }

    /// Closes the connection, through TLS with or without close_notify.
    fn say_goodbye(&mut self, world: &mut World) {
        if let (Some(session), Some(socket)) = (&mut self.secure, self.socket)
            && world.chance.once_in(2)
        {
            session.close();
            let goodbye = session.take_output().unwrap_or_default();
            world.write(socket, &goodbye);
        }
        self.leave(world);
    }

    /// Compares the changes that PostgreSQL kept with those that it should have kept. To be called
    /// at the end.
    pub fn settle(&mut self, journal: &Journal, world: &mut World) {
        let id = self.wish.id;
        let mut wrong = Vec::new();
        for token in self.reference.known() {
            if !journal.fate(*token).kept {
                wrong.push(format!("{token} was said to be kept and is not"));
            }
        }
        self.reference.run_out();
        let whole = !self.disturbed;
        if whole || self.reference.cancels == 0 {
            let asked = self.reference.kept();
            for (token, fate) in journal.of(id) {
                if fate.kept && !asked.contains(&token) {
                    wrong.push(format!("{token} is kept, which was not asked for"));
                }
            }
            for token in asked.iter().filter(|_| whole) {
                if !journal.fate(*token).kept {
                    wrong.push(format!("{token} is not kept"));
                }
            }
        }
        if let Some(first) = wrong.into_iter().next() {
            let backend = journal.of(id).last().map_or(0, |(_, fate)| fate.backend);
            let who = [Who::Client(id), Who::Backend(backend)];
            world.story.violate("kept", &who, first);
        }
    }
}

/// The settings of a session that the client would have alone with PostgreSQL. RESET goes back to
/// the values that the client asked for, or else to the values with which its pool's servers begin.
fn reference_settings(wish: &Wish) -> Settings {
    let given = wish.defaults.iter().chain(&wish.asks);
    let settings = Settings::new(given.map(|(name, value)| (&**name, &**value)));
    debug_assert!(
        wish.asks
            .iter()
            .all(|(name, _)| position(name) < Some(KNOWN.len()))
    );
    settings
}

/// Takes a complete message out of the bytes.
fn take(inbox: &mut Vec<u8>) -> Option<Vec<u8>> {
    let header = header(inbox)?.ok()?;
    if inbox.len() < header.total() {
        return None;
    }
    let rest = inbox.split_off(header.total());
    Some(std::mem::replace(inbox, rest))
}
