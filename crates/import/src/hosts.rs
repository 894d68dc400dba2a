//! The servers of a database, and which of them have which role.

use crate::draft::Target;
use crate::reading::Reading;

/// What a server is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerRole {
    /// Takes reads and writes.
    Primary,
    /// Takes reads.
    Replica,
    /// The pooler finds out.
    Auto,
}

/// A server of PostgreSQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ForeignHost {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) role: ServerRole,
}

impl ForeignHost {
    /// The host as a setting names it.
    pub(crate) fn text(&self) -> String {
        if self.host.starts_with(['/', '@']) {
            self.host.clone()
        } else if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl Reading {
    /// Writes where a database is.
    pub(crate) fn write_hosts(&mut self, database: &Target, hosts: &[ForeignHost]) {
        let texts: Vec<_> = hosts.iter().map(ForeignHost::text).collect();
        self.draft.set(database, "host", texts.join(","));
        if let [host] = hosts
            && host.host.starts_with(['/', '@'])
            && host.port != 5432
        {
            self.draft.set(database, "port", host.port.to_string());
        }
        let is_socket =
            |host: &&ForeignHost| host.host.starts_with(['/', '@']) && host.port != 5432;
        if hosts.len() > 1 && hosts.iter().any(|host| is_socket(&host)) {
            let text = "several hosts with a unix socket have the port 5432 here: the database is left out";
            self.decides(None, "", text);
            if let Target::Database(name) = database {
                self.logins.leave_out(name);
            }
        }
    }

    /// The address of the HTTP endpoint, where the pooler listens on all.
    pub(crate) fn write_http_address(&mut self, host: &str) {
        let address = match host {
            "" | "*" => "0.0.0.0",
            "localhost" => "127.0.0.1",
            host => host,
        };
        if address.parse::<std::net::IpAddr>().is_ok() {
            self.draft
                .set(&Target::Globals, "http_listen_addr", address);
        }
    }
}
