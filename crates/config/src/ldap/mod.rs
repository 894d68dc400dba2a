//! Logins by a directory server. The options name the server, the name to bind as, and the entry to search
//! for. This crate opens no socket: the daemon talks to directories, through a library that speaks LDAP.
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

pub(crate) use options::pairs;
pub use options::{LdapBind, LdapOptions, LdapScheme, LdapServer, LdapText, Pattern, SearchScope};
