//! A question to all workers ([`Survey`]), and each worker's answer ([`Report`]).

use crate::console::holdings::{ClientRow, Holder, Holdings};
use crate::console::rows::Row;
use crate::hosts::KnownNames;
use crate::ids::{ClientId, WorkerId};
use crate::order::Order;
use crate::queries::tally::TopQueries;

/// What a console wants of each worker.
#[derive(Clone, Debug)]
pub enum Want {
    /// Pools and counts.
    Holdings,
    /// The same, and who waits and who holds servers in pools that somebody waits for.
    Metrics,
    /// Who has servers.
    Holders,
    /// Which queries take the most.
    Queries,
    /// That counts of queries are forgotten.
    ForgetQueries,
    /// Rows of SHOW CLIENTS.
    Clients,
    /// Rows of SHOW SERVERS.
    Servers,
    /// Rows of SHOW SOCKETS.
    Sockets,
    /// Rows of SHOW FDS.
    Fds,
    /// Obedience.
    Order(Order),
    /// That the client of this number is disconnected.
    KillClient(u64),
    /// That servers which were called in are closed; of one database, or all.
    Closed(Option<String>),
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Surveyor {
    /// A console, on this worker.
    Console(WorkerId, ClientId),
    /// The control thread.
    Control,
}

/// What all workers are asked for.
#[derive(Debug)]
pub struct Survey {
    pub(super) from: Surveyor,
    /// Comes back.
    pub(super) serial: u64,
    pub(super) want: Want,
}

/// What a worker has.
#[derive(Debug)]
pub struct Report {
    /// Whose console.
    pub(super) to: ClientId,
    pub(super) serial: u64,
    pub(super) part: WorkerAnswer,
}

/// One worker's answer.
#[derive(Debug)]
pub(super) enum WorkerAnswer {
    Holdings(Box<Holdings>),
    Rows(Vec<Row>),
    Clients(Vec<ClientRow>),
    Holders(Vec<Holder>),
    Queries(Box<TopQueries>),
    Done,
    Found(bool),
    Names(Box<KnownNames>),
}

impl Survey {
    /// What the control thread asks for its metrics; each worker answers with
    /// [`Question::Surveyed`].
    pub fn for_metrics(serial: u64) -> Survey {
        Survey {
            from: Surveyor::Control,
            serial,
            want: Want::Metrics,
        }
    }
}

/// What workers told besides their holdings.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) rows: Vec<Row>,
    pub(super) clients: Vec<ClientRow>,
    pub(super) holders: Vec<Holder>,
    pub(super) queries: Vec<TopQueries>,
}
