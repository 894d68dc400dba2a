//! `howdah top`: pools, clients, servers and waits in a terminal, over the admin console. So it works
//! from anywhere, and against PgBouncer, too, as far as that has the columns. And `howdah init`: the
//! first configuration of a pooler, over a connection to PostgreSQL.
#![forbid(unsafe_code)]

mod arguments;
mod console;
mod init;
mod json;
mod keys;
mod passwords;
mod screen;
mod state;
mod table;
mod target;
mod tls;
mod view;

pub use arguments::USAGE;
pub use init::init;
pub use target::connect;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use arguments::Arguments;
use console::{Console, Snapshot};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::State;
use target::Target;

/// How long a lost console is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// Runs with the arguments behind `top`; false if something went wrong, which was said then.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let done = Arguments::read(arguments).and_then(|arguments| match arguments {
        None => {
            print!("{USAGE}");
            Ok(())
        }
        Some(arguments) if arguments.once => once(arguments),
        Some(arguments) => watch(arguments),
    });
    if let Err(why) = &done {
        eprintln!("howdah top: {}", view::printable(why));
    }
    done.is_ok()
}

/// Looks twice, so that there are rates, and prints.
fn once(mut arguments: Arguments) -> Result<(), String> {
    let mut console = Console::open(&mut arguments.target)?;
    let first = console.look()?;
    std::thread::sleep(arguments.interval);
    let second = console.look()?;
    let text = if arguments.json {
        json::json(&second, Some(&first))
    } else {
        view::plain(&second, Some(&first))
    };
    // Whoever reads may have had enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn watch(mut arguments: Arguments) -> Result<(), String> {
    if !std::io::stdout().is_terminal() {
        return Err("standard output is no terminal; use --once".into());
    }
    // Before the screen is taken: what is wrong can be read then.
    let mut console = Some(Console::open(&mut arguments.target)?);
    arguments.target.ask_no_more();
    let mut terminal = ratatui::try_init().map_err(|why| why.to_string())?;
    let mut state = State::new(arguments.target.name());
    let mut due = Instant::now();
    let ended = loop {
        if Instant::now() >= due {
            due = Instant::now() + arguments.interval;
            if !state.paused {
                look(&mut console, &mut arguments.target, &mut state);
                if console.is_none() {
                    due = Instant::now() + RETRY;
                }
            }
        }
        if let Err(why) = terminal.draw(|frame| screen::draw(frame, &mut state)) {
            break Err(why.to_string());
        }
        let patience = due.saturating_duration_since(Instant::now());
        match event::poll(patience).and_then(|ready| ready.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                keys::pressed(&mut state, key);
            }
            Ok(_) => {}
            Err(why) => break Err(why.to_string()),
        }
        if state.done {
            break Ok(());
        }
    };
    ratatui::restore();
    ended
}

/// Takes a new snapshot, over a new connection if the last one was lost.
fn look(console: &mut Option<Console>, target: &mut Target, state: &mut State) {
    let seen: Result<Snapshot, String> = match console {
        Some(console) => console.look(),
        None => Console::open(target).and_then(|mut new| {
            let seen = new.look();
            *console = Some(new);
            seen
        }),
    };
    match seen {
        Ok(snapshot) => state.take(snapshot),
        Err(why) => {
            *console = None;
            state.lost = Some(why);
        }
    }
}
