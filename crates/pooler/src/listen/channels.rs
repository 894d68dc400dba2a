//! The channels that a client listens to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Name, Notification};
use crate::login::key::LoginKey;
use crate::{effect, limits};

/// Why Howdah holds back a client's messages and answers: which answer of the listener the client
/// waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hush {
    /// Nothing is held back.
    #[default]
    No,
    /// The client has asked to hear channels.
    Wishes,
    /// Before its next message is sent, the client must receive every notification committed by
    /// now.
    Passes,
    /// The client's idle ReadyForQuery is held back. Howdah must first ask PostgreSQL which
    /// channels the server listens to.
    Ready,
    /// The client's idle ReadyForQuery is held back until the client has received every
    /// notification committed before.
    Round,
    /// The wait is over, but a message of the client's server is still being relayed.
    Message,
}

/// A channel to which the server listens besides, from an UNLISTEN in a transaction block on. If the
/// server listens to it behind a transaction part of which was rolled back, the LISTEN commands of
/// Howdah were not.
pub(super) const MARK: &[u8] = b"howdah_alone";

/// Whether the client's server listens to all channels of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListensAlone {
    /// No.
    #[default]
    No,
    /// It has been sent the LISTEN commands. They may have failed or have been rolled back.
    Begun,
    /// Yes: PostgreSQL's list says what the client listens to.
    Yes,
}

/// The channels that a client listens to.
#[derive(Debug)]
pub struct Channels {
    /// The client's listener.
    pub listener: Arc<LoginKey>,
    /// The channels that the client hears. The value is true once the LISTEN is committed; until
    /// then notifications wait.
    names: BTreeMap<Name, bool>,
    /// The channels that the client has asked to hear.
    pub wished: Vec<Name>,
    /// Channels whose LISTEN the client has sent, but which may not have run yet. Their
    /// notifications wait.
    pub ahead: BTreeSet<Name>,
    /// The encoding of the client's notifications.
    pub encoding: Option<Box<[u8]>>,
    /// The client listens on a server that it keeps: the listener has refused, or there is no
    /// listener.
    pub refused: bool,
    /// An error has come since the client's last UNLISTEN outside of a transaction block.
    pub failed: bool,
    /// The client has received every notification that was committed before its next message.
    pub sure: bool,
    /// The listener was lost. A new listener must listen to these channels.
    pub anew: Option<Vec<Name>>,
    /// The client must get a warning that it may have missed notifications.
    pub missed: bool,
    /// The client's listener is gone for good: the client ends as soon as it is idle.
    pub over: bool,
    /// Whether the client's server listens to all of its channels. The client then keeps the
    /// server.
    pub alone: ListensAlone,
    /// UNLISTEN commands outside of transaction blocks, not confirmed yet.
    unlistens: Vec<Unlisten>,
    /// Notifications that wait until the client is idle.
    waits: VecDeque<Heard>,
    /// The size of the waiting notifications, in bytes.
    size: usize,
}

/// An UNLISTEN that PostgreSQL has not confirmed yet.
#[derive(Debug)]
struct Unlisten {
    /// The text of the UNLISTEN ends all transactions before it.
    outside: bool,
    all: bool,
    names: Vec<Name>,
}

/// A notification for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The notification.
    pub notification: Arc<Notification>,
    /// The client itself has certainly sent the notification.
    pub own: bool,
}

impl Channels {
    /// No channels yet.
    pub fn new(listener: Arc<LoginKey>) -> Channels {
        Channels {
            listener,
            names: BTreeMap::new(),
            wished: Vec::new(),
            ahead: BTreeSet::new(),
            encoding: None,
            refused: false,
            failed: false,
            sure: false,
            anew: None,
            missed: false,
            over: false,
            alone: ListensAlone::No,
            unlistens: Vec::new(),
            waits: VecDeque::new(),
            size: 0,
        }
    }

    /// The client hears no channel.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How many channels the client hears.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The client hears no channel, asks for no channel, and no notification or warning waits for
    /// it.
    pub fn are_over(&self) -> bool {
        let waits = !self.waits.is_empty() || self.anew.is_some() || self.missed;
        self.names.is_empty() && self.wished.is_empty() && !waits
    }

    /// The client hears this channel.
    pub fn has(&self, name: &[u8]) -> bool {
        self.names.contains_key(name)
    }

    /// The client hears a channel whose LISTEN is not committed yet.
    pub fn are_tentative(&self) -> bool {
        self.names.values().any(|listens| !listens)
    }

    /// All channels that the client hears or has asked to hear.
    pub fn all(&self) -> Vec<Name> {
        let names = self.names.keys().chain(&self.wished);
        names.cloned().collect()
    }

