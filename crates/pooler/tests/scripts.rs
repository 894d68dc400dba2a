//! Scripts of events by clients, PostgreSQL, other workers and time, and of the resulting
//! decisions: text in, text out, at a virtual clock. A line that begins with `>` is an event; the
//! lines below it are the expected result. `scripts/world.rs` lists the events.

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
    links, statements, known, unnamed, copies, leaving, cancels, parameters, limits, pools, reload,
    modes, workers, mistakes, moves, simulated, scenarios, outside, standbys, tls, session,
    queries, listen, shards, balancers, drain,
);
