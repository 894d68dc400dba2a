//! Which hosts fit: look-ups in the last view.

use crate::config::{Database, HostPort, SessionAttrs};
use crate::login::LoginId;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::roster::view::{HostStanding, ListView, Role, State};

impl Pooler {
    /// Whether a host may have servers of a login's pools for a purpose.
    pub(crate) fn may_serve(
        &self,
        login: LoginId,
        purpose: Purpose,
        standing: &HostStanding,
    ) -> bool {
        let terms = &self.logins.at(login).terms;
        let reads = terms.reads.is_some() && purpose == Purpose::Clients;
        standing.rank(wish(&terms.database, purpose)).is_some() || reads && serves_reads(standing)
    }

    /// What is known of a host of a login's database.
    pub(crate) fn standing(&self, login: LoginId, host: &HostPort) -> Option<&HostStanding> {
        let database = &self.logins.at(login).terms.database;
        self.hosts.lists.get(&*database.hosts)?.standing(host)
    }

    /// True if a host is the primary for a login.
    pub(crate) fn is_primary(&self, login: LoginId, host: &HostPort) -> bool {
        let standing = self.standing(login, host);
        standing.is_some_and(|of| of.role == Some(Role::Primary))
    }

    /// Why no host fits: each host and what is known of it.
    pub(crate) fn why_no_host(&self, database: &Database) -> String {
        let wanted = match database.target_session_attrs {
            SessionAttrs::ReadWrite | SessionAttrs::Primary => "no primary",
            SessionAttrs::Standby => "no standby",
            _ => "no host",
        };
        let Some(list) = self.hosts.lists.get(&*database.hosts) else {
            return format!("{wanted}: the hosts have not been asked yet");
        };
        let said = list.hosts.iter().map(|(host, standing)| {
            let what = match (&*standing.why, standing.role) {
                ("", Some(Role::Primary)) => "is the primary",
                ("", Some(Role::Standby)) => "is a standby",
                ("", _) => "has not answered yet",
                (why, _) => why,
            };
            format!("{host} {what}")
        });
        format!("{wanted}: {}", said.collect::<Vec<_>>().join(", "))
    }
}

/// What the pools of a database want of a host.
pub(crate) fn wish(database: &Database, purpose: Purpose) -> SessionAttrs {
    match purpose {
        // A standby may know an old password.
        Purpose::Lookups => SessionAttrs::Primary,
        _ => database.target_session_attrs,
    }
}

/// Whether a host is a standby that reads can use.
fn serves_reads(standing: &HostStanding) -> bool {
    standing.role == Some(Role::Standby) && standing.state == State::Up
}

/// The hosts that fit now, all equally. `max_lag`: [`Terms::max_lag`](crate::login::Terms::max_lag).
pub(crate) fn fit_hosts<'a>(
    list: Option<&'a ListView>,
    (database, max_lag): (&Database, u64),
    purpose: Purpose,
) -> Vec<&'a HostPort> {
    let Some(list) = list else { return Vec::new() };
    let fit = list.best(wish(database, purpose), max_lag);
    if purpose == Purpose::Lookups && !fit.iter().any(|host| is_up(list, host)) {
        return list.best(SessionAttrs::PreferStandby, u64::MAX);
    }
    fit
}

fn is_up(list: &ListView, host: &HostPort) -> bool {
    list.standing(host)
        .is_some_and(|standing| standing.state == State::Up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ids::Time;

    #[test]
    fn look_ups_go_to_a_standby_while_the_primary_is_down() {
        let text = "[databases]\nd = host=db1,db2 target_session_attrs=standby\n[pgbouncer]\n\
                    auth_type = trust\nauth_file = list\n";
        let (config, _) = Config::load("x.ini", text, &mut |_: &str| Ok(String::new())).unwrap();
        let database = &config.databases["d"];
        let standing = |role, state| HostStanding {
            role: Some(role),
            state,
            behind: false,
            lag_over: 0,
            read_only: false,
            hidden: false,
            why: "".into(),
            since: Time(0),
            timeline: Some(1),
            lsn: None,
        };
        let asked = |primary: State, standby: State| {
            let standings = [
                standing(Role::Primary, primary),
                standing(Role::Standby, standby),
            ];
            let hosts = database.hosts.iter().cloned().zip(standings);
            let list = ListView {
                hosts: hosts.collect(),
            };
            let fit = fit_hosts(Some(&list), (database, u64::MAX), Purpose::Lookups);
            fit.into_iter().map(HostPort::to_string).collect::<Vec<_>>()
        };
        assert_eq!(asked(State::Up, State::Up), ["db1:5432"]);
        assert_eq!(asked(State::Down, State::Up), ["db2:5432"]);
        assert_eq!(asked(State::Silent, State::Up), ["db2:5432"]);
        assert_eq!(asked(State::Down, State::Down), ["db1:5432", "db2:5432"]);
        assert_eq!(asked(State::Down, State::Drained), ["db1:5432"]);
    }
}
