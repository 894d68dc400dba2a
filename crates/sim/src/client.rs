//! A client: logs in, plays its script, and holds every reply against its [`Reference`].

use std::collections::VecDeque;

use howdah_daemon::tls::TlsSession;
use howdah_daemon::tls::session::{HandshakeStep, Opened};
use howdah_pooler::event::{Address, Time};
use howdah_wire::backend::{Fields, key_data, parameter_status};
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::grammar::{Act, End};
use crate::hearing::Hearing;
use crate::journal::Journal;
use crate::postgres::{CRASHED, UNASKED};
use crate::reference::{Message, Reference};
use crate::session::{Keeping, Session};
use crate::settings::{KNOWN, Settings, position};
use crate::story::{Who, words};
use crate::tls::ToySession;
use crate::view::View;
use crate::world::{Read, SocketId, World};

/// What it is and wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its number.
    pub id: u32,
    /// Which database.
    pub database: String,
    /// Who it logs in as.
    pub user: String,
    /// Settings it asks for at login.
    pub asks: Vec<(String, String)>,
    /// Settings that servers of its database begin with.
    pub defaults: Vec<(String, String)>,
    /// What it says.
    pub script: VecDeque<Act>,
    /// How it ends.
    pub end: End,
    /// When it connects.
    pub at: Time,
    /// Somebody may cancel what it does.
    pub cancellable: bool,
    /// It, or others, change the schema.
    pub schema: bool,
    /// Its statements are renamed, and parsed wherever they are needed.
    pub renamed: bool,
    /// Whether it goes through TLS.
    pub tls: Tls,
    /// Its LISTEN is always shared: what it notifies itself is known to be its own.
    pub own_are_known: bool,
    /// How servers are kept for it.
    pub keeping: Keeping,
    /// It talks before it is told that it is logged in.
    pub eager: bool,
    /// The minor version of the protocol it speaks.
    pub minor: u16,
}

/// Whether and how a client begins TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    /// It does not.
    Never,
    /// By an SSLRequest; in clear text if it is refused.
    Asks,
    /// Without one.
    AtOnce,
}

/// Where a client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Away,
    /// It has asked for TLS.
    Asking,
    /// Its handshake is under way.
    Shaking,
    /// It says no more in the middle of its handshake.
    Stalling,
    LoggingIn,
    Talking,
    /// It has said goodbye.
    Leaving,
    /// It was told FATAL.
    Doomed,
    Gone,
}

/// See the module.
pub struct Client {
    wish: Wish,
    stage: Stage,
    socket: Option<SocketId>,
    /// What it wants to send, without TLS.
    out: Vec<u8>,
    secure: Option<Box<ToySession>>,
    /// What leaves it through TLS.
    sealed: Vec<u8>,
    /// How often it has taken a new key.
    updates: u32,
    written: usize,
    inbox: Vec<u8>,
    reference: Reference,
    told: Vec<(String, String)>,
    /// Process id and secret, for cancels.
    pub key: Option<(u32, Vec<u8>)>,
    rests_until: Time,
    deaf_until: Time,
    /// It rests to be told what was notified before this position.
    harks: Option<usize>,
    /// It was not answered to the end.
    disturbed: bool,
    /// It has left in the middle of a COPY.
    deaf_for_good: bool,
    /// It was told that its session ends, as another one has crashed.
    warned: bool,
    /// How many acts were left when somebody last asked to cancel what it does.
    cancelled_before: Option<usize>,
}

impl Client {
    /// One that will come.
    pub fn new(wish: Wish, world: &mut World) -> Client {
        world.alarm(wish.at);
        let view = View::of_reference(world.catalog(&wish.database), wish.id, wish.renamed);
        let mut session = Session::new(reference_settings(&wish), view);
        session.keeping = wish.keeping;
        let mut hearing = Hearing::new(wish.id, world.board(&wish.database));
        let latin = wish.asks.iter().any(|(name, _)| name == "client_encoding");
        hearing.own_are_known = wish.own_are_known && !latin;
        let reference = Reference::new(session, hearing, wish.cancellable || wish.schema);
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
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.wish.id
    }

    /// It has come and gone.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// It is logged in and talks.
    pub fn talks(&self) -> bool {
        self.stage == Stage::Talking
    }

