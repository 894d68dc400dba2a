//! A database that is sharded over several PostgreSQLs: its maps, what must run where, and what its shards
//! say of their catalogues.

use std::collections::BTreeSet;

use howdah_wire::backend::Status;
use howdah_wire::write;

use crate::chance::Chance;
use crate::sql::Token;

/// The name of the sharded database.
pub const NAME: &str = "whole";

/// How many keys there are, from 0.
pub const KEYS: u8 = 8;

/// The first key that has another shard in the other map.
const MOVING: u8 = 6;

/// What only a question for a shard's catalogue asks for.
pub const CATALOGUE: &[u8] = b"pg_catalog.pg_encoding_to_char(";

/// How a sharded database is written, and how its map changes.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// How many shards there are: `d0`, `d1` and so on.
    pub shards: u8,
    /// The shard of each key, by each of two maps.
    homes: [[u8; KEYS as usize]; 2],
    /// Which of the maps is in the file.
    pub in_file: usize,
    /// RELOAD may bring the other map.
    pub changes: bool,
}

impl Sharding {
    /// Some maps for so many shards.
    pub fn choose(shards: u8, changes: bool, chance: &mut Chance) -> Sharding {
        let mut any = || chance.within(0..=usize::from(shards) - 1) as u8;
        let first: [u8; KEYS as usize] = std::array::from_fn(|_| any());
        let mut second = first;
        for home in &mut second[usize::from(MOVING)..] {
            *home = (*home + 1) % shards;
        }
        Sharding {
            shards,
            homes: [first, second],
            in_file: 0,
            changes,
        }
    }

    /// The shard that a key has by all maps in which a run may find it.
    pub fn home(&self, key: u8) -> Option<u8> {
        let [one, other] = self.homes.map(|homes| homes[usize::from(key)]);
        (!self.changes || one == other).then_some(one)
    }

    /// The sections of the configuration.
    pub fn sections(&self) -> String {
        let shard = |shard: &u8| format!("d{shard}");
        let of = |shard: &u8| {
            let homes = self.homes[self.in_file].iter().zip(0..KEYS);
            let keys = homes.filter(|(home, _)| *home == shard);
            let keys: Vec<String> = keys.map(|(_, key)| key.to_string()).collect();
            (!keys.is_empty()).then(|| format!(" {}=d{shard}", keys.join(",")))
        };
        let shards = 0..self.shards;
        let names: Vec<String> = shards.clone().map(|at| shard(&at)).collect();
        let parts: String = shards.filter_map(|at| of(&at)).collect();
        format!(
            "{NAME} = shards={}\n[distributions:{NAME}]\naccount = list bigint{parts}\n\
             [tables:{NAME}]\npublic.* = account(account)\n",
            names.join(",")
        )
    }
}

/// What a statement's text says of the place where it must run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Place {
    /// The key of its rows.
    pub key: Key,
    /// It reads rows of the table, and has no key.
    pub is_open: bool,
    /// It has a key, and its client may say a shard. That decides without a catalogue, and where the
    /// transaction has changed what names mean.
    pub is_hinted: bool,
    /// Its comment is a hint: this shard.
    pub said: Option<u8>,
    /// Its client knows that this shard must run it.
    pub shard: Option<u8>,
    /// Its client knows that it is in a transaction block, which has this number.
    pub block: Option<u32>,
}

/// The key of a statement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Key {
    /// It has none.
    #[default]
    Nothing,
    /// A constant.
    Constant(u8),
    /// The second parameter.
    Parameter,
}

impl Place {
    /// Reads a statement: `select .. from items where account = 5 /* at 1 block 7 */`, or
    /// `insert into items values (5, ..)`.
    pub fn read(text: &str) -> Place {
        let after = |word: &str| {
            let (_, rest) = text.split_once(word)?;
            let rest = rest.trim_start();
            Some(rest.split([' ', ',', ')', '\'']).next().unwrap_or(rest))
        };
        let key = after("account =").or_else(|| after("items values ("));
        Place {
            key: match key {
                Some("$2") => Key::Parameter,
                Some(key) => key.parse().map_or(Key::Nothing, Key::Constant),
                None => Key::Nothing,
            },
            is_open: key.is_none() && text.contains("from items"),
            is_hinted: text.contains(" hinted "),
            said: after("/*howdah.shard='d").and_then(|shard| shard.parse().ok()),
            shard: after(" at ").and_then(|shard| shard.parse().ok()),
            block: after(" block ").and_then(|block| block.parse().ok()),
        }
    }
}

/// Where and how a statement ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The statement.
    pub token: Token,
    /// What its text says.
    pub place: Place,
    /// Its key.
    pub key: Option<u8>,
    /// A transaction block was open.
    pub in_block: bool,
}

/// The map by which statements must run at this moment.
#[derive(Clone, Debug)]
pub struct MapInForce {
    sharding: Sharding,
    in_force: usize,
    is_paused: bool,
    /// RESUME brings the map of the file.
    is_due: bool,
    /// Shards may be lost, and their catalogues with them.
    forgives: bool,
    /// The clients of the sharded database.
    pub clients: BTreeSet<u32>,
}

impl MapInForce {
    /// The first map.
    pub fn new(sharding: Sharding, forgives: bool) -> MapInForce {
        MapInForce {
            in_force: sharding.in_file,
            sharding,
            is_paused: false,
            is_due: false,
            forgives,
            clients: BTreeSet::new(),
        }
    }

    /// A late BEGIN, and what waits for a catalogue, may be refused.
    pub fn forgives(&self) -> bool {
        self.forgives
    }

    /// PAUSE of the database was answered.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// The file was read again, and has this map.
    pub fn reload(&mut self, in_file: usize) {
        self.sharding.in_file = in_file;
        self.is_due = self.is_paused && in_file != self.in_force;
    }

    /// RESUME is sent: nothing runs until it is obeyed.
    pub fn resume(&mut self) {
        self.is_paused = false;
        if std::mem::take(&mut self.is_due) {
            self.in_force = self.sharding.in_file;
        }
    }

    /// Why a statement must not have run in this database, as it did.
    pub fn objection(&self, database: &str, placed: &Placed) -> Option<String> {
        let Placed {
            token, place, key, ..
        } = placed;
        let key = key.filter(|_| !place.is_hinted);
        let home = key.map(|key| self.sharding.homes[self.in_force][usize::from(key)]);
        for (shard, why) in [(home, "its key"), (place.shard, "its client")] {
            if let Some(shard) = shard.filter(|shard| format!("d{shard}") != database) {
                return Some(format!(
                    "{token} runs in {database}, and belongs to d{shard} by {why}"
                ));
            }
        }
        let block = place.block.filter(|_| !placed.in_block)?;
        Some(format!(
            "{token} runs alone, and belongs to transaction {block}"
        ))
    }
}

/// Writes the catalogue of a shard: the table `items`.
pub fn write_catalogue(out: &mut Vec<u8>) {
    let columns = |name, of| vec!["101", name, of, "false", "true", "true", "false", ""];
    let parts: [Vec<Vec<&str>>; 12] = [
        vec![vec!["UTF8", "public"]],
        Vec::new(),
        vec![vec!["public", "true"], vec!["pg_catalog", "true"]],
        Vec::new(),
        vec![vec!["101", "public", "items", "r", "false", ""]],
        vec![columns("account", "20"), columns("note", "25")],
        Vec::new(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
    ];
    for part in parts {
        for row in &part {
            write::data_row(out, row.iter().map(|field| Some(field.as_bytes())));
        }
        write::command_complete(out, &format!("SELECT {}", part.len()));
    }
    write::ready(out, Status::Idle);
}
