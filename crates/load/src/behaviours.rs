//! The behaviours that the load mixes. Each is a function that performs one checked operation.

pub mod bank;
mod cancels;
mod channels;
mod copies;
mod disconnects;
mod errors;
mod large;
mod lists;
mod numbers;
mod pipelines;
mod portals;
mod queries;
mod settings;
mod shards;
mod statements;
mod states;
mod transactions;

pub use bank::check_books;
pub use lists::{check_lists, figures as figures_of_lists};

use crate::client::Client;
use crate::failure::Outcome;

/// A behaviour: its name, its share of the mix, and one operation of it.
pub struct Behaviour {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// Its weight in the mix.
    pub weight: usize,
    /// A description of one line.
    pub about: &'static str,
    /// When it is part of the mix.
    pub when: When,
    /// One operation.
    pub run: fn(&mut Client) -> Outcome,
}

/// When a behaviour is part of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// If sessions must keep their state: `--state`.
    State,
    /// If it is named: `--only`.
    Named,
}

/// A behaviour that needs sessions with state.
const fn state(
    name: &'static str,
    weight: usize,
    run: fn(&mut Client) -> Outcome,
    about: &'static str,
) -> Behaviour {
    Behaviour {
        when: When::State,
        ..row(name, weight, run, about)
    }
}

/// A behaviour that runs only if it is named.
const fn named(
    name: &'static str,
    weight: usize,
    run: fn(&mut Client) -> Outcome,
    about: &'static str,
) -> Behaviour {
    Behaviour {
        when: When::Named,
        ..row(name, weight, run, about)
    }
}

const fn row(
    name: &'static str,
    weight: usize,
    run: fn(&mut Client) -> Outcome,
    about: &'static str,
) -> Behaviour {
    Behaviour {
        name,
        weight,
        about,
        when: When::Always,
        run,
    }
}

/// All behaviours, in the order of the table.
pub const ALL: &[Behaviour] = &[
    row(
        "simple",
        80,
        queries::simple,
        "simple queries: rows, NULLs, no rows, no columns, empty",
    ),
    row(
        "multi",
        40,
        queries::multi,
        "several statements in one simple query, some failing",
    ),
    row(
        "function",
        12,
        queries::function,
        "the function call message",
    ),
    row(
        "named",
        120,
        statements::named,
        "named statements; names and texts overlap among clients",
    ),
    row(
        "close",
        40,
        statements::close,
        "Close, Close of nothing, and Parse of the name again",
    ),
    row(
        "unknown",
        20,
        statements::unknown,
        "unknown statements and portals: 26000, 34000",
    ),
    row(
        "duplicate",
        20,
        statements::duplicate,
        "Parse of a taken name: 42P05",
    ),
    row(
        "many",
        24,
        statements::many,
        "more distinct statements than caches hold",
    ),
    row(
        "unnamed_split",
        40,
        statements::unnamed_split,
        "unnamed: Parse and Bind in two groups",
    ),
    row(
        "describe_flush",
        32,
        statements::describe_flush,
        "Parse, Describe, Flush; then Bind",
    ),
    row(
        "flush",
        32,
        pipelines::flush,
        "several Flush before the Sync",
    ),
    row(
        "flush_leave",
        3,
        pipelines::flush_leave,
        "Flush without Sync, then the client is gone",
    ),
    row(
        "pipeline",
        40,
        pipelines::pipeline,
        "several Syncs in flight, some groups failing",
    ),
    row(
        "group_error",
        32,
        pipelines::group_error,
        "an error inside a group skips its rest",
    ),
    row(
        "walk",
        40,
        pipelines::walk,
        "random messages of the extended protocol in a pipeline",
    ),
    row(
        "tx",
        40,
        transactions::succeed,
        "explicit transactions and savepoints",
    ),
    row(
        "tx_failed",
        32,
        transactions::fail,
        "failed transactions: 25P02, rollback, recovery",
    ),
    row(
        "sql_prepare",
        16,
        transactions::sql_prepare,
        "PREPARE and EXECUTE in one transaction",
    ),
    row(
        "bank",
        40,
        bank::transfer,
        "transfers; sums and rows are checked at the end",
    ),
    row(
        "portal",
        32,
        portals::limited,
        "portals read in several Executes",
    ),
    row(
        "cursor",
        16,
        portals::cursor,
        "DECLARE, FETCH, CLOSE in a transaction",
    ),
    row(
        "large_rows",
        2,
        large::rows,
        "rows of megabytes, some read slowly",
    ),
    row(
        "large_params",
        2,
        large::parameters,
        "parameters and texts of megabytes",
    ),
    row(
        "copy_in",
        5,
        copies::into,
        "COPY FROM STDIN, simple and extended",
    ),
    row(
        "copy_in_fails",
        5,
        copies::into_failing,
        "bad rows, CopyFail, late CopyData",
    ),
    row(
        "copy_out",
        4,
        copies::out,
        "COPY TO STDOUT, complete and failing",
    ),
    row(
        "settings",
        32,
        settings::change,
        "tracked settings set and read back",
    ),
    row(
        "constants",
        16,
        settings::constants,
        "constants are read under the settings of their Parse",
    ),
    row(
        "settings_startup",
        2,
        settings::at_startup,
        "settings given at login",
    ),
    row(
        "settings_reset",
        2,
        settings::reset,
        "RESET and DISCARD ALL go back to those of the login",
    ),
    row(
        "deallocate",
        32,
        settings::deallocate,
        "DEALLOCATE and DISCARD of protocol statements",
    ),
    row("errors", 32, errors::all_kinds, "SQL errors of many kinds"),
    row(
        "notices",
        12,
        errors::notices,
        "notices and warnings in their places",
    ),
    row(
        "cancel",
        4,
        cancels::race,
        "cancel requests near the end of a statement",
    ),
    row(
        "cancel_sure",
        2,
        cancels::sure,
        "cancel requests that must hit",
    ),
    row(
        "bystander",
        12,
        cancels::bystander,
        "statements of some milliseconds that nobody cancels",
    ),
    row(
        "disconnect",
        4,
        disconnects::anywhere,
        "the client vanishes at any byte",
    ),
    state(
        "own_settings",
        24,
        states::settings,
        "settings and roles nobody reports, kept by their session",
    ),
    state(
        "own_tables",
        12,
        states::temporary,
        "temporary tables of several transactions",
    ),
    state(
        "own_locks",
        12,
        states::locks,
        "advisory locks of the session",
    ),
    state(
        "own_cursors",
        12,
        states::cursors,
        "cursors WITH HOLD and SQL's PREPARE",
    ),
    state(
        "own_numbers",
        12,
        numbers::numbers,
        "lastval and currval in the transaction that took the number, and later",
    ),
    state(
        "notifications",
        12,
        channels::notifications,
        "LISTEN and NOTIFY: each once, in order, before the ReadyForQuery that follows",
    ),
    state(
        "disturber",
        8,
        states::disturber,
        "somebody leaves any of these behind and goes",
    ),
    named(
        "list_append",
        30,
        lists::append,
        "appends to lists; each must be seen by its connection, and be there at the end",
    ),
    named(
        "list_read",
        60,
        lists::read,
        "lists read in READ ONLY transactions: no connection reads back in time",
    ),
    named(
        "list_look",
        10,
        lists::look,
        "lists read otherwise: no connection reads back in time",
    ),
    named(
        "shard_single",
        50,
        shards::single,
        "rows of the client's own keys in a sharded table, in statements of their own",
    ),
    named(
        "shard_tx",
        50,
        shards::transaction,
        "the same in transactions, kept or rolled back",
    ),
];
