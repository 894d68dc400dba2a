//! Logins by a directory server: the options that say where it is, whom to bind as, and what to
//! search for. No socket is opened here: the daemon talks to directories, by a library that knows
//! their protocol.
//!
//! ```text
//!   options    ldapserver=... ldapurl=...   ->  LdapOptions
//!   filter     ( & (uid=ann) (!(x=*)) )     ->  (&(uid=ann)(!(x=*)))
//! ```

pub mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod options;
#[cfg(test)]
mod tests;

pub use options::{LdapBind, LdapOptions, LdapScheme, LdapServer, LdapText, Pattern, SearchScope};
