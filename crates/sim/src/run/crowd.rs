//! The actors of a run, and their plans.

use std::collections::VecDeque;

use howdah_pooler::config::SessionAttrs;
use howdah_pooler::event::Time;

use super::MILLI;
use crate::chance::Chance;
use crate::client::{Client, Tls, Wish};
use crate::grammar::{Act, End, Speaker, Tongue};
use crate::scenario::Scenario;
use crate::sharding::NAME;
use crate::successor::Successor;
use crate::world::Shared;

/// The successors, one after the other.
pub(super) fn successors(
    scenario: &Scenario,
    chance: &mut Chance,
    world: &Shared,
) -> Vec<Successor> {
    let mut world = world.borrow_mut();
    let mut successors = Vec::new();
    for _ in 0..scenario.faults.takeovers {
        let at = Time(world.now.0 + chance.number() % ((scenario.span + 60) * MILLI));
        successors.push(Successor::new(at, chance, &mut world));
    }
    successors
}

pub(super) fn clients(scenario: &Scenario, chance: &mut Chance, world: &Shared) -> Vec<Client> {
    let now = world.borrow().now.0;
    let mut clients = Vec::new();
    for id in 1..=scenario.clients as u32 {
        let database = &scenario.databases[chance.within(0..=scenario.databases.len() - 1)];
        let sharding = scenario.sharding.as_ref();
        let sharding = sharding.filter(|_| !chance.once_in(5));
        let user = &scenario.users[chance.within(0..=scenario.users.len() - 1)];
        let cancellable = scenario.faults.cancels > 0 && chance.once_in(2);
        let mut tongue = scenario.tongue;
        // It is unknown whether a cancelled Query has ended the unnamed statement.
        tongue.unnamed &= !cancellable;
        tongue.sure = !cancellable;
        tongue.sharded = sharding.is_some();
        tongue.reads &= database.reads.is_some();
        tongue.single &= database.reads.is_some_and(|reads| reads.has_single);
        if tongue.reads && tongue.session && chance.once_in(2) {
            tongue.reads_by_default = true;
            tongue.objects = false;
        }
        let mut number = 0;
        let speaker = Speaker::new(id, &mut number, tongue, &scenario.weights, chance);
        let units = scenario.units;
        let broken = scenario.ends[1] + scenario.ends[3] > 0 && speaker.chance.once_in(3);
        let script = if broken {
            speaker.broken_script(units)
        } else {
            speaker.script(units)
        };
        let script = match database.wish {
            SessionAttrs::Any | SessionAttrs::Primary | SessionAttrs::ReadWrite => script,
            _ => only_reads(script),
        };
        let wish = Wish {
            id,
            database: sharding.map_or(&*database.name, |_| NAME).into(),
            user: user.clone(),
            // RESET to a value that was asked for at login has known gaps, which would hide all
            // others.
            asks: if resets(&script) {
                Vec::new()
            } else {
                asks(tongue, chance)
            },
            defaults: database.settings.clone(),
            end: end(scenario, &script, broken, chance),
            own_are_known: scenario.always_shares_listen() && !says(&script, b"client_encoding"),
            script,
            at: Time(now + chance.number() % (scenario.span * MILLI)),
            cancellable,
            schema: tongue.schema,
            renamed: scenario.renames,
            tls: tls(scenario, id, chance.once_in(6)),
            keeping: scenario.keeping(),
            eager: chance.once_in(10),
            reads: tongue.reads,
            heals: !tongue.single || scenario.heals_reads() && !cancellable,
            has_roles: scenario.roles.is_some(),
            is_fresh: database.reads.is_some_and(|reads| reads.is_session),
            shards: sharding.map(|of| (of.clone(), scenario.loses_shards())),
            minor: [0, 0, 0, 2, 9][chance.within(0..=4)],
        };
        clients.push(Client::new(wish, &mut world.borrow_mut()));
    }
    clients
}

/// What a standby refuses, and what is as long.
const REFUSED: [(&[u8], &[u8]); 3] = [
    (b"insert", b"select"),
    (b"copyin", b"select"),
    (b"nextval", b"thatval"),
];

/// The script with queries instead of what a standby refuses.
fn only_reads(mut script: VecDeque<Act>) -> VecDeque<Act> {
    for act in &mut script {
        let Act::Send(messages) = act else { continue };
        for body in messages.iter_mut().map(|message| &mut message.body) {
            for (refused, instead) in REFUSED {
                while let Some(at) = body.windows(refused.len()).position(|part| part == refused) {
                    body[at..at + refused.len()].copy_from_slice(instead);
                }
            }
        }
    }
    script
}

/// Whether and how a client uses TLS.
fn tls(scenario: &Scenario, id: u32, asks: bool) -> Tls {
    // Drawn from a seed of its own, so that the rest of the run stays the same.
    let chance = &mut Chance::new(scenario.seed.rotate_left(20) ^ u64::from(id));
    match (scenario.tls, asks) {
        (true, _) if chance.once_in(4) => Tls::AtOnce,
        (true, false) if chance.once_in(3) => Tls::Never,
        (false, false) => Tls::Never,
        _ => Tls::Asks,
    }
}

/// True if a client resets settings.
fn resets(script: &VecDeque<Act>) -> bool {
    script.iter().any(|act| match act {
        Act::Send(messages) => messages.iter().any(|message| {
            let bytes = message.body.to_ascii_lowercase();
            let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
            has(b"reset ") || has(b"discard all")
        }),
        _ => false,
    })
}

