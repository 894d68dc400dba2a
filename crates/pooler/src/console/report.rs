//! A question to all workers ([`Survey`]), and each worker's answer ([`Report`]).

use crate::console::holdings::{ClientRow, Holder, Holdings};
use crate::console::rows::Row;
use crate::hosts::KnownNames;
use crate::ids::{ClientId, WorkerId};
use crate::order::Order;
use crate::queries::tally::TopQueries;

/// A console's question to each worker.
#[derive(Clone, Debug)]
pub enum Want {
    /// Pools and counts.
    Holdings,
    /// The same, with the waiting clients, and the holders of servers in pools with waiting
    /// clients.
    Metrics,
    /// Pools and counts, with the catalogues of shards and the texts that were refused.
    Shards,
    /// The clients that have servers.
    Holders,
    /// The queries that take the most.
    Queries,
    /// Forget the counts of queries.
    ForgetQueries,
    /// Rows of SHOW CLIENTS_EXTENDED.
    Clients,
    /// Rows of SHOW SERVERS_EXTENDED.
    Servers,
    /// Rows of SHOW SOCKETS.
    Sockets,
    /// Rows of SHOW FDS.
    Fds,
    /// Carry out this order.
    Order(Order),
    /// Disconnect the client with this number.
    KillClient(u64),
    /// Wait until servers from before RECONNECT are closed; of one database, or of all.
    Closed(Option<String>),
    /// Wait again until this is done. Servers that were on their way to the worker have arrived by
    /// now.
    Again(Box<Want>),
}

/// The asker of a survey.
#[derive(Clone, Copy, Debug)]
pub(super) enum Surveyor {
    /// A console, on this worker.
    Console(WorkerId, ClientId),
    /// The control thread.
    Control,
}

/// A question to all workers.
#[derive(Debug)]
pub struct Survey {
    pub(super) from: Surveyor,
    /// The number of the question, which comes back with the answer.
    pub(super) serial: u64,
    pub(super) want: Want,
}

/// One worker's answer.
#[derive(Debug)]
pub struct Report {
    /// The console's client.
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
    /// No client to disconnect; so many clients have moved away from the worker so far.
    NotHere(u64),
    Names(Box<KnownNames>),
}

impl Survey {
    /// The control thread's question for metrics. Each worker answers with [`Question::Surveyed`].
    pub fn for_metrics(serial: u64) -> Survey {
        Survey {
            from: Surveyor::Control,
            serial,
            want: Want::Metrics,
        }
    }
}

/// The workers' answers, without their holdings.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) rows: Vec<Row>,
    pub(super) clients: Vec<ClientRow>,
    pub(super) holders: Vec<Holder>,
    pub(super) queries: Vec<TopQueries>,
}
