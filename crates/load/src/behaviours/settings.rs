//! Settings that a pooler tracks, and commands that discard session state.

use super::cancels::whole_or;
use super::statements::{any_name, call, ensure, put_call};
use crate::client::Client;
use crate::connection::Leave;
use crate::expect::{Want, error};
use crate::failure::{Failure, Kind, Outcome};
use crate::messages::{Message, column, data_row, oid, row_description, text_body};
use crate::session::{Part, text};
use crate::statement::{Shape, Statement, ZONES};

/// Settings that PostgreSQL reports and PgBouncer tracks, with values that read back as written.
const VALUES: &[(&str, &[&str])] = &[
    (
        "DateStyle",
        &[
            "ISO, MDY",
            "ISO, DMY",
            "SQL, DMY",
            "German, DMY",
            "Postgres, MDY",
        ],
    ),
    (
        "TimeZone",
        &["UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"],
    ),
    ("IntervalStyle", &["postgres", "iso_8601", "sql_standard"]),
    ("client_encoding", &["UTF8", "LATIN1"]),
    ("standard_conforming_strings", &["on", "off"]),
];

/// A tracked setting and a value; half of the time `application_name`.
fn any_setting(client: &mut Client) -> (String, String) {
    if client.random.one_in(2) {
        return ("application_name".to_owned(), client.mark());
    }
    let (name, values) = *client.random.pick(VALUES);
    ((*name).to_owned(), (*client.random.pick(values)).to_owned())
}

fn shown(name: &str, value: &str) -> Part {
    let exact = |tag, body| Want::Exact(Message { tag, body });
    Part::Raw(vec![
        exact(b'T', row_description(&[column(name, oid::TEXT)], &[])),
        exact(b'D', data_row(&[text(value)])),
        exact(b'C', text_body("SHOW")),
    ])
}

/// Reads one setting, or all of them, back.
fn read_back(client: &mut Client, name: &str) -> Outcome {
    if client.random.one_in(3) {
        let value = client
            .session
            .settings
            .get(name)
            .cloned()
            .unwrap_or_default();
        return client.query(&format!("show {name}"), &[shown(name, &value)]);
    }
    let mut names = vec!["application_name"];
    names.extend(VALUES.iter().map(|(name, _)| *name));
    let columns = names.iter().map(|name| column(name, oid::TEXT)).collect();
    let of = |name: &&str| {
        text(
            client
                .session
                .settings
                .get(*name)
                .cloned()
                .unwrap_or_default(),
        )
    };
    let row = names.iter().map(of).collect();
    let read = |name: &&str| format!("current_setting('{name}') as \"{name}\"");
    let list: Vec<String> = names.iter().map(read).collect();
    client.query(
        &format!("select {}", list.join(", ")),
        &[Part::Rows(columns, vec![row])],
    )
}

fn set(name: &str, value: &str) -> Part {
    Part::Set {
        tag: "SET",
        values: vec![(name.to_owned(), value.to_owned())],
    }
}

pub(super) fn change(client: &mut Client) -> Outcome {
    let (name, value) = any_setting(client);
    let sql = format!("set {name} to '{value}'");
    match client.random.below(8) {
        0 => {
            // By the extended protocol.
            client.session.command(&sql, &set(&name, &value));
            client.session.sync();
            client.go()?;
        }
        1 => {
            // In a block that is committed or rolled back.
            client.query("begin", &[Part::Begin])?;
            client.query(&sql, &[set(&name, &value)])?;
            read_back(client, &name)?;
            if client.random.one_in(2) {
                client.query("rollback", &[Part::Rollback])?;
            } else {
                client.query("commit", &[Part::Commit])?;
            }
        }
        2 => {
            // Until the end of the block.
            client.query("begin", &[Part::Begin])?;
            client.session.set_local(&name, &value);
            let sql = format!("set local {name} to '{value}'");
            client.query(&sql, &[Part::Tag("SET".to_owned())])?;
            read_back(client, &name)?;
            client.query("commit", &[Part::Commit])?;
        }
        3 => {
            // Set by a function, invisible in a parsed text.
            let columns = vec![column("set_config", oid::TEXT)];
            let rows = vec![vec![text(value.clone())]];
            let parts = [
                Part::Change(vec![(name.clone(), value.clone())]),
                Part::Rows(columns, rows),
            ];
            client.query(
                &format!("select set_config('{name}', '{value}', false)"),
                &parts,
            )?;
        }
        4 => {
            // Undone by an error in the same implicit transaction.
            let gone = crate::expect::error("42703", "column \"no_such\" does not exist");
            let sql = format!("{sql}; select no_such");
            client.query(&sql, &[set(&name, &value), Part::Error(gone)])?;
        }
        _ => client.query(&sql, &[set(&name, &value)])?,
    }
    read_back(client, &name)
}

/// Sets a time zone.
fn go_to(client: &mut Client, zone: usize) -> Outcome {
    let (name, _) = ZONES[zone];
    let sql = format!("set timezone to '{name}'");
    client.query(&sql, &[set("TimeZone", name)])
}

pub(super) fn constants(client: &mut Client) -> Outcome {
    let name = *client.random.pick(&["constant_0", "constant_1"]);
    if client.random.one_in(3) {
        client.session.close_statement(name);
    }
    if client.session.statement(name).is_none() {
        let zone = client.random.below(ZONES.len());
        go_to(client, zone)?;
        let statement = Statement {
            shape: Shape::Midnight,
            k: zone as i32,
            typed: false,
        };
        client.session.parse(name, &statement);
    }
    client.session.sync();
    client.go()?;
    let statement = client.session.statement(name).expect("parsed by now");
    let elsewhere = client.random.below(ZONES.len());
    go_to(client, elsewhere)?;
    // A server that lacks the statement refuses the call, so no client gets a wrong constant.
    let refused = "prepared statement has constants that were read under other settings, \
                   and this server does not have it";
    put_call(client, name, &statement);
    client.session.sync();
    client.send()?;
    whole_or(client, error("0A000", refused))?;
    read_back(client, "TimeZone")
}

