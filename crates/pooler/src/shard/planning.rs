//! What plans of a client's statements need: the planner, and how the client's names are looked up.

use std::sync::Arc;

use howdah_shard::{Names, Planner};

use crate::client::Client;
use crate::config::Database;
use crate::login::Login;
use crate::login::key::{LoginKey, Parameter};
use crate::params::Tracked;
use crate::session::settings::value;
use crate::shard::bound_text::PlanReader;
use crate::shard::noted::Noted;
use crate::shard::tally::ShardTally;

/// What plans of a client's statements need, besides the client.
#[derive(Debug)]
pub struct Planning<'a> {
    /// Makes plans; `None` while the catalogue is not known.
    pub planner: Option<&'a mut Planner>,
    /// The counts of the database.
    pub(super) tally: &'a mut ShardTally,
    /// The entry of the client's shard.
    database: Arc<Database>,
    key: Arc<LoginKey>,
    /// What the shard reported at the last login.
    reported: Option<Arc<[Parameter]>>,
}

impl<'a> Planning<'a> {
    /// Plans for the clients of a shard's login.
    pub fn new(
        planner: Option<&'a mut Planner>,
        tally: &'a mut ShardTally,
        login: &Login,
    ) -> Planning<'a> {
        let welcome = login.welcome.as_ref();
        Planning {
            planner,
            tally,
            database: login.terms.database.clone(),
            key: login.key.clone(),
            reported: welcome.map(|welcome| welcome.parameters.clone()),
        }
    }

    /// The reader of a client's statements. `is_private`: the transaction has changed where names are
    /// looked up.
    pub fn reader<'b>(
        &'b mut self,
        client: &'b Client,
        tracked: &Tracked,
        is_private: bool,
    ) -> PlanReader<'b> {
        let parameter = |name: &[u8]| client.params.as_ref()?.get(tracked.position(name)?);
        let session = client.session.as_deref();
        let set = |name: &[u8]| session.and_then(|session| value(&session.settings, name));
        let text = |bytes: &'b [u8]| std::str::from_utf8(bytes).unwrap_or_default();
        let path = set(b"search_path")
            .or_else(|| parameter(b"search_path"))
            .map(text);
        let of_entry = || self.database.parameters.as_ref()?.get("search_path");
        let user = self.database.server_user(&self.key.user);
        let encoding = parameter(b"client_encoding").unwrap_or_default();
        let mut reported = self.reported.iter().flat_map(|all| all.iter());
        let server = reported.find(|(name, _)| **name == *b"server_encoding");
        let is = |word: &[u8], other: &[u8]| other.eq_ignore_ascii_case(word);
        PlanReader {
            planner: self.planner.as_deref_mut(),
            spread: self.tally.spread(),
            noted: Noted::default(),
            names: Names {
                role: set(b"role").map_or(user, text),
                search_path: path.or_else(of_entry),
                has_temporary: client.has_temporary(),
                escapes: parameter(b"standard_conforming_strings")
                    .is_some_and(|value| is(b"off", value)),
                utf8: is(b"UTF8", encoding),
            },
            same_encoding: server.is_some_and(|(_, server)| is(server, encoding)),
            is_private,
        }
    }
}
