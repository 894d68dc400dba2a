//! What can go wrong with an operation.

/// The three kinds of difference the table counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reply came that PostgreSQL would not have given.
    Wrong,
    /// An error or an end of the connection where PostgreSQL would have answered.
    Unexpected,
    /// A reply was not complete within the limit.
    Hang,
}

/// One difference, ready to be printed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which column of the table it counts in.
    pub kind: Kind,
    /// What was the matter, in one line.
    pub what: String,
    /// What was still expected, a line per message.
    pub expected: Vec<String>,
    /// What came, the differing message first.
    pub got: Vec<String>,
}

impl Failure {
    /// A difference with nothing more to show.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Failure {
            kind,
            what: what.into(),
            expected: Vec::new(),
            got: Vec::new(),
        }
    }
}

/// The result of everything that talks to the other side.
pub type Outcome<T = ()> = Result<T, Failure>;
