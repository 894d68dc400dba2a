//! What clients are told once they are let in. It is the same for all who ask for the same.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_wire::write;

use crate::Seeded;
use crate::params::{Meaning, Params, Tracked};
use crate::pool::key::Welcome;
use crate::session::settings::{self, Maybe};
use crate::shared::Shared;
use crate::spelling::{canonical, cut_name, reported};

/// What a client has asked for at its login.
#[derive(Debug)]
pub struct Wishes<'a> {
    /// Values of the tracked parameters.
    pub(crate) asked: Option<&'a Arc<Params>>,
    /// Other settings.
    pub(crate) login: Maybe,
    /// Those of all its settings that decide where names are looked for.
    pub(crate) path: Option<Vec<u8>>,
    /// A server of its own.
    pub(crate) replicates: bool,
}

/// What a client is told, all but its key, and the values that it begins with. A pool keeps the last
/// one: applications connect again and again, and ask for the same each time.
#[derive(Debug)]
pub struct Greeting {
    /// The one thing that was asked for; nothing if there was more.
    only: Option<Arc<Params>>,
    /// What RESET goes back to, where that is not what PostgreSQL began with.
    pub(crate) reset: Option<Arc<Params>>,
    /// Values of the tracked parameters.
    pub(crate) params: Arc<Params>,
    /// What statements mean under those.
    pub(crate) meaning: Meaning,
    /// From AuthenticationOk to the last ParameterStatus.
    pub(crate) messages: Box<[u8]>,
}

impl Greeting {
    /// What PostgreSQL has told, with the client's own values on top. The hasher is that of meanings.
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
        // The server of who replicates was logged in with them.
        let reset = asked.filter(|asked| !asked.is_unknown() && !wishes.replicates);
        Greeting {
            only: wishes.asked.filter(|_| wishes.are_plain()).cloned(),
            reset: reset.map(|asked| sets.intern(asked)),
            meaning: params.meaning(tracked, hasher, wishes.path.as_deref()),
            messages: messages(wishes, welcome, tracked, &params).into(),
            params,
        }
    }

    /// Another client may be told the same.
    pub fn is_for_others(&self) -> bool {
        self.only.is_some()
    }

    /// A client with these wishes is told the same.
    pub fn suits(&self, wishes: &Wishes<'_>) -> bool {
        let same = |(only, asked)| Arc::ptr_eq(only, asked);
        wishes.are_plain() && self.only.as_ref().zip(wishes.asked).is_some_and(same)
    }
}

impl Wishes<'_> {
    /// The tracked parameters are all.
    fn are_plain(&self) -> bool {
        self.login.is_none() && self.path.is_none() && !self.replicates
    }

    /// What PostgreSQL says of an `application_name` that is too long, to who wants to hear that.
    fn cut_notice(&self, tracked: &Tracked) -> Option<String> {
        let whole = self.asked?.get(tracked.position(b"application_name")?)?;
        let cut = cut_name(whole)?;
        let least = settings::value(&self.login, b"client_min_messages");
        let deaf = |least: &[u8]| matches!(least, b"warning" | b"error");
        // Who replicates has heard it from its server.
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
            // Newer versions report more than is tracked.
            None => settings::value(&wishes.login, &name.to_ascii_lowercase())
                .map(|value| reported(name, value)),
        };
        write::parameter_status(&mut messages, name, own.as_deref().unwrap_or(value));
    }
    messages
}
