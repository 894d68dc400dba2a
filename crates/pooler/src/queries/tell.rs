//! Reports a query that has ended to the log or a trace.

use crate::event::{Action, Out};
use crate::ids::{ClientId, ServerId};
use crate::login::key::LoginId;
use crate::note::{Level, Note};
use crate::place;
use crate::pooler::Pooler;
use crate::queries::slow::SlowQuery;
use crate::queries::tally::Ended;
use crate::queries::trace::{RATE, Traced};
use crate::queries::watched::Watched;
use crate::queries::{Seen, is_slow};

impl Pooler {
    /// Reports a query for the log or a trace. It has ended, or was broken off.
    pub(crate) fn tell_of_query(
        &mut self,
        id: ClientId,
        query: &Watched,
        ended: &Ended,
        broken_off: Option<&'static str>,
        out: &mut Out,
    ) {
        let client = gone!(self.clients.get(id));
        let number = client.number;
        let Some(login) = client.login else {
            return;
        };
        let slow_ns = self.logins.at(login).terms.wanted.slow_ns;
        let address = place::remote(&client.ends);
        let application = self.application(client.params.as_deref());
        let sqlstate = query
            .sqlstate
            .map(|code| String::from_utf8_lossy(&code).into_owned());
        let (database, user) = (client.who.database.clone(), client.who.user.clone());
        if let Some(place) = &query.place
            && self.spans_left(login)
        {
            let began = query.sent.0.saturating_sub(query.waited);
            let traced = Traced {
                place: **place,
                began: (self.started * 1e9) as u64 + began,
                wait_ns: ended.wait_ns,
                run_ns: ended.run_ns,
                rows: ended.rows,
                sqlstate: sqlstate.clone(),
                broken_off,
                database: database.clone(),
                user: user.clone(),
                address: address.clone(),
                application: application.clone(),
                text: query.text.clone(),
            };
            out.push(Action::Tell(Box::new(Seen::Traced(traced))));
        }
        if !is_slow(slow_ns, ended) {
            return;
        }
        let rate = self.config.globals.slow_query_rate;
        let Some(missed) = self.queries.quota.take(self.now, rate, login) else {
            return;
        };
        if missed > 0 {
            let text = format!("{missed} slow queries were not logged: slow_query_rate is {rate}");
            out.note(Note::new(Level::Warning, text));
        }
        let slow = SlowQuery {
            connection: format!("C-{number:#x}"),
            address,
            database,
            user,
            application,
            wait_ns: ended.wait_ns,
            run_ns: ended.run_ns,
            rows: ended.rows,
            sqlstate,
            broken_off,
            text: query.text.clone(),
            values: query.values.as_deref().map(String::from),
        };
        out.push(Action::Tell(Box::new(Seen::Slow(slow))));
    }

    fn spans_left(&mut self, login: LoginId) -> bool {
        self.queries.spans.take(self.now, RATE, login).is_some()
    }

    /// A client or a server leaves the other: reports the running query up to this point.
    pub(crate) fn break_off_query(
        &mut self,
        client: ClientId,
        server: ServerId,
        why: &'static str,
        out: &mut Out,
    ) {
        let now = self.now;
        let entry = gone!(self.servers.get_mut(server));
        let Some((query, run_ns)) = entry.link.take_watched(now) else {
            return;
        };
        let login = self.logins.at_mut(entry.login);
        let ended = Ended::new(&query, run_ns, true);
        if self.queries.counts(login, &query, &ended) {
            self.tell_of_query(client, &query, &ended, Some(why), out);
        }
    }
}
