//! Passwords that others know: a directory server, or the system's PAM. The client sends its
//! password in clear text, the daemon asks whether it is right.

use howdah_auth::{LDAP_FAILED, PAM_FAILED};

use crate::ldap::{LdapOptions, LdapText};
use crate::{AuthType, Globals};

/// The PAM service whose rules hold, as in PgBouncer.
pub const PAM_SERVICE: &str = "pgbouncer";

/// Who knows whether a password is right.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Authority {
    /// A directory server.
    Ldap(LdapOptions),
    /// PAM, by the rules of this service.
    Pam(String),
}

impl Authority {
    /// The one that `auth_type` names, if it names one.
    ///
    /// # Errors
    /// What is wrong with `auth_ldap_options`, and how to right it.
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

    /// Its name among the methods.
    pub fn name(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => "LDAP",
            Authority::Pam(_) => "PAM",
        }
    }

    /// What a client is told whose password is not right.
    pub fn failed(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => LDAP_FAILED,
            Authority::Pam(_) => PAM_FAILED,
        }
    }
}
