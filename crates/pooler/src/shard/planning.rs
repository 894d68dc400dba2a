//! What plans of a client's statements need: the planner, and how the client's names are looked up.

use howdah_shard::Names;

use crate::client::Client;
use crate::login::home::Home;
use crate::params::{self, Tracked};
use crate::session::settings::value;
use crate::shard::bound_text::PlanReader;
use crate::shard::lore::PlannerInUse;
use crate::shard::noted::Noted;
use crate::shard::tally::ShardTally;

/// What plans of a client's statements need, besides the client.
#[derive(Debug)]
pub struct Planning<'a> {
    /// Makes plans; `None` while the catalogue is not known.
    pub planner: Option<PlannerInUse<'a>>,
    /// The counts of the database.
    pub(super) tally: &'a mut ShardTally,
    /// The client's shard.
    home: Home<'a>,
}

impl<'a> Planning<'a> {
    /// Plans for the clients of a shard's login.
    pub fn new(
        planner: Option<PlannerInUse<'a>>,
        tally: &'a mut ShardTally,
        home: Home<'a>,
    ) -> Planning<'a> {
        Planning {
            planner,
            tally,
            home,
        }
    }

    /// The name of the client's shard.
    pub fn shard(&self) -> &str {
        &self.home.key.database
    }

    /// The reader of a client's statements. `is_private`: the transaction has changed where names are
    /// looked up.
    pub fn reader<'b>(
        &'b mut self,
        client: &'b Client,
        tracked: &Tracked,
        is_private: bool,
    ) -> PlanReader<'b> {
        let parameter = |position| client.params.as_ref()?.get(position);
        let session = client.session.as_deref();
        let set = |name: &[u8]| session.and_then(|session| value(&session.settings, name));
        let text = |bytes: &'b [u8]| std::str::from_utf8(bytes).unwrap_or_default();
        let path = set(b"search_path")
            .or_else(|| parameter(tracked.search_path()?))
            .map(text);
        let Home {
            database,
            key,
            reported,
        } = self.home;
        let pooled = &*key.user;
        let of_server = || {
            let member = database.member(pooled)?.parameters.as_ref();
            member?.get("search_path")
        };
        let of_entry = || database.parameters.as_ref()?.get("search_path");
        let login = database.server_user(pooled);
        let role = set(b"role").map(text).filter(|role| *role != "none");
        let mut reported = reported.iter();
        let server = reported.find(|(name, _)| **name == *b"server_encoding");
        let utf8 = parameter(params::ENCODING).is_some_and(is_utf8);
        let (planner, trouble) = match &mut self.planner {
            Some(plans) => (Some(&mut *plans.planner), plans.trouble.as_ref()),
            None => (None, None),
        };
        PlanReader {
            planner,
            trouble: trouble.map(|(shard, why)| (*shard, &**why)),
            spread: self.tally.spread(),
            noted: Noted::default(),
            names: Names {
                role: role.unwrap_or(login),
                login,
                search_path: path.or_else(of_server).or_else(of_entry),
                has_temporary: client.has_temporary(),
                escapes: parameter(params::STANDARD_STRINGS)
                    .is_some_and(|value| value.eq_ignore_ascii_case(b"off")),
                utf8,
            },
            same_encoding: utf8 && server.is_some_and(|(_, server)| is_utf8(server)),
            is_private,
            is_another: set(b"session_authorization").is_some_and(|user| user != login.as_bytes()),
        }
    }
}

/// True for the names of UTF8, which PostgreSQL reads without case and signs.
fn is_utf8(name: &[u8]) -> bool {
    if name == b"UTF8" {
        return true;
    }
    let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let name: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    matches!(&*name, b"utf8" | b"unicode")
}
