//! Transfers between accounts, with sums that must be right in the end.

use std::collections::BTreeSet;

use crate::client::{Books, Client};
use crate::expect::error;
use crate::failure::{Failure, Kind, Outcome};
use crate::session::Part;
use crate::tally::Counts;

/// The number of accounts.
pub const ACCOUNTS: usize = 500;
/// The initial balance of each account.
pub const BALANCE: i64 = 1000;

pub(super) fn transfer(client: &mut Client) -> Outcome {
    let serial = client.serial();
    let amount = client.random.between(1, 50);
    let from = client.random.below(ACCOUNTS - 1);
    let to = client.random.between(from + 1, ACCOUNTS - 1);
    let sign = if client.random.one_in(2) { '+' } else { '-' };
    let back = if sign == '+' { '-' } else { '+' };
    let update = |sign: char, id: usize| {
        format!("update howdah_load.accounts set balance = balance {sign} {amount} where id = {id}")
    };
    // Ordered by id, so that no two transfers deadlock.
    let texts = [
        update(sign, from),
        update(back, to),
        format!(
            "insert into howdah_load.transfers values ('{}', {}, {serial})",
            client.run.name, client.id
        ),
    ];
    let tags = ["UPDATE 1", "UPDATE 1", "INSERT 0 1"].map(|tag| Part::Tag(tag.to_owned()));
    let fate = client.random.below(10);
    if fate == 0 {
        return rolled_back(client, &texts, &tags);
    }
    // If the connection is lost from here on, the transfer may or may not be committed.
    client.books.transferred_perhaps.insert(serial);
    match client.random.below(4) {
        0 => {
            let sql = format!("begin; {}; commit", texts.join("; "));
            let mut parts = vec![Part::Begin];
            parts.extend(tags);
            parts.push(Part::Commit);
            client.query(&sql, &parts)?;
        }
        1 => {
            // One implicit transaction.
            client.query(&texts.join("; "), &tags)?;
        }
        2 => {
            // Everything in one pipeline.
            client.session.command("begin", &Part::Begin);
            client.session.sync();
            for (sql, part) in texts.iter().zip(&tags) {
                client.session.command(sql, part);
                client.session.sync();
            }
            client.session.command("commit", &Part::Commit);
            client.session.sync();
            client.go()?;
        }
        _ => {
            client.query("begin", &[Part::Begin])?;
            for (sql, part) in texts.iter().zip(&tags) {
                client.query(sql, std::slice::from_ref(part))?;
            }
            client.query("commit", &[Part::Commit])?;
        }
    }
    client.books.transferred_perhaps.remove(&serial);
    client.books.transferred.insert(serial);
    Ok(())
}

fn rolled_back(client: &mut Client, texts: &[String], tags: &[Part]) -> Outcome {
    client.query("begin", &[Part::Begin])?;
    for (sql, part) in texts.iter().zip(tags) {
        client.query(sql, std::slice::from_ref(part))?;
    }
    if client.random.one_in(2) {
        return client.query("rollback", &[Part::Rollback]);
    }
    let gone = error("42703", "column \"no_such\" does not exist");
    client.query("select no_such", &[Part::Error(gone)])?;
    client.query("commit", &[Part::Commit])
}

/// Compares a client's serials in a table with the serials that must and may be there.
fn compare(
    found: &[i32],
    must: &BTreeSet<i32>,
    may: &BTreeSet<i32>,
    what: &str,
) -> Result<(), String> {
    let set: BTreeSet<i32> = found.iter().copied().collect();
    if set.len() != found.len() {
        return Err(format!("{what}: something ran twice"));
    }
    if let Some(serial) = must.difference(&set).next() {
        return Err(format!(
            "{what}: n{serial} was acknowledged and is not there"
        ));
    }
    let allowed: BTreeSet<i32> = must.union(may).copied().collect();
    match set.difference(&allowed).next() {
        Some(serial) => Err(format!(
            "{what}: n{serial} was never committed and is there"
        )),
        None => Ok(()),
    }
}

fn serials(client: &mut Client, table: &str, of: usize) -> Outcome<Vec<i32>> {
    let run = &client.run.name;
    let sql = format!("select n from howdah_load.{table} where run = '{run}' and client = {of}");
    let rows = client.rows(&sql)?;
    Ok(rows
        .iter()
        .filter_map(|row| row.first()?.as_ref()?.parse().ok())
        .collect())
}

/// The check after all clients have left: table rows about sums, and about lost or unexpected rows.
pub fn check_books(
    client: &mut Client,
    books: &[(usize, Books)],
) -> Outcome<Vec<(&'static str, Counts)>> {
    let mut sums = Counts {
        operations: 1,
        ..Counts::default()
    };
    let rows = client.rows("select sum(balance)::text from howdah_load.accounts")?;
    let wanted = (ACCOUNTS as i64 * BALANCE).to_string();
    if rows != [vec![Some(wanted.clone())]] {
        sums.wrong = 1;
        let what = format!("the accounts hold {rows:?}, not {wanted}");
        let failure = Failure::new(Kind::Wrong, what);
        client.run.report.print("end: accounts", 0, &failure, &[]);
    }
    let mut transfers = Counts::default();
    let mut vanished = Counts::default();
    for (id, books) in books {
        let found = serials(client, "transfers", *id)?;
        let what = format!("transfers of client {id}");
        let result = compare(
            &found,
            &books.transferred,
            &books.transferred_perhaps,
            &what,
        );
        settle(
            client,
            "end: transfers",
            &mut transfers,
            found.len(),
            result,
        );
        let found = serials(client, "vanished", *id)?;
        let what = format!("vanished inserts of client {id}");
        let result = compare(&found, &BTreeSet::new(), &books.vanished_perhaps, &what);
        settle(
            client,
            "end: vanished",
            &mut vanished,
            1 + found.len(),
            result,
        );
    }
    Ok(vec![
        ("end: accounts", sums),
        ("end: transfers", transfers),
        ("end: vanished", vanished),
    ])
}

fn settle(
    client: &Client,
    name: &'static str,
    counts: &mut Counts,
    checked: usize,
    result: Result<(), String>,
) {
    counts.operations += checked as u64;
    if let Err(what) = result {
        counts.wrong += 1;
        client
            .run
            .report
            .print(name, 0, &Failure::new(Kind::Wrong, what), &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use std::collections::BTreeSet;

    #[test]
    fn lost_phantom_and_doubled_rows_are_found() {
        let set = |items: &[i32]| items.iter().copied().collect::<BTreeSet<i32>>();
        let (must, may) = (set(&[1, 2]), set(&[3]));
        assert!(compare(&[1, 2], &must, &may, "t").is_ok());
        assert!(compare(&[1, 2, 3], &must, &may, "t").is_ok());
        assert!(compare(&[1], &must, &may, "t").is_err());
        assert!(compare(&[1, 2, 4], &must, &may, "t").is_err());
        assert!(compare(&[1, 2, 2], &must, &may, "t").is_err());
    }
}
