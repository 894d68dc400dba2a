//! Passwords that an external authority checks: a directory server, or the system's PAM. The client sends its
//! password in clear text, and the daemon sends it to the authority.

use howdah_auth::oauthbearer::{JWT_FAILED, OAUTH_FAILED};
use howdah_auth::{LDAP_FAILED, PAM_FAILED};

use crate::access::IdentMaps;
use crate::ldap::{LdapOptions, LdapText};
use crate::token::{TokenOffer, TokenRules};
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
    /// An identity provider, whose tokens Howdah checks itself.
    Token(Box<TokenRules>),
}

impl Authority {
    /// The authority that `auth_type` names, if any.
    ///
    /// # Errors
    /// What is wrong with `auth_ldap_options` or `auth_oauth_options`, and how to correct it.
    pub(crate) fn of(
        globals: &Globals,
        maps: &IdentMaps,
    ) -> Result<Option<Authority>, (String, String)> {
        let tokens = |offer| {
            let rules =
                TokenRules::parse(offer, &globals.auth_oauth_options, |name| maps.get(name));
            let named = |(why, remedy)| (format!("auth_oauth_options: {why}"), remedy);
            let rules = rules.map_err(named)?;
            Ok(Some(Authority::Token(Box::new(rules))))
        };
        match globals.auth_type {
            AuthType::Pam => Ok(Some(Authority::Pam(PAM_SERVICE.into()))),
            AuthType::Ldap => {
                let options = globals.auth_ldap_options.as_ref();
                LdapOptions::parse(options.map_or("", LdapText::text))
                    .map(|options| Some(Authority::Ldap(options)))
                    .map_err(|(why, remedy)| (format!("auth_ldap_options: {why}"), remedy))
            }
            AuthType::Oauth => tokens(TokenOffer::Oauth),
            AuthType::Jwt => tokens(TokenOffer::Jwt),
            _ => Ok(None),
        }
    }

    /// The authority's name in log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => "LDAP",
            Authority::Pam(_) => "PAM",
            Authority::Token(_) => "token",
        }
    }

    /// The error for a client with a wrong password.
    pub fn failed(&self) -> &'static str {
        match self {
            Authority::Ldap(_) => LDAP_FAILED,
            Authority::Pam(_) => PAM_FAILED,
            Authority::Token(rules) if rules.offer == TokenOffer::Oauth => OAUTH_FAILED,
            Authority::Token(_) => JWT_FAILED,
        }
    }
}
