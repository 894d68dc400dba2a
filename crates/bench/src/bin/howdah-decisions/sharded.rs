//! Statements with a key: in a database with four shards, and in one without.

use std::sync::Arc;

use howdah_bench::session::message;
use howdah_pooler::event::{Event, Peer};
use howdah_pooler::mail::Mail;
use howdah_pooler::shard::lore::CatalogueQuestion;
use howdah_shard::{CatalogueReader, Part};

use crate::{World, bound, query, ready, rows};

/// How a statement is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Simple,
    Extended,
    Prepared,
}

/// A statement in a form, and whether its database has shards.
pub struct KeyRow {
    pub name: &'static str,
    form: Form,
    sharded: bool,
}

const fn row(name: &'static str, form: Form, sharded: bool) -> KeyRow {
    KeyRow {
        name,
        form,
        sharded,
    }
}

/// What the shards cost is the quotient of two rows with one form.
pub const ROWS: [KeyRow; 6] = [
    row("key-simple", Form::Simple, false),
    row("key-extended", Form::Extended, false),
    row("key-prepared", Form::Prepared, false),
    row("shard-simple", Form::Simple, true),
    row("shard-extended", Form::Extended, true),
    row("shard-prepared", Form::Prepared, true),
];

const SHARDS: [&str; 4] = ["s0", "s1", "s2", "s3"];
const CONSTANT: &str = "select name from accounts where account_id = 17";
const PARAMETER: &str = "select name from accounts where account_id = $1";

/// The map, behind all settings.
const MAP: &str = "[distributions:p]\ntenant = hash bigint slots=64 0-15=s0 16-31=s1 32-47=s2 48-63=s3\n\
                   [tables:p]\npublic.* = tenant(account_id)\n";

/// Bind with 17 as text, Describe, Execute and Sync.
fn execute(statement: &str) -> Vec<u8> {
    let bind = [b"\0", statement.as_bytes(), b"\0\0\0\0\x01\0\0\0\x0217\0\0"];
    [
        message(b'B', &bind.concat()),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

/// Plays a row so many times.
pub fn play(row: &KeyRow, times: usize, settings: &str) -> Result<World, String> {
    let first = query(CONSTANT);
    let answer = [rows(1), ready()].concat();
    let mut world = match row.sharded {
        false => {
            let mut world = World::new(settings)?;
            world.log_in("d")?;
            world.transaction(&first, &answer)?;
            world
        }
        true => sharded(settings, &first, &answer)?,
    };
    let (request, reply) = match row.form {
        Form::Simple => (first, answer),
        Form::Extended => {
            let parse = message(b'P', format!("\0{PARAMETER}\0\0\0").as_bytes());
            let reply = [message(b'1', b""), bound(), ready()];
            ([parse, execute("")].concat(), reply.concat())
        }
        Form::Prepared => {
            world.prepare_text(PARAMETER)?;
            (execute("s"), [bound(), ready()].concat())
        }
    };
    for _ in 0..times {
        world.transaction(&request, &reply)?;
    }
    Ok(world)
}

/// A world with four shards, whose catalogues are known, and a client whose first statement is
/// answered.
fn sharded(settings: &str, first: &[u8], answer: &[u8]) -> Result<World, String> {
    let entries = SHARDS.map(|name| format!("{name} = host=127.0.0.1 port=5432\n"));
    let databases = format!("{}p = shards={}", entries.concat(), SHARDS.join(","));
    let settings = format!("{settings}\n{MAP}");
    let mut world = World::with(&databases, &settings)?;
    world.log_in("p")?;
    let client = Peer::Client(world.client.ok_or("no client")?);
    let of_first_shard = world.server;
    world.happen(Event::Received(client, first));
    let mut reader = CatalogueReader::default();
    for (part, fields) in [
        (Part::Database, "UTF8|public"),
        (Part::Schemas, "public|true"),
        (Part::Schemas, "pg_catalog|true"),
        (Part::Tables, "1|public|accounts|r|false|"),
        (Part::Columns, "1|account_id|20|false|true|true|false|"),
        (Part::Columns, "1|name|25|false|true|true|false|"),
    ] {
        let fields: Vec<_> = fields
            .split('|')
            .map(|field| Some(field.as_bytes()))
            .collect();
        reader.row(part, &fields).map_err(|odd| odd.to_string())?;
    }
    let catalogue = Arc::new(reader.finish());
    world.server = None;
    let question = CatalogueQuestion::default();
    for shard in SHARDS {
        let told = Mail::ShardCatalogue(shard.into(), question, catalogue.clone());
        world.happen(Event::Mail(told));
    }
    match world.server {
        Some(_) => world.server_logs_in()?,
        // The first shard has a server already.
        None => world.server = of_first_shard,
    }
    let server = Peer::Server(world.server.ok_or("no server")?);
    world.sent = [0; 2];
    world.happen(Event::Received(server, answer));
    match world.sent[0] {
        0 => Err("the first statement has no answer".into()),
        _ => Ok(world),
    }
}
