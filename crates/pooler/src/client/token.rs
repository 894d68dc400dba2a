//! Clients that show a token of an identity provider: as their password, or by OAUTHBEARER. The thread that
//! checks passwords checks tokens, too.

use std::sync::Arc;

use crate::auth::AuthRequest;
use crate::auth::oauthbearer::OauthLogin;
use crate::client::state::Proof;
use crate::config::{Authority, TokenOffer, TokenRules};
use crate::event::Verified;

/// The proof that rules ask for, and its first request. `authority` has the rules.
pub(super) fn begin(authority: Arc<Authority>, rules: &TokenRules) -> (Proof, AuthRequest) {
    match rules.offer {
        TokenOffer::Oauth => {
            let proof = Proof::Oauth {
                exchange: Box::new(OauthLogin::new(&rules.issuer, &rules.scope)),
                authority,
                token: None,
            };
            (proof, OauthLogin::offer())
        }
        TokenOffer::Jwt => {
            let proof = Proof::Authority {
                authority,
                password: None,
            };
            (proof, AuthRequest::Cleartext)
        }
    }
}

/// Whether a token that was checked lets a client in as a user: the line for the log, and how long the token
/// is good, in nanoseconds. `is_named`: the configuration names the client's database.
///
/// # Errors
/// Why not, for the log.
pub(super) fn judge(
    rules: &TokenRules,
    verdict: Result<Verified, String>,
    user: &str,
    is_named: bool,
) -> Result<(String, Option<u64>), String> {
    let verified = verdict?;
    let by_database = |path: &String| path.contains("{database}");
    if !is_named && rules.roles.as_ref().is_some_and(by_database) {
        return Err(
            "token refused: {database} in roles counts only for databases that the configuration names"
                .into(),
        );
    }
    let identity = verified.identity.as_deref().unwrap_or_default();
    let names = |name: &str| verified.names.iter().any(|own| own == name);
    let is_user = match &rules.map {
        Some(map) => map.allows_any(names, user),
        None => names(user),
    };
    if is_user {
        let issuer = &rules.issuer;
        let line = format!("token login: identity={identity:?} issuer={issuer:?}");
        return Ok((line, verified.lasts));
    }
    let by = match (&rules.map, &rules.roles) {
        (Some(map), _) => format!("by the ident map {}", map.name),
        (None, Some(roles)) => format!("by the roles in {roles}"),
        (None, None) => format!("by the claim {}", rules.claim),
    };
    Err(format!(
        "the token's identity {identity:?} is not this user {by}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_a_database_that_a_client_invents() {
        let check = |roles: &str, is_named| {
            let text = format!("issuer=https://i audience=a roles={roles}");
            let rules = TokenRules::parse(TokenOffer::Jwt, &text, |_| None).unwrap();
            let verified = Verified {
                names: vec!["ann".into()],
                ..Verified::default()
            };
            judge(&rules, Ok(verified), "ann", is_named).is_ok()
        };
        assert!(check("of.{database}.roles", true) && check("roles", false));
        assert!(!check("of.{database}.roles", false));
    }
}
