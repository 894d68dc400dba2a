//! The names of users and databases that a worker uses, each kept once.

use std::collections::HashSet;
use std::sync::Arc;

use crate::limits;

/// Names of users and databases. Equal names are one `Arc`.
#[derive(Debug)]
pub struct NameInterner {
    names: HashSet<Arc<str>>,
    /// When there are this many names, unused names are removed.
    tidy_at: usize,
    nobody: Arc<str>,
}

impl Default for NameInterner {
    fn default() -> Self {
        NameInterner {
            names: HashSet::new(),
            tidy_at: limits::NAMES,
            nobody: "".into(),
        }
    }
}

impl NameInterner {
    /// The name of a client that has not sent one yet.
    pub fn nobody(&self) -> Arc<str> {
        self.nobody.clone()
    }

    /// The shared copy of a name.
    pub fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        if self.names.len() >= self.tidy_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.tidy_at = (2 * self.names.len()).max(limits::NAMES);
        }
        let shared: Arc<str> = name.into();
        self.names.insert(shared.clone());
        shared
    }
}
