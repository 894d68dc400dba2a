//! The channels that a client listens to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Name, Notification, NotificationPosition, Reach};
use crate::pool::key::PoolKey;
use crate::{effect, limits};

/// Why a client's messages and answers are held back: which answer of the listener it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hush {
    /// Nothing is held back.
    #[default]
    No,
    /// It has asked to listen to channels.
    Wishes,
    /// Before its next message, it must get what was committed by then.
    Passes,
    /// Its idle ReadyForQuery is held back: PostgreSQL must first be asked which channels it
    /// listens to.
    Ready,
    /// Its idle ReadyForQuery is held back until it has got what was committed before.
    Round,
    /// It has got everything that it waited for, but a message of its server is still being
    /// relayed.
    Message,
}

/// The name of the channel that tells whether an UNLISTEN in a transaction was committed.
const MARK: &str = "howdah_unlisten_";

/// The channels that a client listens to.
#[derive(Debug)]
pub struct Channels {
    /// Its listener.
    pub listener: Arc<PoolKey>,
    /// The channels that it hears. True once the LISTEN is committed; until then notifications
    /// wait.
    names: BTreeMap<Name, bool>,
    /// The channels that it has asked for.
    pub wished: Vec<Name>,
    /// In which encoding it hears.
    pub encoding: Option<Box<[u8]>>,
    /// Its LISTEN goes to a server that it keeps, because the listener has refused or there is
    /// none.
    pub alone: bool,
    /// Something failed since its last UNLISTEN was sent outside of a transaction block.
    pub failed: bool,
    /// It has got everything that was committed before its next message.
    pub sure: bool,
    /// The listener was lost: another one is to listen to these channels.
    pub anew: Option<Vec<Name>>,
    /// It is to get a warning that it may have missed notifications.
    pub missed: bool,
    /// It has come from another process with these channels, and has not yet got what it has
    /// missed.
    pub follows: Option<Vec<Name>>,
    /// It can move to the successor once it has got notifications up to this number, if it listens
    /// to nothing else.
    pub reach: Option<(Arc<Reach>, u64)>,
    /// What sets the mark of an `UNLISTEN *` that is bound, behind its Execute.
    pub mark: Option<Vec<u8>>,
    /// UNLISTENs whose transaction is not over.
    unlistens: Vec<Unlisten>,
    /// The number of marks made so far.
    marks: u64,
    /// Notifications that wait until it is idle.
    waits: VecDeque<Heard>,
    /// Their size, in bytes.
    size: usize,
}

/// An UNLISTEN that PostgreSQL has not confirmed yet.
#[derive(Debug)]
struct Unlisten {
    all: bool,
    names: Vec<Name>,
    /// For an UNLISTEN in a transaction block: the server listens to this channel if the UNLISTEN
    /// was committed.
    mark: Option<String>,
}

/// A notification for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// What was said.
    pub notification: Arc<Notification>,
    /// The client has certainly sent it itself.
    pub own: bool,
}

impl Channels {
    /// None yet.
    pub fn new(listener: Arc<PoolKey>) -> Channels {
        Channels {
            listener,
            names: BTreeMap::new(),
            wished: Vec::new(),
            encoding: None,
            alone: false,
            failed: false,
            sure: false,
            anew: None,
            missed: false,
            follows: None,
            reach: None,
            mark: None,
            unlistens: Vec::new(),
            marks: 0,
            waits: VecDeque::new(),
            size: 0,
        }
    }

    /// It hears nothing.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How many channels it hears.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// It hears nothing, wishes for nothing, and has nothing to be told.
    pub fn are_over(&self) -> bool {
        let waits = !self.waits.is_empty() || self.anew.is_some() || self.missed;
        let waits = waits || self.follows.is_some();
        self.names.is_empty() && self.wished.is_empty() && !waits
    }

    /// It hears this channel.
    pub fn has(&self, name: &[u8]) -> bool {
        self.names.contains_key(name)
    }

    /// It hears something that it may not listen to yet.
    pub fn are_tentative(&self) -> bool {
        self.names.values().any(|listens| !listens)
    }

    /// All that it hears, or has wished for.
    pub fn all(&self) -> Vec<Name> {
        let names = self.names.keys().chain(&self.wished);
        names.cloned().collect()
    }

