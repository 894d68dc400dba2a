//! The state of a listening connection: which clients hear which channel, and its rounds.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::event::{ServerId, Time};
use crate::listen::{Hearer, Name, Refused, Requirements};
use crate::{Seeded, limits};

/// A listening connection: which clients hear which channel, and its rounds.
#[derive(Debug)]
pub struct SharedListener {
    /// The connection, once it is logged in.
    pub server: Option<ServerId>,
    /// When a client last used the connection. Before the login: since when a client wants the
    /// connection.
    pub since: Time,
    /// Since when the connection owes an answer.
    pub asked: Option<Time>,
    channels: HashMap<Name, Channel, Seeded>,
    /// Channels that may have lost their last hearer.
    left: BTreeSet<Name>,
    /// The clients that wait for the next round.
    waiting: Vec<Wait>,
    round: Option<Round>,
}

#[derive(Debug, Default)]
struct Channel {
    /// The connection listens to the channel, or its LISTEN is under way.
    on: bool,
    hearers: Vec<Hearer>,
}

/// A client that waits for the end of a round, and the channels that it asks for.
#[derive(Debug)]
struct Wait {
    hearer: Hearer,
    wants: Vec<Name>,
    demand: Requirements,
}

#[derive(Debug, Default)]
struct Round {
    waits: Vec<Wait>,
    adds: Vec<Name>,
    drops: Vec<Name>,
    failed: bool,
}

/// What the end of a round means for a client.
#[derive(PartialEq, Eq, Debug)]
pub enum RoundOutcome {
    /// The client hears the channels that it has asked for; or the reason why not.
    Hears(Hearer, Result<(), Refused>),
    /// The client has received every notification committed before its request.
    Passed(Hearer),
}

impl SharedListener {
    /// A listener that is not connected.
    pub fn new(seeded: Seeded, now: Time) -> SharedListener {
        SharedListener {
            server: None,
            since: now,
            asked: None,
            channels: HashMap::with_hasher(seeded),
            left: BTreeSet::new(),
            waiting: Vec::new(),
            round: None,
        }
    }

    /// All clients that hear a channel.
    pub fn all_hearers(&self) -> BTreeSet<Hearer> {
        let hearers = self.channels.values().flat_map(|c| &c.hearers);
        hearers.copied().collect()
    }

    /// No client hears a channel, and no client asks for one.
    pub fn is_unused(&self) -> bool {
        self.waiting.is_empty()
            && self.round.as_ref().is_none_or(|r| r.waits.is_empty())
            && self.channels.values().all(|c| c.hearers.is_empty())
    }

    /// A client asks to hear channels. False if there would be too many channels.
    pub fn hear(&mut self, hearer: Hearer, wants: Vec<Name>, demand: Requirements) -> bool {
        let new = wants
            .iter()
            .filter(|name| !self.channels.contains_key(*name));
        if self.channels.len() + new.count() > limits::CHANNELS {
            return false;
        }
        for name in &wants {
            self.channels.entry(name.clone()).or_default();
            self.left.remove(name);
        }
        self.waiting.push(Wait {
            hearer,
            wants,
            demand,
        });
        true
    }

    /// A client asks to receive every notification committed by now.
    pub fn pass(&mut self, hearer: Hearer) {
        self.waiting.push(Wait {
            hearer,
            wants: Vec::new(),
            demand: Requirements::default(),
        });
    }

    /// The connection is logged in. Returns the clients that need another kind of connection.
    pub fn connected(
        &mut self,
        server: ServerId,
        suits: impl Fn(&Requirements) -> bool,
    ) -> Vec<Hearer> {
        self.server = Some(server);
        let unfit = |wait: &mut Wait| !wait.wants.is_empty() && !suits(&wait.demand);
        let unfit = self.waiting.extract_if(.., unfit);
        unfit.map(|wait| wait.hearer).collect()
    }

    /// A client no longer hears some channels. `ends`: the client also waits for nothing any more.
    pub fn leave(&mut self, hearer: Hearer, names: &[Name], ends: bool) {
        if ends {
            let others = |wait: &Wait| wait.hearer != hearer;
            self.waiting.retain(others);
            if let Some(round) = &mut self.round {
                round.waits.retain(others);
            }
        }
        for name in names {
            self.leave_one(hearer, name);
        }
    }

