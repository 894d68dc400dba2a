//! SHOW DNS_HOSTS and DNS_ZONES: the host names that the control thread knows.

use std::net::SocketAddr;

use super::rows::Row;
use super::session::{Goal, PendingSurvey};
use crate::console::columns::Show;
use crate::console::report::{Report, WorkerAnswer};
use crate::event::{ClientId, KnownNames, Out, Question};
use crate::pooler::{Asker, Pooler};

/// Rows of SHOW DNS_HOSTS. Addresses have a port, 0, as PgBouncer shows them.
pub(super) fn hosts(names: &KnownNames) -> Vec<Row> {
    let row = |host: &crate::event::KnownHost| {
        let addresses = host.addresses.iter();
        let addresses: Vec<_> = addresses
            .map(|ip| SocketAddr::new(*ip, 0).to_string())
            .collect();
        let ttl = host.ttl.to_string();
        vec![
            Some(host.name.clone()),
            Some(ttl),
            Some(addresses.join(",")),
        ]
    };
    names.hosts.iter().map(row).collect()
}

/// Rows of SHOW DNS_ZONES.
pub(super) fn zones(names: &KnownNames) -> Vec<Row> {
    let row = |zone: &crate::event::KnownZone| {
        let (serial, hosts) = (zone.serial.to_string(), zone.hosts.to_string());
        vec![Some(zone.name.clone()), Some(serial), Some(hosts)]
    };
    names.zones.iter().map(row).collect()
}

impl Show {
    /// True if the SHOW needs the control thread's host names.
    pub(super) fn tells_names(self) -> bool {
        matches!(self, Show::DnsHosts | Show::DnsZones | Show::Lists)
    }
}

impl Pooler {
    /// Asks the control thread for its host names. The console waits for one more answer.
    pub(super) fn ask_names(&mut self, id: ClientId, show: Show, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let nothing = PendingSurvey {
            goal: Goal::Show(show),
            left: 0,
            parts: Vec::new(),
            again: None,
        };
        session.wait.get_or_insert(nothing).left += 1;
        let asker = Asker::Names(id, session.serial);
        self.ask(asker, |ticket| Question::Names { ticket }, out);
    }

    /// The control thread's answer.
    pub(crate) fn report_names(
        &mut self,
        to: ClientId,
        serial: u64,
        names: Box<KnownNames>,
        out: &mut Out,
    ) {
        let part = WorkerAnswer::Names(names);
        self.report(Report { to, serial, part }, out);
    }
}
