//! What PostgreSQL's processes did, statement by statement.

use std::collections::BTreeMap;

use crate::session::Deed;
use crate::sql::Token;
use crate::story::{Story, Who};

/// The fate of one statement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Fate {
    /// How often the statement ran.
    pub ran: u32,
    /// The statement's change was committed.
    pub kept: bool,
    /// The process that ran it.
    pub backend: u32,
}

/// The fates of all statements.
#[derive(Default)]
pub struct Journal {
    fates: BTreeMap<Token, Fate>,
}

impl Journal {
    /// Records what a process did.
    pub fn write(&mut self, deed: &Deed, backend: u32, story: &mut Story) {
        match *deed {
            Deed::Ran(token) => {
                let fate = self.fates.entry(token).or_default();
                fate.ran += 1;
                fate.backend = backend;
                if fate.ran > 1 {
                    let who = [Who::Client(token.client), Who::Backend(backend)];
                    story.violate("once", &who, format!("{token} ran {} times", fate.ran));
                }
            }
            Deed::Kept(token) => self.fates.entry(token).or_default().kept = true,
            Deed::Undone(_) | Deed::Listening(_) | Deed::At(_) => {}
        }
    }

    /// The fate of a statement.
    pub fn fate(&self, token: Token) -> Fate {
        self.fates.get(&token).copied().unwrap_or_default()
    }

    /// All statements of a client.
    pub fn of(&self, client: u32) -> impl Iterator<Item = (Token, Fate)> {
        let from = Token { client, number: 0 };
        let to = Token {
            client,
            number: u32::MAX,
        };
        self.fates
            .range(from..=to)
            .map(|(token, fate)| (*token, *fate))
    }

    /// The number of statements that ran.
    pub fn len(&self) -> usize {
        self.fates.len()
    }

    /// True if no statement ran.
    pub fn is_empty(&self) -> bool {
        self.fates.is_empty()
    }
}