    /// Somebody may cancel what it does.
    pub fn is_cancellable(&self) -> bool {
        self.wish.cancellable
    }

    /// It waits for a statement that takes its time, and that nobody has asked to cancel yet.
    pub fn awaits_slow(&self) -> bool {
        self.reference.is_slow() && self.cancelled_before != Some(self.wish.script.len())
    }

    /// Somebody asks to cancel what it does.
    pub fn is_cancelled(&mut self, world: &World) {
        self.reference.cancels += 1;
        self.cancelled_before = Some(self.wish.script.len());
        if world.prompt_cancels {
            self.reference.cancelled_at = Some(world.now.0);
        }
    }

    /// Its socket, while it has one.
    pub fn socket(&self) -> Option<SocketId> {
        self.socket
    }

    /// What it still waits for, in words.
    pub fn awaits(&self) -> String {
        format!(
            "{:?}, unsent {}, acts {}, {}",
            self.stage,
            self.unsent(),
            self.wish.script.len(),
            self.reference.awaits()
        )
    }

    /// Does something, or not.
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
        self.socket = world.connect(front);
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

    /// TLS begins.
    fn shake_hands(&mut self, world: &mut World) {
        let mut session = Box::new(ToySession::client(world.chance.number()));
        session.handshake();
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        self.secure = Some(session);
        self.stage = Stage::Shaking;
        if world.chance.once_in(12) {
            // What it says is no TLS, or it says not all of it.
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

    /// What it has to say becomes records; now and then it takes a new key before.
    fn seal(&mut self, world: &mut World) {
        let Some(session) = &mut self.secure else {
            return;
        };
        if session.is_in_handshake() || self.stage == Stage::Stalling {
            return;
        }
        // Bounded: each write can hold up what was written before.
        if self.stage == Stage::Talking && self.updates < 20 && world.chance.once_in(25) {
            session.update_keys(world.chance.once_in(2));
            self.updates += 1;
        }
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        if !self.out.is_empty() {
            match session.seal(&self.out, std::mem::take(&mut self.sealed)) {
                Ok(sealed) => self.sealed = sealed,
                // The reading side finds out why.
                Err(_) => self.sealed.clear(),
            }
            self.out.clear();
        }
    }

    /// Bytes that have not left it.
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
            // The reading side finds out why.
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
            // In the middle of a record it is one more thing that is no TLS.
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
        if self.stage == Stage::LoggingIn {
            return self.login_message(message, world);
        }
        // A pooler may say by itself what comes of a Parse or a Close.
        let made = matches!(
            message[0],
            backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE
        );
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
        // Its COPY is failed for it, which it does not hear any more.
        let failed = fields.message() == b"COPY from stdin failed: client disconnected";
        self.deaf_for_good |= self.stage == Stage::Leaving && failed;
        if self.deaf_for_good {
            return;
        }
        if let Err(why) = self.reference.received(message, now.0) {
            let text = format!("client {id} {why}");
            let told = why.contains(" told ");
            let checker = if told { "told" } else { "replies" };
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
        // Only so much is held for who is not logged in.
        let hasty = self.wish.eager && text == "unexpected message before the end of the login";
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
                self.check_told(world);
            }
            tag => {
                let text = format!("client {id} gets {} at login", char::from(tag));
                world.story.violate("replies", &[Who::Client(id)], text);
            }
        }
    }

    /// It is told its own settings, and PostgreSQL's for the rest.
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
                // Enough for whatever may be slow.
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

    /// Its script is over.
    fn part(&mut self, world: &mut World) {
        let hasty = match self.wish.end {
            End::TerminateAtOnce => true,
            // Everything is sent that was to be.
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

    /// Closes; through TLS with a word before, or not.
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

    /// Compares what PostgreSQL kept with what it was to keep. To be called at the end.
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

/// Settings of the session that a client would have had, alone with PostgreSQL. What RESET goes back to is what
/// the client asked for, or else what its pool's servers begin with.
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

/// Takes a whole message out.
fn take(inbox: &mut Vec<u8>) -> Option<Vec<u8>> {
    let header = header(inbox)?.ok()?;
    if inbox.len() < header.total() {
        return None;
    }
    let rest = inbox.split_off(header.total());
    Some(std::mem::replace(inbox, rest))
}
