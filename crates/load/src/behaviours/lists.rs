//! Appends to lists, and readings of them that may be answered by standbys.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::client::{Books, Client};
use crate::expect::difference;
use crate::failure::{Failure, Kind, Outcome};
use crate::lists::{Ends, Fate, History, ListId, Number, Reading};
use crate::messages::{self, Arguments, oid};
use crate::tally::Counts;

/// Each client's numbers begin with its own number.
const NUMBERS: i64 = 1_000_000_000;
/// How many wrong numbers or readings of a client are told.
const TOLD: usize = 3;

/// What PostgreSQL says of a division by zero.
const REFUSED: &str = "22012";

const READ: &str = "select inet_server_port(), pg_is_in_recovery(), id, items \
                    from howdah_load.lists where id = $1";
/// The same as a single read: the view's functions are not in the text.
const READ_ALONE: &str = "select port, recovers, id, items from howdah_load.shown where id = $1";
/// A single read that no standby carries out.
const READ_BEYOND: &str = "select port, recovers, id, items from howdah_load.marked where id = $1";
const APPEND: &str = "update howdah_load.lists set items = items || $1::int8 where id = $2";

fn reads(list: ListId) -> String {
    READ.replace("$1", &list.to_string())
}

fn appends((list, number): (ListId, Number)) -> String {
    let sql = APPEND.replace("$1", &number.to_string());
    sql.replace("$2", &list.to_string())
}

/// Messages to send, and how many answers up to a ReadyForQuery they get.
#[derive(Default)]
pub(super) struct Request {
    out: Vec<u8>,
    answers: usize,
}

impl Request {
    /// A simple query.
    fn query(sql: &str) -> Request {
        let mut request = Request::default();
        request.add_query(sql);
        request
    }

    fn add_query(&mut self, sql: &str) {
        messages::query(&mut self.out, sql);
        self.answers += 1;
    }

    /// A statement of the extended protocol. With a name, it is parsed only if the connection does
    /// not have it.
    pub(super) fn run(
        &mut self,
        history: &mut History,
        name: &'static str,
        sql: &str,
        values: &[i64],
    ) {
        if name.is_empty() || history.prepared.insert(name) {
            messages::parse(&mut self.out, name, sql, &vec![oid::INT8; values.len()]);
        }
        let text = |value: &i64| Some(value.to_string().into_bytes());
        let arguments = Arguments {
            values: values.iter().map(text).collect(),
            ..Arguments::default()
        };
        messages::bind(&mut self.out, "", name, &arguments);
        messages::execute(&mut self.out, "", 0);
    }

    pub(super) fn sync(&mut self) {
        messages::bare(&mut self.out, b'S');
        self.answers += 1;
    }
}

/// Sends a request, and gives its rows. PostgreSQL must refuse it with `refusal`, if that is given.
pub(super) fn ask(
    client: &mut Client,
    request: &Request,
    refusal: Option<&str>,
) -> Outcome<Vec<Vec<Option<String>>>> {
    let connection = client.connection();
    connection.send(&request.out)?;
    let (mut rows, mut answers, mut refused) = (Vec::new(), 0, false);
    while answers < request.answers {
        let message = connection.next()?;
        match message.tag {
            b'D' => rows.push(messages::values(&message.body)),
            b'E' if refusal.is_some()
                && messages::field(&message.body, b'C').as_deref() == refusal =>
            {
                refused = true;
            }
            b'E' => return Err(difference(connection, &[], &message)),
            b'Z' => answers += 1,
            _ => {}
        }
    }
    if refused != refusal.is_some() {
        return Err(Failure::new(
            Kind::Wrong,
            "PostgreSQL should have refused this",
        ));
    }
    Ok(rows)
}

/// The reading in a row of `READ`.
fn reading(row: &[Option<String>]) -> Option<Reading> {
    let [Some(port), Some(recovers), Some(list), Some(items)] = row else {
        return None;
    };
    let items = items.strip_prefix('{')?.strip_suffix('}')?;
    let items = items.split(',').filter(|item| !item.is_empty());
    Some(Reading {
        list: list.parse().ok()?,
        items: items.map(|item| item.parse().ok()).collect::<Option<_>>()?,
        port: port.parse().ok()?,
        at_standby: recovers == "t",
    })
}

/// Asks for lists and judges what comes; true if a standby has answered.
fn judged(client: &mut Client, request: &Request, count: usize) -> Outcome<bool> {
    let unanswered = client.run.board.unanswered();
    let rows = ask(client, request, None)?;
    judge(client, &rows, count, &unanswered)
}

