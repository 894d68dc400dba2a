//! Passwords that an external authority checks: a directory server, or the system's PAM. The client sends its
//! password in clear text, and the daemon sends it to the authority.

use howdah_auth::{LDAP_FAILED, PAM_FAILED};

use crate::ldap::{LdapOptions, LdapText};
use crate::{AuthType, Globals};

/// The default PAM service, as in PgBouncer.
pub const PAM_SERVICE: &str = "pgbouncer";

/// An authority that checks passwords.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Authority {
    /// A directory server.
    Ldap(LdapOptions),
    /// PAM, with the rules of this service.
    Pam(String),
}

impl Authority {
    /// The authority that `auth_type` names, if any.
    ///
    /// # Errors
    /// What is wrong with `auth_ldap_options`, and how to correct it.
    pub fn of(globals: &Globals) -> Result<Option<Authority>, (String, String)> {
        match globals.auth_type {
            AuthType::Pam => Ok(Some(Authority::Pam(PAM_SERVICE.into()))),
            AuthType::Ldap => {
                let options = globals.auth_ldap_options.as_ref();
                LdapOptions::parse(options.map_or("", LdapText::text))
                    .map(|options| Some(Authority::Ldap(options)))
            }
            _ => Ok(None),
        }
    }

    /// The authority's name in log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => "LDAP",
            Authority::Pam(_) => "PAM",
        }
    }

    /// The error for a client with a wrong password.
    pub fn failed(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => LDAP_FAILED,
            Authority::Pam(_) => PAM_FAILED,
        }
    }
}
