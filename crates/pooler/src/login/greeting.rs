//! The messages that a client gets after its login, equal for all clients with equal wishes.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_wire::write;

use crate::Seeded;
use crate::login::key::Welcome;
use crate::params::{Meaning, Params, Tracked};
use crate::session::settings::{self, Maybe};
use crate::shared::Shared;
use crate::spelling::{canonical, cut_name, reported};

/// What a client asks for at its login.
#[derive(Debug)]
pub struct Wishes<'a> {
    /// Values of the tracked parameters.
    pub(crate) asked: Option<&'a Arc<Params>>,
    /// Values of other settings.
    pub(crate) login: Maybe,
    /// The settings that decide where names are looked up (`search_path` and the like).
    pub(crate) path: Option<Vec<u8>>,
    /// The client replicates, and so gets a server of its own.
    pub(crate) replicates: bool,
}

/// The messages for a client, except its cancel key, and its first values. A pool keeps the last
/// greeting, because applications connect often and mostly ask for the same.
#[derive(Debug)]
pub struct Greeting {
    /// All that the client asked for; `None` if it asked for anything else, too.
    only: Option<Arc<Params>>,
    /// The values that RESET restores, if not those of PostgreSQL.
    pub(crate) reset: Option<Arc<Params>>,
    /// Values of the tracked parameters.
    pub(crate) params: Arc<Params>,
    /// The settings that change the meaning of statements.
    pub(crate) meaning: Meaning,
    /// The messages from AuthenticationOk to the last ParameterStatus.
    pub(crate) messages: Box<[u8]>,
}

impl Greeting {
    /// The parameters that PostgreSQL reported, overridden by the client's own. `hasher` is that
    /// of meanings.
    pub fn new(
        wishes: &Wishes<'_>,
        welcome: &Welcome,
        shared: &mut Shared,
        hasher: Seeded,
    ) -> Greeting {
        let (tracked, sets) = (&shared.tracked, &mut shared.params);
        let asked = wishes
            .asked
            .map(|asked| canonical(tracked, asked, &welcome.tracked, welcome.major()));
        let params = match &asked {
            Some(asked) => sets.intern(welcome.tracked.overlaid(asked)),
            None => welcome.tracked.clone(),
        };
        // A replication client's server has them as login defaults.
        let reset = asked.filter(|asked| !asked.is_unknown() && !wishes.replicates);
        Greeting {
            only: wishes.asked.filter(|_| wishes.are_plain()).cloned(),
            reset: reset.map(|asked| sets.intern(asked)),
            meaning: params.meaning(tracked, hasher, wishes.path.as_deref()),
            messages: messages(wishes, welcome, tracked, &params).into(),
            params,
        }
    }

    /// True if other clients may get the same greeting.
    pub fn is_for_others(&self) -> bool {
        self.only.is_some()
    }

    /// True if a client with these wishes gets the same greeting.
    pub fn suits(&self, wishes: &Wishes<'_>) -> bool {
        let same = |(only, asked)| Arc::ptr_eq(only, asked);
        wishes.are_plain() && self.only.as_ref().zip(wishes.asked).is_some_and(same)
    }
}

impl Wishes<'_> {
    fn are_plain(&self) -> bool {
        self.login.is_none() && self.path.is_none() && !self.replicates
    }

    /// PostgreSQL's notice about a long `application_name`, if the client wants notices.
    fn cut_notice(&self, tracked: &Tracked) -> Option<String> {
        let whole = self.asked?.get(tracked.position(b"application_name")?)?;
        let cut = cut_name(whole)?;
        let least = settings::value(&self.login, b"client_min_messages");
        let deaf = |least: &[u8]| matches!(least, b"warning" | b"error");
        // A replication client has already got this notice from its server.
        if self.replicates || least.is_some_and(deaf) {
            return None;
        }
        let (whole, cut) = (String::from_utf8_lossy(whole), String::from_utf8_lossy(cut));
        Some(format!(
            "identifier \"{whole}\" will be truncated to \"{cut}\""
        ))
    }
}

fn messages(wishes: &Wishes<'_>, welcome: &Welcome, tracked: &Tracked, params: &Params) -> Vec<u8> {
    let mut messages = Vec::new();
    write::authentication(&mut messages, 0, b"");
    if let Some(text) = wishes.cut_notice(tracked) {
        write::notice(&mut messages, "NOTICE", "42622", &text, None);
    }
    for (name, value) in &*welcome.parameters {
        let own = match tracked.position(name) {
            Some(position) => params.get(position).map(Cow::Borrowed),
            // Newer versions of PostgreSQL report parameters that Howdah does not track.
            None => settings::value(&wishes.login, &name.to_ascii_lowercase())
                .map(|value| reported(name, value)),
        };
        write::parameter_status(&mut messages, name, own.as_deref().unwrap_or(value));
    }
    messages
}