/// Logs in again with settings in the start-up packet. Returns their names.
fn login_with_settings(client: &mut Client) -> Outcome<Vec<&'static str>> {
    client.quit();
    let mark = client.mark();
    let mut wanted = vec![("application_name", mark.as_str())];
    for (name, values) in VALUES.iter().take(4) {
        if client.random.one_in(2) {
            let value: &str = client.random.pick::<&str>(values);
            wanted.push((name, value));
        }
    }
    client.connect(&wanted)?;
    for (name, value) in &wanted {
        let reported = client.session.settings.get(*name);
        if reported.map(String::as_str) != Some(value) {
            let what = format!("login with {name}={value:?} reported {reported:?}");
            return Err(Failure::new(Kind::Wrong, what));
        }
    }
    read_back(client, "application_name")?;
    Ok(wanted.into_iter().map(|(name, _)| name).collect())
}

pub(super) fn at_startup(client: &mut Client) -> Outcome {
    login_with_settings(client)?;
    change(client)?;
    read_back(client, "application_name")?;
    // Other behaviours expect a login without settings.
    client.leave(Leave::Fin);
    client.connect(&[])
}

pub(super) fn reset(client: &mut Client) -> Outcome {
    let names = login_with_settings(client)?;
    change(client)?;
    let all = client.session.initial_settings();
    match client.random.below(4) {
        0 => {
            let name = *client.random.pick(&names);
            let value = client.session.initial[name].clone();
            let values = vec![(name.to_owned(), value)];
            client.query(
                &format!("reset {name}"),
                &[Part::Set {
                    tag: "RESET",
                    values,
                }],
            )?;
        }
        1 => client.query(
            "reset all",
            &[Part::Set {
                tag: "RESET",
                values: all,
            }],
        )?,
        2 => {
            client.session.forget_statements();
            client.query(
                "discard all",
                &[Part::Set {
                    tag: "DISCARD ALL",
                    values: all,
                }],
            )?;
        }
        _ => {
            let values = vec![(
                names[0].to_owned(),
                client.session.initial[names[0]].clone(),
            )];
            let sql = format!("set {} to default", names[0]);
            client.query(&sql, &[Part::Set { tag: "SET", values }])?;
        }
    }
    read_back(client, "application_name")?;
    client.leave(Leave::Fin);
    client.connect(&[])
}

/// DEALLOCATE ALL or DISCARD ALL, with the effects.
fn throw_all_away(client: &mut Client) -> (&'static str, Part) {
    if client.random.one_in(2) {
        return ("deallocate all", Part::Tag("DEALLOCATE ALL".to_owned()));
    }
    let values = client.session.initial_settings();
    (
        "discard all",
        Part::Set {
            tag: "DISCARD ALL",
            values,
        },
    )
}

pub(super) fn deallocate(client: &mut Client) -> Outcome {
    let name = any_name(client);
    let old = ensure(client, name)?;
    call(client, name, &old)?;
    let new = Statement::any(&mut client.random);
    let quoted = format!("deallocate \"{}\"", name.replace('"', "\"\""));
    let one = Part::Tag("DEALLOCATE".to_owned());
    match client.random.below(9) {
        0 => {
            let (sql, part) = throw_all_away(client);
            client.session.forget_statements();
            client.query(sql, &[part])?;
        }
        1 => {
            // A Parse follows at once, without waiting for the answer.
            let (sql, part) = throw_all_away(client);
            client.session.forget_statements();
            client.session.query(sql, &[part]);
            client.session.parse(name, &new);
            client.session.sync();
            client.go()?;
        }
        2 => {
            // Between two Parses of one group, by the extended protocol.
            client.session.parse("before", &new);
            client
                .session
                .command("deallocate all", &Part::Tag("DEALLOCATE ALL".to_owned()));
            client.session.forget_statements();
            client.session.parse(name, &new);
            put_call(client, name, &new);
            client.session.sync();
            client.session.describe_statement("before");
            client.session.sync();
            client.go()?;
        }
        3 => {
            let (sql, part) = throw_all_away(client);
            client.session.command(sql, &part);
            client.session.forget_statements();
            client.session.sync();
            client.go()?;
        }
        4 | 5 => {
            client.session.statements.remove(name);
            client.query(&quoted, &[one])?;
        }
        6 => {
            client.session.command(&quoted, &one);
            client.session.statements.remove(name);
            client.session.sync();
            client.go()?;
        }
        7 => {
            // A rollback does not undo it.
            client.query("begin", &[Part::Begin])?;
            client.session.statements.remove(name);
            client.query(&quoted, &[one])?;
            client.query("rollback", &[Part::Rollback])?;
        }
        _ => {
            let unknown = crate::session::no_statement("nobody has this one");
            client.query(
                "deallocate \"nobody has this one\"",
                &[Part::Error(unknown)],
            )?;
        }
    }
    if client.random.one_in(2) {
        // Calls a statement that may be gone.
        let plain = Statement::of(Shape::Plain);
        let known = client.session.statement(name).unwrap_or(plain);
        call(client, name, &known)?;
    }
    let now = ensure(client, name)?;
    call(client, name, &now)
}
