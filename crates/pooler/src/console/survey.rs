//! Questions of a console (`serve.rs`) or the control thread to all workers: what a worker answers.
//!
//! Each worker gets a [`Survey`] and answers with one [`Report`], at once or when the order is carried
//! out. PAUSE and WAIT_CLOSE ask twice: when a worker answers for the first time, a server may be on
//! its way to this worker from another one. That other worker answers after it has posted the
//! server, so the second question arrives after the server.

use super::rows::Row;
use crate::console::report::{Report, Survey, Surveyor, Want, WorkerAnswer};
use crate::event::{Action, Order, Out, Question};
use crate::mail::Mail;
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// A question from a console.
    pub(crate) fn survey(&mut self, survey: Survey, out: &mut Out) {
        let part = match &survey.want {
            Want::Holdings => WorkerAnswer::Holdings(Box::new(self.holdings())),
            Want::Metrics => WorkerAnswer::Holdings(Box::new(self.holdings_and_lines())),
            Want::Shards => WorkerAnswer::Holdings(Box::new(self.holdings_and_shards())),
            Want::Holders => WorkerAnswer::Holders(self.holders()),
            Want::Queries => WorkerAnswer::Queries(Box::new(self.queries.tally.tell(usize::MAX))),
            Want::ForgetQueries => {
                self.queries.tally.clear();
                WorkerAnswer::Done
            }
            Want::Clients => WorkerAnswer::Clients(self.client_rows()),
            Want::Servers => WorkerAnswer::Rows(self.server_rows()),
            Want::Sockets => {
                let clients = self.client_rows();
                let mut rows: Vec<Row> = clients.into_iter().map(|client| client.row).collect();
                rows.extend(self.server_rows());
                WorkerAnswer::Rows(rows)
            }
            Want::Fds => WorkerAnswer::Rows(self.fd_rows()),
            Want::KillClient(number) if self.kill_client(*number, out) => WorkerAnswer::Done,
            Want::KillClient(_) => WorkerAnswer::NotHere(self.moves.departed),
            Want::Order(order) => {
                self.order(order, out);
                return self.consoles.owed.push(survey);
            }
            Want::Closed(_) | Want::Again(_) => return self.consoles.owed.push(survey),
        };
        answer(&survey, part, out);
    }

    /// Answers consoles whose orders are carried out by now.
    pub(crate) fn settle_orders(&mut self, out: &mut Out) {
        let owed = std::mem::take(&mut self.consoles.owed);
        for survey in owed {
            if self.is_done(&survey.want) {
                answer(&survey, WorkerAnswer::Done, out);
            } else {
                self.consoles.owed.push(survey);
            }
        }
    }

    /// True if nothing of an order is left to do.
    fn is_done(&self, want: &Want) -> bool {
        use ServerState as Server;
        let of = |database: &Option<String>, server: &crate::server::Server| {
            let name = &self.logins.at(server.login).key.database;
            database.as_ref().is_none_or(|of| self.has_part(of, name))
        };
        match want {
            // A server that is not logged in yet will find its pool paused. RESUME ends the wait.
            Want::Order(Order::Pause(Some(name))) if self.is_sharded_at_work(name) => false,
            Want::Order(Order::Pause(database)) => !self.servers.iter().any(|(_, server)| {
                of(database, server)
                    && self.pools.at(server.pool).paused()
                    && !matches!(
                        server.state(),
                        Server::Resolving
                            | Server::Connecting
                            | Server::Securing(_)
                            | Server::Login(_)
                            | Server::ConnectQuery
                            | Server::Maturing(_)
                            | Server::Cancel(_)
                            | Server::Listening { .. }
                            | Server::Examining(_)
                    )
            }),
            Want::Again(want) => self.is_done(want),
            Want::Order(Order::Suspend) => self.is_suspended(),
            Want::Order(Order::HandOver { .. }) => self.is_at_rest(),
            Want::Closed(database) => !self
                .servers
                .iter()
                .any(|(_, server)| of(database, server) && server.ending().is_some()),
            _ => true,
        }
    }
}

fn answer(survey: &Survey, mut part: WorkerAnswer, out: &mut Out) {
    let serial = survey.serial;
    let (worker, to) = match (survey.from, part) {
        (Surveyor::Control, WorkerAnswer::Holdings(holdings)) => {
            return out.push(Action::Ask(Question::Surveyed { serial, holdings }));
        }
        // The control thread asks no other question.
        (Surveyor::Control, _) => return,
        (Surveyor::Console(worker, to), answered) => {
            part = answered;
            (worker, to)
        }
    };
    let report = Report { to, serial, part };
    out.push(Action::Post(worker, Mail::Report(report)));
}