fn judge(
    client: &mut Client,
    rows: &[Vec<Option<String>>],
    count: usize,
    unanswered: &BTreeSet<Number>,
) -> Outcome<bool> {
    let wrong = |what: String| Failure::new(Kind::Wrong, what);
    let readings: Option<Vec<Reading>> = rows.iter().map(|row| reading(row)).collect();
    let readings = readings.filter(|readings| readings.len() == count);
    let readings = readings.ok_or_else(|| wrong(format!("of {count} lists came {rows:?}")))?;
    for reading in &readings {
        client
            .books
            .lists
            .take(reading, unanswered)
            .map_err(wrong)?;
    }
    Ok(readings.iter().any(|reading| reading.at_standby))
}

/// A list to read: often one that the connection knows, so that there is something to judge.
fn interesting(client: &mut Client) -> ListId {
    let draw = client.random.below(1 << 20);
    let open = client.run.board.open_list(draw);
    let lists = &client.books.lists;
    match client.random.below(8) {
        0..4 => lists.last().unwrap_or(open),
        4 => lists.any(draw / 8).unwrap_or(open),
        _ => open,
    }
}

/// Reads lists in a transaction that is declared READ ONLY.
pub(super) fn read(client: &mut Client) -> Outcome {
    let list = interesting(client);
    let began = Instant::now();
    let at_standby = match client.random.below(10) {
        0 | 1 => in_steps(client, list)?,
        2 | 3 => in_pipeline(client, list)?,
        4 => repeatable(client, list)?,
        5 => return by_setting(client),
        6 | 7 => alone(client, list)?,
        8 => beyond(client, list)?,
        _ => {
            let sql = format!("/* howdah.route=prefer-standby */ {}", reads(list));
            judged(client, &Request::query(&sql), 1)?
        }
    };
    note(&mut client.books.lists, at_standby, began.elapsed());
    Ok(())
}

/// Notes where a transaction that only reads was, and how long it took.
fn note(lists: &mut History, at_standby: bool, took: Duration) {
    let of = if at_standby {
        &mut lists.at_standbys
    } else {
        &mut lists.at_primary
    };
    *of += 1;
    lists.took.push(took);
}

/// BEGIN, a statement and COMMIT, each behind the answer of the one before.
fn in_steps(client: &mut Client, list: ListId) -> Outcome<bool> {
    let begin = *client.random.pick(&[
        "begin read only",
        "BEGIN TRANSACTION READ ONLY",
        "start transaction read only",
        "begin isolation level read committed, read only",
    ]);
    ask(client, &Request::query(begin), None)?;
    let mut request = Request::default();
    match client.random.below(3) {
        0 => request.add_query(&reads(list)),
        1 => {
            request.run(&mut client.books.lists, "", READ, &[list as i64]);
            request.sync();
        }
        _ => {
            request.run(&mut client.books.lists, "list", READ, &[list as i64]);
            request.sync();
        }
    }
    let at_standby = judged(client, &request, 1)?;
    ask(client, &Request::query("commit"), None)?;
    Ok(at_standby)
}

/// All of a transaction at once, in the extended protocol.
fn in_pipeline(client: &mut Client, list: ListId) -> Outcome<bool> {
    let synced = client.random.one_in(2);
    let name = *client.random.pick(&["", "list"]);
    let mut request = Request::default();
    let history = &mut client.books.lists;
    request.run(history, "", "begin read only", &[]);
    if synced {
        request.sync();
    }
    request.run(history, name, READ, &[list as i64]);
    if synced {
        request.sync();
    }
    request.run(history, "", "commit", &[]);
    request.sync();
    judged(client, &request, 1)
}

/// Two readings of one snapshot.
fn repeatable(client: &mut Client, list: ListId) -> Outcome<bool> {
    ask(
        client,
        &Request::query("begin isolation level repeatable read, read only"),
        None,
    )?;
    let unanswered = client.run.board.unanswered();
    let first = ask(client, &Request::query(&reads(list)), None)?;
    let second = ask(client, &Request::query(&reads(list)), None)?;
    ask(client, &Request::query("commit"), None)?;
    if first != second {
        let what = format!("a snapshot has changed: {first:?}, {second:?}");
        return Err(Failure::new(Kind::Wrong, what));
    }
    judge(client, &first, 1, &unanswered)
}

