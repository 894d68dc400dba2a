//! Failures of operations.

/// The three kinds of difference, as in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reply that PostgreSQL would not have sent.
    Wrong,
    /// An error or an end of the connection where PostgreSQL would have answered.
    Unexpected,
    /// A reply was not complete within the time limit.
    Hang,
}

/// One difference, for printing.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The column of the table that counts it.
    pub kind: Kind,
    /// A description in one line.
    pub what: String,
    /// The messages that were still expected, one a line.
    pub expected: Vec<String>,
    /// The messages that came, the differing one first.
    pub got: Vec<String>,
}

impl Failure {
    /// A difference without messages.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Failure {
            kind,
            what: what.into(),
            expected: Vec::new(),
            got: Vec::new(),
        }
    }
}

/// The result of all communication with the other side.
pub type Outcome<T = ()> = Result<T, Failure>;
