//! The session at PostgreSQL behind a server: what clients have set there, and what they have left.

use std::sync::Arc;

use super::changes::Changes;
use super::inquiry::Inquiry;
use super::settings::Maybe;
use super::{Session, Shelf, Suspect};
use crate::params::Params;

/// What is known of the session behind a server.
#[derive(Debug)]
pub struct ServerSession {
    /// The values of the tracked parameters.
    pub(crate) params: Arc<Params>,
    /// Clients' settings that are not among `params`.
    pub(crate) settings: Maybe,
    /// A client may have left more than settings. Howdah cleans the server before another client
    /// gets it.
    soiled: bool,
    /// A text that can't be read with certainty has run, or a client has reset a setting of
    /// `connect_query`. Howdah cleans the server before any client gets it.
    doubted: bool,
    /// A LISTEN ran here, for a client that gets its notifications from the listener. The server
    /// runs `UNLISTEN *` before another client gets it.
    listens: bool,
    /// Clients may have sent notifications that the listener has not heard yet.
    unheard: bool,
    /// How far the server has accepted its client's settings.
    trial: Trial,
    /// The clients whose sequence values (`currval`) are here.
    numbers: Numbers,
    /// The current question about the client's session.
    pub(crate) inquiry: Option<Box<Inquiry>>,
    /// How the open transaction has changed the meaning of texts.
    pub(crate) changes: Changes,
}

/// How far a server has accepted its client's settings. PostgreSQL may refuse settings without a
/// fault of the client. Then Howdah tries again, at most twice:
///
/// ```text
///   First --refused, others' settings are there--> Refused --> Cleans --> Clean
///     |                                                                     |
///     `---- permission denied (42501), and the client has set a role -------+
///                                                                           v
///                                                               Denied --> Last
/// ```
///
/// An example of each. Another client ran `SET statement_timeout = 1`, and the commands that reset
/// its settings hit this timeout. `DISCARD ALL` without a timeout does not. Or this client ran `SET
/// ROLE admin` and then `SET log_statement = 'all'`. Howdah sets the role last, but only `admin`
/// may set `log_statement`. The second time, Howdah sets the role first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trial {
    /// PostgreSQL has refused nothing.
    #[default]
    First,
    /// PostgreSQL has refused, perhaps because of other clients' settings. `DISCARD ALL` is due.
    Refused,
    /// `DISCARD ALL` runs.
    Cleans,
    /// The server is clean, and gets the client's settings.
    Clean,
    /// A privilege was missing. Howdah will set the settings again, the role first.
    Denied,
    /// The server gets the client's settings, the role first. No further try follows.
    Last,
}

impl Trial {
    /// True if the next step is due once PostgreSQL has answered.
    pub fn goes_on(self) -> bool {
        matches!(self, Trial::Refused | Trial::Cleans | Trial::Denied)
    }
}

/// Whose sequence values (`currval`, `lastval`) a server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// The console number of the client that used the server last; 0 for nobody since the server
    /// last forgot its values.
    pub last: u64,
    /// Values of other clients may be among them, or outdated ones of one that used another server
    /// since.
    pub mixed: bool,
    /// The same client also had the transaction before the current one.
    pub again: bool,
}

impl Numbers {
    /// Values of clients of which nothing is known.
    pub const OF_SOMEBODY: Numbers = Numbers {
        last: u64::MAX,
        mixed: true,
        again: false,
    };
}

impl ServerSession {
    /// A session with these settings, and with sequence values of these clients.
    pub(crate) fn new(params: Arc<Params>, settings: Maybe, numbers: Numbers) -> Self {
        ServerSession {
            params,
            settings,
            soiled: false,
            doubted: false,
            listens: false,
            unheard: true,
            trial: Trial::First,
            numbers,
            inquiry: None,
            changes: Changes::default(),
        }
    }

    /// True if only DISCARD ALL removes what a client has left.
    pub(crate) fn needs_cleaning(&self) -> bool {
        self.soiled || self.doubted
    }

    /// True if no client has left anything that the next client could notice.
    pub(crate) fn is_clean(&self) -> bool {
        !self.needs_cleaning() && !self.listens && self.settings.is_none()
    }

    /// A client has left state here, if `left`.
    pub(crate) fn soil(&mut self, left: bool) {
        self.soiled |= left;
    }

