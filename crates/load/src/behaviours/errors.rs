//! SQL errors of many kinds, notices, warnings.

use crate::client::Client;
use crate::expect::{Text, Want, error};
use crate::failure::Outcome;
use crate::messages::Arguments;
use crate::session::Part;

/// Where PostgreSQL detects an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parse,
    Bind,
    Execute,
}

const KINDS: &[(&str, Stage, &str, &str)] = &[
    (
        "select (",
        Stage::Parse,
        "42601",
        "syntax error at end of input",
    ),
    (
        "select 'open",
        Stage::Parse,
        "42601",
        "unterminated quoted string at or near \"'open\"",
    ),
    (
        "select no_such",
        Stage::Parse,
        "42703",
        "column \"no_such\" does not exist",
    ),
    (
        "select no_such()",
        Stage::Parse,
        "42883",
        "function no_such() does not exist",
    ),
    (
        "select 'x'::int4",
        Stage::Parse,
        "22P02",
        "invalid input syntax for type integer: \"x\"",
    ),
    (
        "select 2147483647 + 1",
        Stage::Bind,
        "22003",
        "integer out of range",
    ),
    (
        "table howdah_load.nothing_here",
        Stage::Parse,
        "42P01",
        "relation \"howdah_load.nothing_here\" does not exist",
    ),
    (
        "insert into howdah_load.only values (1)",
        Stage::Execute,
        "23505",
        "duplicate key value violates unique constraint \"only_pkey\"",
    ),
    (
        "insert into howdah_load.only values (null)",
        Stage::Execute,
        "23502",
        "null value in column \"id\" of relation \"only\" violates not-null constraint",
    ),
    (
        "insert into howdah_load.only values (-5)",
        Stage::Execute,
        "23514",
        "new row for relation \"only\" violates check constraint \"only_id_check\"",
    ),
    (
        "do $$ begin raise exception 'mine' using errcode = 'HL001'; end $$",
        Stage::Execute,
        "HL001",
        "mine",
    ),
    (
        "do $$ begin perform 1 / 0; end $$",
        Stage::Execute,
        "22012",
        "division by zero",
    ),
];

pub(super) fn all_kinds(client: &mut Client) -> Outcome {
    match client.random.below(8) {
        0 => return in_block(client),
        1 => return long_text(client),
        2 => return timeout(client),
        _ => {}
    }
    let (sql, stage, code, message) = *client.random.pick(KINDS);
    let want = error(code, message);
    if client.random.one_in(2) {
        client.query(sql, &[Part::Error(want)])?;
    } else {
        extended(client, sql, stage, want)?;
    }
    if client.random.one_in(3) {
        client.prove()
    } else {
        Ok(())
    }
}

fn extended(client: &mut Client, sql: &str, stage: Stage, want: Want) -> Outcome {
    crate::messages::parse(&mut client.session.out, "", sql, &[]);
    client.session.unnamed = None;
    client.session.opaque = stage != Stage::Parse;
    if stage == Stage::Parse {
        client.session.fail_with(want.clone());
    } else {
        client.session.exact(b'1', vec![]);
    }
    crate::messages::bind(&mut client.session.out, "", "", &Arguments::default());
    match stage {
        Stage::Parse => {}
        Stage::Bind => client.session.fail_with(want.clone()),
        Stage::Execute => client.session.exact(b'2', vec![]),
    }
    client.session.execute_text();
    if stage == Stage::Execute {
        client.session.fail_with(want);
    }
    client.session.sync();
    client.go()
}

/// Errors that depend on a transaction block.
fn in_block(client: &mut Client) -> Outcome {
    let (begin, sql, code, message) = *client.random.pick(&[
        (
            "begin",
            "discard all",
            "25001",
            "DISCARD ALL cannot run inside a transaction block",
        ),
        (
            "begin",
            "vacuum howdah_load.only",
            "25001",
            "VACUUM cannot run inside a transaction block",
        ),
        (
            "begin read only",
            "insert into howdah_load.only values (3)",
            "25006",
            "cannot execute INSERT in a read-only transaction",
        ),
        (
            "begin",
            "rollback to nowhere",
            "3B001",
            "savepoint \"nowhere\" does not exist",
        ),
        (
            "begin",
            "fetch from no_cursor",
            "34000",
            "cursor \"no_cursor\" does not exist",
        ),
    ]);
    client.query(begin, &[Part::Begin])?;
    client.query(sql, &[Part::Error(error(code, message))])?;
    client.query("commit", &[Part::Commit])
}

/// An error text longer than any small buffer.
fn long_text(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let times = client.random.between(1, 4000);
    let sql = format!("do $$ begin raise exception '%', repeat('{mark}', {times}); end $$");
    client.query(&sql, &[Part::Error(error("P0001", mark.repeat(times)))])
}

fn timeout(client: &mut Client) -> Outcome {
    client.query("begin", &[Part::Begin])?;
    client.query(
        "set local statement_timeout = 3",
        &[Part::Tag("SET".to_owned())],
    )?;
    // "... statement timeout"; but about once in ten thousand times a busy PostgreSQL 18.6 reports
    // its own timeout as "... user request", with no cancel request in its log.
    let text = Text::Starts("canceling statement due to ".to_owned());
    let late = Want::Report {
        tag: b'E',
        severity: "ERROR",
        code: "57014",
        text,
    };
    let sql = "do $$ begin perform pg_sleep(10); end $$";
    client.query(sql, &[Part::Error(late)])?;
    client.query("rollback", &[Part::Rollback])
}

fn notice(severity: &'static str, code: &'static str, text: String) -> Want {
    Want::Report {
        tag: b'N',
        severity,
        code,
        text: Text::Is(text),
    }
}

pub(super) fn notices(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let count = client.random.between(1, 20);
    match client.random.below(3) {
        0 => {
            let sql = format!("drop table if exists howdah_load.\"{mark}\"");
            let text = format!("table \"{mark}\" does not exist, skipping");
            let wants = vec![notice("NOTICE", "00000", text)];
            client.query(
                &sql,
                &[Part::Raw(wants), Part::Tag("DROP TABLE".to_owned())],
            )
        }
        1 => {
            let sql = format!("do $$ begin raise warning '{mark}'; end $$");
            client.session.parse_text(&sql, &[]);
            client.session.bind_text(&Arguments::default());
            client.session.execute_text();
            client.session.want.push(notice("WARNING", "01000", mark));
            client.session.complete("DO");
            client.session.sync();
            client.go()
        }
        _ => {
            let sql = format!(
                "do $$ begin for i in 1..{count} loop raise notice '{mark} %', i; end loop; end $$"
            );
            let each = |i| notice("NOTICE", "00000", format!("{mark} {i}"));
            let wants = (1..=count).map(each).collect();
            client.query(&sql, &[Part::Raw(wants), Part::Tag("DO".to_owned())])
        }
    }
}