    /// The channels whose LISTEN is committed.
    pub fn listened(&self) -> impl Iterator<Item = &Name> {
        let listened = self.names.iter().filter(|(_, listens)| **listens);
        listened.map(|(name, _)| name)
    }

    /// True if the client has received every notification that was committed before its next
    /// message, or will receive no more. Later messages ask again.
    pub fn take_sure(&mut self) -> bool {
        std::mem::take(&mut self.sure) || self.over
    }

    /// The listener now hears the channels that the client asked for.
    pub fn granted(&mut self) {
        for name in self.wished.drain(..) {
            self.names.entry(name).or_insert(false);
        }
    }

    /// An UNLISTEN outside of a transaction block is about to be sent.
    pub fn unlisten(&mut self, told: &effect::ListenCommands) {
        self.failed = false;
        self.unlistens.push(Unlisten {
            outside: told.outside,
            all: told.unlistens_all,
            names: told.unlistens.clone(),
        });
    }

    /// A transaction is over. `there` has the channels that the server listens to, if Howdah asked
    /// for them. If the server could not answer, the server itself is taken to listen. `doubtful`:
    /// a command has failed or was rolled back. Returns the channels that the client no longer
    /// hears, and whether the client keeps the server because it listens there.
    pub fn settle(
        &mut self,
        there: Option<&[Name]>,
        discarded: bool,
        doubtful: bool,
    ) -> (Vec<Name>, bool) {
        let before = self.names.clone();
        let unlistens = std::mem::take(&mut self.unlistens);
        let listens = |name: &[u8]| there.is_some_and(|all| all.iter().any(|one| **one == *name));
        let alone = match self.alone {
            ListensAlone::No => false,
            ListensAlone::Begun => there.is_some() && (!doubtful || listens(MARK)),
            ListensAlone::Yes => there.is_some(),
        };
        if discarded {
            self.names.clear();
            self.alone = ListensAlone::No;
        } else if alone {
            self.names
                .retain(|name, listened| !*listened || listens(name));
        } else if !self.failed {
            // A BEGIN of the same group of messages may have been rolled back with the UNLISTEN.
            let count = |unlisten: &Unlisten| unlisten.outside || !doubtful;
            for unlisten in unlistens.into_iter().filter(count) {
                let stays = |name: &Name| !unlisten.all && !unlisten.names.contains(name);
                self.names.retain(|name, _| stays(name));
            }
        }
        let mut keeps = false;
        for name in there.unwrap_or_default() {
            let heard = before.contains_key(name);
            if heard {
                self.names.insert(name.clone(), true);
            }
            keeps |= (alone || !heard) && **name != *MARK;
        }
        if self.alone == ListensAlone::Begun || there.is_some() {
            self.alone = if alone && keeps {
                ListensAlone::Yes
            } else {
                ListensAlone::No
            };
        }
        let names = &self.names;
        self.ahead.retain(|name| names.get(name) == Some(&false));
        let ahead = &self.ahead;
        self.names
            .retain(|name, listens| *listens || ahead.contains(name));
        let gone = |name: &Name| !self.names.contains_key(name);
        (before.into_keys().filter(gone).collect(), keeps)
    }

    /// A notification waits until its client is idle. False if too many bytes wait.
    pub fn keep(&mut self, heard: Heard) -> bool {
        self.size += heard.notification.size();
        self.waits.push_back(heard);
        self.size <= limits::HEARD
    }

    /// The LISTEN of some channels is not committed yet. Their notifications were committed before
    /// the client's transaction ends, so PostgreSQL would not deliver them: they are dropped.
    pub fn forget_tentative(&mut self) {
        let (names, ahead) = (&self.names, &self.ahead);
        self.waits.retain(|heard| {
            let channel = &heard.notification.channel;
            names.get(channel) == Some(&true) || ahead.contains(channel)
        });
        self.size = self.waits.iter().map(|h| h.notification.size()).sum();
    }

    /// The notifications that the client must receive now.
    pub fn take(&mut self) -> Vec<Heard> {
        let waits = std::mem::take(&mut self.waits);
        let mut taken = Vec::new();
        for heard in waits {
            let channel = &heard.notification.channel;
            if self.ahead.contains(channel) {
                self.waits.push_back(heard);
            } else if self.names.get(channel) == Some(&true) {
                taken.push(heard);
            }
        }
        self.size = self.waits.iter().map(|h| h.notification.size()).sum();
        taken
    }

    /// No notification and no warning waits.
    pub fn is_silent(&self) -> bool {
        self.waits.is_empty() && !self.missed
    }
}