/// A single read, outside a transaction.
fn alone(client: &mut Client, list: ListId) -> Outcome<bool> {
    let mut request = Request::default();
    match client.random.below(3) {
        0 => request.add_query(&READ_ALONE.replace("$1", &list.to_string())),
        draw => {
            let name = ["", "alone"][draw - 1];
            request.run(&mut client.books.lists, name, READ_ALONE, &[list as i64]);
            request.sync();
        }
    }
    judged(client, &request, 1)
}

/// A single read that a standby refuses: it runs again at the primary. Texts differ, or Howdah would
/// send no more of them to standbys.
fn beyond(client: &mut Client, list: ListId) -> Outcome<bool> {
    let text = format!("{READ_BEYOND} -- {}", client.random.below(1 << 30));
    let mut request = Request::default();
    if client.random.one_in(2) {
        request.add_query(&text.replace("$1", &list.to_string()));
    } else {
        request.run(&mut client.books.lists, "", &text, &[list as i64]);
        request.sync();
    }
    if judged(client, &request, 1)? {
        let what = "a standby has answered what it can't carry out";
        return Err(Failure::new(Kind::Wrong, what));
    }
    Ok(false)
}

/// Several transactions that only read because a setting says so.
fn by_setting(client: &mut Client) -> Outcome {
    ask(
        client,
        &Request::query("set default_transaction_read_only = on"),
        None,
    )?;
    for _ in 0..client.random.between(1, 4) {
        let list = interesting(client);
        let began = Instant::now();
        let mut request = Request::default();
        match client.random.below(4) {
            0 => request.add_query(&reads(list)),
            1 => {
                request.run(&mut client.books.lists, "", READ, &[list as i64]);
                request.sync();
            }
            2 => {
                request.run(&mut client.books.lists, "list", READ, &[list as i64]);
                request.sync();
            }
            _ => {
                request.add_query("begin");
                request.add_query(&reads(list));
                request.add_query("commit");
            }
        }
        let at_standby = judged(client, &request, 1)?;
        note(&mut client.books.lists, at_standby, began.elapsed());
    }
    ask(
        client,
        &Request::query("reset default_transaction_read_only"),
        None,
    )?;
    Ok(())
}

/// Reads a list otherwise: at the primary, unless the text declares a transaction READ ONLY and
/// ends it.
pub(super) fn look(client: &mut Client) -> Outcome {
    let list = interesting(client);
    let sql = reads(list);
    let mut request = Request::default();
    match client.random.below(4) {
        0 => request.add_query(&sql),
        1 => {
            request.run(&mut client.books.lists, "list", READ, &[list as i64]);
            request.sync();
        }
        2 => request.add_query(&format!(
            "/* howdah.route=primary */ begin read only; {sql}; commit"
        )),
        _ => {
            request.add_query(&format!("begin read only; {sql}; commit"));
            return judged(client, &request, 1).map(|_| ());
        }
    }
    if judged(client, &request, 1)? {
        return Err(Failure::new(
            Kind::Wrong,
            "a standby has answered for the primary",
        ));
    }
    Ok(())
}

/// Appends to one list or two, which may be rolled back or refused.
pub(super) fn append(client: &mut Client) -> Outcome {
    let count = if client.random.one_in(4) { 2 } else { 1 };
    let lists: BTreeSet<ListId> = (0..count)
        .map(|_| client.run.board.open_list(client.random.below(1 << 20)))
        .collect();
    // Ordered by id, so that no two transactions deadlock.
    let appends: Vec<(ListId, Number)> = lists
        .into_iter()
        .map(|list| {
            (
                list,
                client.id as i64 * NUMBERS + i64::from(client.serial()),
            )
        })
        .collect();
    client.run.board.begin(&appends);
    let done = sent(client, &appends);
    let fate = *done.as_ref().unwrap_or(&Fate::Unanswered);
    if fate != Fate::Unanswered {
        client.run.board.answer(&appends);
    }
    client.books.lists.appended(&appends, fate);
    done.map(|_| ())
}