    fn leave_one(&mut self, hearer: Hearer, name: &Name) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.hearers.retain(|other| *other != hearer);
        if channel.hearers.is_empty() {
            self.left.insert(name.clone());
        }
    }

    /// The clients that hear a channel.
    pub fn hearers(&self, name: &[u8]) -> &[Hearer] {
        self.channels.get(name).map_or(&[], |c| &c.hearers)
    }

    /// Begins a round, if commands or clients wait and no round is under way. Returns the text of
    /// the round's Query.
    pub fn begin(&mut self, now: Time) -> Option<Vec<u8>> {
        if self.round.is_some() {
            return None;
        }
        let mut round = Round {
            waits: std::mem::take(&mut self.waiting),
            ..Round::default()
        };
        for name in round.waits.iter().flat_map(|wait| &wait.wants) {
            self.left.remove(name);
            if round.adds.len() == limits::CHANNELS_A_ROUND {
                continue;
            }
            let channel = self.channels.entry_ref(name).or_default();
            if !std::mem::replace(&mut channel.on, true) {
                round.adds.push(name.clone());
            }
        }
        while round.drops.len() < limits::CHANNELS_A_ROUND
            && let Some(name) = self.left.pop_first()
        {
            let Some(channel) = self.channels.get_mut(&name) else {
                continue;
            };
            if !channel.hearers.is_empty() {
                continue;
            }
            if std::mem::take(&mut channel.on) {
                round.drops.push(name);
            } else {
                self.channels.remove(&name);
            }
        }
        if round.waits.is_empty() && round.drops.is_empty() {
            return None;
        }
        let mut sql = Vec::new();
        for (command, names) in [("LISTEN ", &round.adds), ("UNLISTEN ", &round.drops)] {
            for name in names {
                sql.extend_from_slice(command.as_bytes());
                quote(&mut sql, name);
                sql.push(b';');
            }
        }
        self.round = Some(round);
        self.asked = Some(now);
        Some(sql)
    }

    /// PostgreSQL has refused the round that is under way.
    pub fn fail(&mut self) {
        if let Some(round) = &mut self.round {
            round.failed = true;
        }
    }

    /// The round is over.
    pub fn end(&mut self) -> Vec<RoundOutcome> {
        self.asked = None;
        let Some(round) = self.round.take() else {
            return Vec::new();
        };
        let failed = round.failed && !(round.adds.is_empty() && round.drops.is_empty());
        if failed {
            for name in &round.adds {
                if let Some(channel) = self.channels.get_mut(name) {
                    channel.on = false;
                }
            }
            for name in &round.drops {
                if let Some(channel) = self.channels.get_mut(name) {
                    channel.on = true;
                }
            }
        }
        let full = !failed && round.adds.len() == limits::CHANNELS_A_ROUND;
        let (mut told, mut begun) = (Vec::new(), Vec::new());
        for wait in round.waits {
            if wait.wants.is_empty() {
                told.push(RoundOutcome::Passed(wait.hearer));
                continue;
            }
            let off = |name: &Name| !self.channels.get(name).is_some_and(|c| c.on);
            if wait.wants.iter().any(off) {
                if full {
                    // The rest follows in the next round, behind those of which nothing was in this one.
                    if wait.wants.iter().all(off) {
                        self.waiting.push(wait)
                    } else {
                        begun.push(wait)
                    }
                    continue;
                }
                self.left.extend(wait.wants);
                told.push(RoundOutcome::Hears(wait.hearer, Err(Refused::Unfit)));
                continue;
            }
            told.push(RoundOutcome::Hears(wait.hearer, Ok(())));
            for name in wait.wants {
                self.hears(wait.hearer, name);
            }
        }
        self.waiting.extend(begun);
        for name in round.drops {
            let off = self.channels.get(&name).is_some_and(|c| !c.on);
            let wanted = self.waiting.iter().any(|w| w.wants.contains(&name));
            if off && !wanted {
                self.channels.remove(&name);
            }
        }
        told
    }

    fn hears(&mut self, hearer: Hearer, name: Name) {
        let hearers = &mut self.channels.entry(name).or_default().hearers;
        if !hearers.contains(&hearer) {
            hearers.push(hearer);
        }
    }

    /// The connection is lost, or its login failed. Returns the clients that heard a channel, and
    /// the clients that only asked for one.
    pub fn lose(&mut self) -> (BTreeSet<Hearer>, BTreeSet<Hearer>) {
        let hearers = self.all_hearers();
        self.channels.clear();
        let round = self.round.take().unwrap_or_default();
        let waits = round.waits.into_iter().chain(self.waiting.drain(..));
        let wishes = waits.map(|wait| wait.hearer);
        let wishes = wishes.filter(|hearer| !hearers.contains(hearer)).collect();
        self.left.clear();
        self.asked = None;
        self.server = None;
        (hearers, wishes)
    }
}

/// Appends a name in double quotes.
pub(super) fn quote(sql: &mut Vec<u8>, name: &[u8]) {
    sql.push(b'"');
    for byte in name {
        if *byte == b'"' {
            sql.push(b'"');
        }
        sql.push(*byte);
    }
    sql.push(b'"');
}
