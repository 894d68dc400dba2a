//! A client's parcel: the state that moves with the client to another worker or a successor
//! process.

use std::sync::Arc;

use super::Client;
use crate::Shared;
use crate::cancel::OldKey;
use crate::effect::ShardSetting;
use crate::event::LooseSocket;
use crate::inbox::Fate;
use crate::login::key::LoginKey;
use crate::params::Params;
use crate::parcel::{Passenger, Standing};
use crate::session;
use crate::session::Shelf;
use crate::session::settings::Maybe;
use crate::shard::{hint_of, setting_of};
use crate::statement::SchemaId;
use howdah_shard::Hint;

impl Client {
    /// Packs the client's state, without its server.
    pub(crate) fn travels(
        mut self,
        socket: LooseSocket,
        standing: Standing,
        key: OldKey,
    ) -> Passenger {
        self.packs_hints();
        Passenger {
            socket,
            standing,
            via: self.via,
            ends: self.ends,
            tls: self.tls,
            number: self.number,
            connected: self.times.connected,
            request: self.times.request,
            quiet: self.times.quiet,
            ends_at: self.ends_at.map(|end| *end),
            database: self.who.database.to_string(),
            user: self.who.user.to_string(),
            admitted: self.admitted,
            long_key: self.protocol.long_keys,
            key,
            params: self.params,
            asked: self.asked,
            session: self
                .session
                .map_or([None, None], |session| [session.settings, session.login]),
            meaning: self.meaning,
            names_given: self.statements.given(),
            unnamed: self.statements.unnamed().cloned(),
            names: self.statements.into_names(),
            group_failed: self.end.skips(),
            standby: self.standby,
            read_mark: self.read_mark,
            left: self.inbox.left() as u32,
            tag: self.inbox.tag(),
            held: self.inbox.into_held(),
            server: None,
        }
    }

    /// What the client says of its shard travels among its settings.
    fn packs_hints(&mut self) {
        let Some(sharded) = self.sharded.take() else {
            return;
        };
        let [session, login] = sharded.hints();
        let with = |settings: &Maybe, hint: Option<&Hint>| {
            let Some(hint) = hint else {
                return settings.clone();
            };
            let mut own = settings.as_deref().cloned().unwrap_or_default();
            let (setting, value) = setting_of(hint);
            own.put(setting.name().as_bytes(), Some(value.as_bytes()));
            own.shared()
        };
        if session.is_some() || login.is_some() {
            let own = self.session_mut();
            own.settings = with(&own.settings, session);
            own.login = with(&own.login, login);
        }
    }

    /// Takes what the client says of its shard out of its settings: for its session, and at its login.
    pub(crate) fn takes_hints(&mut self, shelf: &mut Shelf) -> [Option<Hint>; 2] {
        let Some(session) = self.session.as_deref_mut() else {
            return [None, None];
        };
        let hints = [&mut session.settings, &mut session.login].map(|settings| {
            let mut own = settings.as_deref().cloned()?;
            let found = [ShardSetting::Shard, ShardSetting::Key];
            let found = found.into_iter().find_map(|setting| {
                let value = own.get(setting.name().as_bytes())?;
                Some((setting, hint_of(setting, value)))
            })?;
            let (setting, found) = found;
            own.put(setting.name().as_bytes(), None);
            *settings = session::intern(shelf, own.shared());
            Some(found)
        });
        self.forgets_blank_session();
        hints
    }

    /// Restores the state that does not depend on the client's [`Standing`].
    pub(crate) fn unpack(&mut self, from: &mut Passenger, who: Arc<LoginKey>) {
        self.via = from.via;
        self.tls = from.tls.take();
        self.inbox.hold(&std::mem::take(&mut from.held));
        self.times.begin_request(from.request);
        self.times.set_quiet(from.quiet);
        self.ends_at = from.ends_at.map(Box::new);
        self.admitted = from.admitted;
        self.protocol.long_keys = from.long_key;
        self.who = who;
    }

    /// Restores the session, even in the middle of a group or message. `schema` is the local schema
    /// of the client's database.
    pub(crate) fn session_goes_on(
        &mut self,
        from: &mut Passenger,
        shared: &mut Shared,
        schema: SchemaId,
    ) {
        self.inbox.begin(from.tag, Fate::Drop, from.left as usize);
        if from.group_failed {
            self.end.group_fails();
        }
        self.standby = from.standby;
        self.read_mark = from.read_mark.take();
        self.meaning = from.meaning;
        let mut own = |params: Arc<Params>| shared.params.intern((*params).clone());
        self.params = from.params.take().map(&mut own);
        self.asked = from.asked.take().map(&mut own);
        let shelf = &mut shared.settings;
        let [settings, login] =
            std::mem::take(&mut from.session).map(|settings| session::intern(shelf, settings));
        self.set_settings(settings, login);
        let statements = &mut shared.statements;
        let unnamed = from.unnamed.take();
        let unnamed = unnamed.map(|text| statements.adopt(schema, text));
        let names = std::mem::take(&mut from.names).into_iter();
        let names = names.map(|(name, mut named)| {
            named.statement = statements.adopt(schema, named.statement);
            (name, named)
        });
        self.statements.restore(from.names_given, unnamed, names);
        self.finds_signal(None);
    }
}