/// Sends appends; what became of them.
fn sent(client: &mut Client, list: &[(ListId, Number)]) -> Outcome<Fate> {
    let texts: Vec<String> = list.iter().map(|append| appends(*append)).collect();
    let all = texts.join("; ");
    match client.random.below(10) {
        0..3 => {
            ask(client, &Request::query(&all), None)?;
            Ok(Fate::Confirmed)
        }
        3 => {
            ask(
                client,
                &Request::query(&format!("begin; {all}; commit")),
                None,
            )?;
            Ok(Fate::Confirmed)
        }
        4 | 5 => {
            let name = *client.random.pick(&["", "append"]);
            let mut request = Request::default();
            for (id, number) in list {
                request.run(
                    &mut client.books.lists,
                    name,
                    APPEND,
                    &[*number, *id as i64],
                );
            }
            request.sync();
            ask(client, &request, None)?;
            Ok(Fate::Confirmed)
        }
        6 | 7 => {
            ask(client, &Request::query("begin"), None)?;
            for text in &texts {
                ask(client, &Request::query(text), None)?;
            }
            let commits = client.random.one_in(2);
            let end = if commits { "commit" } else { "rollback" };
            ask(client, &Request::query(end), None)?;
            Ok(if commits {
                Fate::Confirmed
            } else {
                Fate::Refused
            })
        }
        8 => {
            let sql = format!("{all}; select 1 / 0");
            ask(client, &Request::query(&sql), Some(REFUSED))?;
            Ok(Fate::Refused)
        }
        _ => {
            ask(client, &Request::query(&format!("begin; {all}")), None)?;
            ask(client, &Request::query("select 1 / 0"), Some(REFUSED))?;
            ask(client, &Request::query("commit"), None)?;
            Ok(Fate::Refused)
        }
    }
}

/// The check after all clients have left.
pub fn check_lists(client: &mut Client, books: &[(usize, Books)]) -> Outcome<Counts> {
    let rows = client.rows("select id, items from howdah_load.lists where items <> '{}'")?;
    let list = |row: &Vec<Option<String>>| {
        let [Some(id), Some(items)] = row.as_slice() else {
            return None;
        };
        let items = items.trim_matches(['{', '}']).split(',');
        let items = items
            .map(|item| item.parse().ok())
            .collect::<Option<Vec<Number>>>()?;
        Some((id.parse().ok()?, items))
    };
    let lists: Option<HashMap<ListId, Vec<Number>>> = rows.iter().map(list).collect();
    let ends = Ends::new(lists.ok_or_else(|| Failure::new(Kind::Wrong, "these are no lists"))?);
    let mut counts = Counts {
        operations: 1 + ends.len() as u64,
        ..Counts::default()
    };
    let strangers = ends.strangers(books.iter().map(|(_, books)| &books.lists));
    let of_clients = books
        .iter()
        .map(|(id, books)| (*id, books.lists.compare(&ends)));
    for (id, wrong) in [(0, strangers)].into_iter().chain(of_clients) {
        counts.wrong += wrong.len() as u64;
        for what in wrong.into_iter().take(TOLD) {
            let failure = Failure::new(Kind::Wrong, what);
            client.run.report.print("end: lists", id, &failure, &[]);
        }
    }
    Ok(counts)
}

/// What became of appends, where reads went, and how long they took.
pub fn figures(books: &[(usize, Books)]) -> serde_json::Value {
    let all = || books.iter().map(|(_, books)| &books.lists);
    let sum = |of: fn(&History) -> u64| all().map(of).sum::<u64>();
    let fates = |fate| all().map(|lists| lists.count(fate)).sum::<usize>();
    let (standbys, primary) = (sum(|of| of.at_standbys), sum(|of| of.at_primary));
    let mut took: Vec<_> = all().flat_map(|lists| lists.took.iter()).collect();
    took.sort_unstable();
    let part = |share: f64| {
        let at = (took.len() as f64 * share) as usize;
        took.get(at)
            .map(|took| (took.as_secs_f64() * 1e5).round() / 100.0)
    };
    serde_json::json!({
        "confirmed": fates(Fate::Confirmed),
        "refused": fates(Fate::Refused),
        "unanswered": fates(Fate::Unanswered),
        "reads_at_standbys": standbys,
        "reads_at_primary": primary,
        "standbys_percent": (1000 * standbys / (standbys + primary).max(1)) as f64 / 10.0,
        "excused": sum(|of| of.excused),
        "read_ms": {"median": part(0.5), "p99": part(0.99), "most": part(0.999_999)},
    })
}

#[cfg(test)]
mod tests {
    use super::{Reading, reading};

    #[test]
    fn rows_are_read() {
        let row = |items: &str| ["5433", "t", "7", items].map(|text| Some(text.to_owned()));
        let found = reading(&row("{3,-4}"));
        let wanted = Reading {
            list: 7,
            items: vec![3, -4],
            port: 5433,
            at_standby: true,
        };
        assert_eq!(found, Some(wanted));
        assert_eq!(reading(&row("{}")).map(|of| of.items), Some(vec![]));
        assert_eq!(reading(&row("3")), None);
        assert_eq!(reading(&row("{x}")), None);
    }
}