    /// It listens to these: it comes from another process.
    pub fn follow(&mut self, names: Vec<Name>) {
        let listened = names.iter().map(|name| (name.clone(), true));
        self.names = listened.collect();
        self.follows = Some(names);
    }

    /// How far it was told, if it can go to another process: that hears all that it listens to, and
    /// nothing is open here.
    pub fn place(&self) -> Option<NotificationPosition> {
        let (reach, number) = self.reach.as_ref()?;
        let mut names = self.names.iter();
        let hears = names.all(|(name, listens)| *listens && reach.names.contains(name));
        let open = self.alone || self.anew.is_some() || self.follows.is_some();
        let open = open || !self.wished.is_empty() || !self.unlistens.is_empty();
        let place = NotificationPosition {
            mark: reach.mark,
            number: *number,
        };
        (hears && !open && self.is_silent() && !self.is_empty()).then_some(place)
    }

    /// What it listens to.
    pub fn listened(&self) -> impl Iterator<Item = &Name> {
        let listened = self.names.iter().filter(|(_, listens)| **listens);
        listened.map(|(name, _)| name)
    }

    /// The listener has granted what was wished for.
    pub fn granted(&mut self) {
        for name in self.wished.drain(..) {
            self.names.entry(name).or_insert(false);
        }
    }

    /// An UNLISTEN is sent. In a transaction block: the channel to listen to behind that.
    pub fn unlisten(&mut self, told: &effect::ListenCommands, in_block: bool) -> Option<String> {
        self.failed &= in_block;
        self.marks += 1;
        let mark = in_block.then(|| format!("{MARK}{}", self.marks));
        self.unlistens.push(Unlisten {
            all: told.unlistens_all,
            names: told.unlistens.clone(),
            mark: mark.clone(),
        });
        mark
    }

    /// A transaction is over. `there` is what its server listens to, where that was asked; a server
    /// that would not tell is believed to listen itself. Returns what is not heard any more, and
    /// whether the server listens to something that is not heard.
    pub fn settle(&mut self, there: Option<&[Name]>, discarded: bool) -> (Vec<Name>, bool) {
        let before = self.names.clone();
        let there = there.unwrap_or_default();
        if discarded {
            self.names.clear();
        }
        for unlisten in std::mem::take(&mut self.unlistens) {
            let done = match unlisten.mark {
                Some(mark) => there.iter().any(|name| **name == *mark.as_bytes()),
                None => !self.failed,
            };
            if done {
                let stays = |name: &Name| !unlisten.all && !unlisten.names.contains(name);
                self.names.retain(|name, _| stays(name));
            }
        }
        let mut unheard = false;
        for name in there {
            if before.contains_key(name) {
                self.names.insert(name.clone(), true);
            } else if !name.starts_with(MARK.as_bytes()) {
                unheard = true;
            }
        }
        self.names.retain(|_, listens| *listens);
        let gone = |name: &Name| !self.names.contains_key(name);
        (before.into_keys().filter(gone).collect(), unheard)
    }

    /// Something was heard that waits until its client is idle. False if that is too much.
    pub fn keep(&mut self, heard: Heard) -> bool {
        let (number, channel) = (heard.notification.number, &heard.notification.channel);
        match &mut self.reach {
            Some((_, told)) if number > 0 => *told = number,
            // It is not counted any more, but the other process may have counted it.
            Some((reach, _)) if reach.names.contains(channel) => self.reach = None,
            _ => {}
        }
        self.size += heard.notification.size();
        self.waits.push_back(heard);
        self.size <= limits::HEARD
    }

    /// What is heard of channels that it may not listen to yet was said before its transaction's
    /// end.
    pub fn forget_tentative(&mut self) {
        let names = &self.names;
        self.waits
            .retain(|heard| names.get(&heard.notification.channel) == Some(&true));
        self.size = self.waits.iter().map(|h| h.notification.size()).sum();
    }

    /// What its client is to be told now.
    pub fn take(&mut self) -> Vec<Heard> {
        self.size = 0;
        let names = &self.names;
        let waits = self.waits.drain(..);
        waits
            .filter(|heard| names.get(&heard.notification.channel) == Some(&true))
            .collect()
    }

    /// Nothing waits.
    pub fn is_silent(&self) -> bool {
        self.waits.is_empty() && !self.missed
    }
}
