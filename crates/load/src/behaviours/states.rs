//! Session state that PostgreSQL does not report: each client finds its own state in later
//! transactions, and nothing of other clients (`--state`).

use crate::client::Client;
use crate::connection::Leave;
use crate::expect::Want;
use crate::failure::Outcome;
use crate::messages::{Message, column, data_row, oid, row_description, text_body};
use crate::session::{Part, text};

/// Statements of the disturber. It runs one of them each time.
const LEFT: &[&str] = &[
    "set search_path = nowhere",
    "set default_transaction_read_only = on",
    "set role pg_read_all_data",
    "set work_mem = '65kB'",
    "set app.tenant = 'disturbed'",
    "set session authorization pg_read_all_data",
    "set default_transaction_isolation = serializable",
    "set row_security = off; set lock_timeout = '1h'",
    "create temp table mine as select 'disturbed' as m",
    "create temp table accounts (nothing int)",
    "prepare own as select 'disturbed'",
    "declare own cursor with hold for select 'disturbed'",
    "select pg_advisory_lock(1)",
    "listen disturbed",
];

pub(super) fn tag(tag: &str) -> Part {
    Part::Tag(tag.to_owned())
}

/// A change of the role. PostgreSQL reports another setting for it.
fn role(tag: &'static str, superuser: &str) -> Part {
    Part::Set {
        tag,
        values: vec![("is_superuser".to_owned(), superuser.to_owned())],
    }
}

/// A query with one text as its result.
pub(super) fn asks(client: &mut Client, expression: &str, answer: &str) -> Outcome {
    let columns = vec![column("m", oid::TEXT)];
    let rows = vec![vec![text(answer)]];
    let sql = format!("select ({expression})::text as m");
    client.query(&sql, &[Part::Rows(columns, rows)])
}

/// Runs some unrelated transactions.
pub(super) fn meanwhile(client: &mut Client) -> Outcome {
    for _ in 0..client.random.between(0, 3) {
        client.prove()?;
    }
    Ok(())
}

/// Settings of the session that PostgreSQL does not report.
pub(super) fn settings(client: &mut Client) -> Outcome {
    let all = "current_setting('work_mem') || ' ' || coalesce(current_setting('app.tenant', true), \
               '') || ' ' || (current_user = session_user) || ' ' || \
               current_setting('search_path')";
    let path = "\"$user\", public";
    asks(client, all, &format!("4MB  true {path}"))?;
    let (size, mark) = (client.random.between(5, 9), client.mark());
    client.query(&format!("set work_mem = '{size}MB'"), &[tag("SET")])?;
    client
        .session
        .command(&format!("set app.tenant to '{mark}'"), &tag("SET"));
    client.session.sync();
    client.go()?;
    meanwhile(client)?;
    asks(client, all, &format!("{size}MB {mark} true {path}"))?;
    client.query("begin", &[Part::Begin])?;
    client.query(
        "set work_mem = '99MB'; set search_path = nowhere",
        &[tag("SET"), tag("SET")],
    )?;
    asks(client, all, &format!("99MB {mark} true nowhere"))?;
    client.query("rollback", &[Part::Rollback])?;
    client.query("set role pg_read_all_data", &[role("SET", "off")])?;
    meanwhile(client)?;
    asks(client, all, &format!("{size}MB {mark} false {path}"))?;
    let back = "reset role; reset work_mem; reset app.tenant";
    client.query(back, &[role("RESET", "on"), tag("RESET"), tag("RESET")])?;
    meanwhile(client)?;
    asks(client, all, &format!("4MB  true {path}"))
}

/// A temporary table. All clients use the same name.
pub(super) fn temporary(client: &mut Client) -> Outcome {
    asks(client, "to_regclass('mine') is null", "true")?;
    let mark = client.mark();
    let create = format!("create temp table mine as select '{mark}'::text as m");
    client.query(&create, &[tag("SELECT 1")])?;
    meanwhile(client)?;
    asks(client, "select m from mine", &mark)?;
    meanwhile(client)?;
    client.query("drop table mine", &[tag("DROP TABLE")])?;
    meanwhile(client)?;
    asks(client, "to_regclass('mine') is null", "true")
}

/// Advisory locks of the session, on the client's own number.
pub(super) fn locks(client: &mut Client) -> Outcome {
    let held = "select count(*) from pg_locks where locktype = 'advisory' and \
                pid = pg_backend_pid()";
    let number = 1_000 + client.id;
    asks(client, held, "0")?;
    asks(client, &format!("pg_try_advisory_lock({number})"), "true")?;
    meanwhile(client)?;
    asks(client, held, "1")?;
    asks(client, &format!("pg_advisory_unlock({number})"), "true")?;
    meanwhile(client)?;
    asks(client, held, "0")
}

/// A cursor that outlives its transaction, and a statement of SQL's PREPARE.
pub(super) fn cursors(client: &mut Client) -> Outcome {
    asks(client, "select count(*) from pg_cursors", "0")?;
    let mark = client.mark();
    let declare = format!(
        "declare own cursor with hold for select '{mark}'::text || i as m from \
         generate_series(1, 9) i"
    );
    client.query(&declare, &[tag("DECLARE CURSOR")])?;
    let prepare = format!("prepare own as select '{mark}'::text as m");
    client.query(&prepare, &[tag("PREPARE")])?;
    let columns = vec![column("m", oid::TEXT)];
    for i in 1..=client.random.between(1, 3) {
        meanwhile(client)?;
        let exact = |tag, body| Want::Exact(Message { tag, body });
        let fetched = Part::Raw(vec![
            exact(b'T', row_description(&columns, &[])),
            exact(b'D', data_row(&[text(format!("{mark}{i}"))])),
            exact(b'C', text_body("FETCH 1")),
        ]);
        client.query("fetch from own", &[fetched])?;
        let rows = vec![vec![text(mark.clone())]];
        client.query("execute own", &[Part::Rows(columns.clone(), rows)])?;
    }
    client.query("deallocate own", &[tag("DEALLOCATE")])?;
    client.query("close own", &[tag("CLOSE CURSOR")])?;
    meanwhile(client)?;
    asks(client, "select count(*) from pg_cursors", "0")
}

/// Another client leaves state on a server, and disconnects.
pub(super) fn disturber(client: &mut Client) -> Outcome {
    let mut other = Client::new(client.run, client.id, 0);
    other.connect(&[])?;
    let left = *client.random.pick(LEFT);
    other.rows(left)?;
    other.leave(if client.random.one_in(2) {
        Leave::Fin
    } else {
        Leave::Reset
    });
    client.prove()
}
