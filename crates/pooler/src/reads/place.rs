//! Where a read goes: to a standby that shows all that its client has seen, or to the primary.

use std::sync::atomic::Ordering;

use chacha20::rand_core::Rng;

use crate::client::{Client, ClientState};
use crate::config::ReadTarget;
use crate::event::ClientId;
use crate::login::LoginId;
use crate::next::Next;
use crate::opening::Opening;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::placed::by_weight;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::ReadTerms;
use crate::reads::hindrance::Hindrance;
use crate::reads::mark::ReadMark;
use crate::reads::tally::ReadPlace;
use crate::reads::wish::{first_text, wish};

impl Pooler {
    /// The pool for a client's request, if the request is a read. `None` if it goes where all others
    /// go.
    pub(crate) fn read_pool(&mut self, id: ClientId, opening: Opening<'_>) -> Option<PoolId> {
        let client = self.clients.at_mut(id);
        let login_id = client.login?;
        let terms = self.logins.at(login_id).terms.reads?;
        let newcomer = matches!(client.state(), ClientState::Welcome(_));
        if newcomer || client.is_replicating() {
            return None;
        }
        let waits = matches!(client.state(), ClientState::Waiting(_));
        let wish = match opening {
            // It has waited, and is routed again.
            Opening::Unread if waits => client.read_mark.as_ref().and_then(|mark| mark.wish),
            _ if is_again(client) => None,
            _ => wish(client, opening, terms.target),
        };
        let login = &self.logins.at(login_id).reads;
        let is_refused = wish.is_some_and(|wish| wish.is_guarded)
            && login.stays_at_primary(|| match opening {
                Opening::Query(_, bytes) | Opening::Group { bytes, .. } => {
                    first_text(client, bytes)
                }
                Opening::Unread => None,
            });
        let place = match wish {
            _ if is_again(client) => Some(ReadPlace::Again),
            _ if is_refused => Some(ReadPlace::Known),
            _ => None,
        };
        let wish = wish.filter(|_| !is_refused);
        let begun = self.begun.load(Ordering::SeqCst);
        let mark = self.clients.at_mut(id).begins_read(begun, wish);
        if terms.has_statements {
            self.mind_volatile(login_id);
        }
        let Some(wish) = wish else {
            self.clients.at_mut(id).read_goes(place);
            return None;
        };
        let (place, pool) = self.place_read(id, login_id, &mark, (terms, wish.target));
        self.clients.at_mut(id).read_goes(place);
        pool
    }

    /// Where a read goes, and its pool; `None` for the pool if that is the one of all other requests.
    /// Nowhere yet if the read waits.
    fn place_read(
        &mut self,
        id: ClientId,
        login: LoginId,
        mark: &ReadMark,
        (terms, target): (ReadTerms, ReadTarget),
    ) -> (Option<ReadPlace>, Option<PoolId>) {
        let mut choice = self.choice(login, mark, &terms, target);
        let is_alone = !choice.is_near;
        if !choice.is_free
            && choice.at.is_some()
            && (is_alone || mark.stays(self.now) || !self.waits_for_standby(id, &terms))
        {
            choice.pools.extend(choice.at);
        }
        let pools = choice.pools.iter().copied();
        if let Some(pool) = by_weight(pools, self.random.next_u64()) {
            let now = self.now;
            self.clients.at_mut(id).read_finds(now, choice.is_free);
            let place = if choice.primary == Some(pool) {
                ReadPlace::Shared
            } else {
                ReadPlace::Standby
            };
            return (Some(place), Some(pool));
        }
        let waits_on = |pooler: &mut Pooler| {
            let pool = pooler.pool_at(login, Purpose::Clients, TargetName::NoHost);
            (None, Some(pool))
        };
        if choice.is_near && self.waits_for_standby(id, &terms) {
            return waits_on(self);
        }
        let now = self.now;
        self.clients.at_mut(id).read_gives_up(now);
        match target {
            // It waits for a standby, however long.
            ReadTarget::Standby => waits_on(self),
            ReadTarget::PreferStandby | ReadTarget::Any if choice.is_near => {
                (Some(ReadPlace::Behind), None)
            }
            ReadTarget::PreferStandby | ReadTarget::Any => (Some(ReadPlace::NoStandby), None),
        }
    }

    /// The pools that may serve a client's read.
    fn choice(
        &self,
        login: LoginId,
        mark: &ReadMark,
        terms: &ReadTerms,
        wish: ReadTarget,
    ) -> Choice {
        let login = self.logins.at(login);
        let mut choice = Choice::default();
        for of in login.read_pools() {
            let (pool_id, share) = (of.pool, (of.pool, of.weight));
            let TargetName::Host(host) = &self.pools.at(pool_id).key.target else {
                continue;
            };
            if self.backs_off(pool_id) {
                continue;
            }
            if of.is_primary {
                if wish == ReadTarget::Any {
                    choice.primary = Some(pool_id);
                    choice.pools.push(share);
                }
                continue;
            }
            let cover = login.reads.covers().and_then(|covers| covers.get(host));
            match cover {
                _ if Hindrance::of_cover(cover, terms).is_some() => {}
                _ if !terms.is_session => choice.pools.push(share),
                Some(cover) if cover.round > mark.floor => choice.pools.push(share),
                Some(cover) if mark.at == Some(cover.instance) => choice.at = Some(share),
                _ => choice.is_near = true,
            }
        }
        choice.is_free = !choice.pools.is_empty();
        choice
    }

    /// True if a read waits for a standby that shows enough. A round begins at once.
    fn waits_for_standby(&mut self, id: ClientId, terms: &ReadTerms) -> bool {
        let now = self.now;
        let client = self.clients.at_mut(id);
        let waited = client
            .read_mark
            .as_ref()
            .is_some_and(|mark| mark.waits_until().is_some());
        if !client.read_waits(now, terms.wait) {
            return false;
        }
        if !waited {
            if let Some(login) = client.login {
                self.logins.at_mut(login).reads.counts.count_wait();
            }
            self.next.note(Next::AwaitRound(id));
        }
        true
    }
}

/// True if a client's request was refused by a standby, and runs again.
fn is_again(client: &Client) -> bool {
    client
        .read_mark
        .as_ref()
        .is_some_and(|mark| mark.again.is_some())
}

/// The pools that may serve a read, with their weights.
#[derive(Debug, Default)]
struct Choice {
    /// They show all that the client has seen.
    pools: Vec<(PoolId, u32)>,
    /// That of the primary, if it is among them.
    primary: Option<PoolId>,
    /// There is one, whatever the client has seen there.
    is_free: bool,
    /// The pool at the standby that answered last, if that shows all only because of this.
    at: Option<(PoolId, u32)>,
    /// There are other standbys that may show all soon.
    is_near: bool,
}