fn says(script: &VecDeque<Act>, word: &[u8]) -> bool {
    script.iter().any(|act| match act {
        Act::Send(messages) => messages
            .iter()
            .any(|message| message.body.windows(word.len()).any(|part| part == word)),
        _ => false,
    })
}

fn asks(tongue: Tongue, chance: &mut Chance) -> Vec<(String, String)> {
    let mut asks = Vec::new();
    let choices = [
        ("application_name", "it's"),
        ("application_name", "b"),
        ("TimeZone", "Asia/Tokyo"),
        ("DateStyle", "ISO, DMY"),
        ("client_encoding", "LATIN1"),
        ("work_mem", "9MB"),
        ("work_mem", "11MB"),
    ];
    while chance.once_in(3) {
        let (name, value) = choices[chance.within(0..=choices.len() - 1)];
        let value = if chance.once_in(30) { "invalid" } else { value };
        asks.retain(|(asked, _)| asked != name);
        asks.push((name.to_string(), value.to_string()));
    }
    if tongue.reads_by_default && chance.once_in(4) {
        asks.push(("default_transaction_read_only".into(), "on".into()));
    }
    // With `session_state = discard` a client can only ask for tracked settings.
    asks.retain(|(name, _)| !tongue.discards || name != "work_mem");
    asks
}

fn end(scenario: &Scenario, script: &VecDeque<Act>, broken: bool, chance: &mut Chance) -> End {
    let bytes = script.iter().map(|act| match act {
        Act::Send(messages) => messages.iter().map(|m| 5 + m.body.len()).sum(),
        _ => 0,
    });
    let bytes: usize = bytes.sum();
    if broken {
        // A COPY that never ends is never answered.
        return if chance.once_in(2) {
            End::TerminateAtOnce
        } else {
            End::Vanish(bytes, chance.once_in(2))
        };
    }
    let sum: usize = scenario.ends.iter().sum();
    let mut at = chance.within(0..=sum - 1);
    let mut kind = 0;
    while at >= scenario.ends[kind] {
        at -= scenario.ends[kind];
        kind += 1;
    }
    match kind {
        0 => End::Terminate,
        1 => End::TerminateAtOnce,
        2 => End::Close,
        _ => End::Vanish(chance.within(0..=bytes), chance.once_in(2)),
    }
}

pub(super) fn orders(scenario: &Scenario, chance: &mut Chance) -> VecDeque<(u64, String)> {
    let mut orders = VecDeque::new();
    for _ in 0..scenario.faults.orders {
        let shards = scenario.sharding.is_some();
        let database = match &scenario.databases[..] {
            [.., last] if shards && chance.once_in(3) => &last.name,
            _ if shards => NAME,
            all => &all[0].name,
        };
        let wait = chance.within(1..=150) as u64;
        if shards && scenario.faults.takeovers == 0 && chance.once_in(3) {
            orders.push_back((wait, format!("PAUSE {NAME}")));
            orders.push_back((chance.within(1..=100) as u64, "RELOAD".into()));
            orders.push_back((chance.within(1..=100) as u64, format!("RESUME {NAME}")));
            continue;
        }
        if scenario.drains && chance.once_in(2) {
            let host = chance.within(1..=scenario.roles.map_or(1, |roles| roles.hosts));
            let name = scenario.host_name(host);
            orders.push_back((wait, format!("DRAIN_HOST {name}")));
            if chance.once_in(2) {
                let wait = chance.within(1..=800) as u64;
                orders.push_back((wait, format!("RESUME_HOST {name}")));
            }
            continue;
        }
        let kinds = if scenario.faults.kills { 6 } else { 5 };
        let kind = match scenario.faults.takeovers {
            0 if scenario.faults.kills && chance.once_in(2) => kinds,
            0 => chance.within(0..=kinds),
            // A successor does not know of pauses.
            _ => [0, 3, 4][chance.within(0..=2)],
        };
        match kind {
            0 => orders.push_back((wait, "RECONNECT".into())),
            1 => {
                let pause = if chance.once_in(3) {
                    "SUSPEND"
                } else {
                    "PAUSE"
                };
                orders.push_back((wait, pause.into()));
                orders.push_back((chance.within(1..=300) as u64, "RESUME".into()));
            }
            2 => {
                orders.push_back((wait, format!("PAUSE {database}")));
                orders.push_back((chance.within(1..=300) as u64, format!("RESUME {database}")));
            }
            3 => orders.push_back((wait, "RELOAD".into())),
            4 => {
                let show = [
                    "POOLS",
                    "CLIENTS",
                    "SERVERS",
                    "STATS",
                    "LISTS",
                    "MEM",
                    "DATABASES",
                ];
                let what = show[chance.within(0..=show.len() - 1)];
                orders.push_back((wait, format!("SHOW {what}")));
            }
            5 => match chance.within(0..=2) {
                0 => orders.push_back((wait, "SET log_stats = 0".into())),
                1 => {
                    orders.push_back((wait, "RECONNECT".into()));
                    orders.push_back((1, "WAIT_CLOSE".into()));
                }
                _ => {
                    orders.push_back((wait, format!("DISABLE {database}")));
                    let wait = chance.within(1..=50) as u64;
                    orders.push_back((wait, format!("ENABLE {database}")));
                }
            },
            _ => {
                orders.push_back((wait, format!("KILL {database}")));
                orders.push_back((chance.within(1..=100) as u64, format!("RESUME {database}")));
            }
        }
    }
    orders
}
