//! Errors that Howdah sends for a single statement, in place of PostgreSQL.

use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::ledger::Refusal;

/// Fields of an error that Howdah sends in place of PostgreSQL's.
pub type Words = &'static [(u8, &'static [u8])];

/// PostgreSQL's error in a failed transaction.
pub const ABORTED: Words = &[
    (b'C', b"25P02"),
    (
        b'M',
        b"current transaction is aborted, commands ignored until end of transaction \
                      block",
    ),
];

/// The error of a client that would wait for clients that are silent.
pub const PINS_REST: Words = &[
    (b'C', b"53000"),
    (
        b'M',
        b"too many clients of the pool keep a server between transactions (pin_limit)",
    ),
    (
        b'D',
        b"All servers but one are kept, and all clients that keep them are silent.",
    ),
    (
        b'H',
        b"End what keeps servers (temporary tables, session locks and the like), or raise \
          pool_size. SHOW CLIENTS_EXTENDED says who keeps servers, and why.",
    ),
];

/// Writes an ErrorResponse for a statement.
pub fn error(buf: &mut Vec<u8>, words: Words) {
    write::message(buf, backend::ERROR, |buf| {
        let severity: [(u8, &[u8]); 2] = [(b'S', b"ERROR"), (b'V', b"ERROR")];
        for (code, value) in severity.iter().chain(words) {
            buf.push(*code);
            buf.extend_from_slice(value);
            buf.push(0);
        }
        buf.push(0);
    });
}

impl Refusal {
    /// The SQLSTATE.
    pub fn sqlstate(self) -> &'static [u8] {
        let code = self.words().iter().find(|(code, _)| *code == b'C');
        code.map_or(b"XX000", |(_, sqlstate)| sqlstate)
    }

    /// The error for the client.
    pub fn words(self) -> Words {
        match self {
            // PostgreSQL's own error when a statement's result columns change: drivers then
            // describe the statement anew.
            Refusal::Changed => &[
                (b'C', b"0A000"),
                (b'M', b"cached plan must not change result type"),
                (b'F', b"plancache.c"),
                (b'R', b"RevalidateCachedQuery"),
            ],
            // By the code and the routine, drivers know that they must parse the statement anew.
            Refusal::Settings => &[
                (b'C', b"0A000"),
                (
                    b'M',
                    b"prepared statement has constants that were read under other settings, \
                      and this server does not have it",
                ),
                (b'H', b"Prepare it again after SET."),
                (b'F', b"plancache.c"),
                (b'R', b"RevalidateCachedQuery"),
            ],
            Refusal::Pins => &[
                (b'C', b"53000"),
                (
                    b'M',
                    b"too many clients of the pool keep a server between transactions (pin_limit)",
                ),
                (
                    b'D',
                    b"Temporary tables, advisory locks, LISTEN and the like keep a server for \
                      their client.",
                ),
                (
                    b'H',
                    b"Try again outside of a transaction, where the statement waits, or raise \
                      pin_limit. SHOW CLIENTS_EXTENDED says who keeps servers, and why.",
                ),
            ],
            Refusal::TooLong => &[
                (b'C', b"54000"),
                (
                    b'M',
                    b"statement is too long to be prepared by name through the pooler",
                ),
                (b'H', b"Parse it without a name, or use session pooling."),
            ],
            Refusal::TooMuch => &[
                (b'C', b"54000"),
                (
                    b'M',
                    b"prepared statements take more memory than the pooler has for them",
                ),
                (b'H', b"Close some, or parse without a name."),
            ],
            Refusal::Shard => &[
                (b'C', b"0A000"),
                (b'M', b"nothing says which shard the statement belongs to"),
            ],
            Refusal::TooManyNames => &[
                (b'C', b"54000"),
                (
                    b'M',
                    b"too many prepared statements or portals of one client for the pooler (10000)",
                ),
                (b'H', b"Close some, or parse without a name."),
            ],
        }
    }
}
