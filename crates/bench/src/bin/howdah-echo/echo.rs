//! The loop: takes the driver's completions, and sends encrypted answers.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use howdah_auth::Verifier;
use howdah_daemon::driver::{Completion, Driver, Key, ReceivedChunk};
use howdah_daemon::tls::session::{HandshakeStep, Opened};
use howdah_daemon::tls::{Contexts, TlsLibrary, TlsSession};

use crate::talk::{Answers, Next, Talk};

/// A client.
struct Client {
    key: Key,
    talk: Talk,
    session: Option<Box<dyn TlsSession>>,
    /// Bytes to encrypt and send.
    out: Vec<u8>,
    /// Bytes to send as they are, before `out`.
    raw: Vec<u8>,
    sending: bool,
    closing: bool,
    /// The client is in the list `dirty`.
    dirty: bool,
}

/// The TLS floor.
pub struct Echo<D> {
    driver: D,
    contexts: Arc<Contexts>,
    secret: Verifier,
    answers: Answers,
    clients: Vec<Option<Client>>,
    free: Vec<u32>,
    generation: u32,
    dirty: Vec<Key>,
    /// Decrypted bytes of one receive.
    plain: Vec<u8>,
    /// Blocks for sends, reused.
    spare: Vec<Vec<u8>>,
}

impl<D: Driver> Echo<D> {
    /// An echo without clients.
    pub fn new(driver: D, contexts: Arc<Contexts>, secret: Verifier) -> Echo<D> {
        Echo {
            driver,
            contexts,
            secret,
            answers: Answers::new(),
            clients: Vec::new(),
            free: Vec::new(),
            generation: 0,
            dirty: Vec::new(),
            plain: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// A connection can't be accepted.
    pub fn run(mut self) -> io::Result<Infallible> {
        self.driver.accept(0, true);
        loop {
            self.driver.wait(None);
            while let Some(done) = self.driver.next() {
                self.complete(done)?;
            }
            for key in std::mem::take(&mut self.dirty) {
                self.flush(key);
            }
        }
    }

    fn complete(&mut self, done: Completion) -> io::Result<()> {
        match done {
            Completion::Accepted { socket, .. } => {
                let key = self.insert();
                self.driver.attach(key, socket);
                self.driver.receive(key, true);
            }
            Completion::AcceptFailed { error, .. } => return Err(error.into()),
            Completion::Received { key, chunk } => self.received(key, chunk),
            Completion::Ended { key, .. } => self.close(key),
            Completion::Sent { key, block, .. } => self.sent(key, block),
            Completion::Closed { key } => {
                self.clients[key.slot as usize] = None;
                self.free.push(key.slot);
            }
            Completion::Connected { .. } | Completion::Detached { .. } => {}
        }
        Ok(())
    }

    fn insert(&mut self) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() as u32 - 1
        });
        self.generation += 1;
        let key = Key {
            slot,
            generation: self.generation,
        };
        self.clients[slot as usize] = Some(Client {
            key,
            talk: Talk::new(),
            session: None,
            out: Vec::new(),
            raw: Vec::new(),
            sending: false,
            closing: false,
            dirty: false,
        });
        key
    }

    fn get(&mut self, key: Key) -> Option<&mut Client> {
        let client = self.clients.get_mut(key.slot as usize)?.as_mut()?;
        (client.key == key).then_some(client)
    }

    fn received(&mut self, key: Key, chunk: ReceivedChunk) {
        let slot = self.clients.get_mut(key.slot as usize);
        if let Some(client) = slot
            .and_then(Option::as_mut)
            .filter(|client| client.key == key)
        {
            let bytes = self.driver.bytes(&chunk);
            let mut next = Next::More;
            let mut plain = bytes;
            if let Some(session) = &mut client.session {
                session.feed(bytes);
                let mut len = 0;
                if session.is_in_handshake() {
                    next = shake_hands(&mut **session);
                }
                if !session.is_in_handshake()
                    && next == Next::More
                    && session.open(&mut self.plain, &mut len) != Opened::More
                {
                    next = Next::Close;
                }
                client.raw.extend(session.take_output().unwrap_or_default());
                plain = &self.plain[..len];
            }
            if next == Next::More && !plain.is_empty() {
                let out = match client.session {
                    Some(_) => &mut client.out,
                    None => &mut client.raw,
                };
                next = client.talk.hear(plain, &self.answers, &self.secret, out);
            }
            if next == Next::Tls && client.session.is_none() {
                client.session = self.contexts.accept(false).ok();
                next = Next::More;
            }
            if !std::mem::replace(&mut client.dirty, true) {
                self.dirty.push(key);
            }
            if next != Next::More {
                self.driver.release(chunk);
                return self.close(key);
            }
        }
        self.driver.release(chunk);
    }

    fn flush(&mut self, key: Key) {
        let block = self.spare.pop().unwrap_or_default();
        let Some(client) = self.get(key) else { return };
        client.dirty = false;
        if client.sending || client.closing || client.out.is_empty() && client.raw.is_empty() {
            return self.spare.push(block);
        }
        let mut block = if client.raw.is_empty() {
            block
        } else {
            std::mem::take(&mut client.raw)
        };
        if let Some(session) = &mut client.session
            && !client.out.is_empty()
        {
            let sealed = session.seal(&client.out, block);
            client.out.clear();
            match sealed {
                Ok(sealed) => block = sealed,
                Err(_) => return self.close(key),
            }
        }
        client.sending = true;
        if client.out.capacity() > 0 {
            // An idle client keeps no memory for output.
            client.out = Vec::new();
        }
        if let Some(block) = self.driver.send(key, block, false) {
            self.sent(key, block);
        }
    }

    fn sent(&mut self, key: Key, mut block: Vec<u8>) {
        block.clear();
        self.spare.push(block);
        if let Some(client) = self.get(key) {
            client.sending = false;
            if !std::mem::replace(&mut client.dirty, true) {
                self.dirty.push(key);
            }
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(client) = self.get(key)
            && !std::mem::replace(&mut client.closing, true)
        {
            self.driver.close(key);
        }
    }
}

/// Takes all handshake steps that the received bytes allow.
fn shake_hands(session: &mut dyn TlsSession) -> Next {
    match session.handshake() {
        HandshakeStep::More | HandshakeStep::Done(_) => Next::More,
        HandshakeStep::Failed(_) => Next::Close,
    }
}