    pub(crate) fn set_soiled(&mut self, soiled: bool) {
        self.soiled = soiled;
    }

    /// The server must be cleaned before any client gets it, whatever PostgreSQL says of the
    /// client's session.
    pub(crate) fn mark_doubted(&mut self) {
        self.doubted = true;
    }

    /// Howdah is removing everything that clients have left.
    pub(crate) fn mark_cleaned(&mut self) {
        self.soiled = false;
        self.doubted = false;
        self.listens = false;
        self.numbers = Numbers::default();
    }

    pub(crate) fn set_params(&mut self, params: Arc<Params>) {
        self.params = params;
    }

    pub(crate) fn set_settings(&mut self, settings: Maybe) {
        self.settings = settings;
    }

    /// Shares equal settings as one value.
    pub(crate) fn share_settings(&mut self, shelf: &mut Shelf) {
        self.settings = super::intern(shelf, self.settings.take());
    }

    pub(crate) fn trial(&self) -> Trial {
        self.trial
    }

    /// Begins the next step with the client's settings.
    pub(crate) fn set_trial(&mut self, next: Trial) {
        self.trial = next;
    }

    /// True if the server must run `UNLISTEN *` before another client gets it.
    pub(crate) fn has_listened(&self) -> bool {
        self.listens
    }

    /// A LISTEN is about to run here, for a client that gets its notifications from the listener.
    pub(crate) fn unlisten_later(&mut self) {
        self.listens = true;
    }

    /// Howdah makes the server listen to nothing. False if it listens to nothing already.
    pub(crate) fn stop_listening(&mut self) -> bool {
        std::mem::take(&mut self.listens)
    }

    pub(crate) fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// The listener has heard all notifications of the server's clients.
    pub(crate) fn mark_heard(&mut self) {
        self.unheard = false;
    }

    /// A client uses the server. `listens`: before the client leaves, the listener hears all its
    /// notifications.
    pub(crate) fn note_user(&mut self, listens: bool) {
        self.unheard |= !listens;
    }

    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// A client gets the server. `again`: the client used the server in its last transaction, too;
    /// otherwise its own values may be outdated. True if Howdah must forget the server's sequence
    /// values: clients ask for values (`asked_for`), and these may be outdated or another client's.
    pub(crate) fn give_numbers(&mut self, client: u64, again: bool, asked_for: bool) -> bool {
        let Numbers { last, mixed, .. } = self.numbers;
        let own = last == 0 || again && last == client;
        let mixed = mixed || !own;
        let forgets = mixed && asked_for;
        self.numbers = Numbers {
            last: client,
            mixed: mixed && !forgets,
            again: own,
        };
        forgets
    }

    /// The client keeps the server: no other client uses it before the client's next transaction.
    pub(crate) fn keep_numbers(&mut self) {
        self.numbers.again = true;
    }

    /// Howdah forgets the sequence values for the server's client.
    pub(crate) fn forget_numbers(&mut self) {
        self.numbers.mixed = false;
    }

    /// Howdah asks the server about the client's session.
    pub(crate) fn begin_inquiry(&mut self, inquiry: Inquiry) {
        self.inquiry = Some(Box::new(inquiry));
    }

    /// The server answers the inquiry with this row.
    pub(crate) fn set_inquiry_row(&mut self, row: Vec<u8>) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.row = Some(row);
        }
    }

    /// The server answers the inquiry with an error.
    pub(crate) fn fail_inquiry(&mut self, cancelled: bool) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.failed = true;
            inquiry.cancelled = cancelled;
        }
    }

    /// The query that repeats a failed inquiry, if it is repeated.
    pub(crate) fn ask_once_more(&mut self) -> Option<Vec<u8>> {
        self.inquiry.as_mut()?.once_more()
    }

    /// The inquiry is answered. The server and the client's session take over the values.
    pub(crate) fn tell_settings(
        &mut self,
        own: &mut Session,
        answers: &[(Suspect, Option<Box<[u8]>>)],
    ) {
        own.learn(&mut self.settings, answers);
    }

    /// The inquiry is over.
    pub(crate) fn take_inquiry(&mut self) -> Option<Box<Inquiry>> {
        self.inquiry.take()
    }

    #[inline(always)]
    pub(crate) fn end_inquiry(&mut self) {
        self.inquiry = None;
    }
}
