//! A client sends `pg_cancel_backend` or `pg_terminate_backend` with a process id that Howdah may
//! have told a client ([`crate::signal`]). Howdah carries the signal out, waits for the result, and
//! then PostgreSQL gets a statement with that result in place of the call.

use howdah_wire::backend::Status;
use howdah_wire::frame::Header;
use howdah_wire::frontend::{Bind, BindNames, Parse};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::upstream::{Flow, Step, Upstream, whole};
use crate::client::Client;
use crate::inbox::Chunk;
use crate::ledger::{Entry, Reply};
use crate::limits;
use crate::signal::{SignalSent, SignalStatement, SignalText};
use crate::statement::VOID;

impl Upstream<'_> {
    /// Notes a Parse of such a call, or forgets the statement whose name the Parse takes.
    #[inline]
    pub(super) fn note_signal(&mut self, parse: Parse<'_>) {
        match SignalText::read(parse.text()) {
            Some(text) => keep_signal(self.client, Some(parse.name.into()), text),
            None if self.client.has_signal() => self.client.forgets_signal(Some(parse.name)),
            None => {}
        }
    }

    /// As [`Self::note_signal`], where Howdah does not read the Parse otherwise.
    pub(super) fn note_signal_as_is(&mut self, chunk: &Chunk<'_>, header: Header) -> Step {
        if header.body <= limits::SIGNAL {
            let body = whole(chunk, header).ok_or(Flow::Partial)?;
            if let Ok(parse) = Parse::read(body) {
                self.note_signal(parse);
            }
        }
        Ok(())
    }

    /// Answers a Query that is such a call. False if Howdah has told no client this process id.
    #[cold]
    pub(super) fn run_signal(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        text: &SignalText,
    ) -> Result<bool, Flow> {
        let Some(pid) = keep_query(self.client, text) else {
            return Ok(false);
        };
        let sent = self.send_signal(pid)?;
        self.client.forgets_signal(None);
        if sent {
            self.query_instead(chunk, header, &text.success());
        }
        Ok(sent)
    }

    /// Answers a Bind of such a call. False for other Binds.
    #[inline]
    pub(super) fn signal_by_bind(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
    ) -> Result<bool, Flow> {
        if self.client.has_signal() {
            self.bind_signal(chunk, header)
        } else {
            Ok(false)
        }
    }

    #[cold]
    fn bind_signal(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        let signal = self.client.signal();
        let Some(signal) = signal.filter(|_| header.body <= limits::SIGNAL) else {
            return Ok(false);
        };
        let body = whole(chunk, header).ok_or(Flow::Partial)?;
        let (Some(names), Ok(bind)) = (BindNames::read(body), Bind::read(body)) else {
            return Ok(false);
        };
        if signal.name.as_deref() != Some(names.statement) {
            // Not the latest of the client's statements of this kind, or the client has moved since.
            let statement = self.lookup(names.statement);
            let Some(text) = statement.and_then(|of| SignalText::read(of.text())) else {
                return Ok(false);
            };
            keep_signal(self.client, Some(names.statement.into()), text);
        }
        let Some(signal) = self.client.signal() else {
            return Ok(false);
        };
        let counts = usize::from(signal.text.pid.is_none());
        let fits = bind.values.len() == counts;
        let Some(pid) = signal.text.told(Some(body)).filter(|_| fits) else {
            return Ok(false);
        };
        let text = signal.text.success();
        // The effects of portals are noted by name.
        if !self.server.link.portals.is_empty() || !self.send_signal(pid)? {
            return Ok(false);
        }
        self.bind_instead(&bind, &text);
        self.skip(chunk, header);
        Ok(true)
    }

    /// Sends the signal, unless this is done. True if a client got the signal.
    fn send_signal(&mut self, pid: u32) -> Result<bool, Flow> {
        if self.server.link.owes_ready() {
            return Err(self.stall());
        }
        if self.server.status == Status::Failed {
            return Ok(false);
        }
        let Some(signal) = self.client.signal() else {
            return Ok(false);
        };
        match signal.sent {
            SignalSent::Done(of, got) if of == pid => {
                signal.sent = SignalSent::No;
                Ok(got)
            }
            _ => self.ask_once(pid).map(|()| false),
        }
    }

    /// Asks for the signal, or waits for the answer.
    fn ask_once(&mut self, pid: u32) -> Step {
        match ask_once(self.client, pid) {
            Err(Flow::Stalled) => Err(self.stall()),
            asked => asked,
        }
    }

    fn query_instead(&mut self, chunk: &mut Chunk<'_>, header: Header, text: &[u8]) {
        self.close_unnamed();
        let mut entry = self.query_entry();
        entry.changes_unnamed(self.unnamed_op(None));
        self.push(entry);
        let to = self.to();
        self.out.send_with(to, |buf| write::query(buf, text));
        self.skip(chunk, header);
    }

    fn bind_instead(&mut self, bind: &Bind<'_>, text: &[u8]) {
        self.server.link.set_bound(None);
        self.watch_bind(bind.names.portal, None, None);
        let to = self.to();
        let formats = 2 * (bind.wanted.len() + 1);
        self.out.send_with(to, |buf| {
            write::of_statement(buf, tag::CLOSE, VOID);
            write::parse(buf, VOID, &[text, &[0, 0, 0]].concat());
            write::bind_head(buf, bind.names.portal, VOID, 4 + formats);
            buf.extend_from_slice(&[0; 4]);
            for number in [bind.wanted.len() as u16].iter().chain(&bind.wanted) {
                buf.extend_from_slice(&number.to_be_bytes());
            }
            write::of_statement(buf, tag::CLOSE, VOID);
        });
        self.push(Entry::swallow(Reply::Close));
        self.push(Entry::swallow(Reply::Parse));
        self.push(Entry::forward(Reply::Bind));
        self.push(Entry::swallow(Reply::Close));
    }
}

/// Sends the signal of a Query whose client has no server: the signal needs none, and may free one.
/// The answer needs a server.
#[cold]
pub(super) fn signal_ahead(client: &mut Client, text: &SignalText) -> Step {
    let Some(pid) = keep_query(client, text) else {
        return Ok(());
    };
    match client.signal() {
        Some(signal) if !matches!(signal.sent, SignalSent::Done(of, _) if of == pid) => {
            ask_once(client, pid)
        }
        _ => Ok(()),
    }
}

/// Keeps a Query of this kind, and returns the process id if Howdah may have told it.
fn keep_query(client: &mut Client, text: &SignalText) -> Option<u32> {
    let pid = text.told(None);
    let kept = client.signal();
    if pid.is_some() && kept.is_none_or(|kept| kept.name.is_some() || kept.text != *text) {
        keep_signal(client, None, text.clone());
    }
    pid
}

#[cold]
fn keep_signal(client: &mut Client, name: Option<Box<[u8]>>, text: SignalText) {
    let sent = SignalSent::No;
    client.keeps_signal(SignalStatement { name, text, sent });
}

/// Asks for the signal, or waits for the answer.
fn ask_once(client: &mut Client, pid: u32) -> Step {
    let Some(signal) = client.signal() else {
        return Ok(());
    };
    if matches!(signal.sent, SignalSent::Asked(of) if of == pid) {
        client.end.stalls();
        return Err(Flow::Stalled);
    }
    signal.sent = SignalSent::Asked(pid);
    let ends = signal.text.ends;
    Err(Flow::NeedSignal { pid, ends })
}
