//! Scripts of what clients, PostgreSQL, other workers and time do, and of what the decisions then
//! are: text in, text out, at a virtual clock. A line that begins with `>` happens; the lines below
//! it are what has to come of it. See `scripts/world.rs` for the words.

#[path = "scripts/messages.rs"]
mod messages;
#[path = "scripts/world.rs"]
mod world;

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            world::play(include_str!(concat!("scripts/", stringify!($name), ".txt")));
        })*
    };
}

scripts!(
    links, statements, copies, leaving, cancels, parameters, limits, pools, reload, modes, workers,
    mistakes, moves, simulated, scenarios, outside, standbys, tls, session, queries, listen,
);
