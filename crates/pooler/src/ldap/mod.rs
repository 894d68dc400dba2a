//! Logins by a directory server: the options that say where it is and whom to bind as, and the
//! bytes that are exchanged with it (LDAP 3, RFC 4511). No socket is opened here.
//!
//! ```text
//!   options    ldapserver=... ldapurl=...  ->  LdapOptions
//!   filter     (&(uid=ann)(!(x=*)))        ->  the bytes of a Filter
//!   message    bind, search, StartTLS, and what is answered
//! ```

pub mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod message;
mod options;
#[cfg(test)]
mod tests;

pub use options::{LdapBind, LdapOptions, LdapScheme, LdapServer, Pattern, Scope};
