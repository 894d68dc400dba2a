//! The rules for clients' tokens: the options of HBA lines with the methods `oauth` and `jwt`, and of
//! `auth_oauth_options`.

use std::sync::Arc;

use super::access::IdentMap;
use super::ldap::pairs;

/// What is wrong with an option, and how to correct it.
type Wrong = (String, String);

/// Signatures that tokens may have.
pub const ALGORITHMS: [&str; 9] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
];

/// The greatest difference of clocks that may be allowed for, in seconds.
const MOST_LEEWAY: u32 = 600;

const OPTIONS: &str = "there are issuer, scope, map, audience, keys, claim, roles, algorithms, \
     leeway and end_with_token; quote values that hold commas or blanks";

/// How a client shows its token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TokenOffer {
    /// By SASL's OAUTHBEARER.
    Oauth,
    /// As its password.
    Jwt,
}

/// Which tokens are good, and whose they are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TokenRules {
    /// How clients show their tokens.
    pub offer: TokenOffer,
    /// The issuer, exactly as tokens name it.
    pub issuer: String,
    /// Words that must be in the token's scope, with blanks between them.
    pub scope: String,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are.
    pub keys: KeysAt,
    /// The claim that names the user.
    pub claim: String,
    /// The claim that has the user's roles, each of which counts as the user's name.
    pub roles: Option<String>,
    /// The signatures that are taken.
    pub algorithms: Vec<String>,
    /// How far clocks may differ, in seconds.
    pub leeway: u32,
    /// Clients end with their tokens.
    pub ends_clients: bool,
    /// Which names may log in as which user. Without a map: only the same name.
    pub map: Option<Arc<IdentMap>>,
}

/// Where an issuer's keys are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeysAt {
    /// A file.
    File(String),
    /// An address.
    Url(String),
    /// At the address in the issuer's description of itself.
    Discovery,
}

impl TokenRules {
    /// Reads options. `maps` finds an ident map by its name.
    ///
    /// # Errors
    /// What is wrong, and how to correct it.
    pub fn parse<'a>(
        offer: TokenOffer,
        text: &str,
        maps: impl Fn(&str) -> Option<&'a Arc<IdentMap>>,
    ) -> Result<TokenRules, (String, String)> {
        let mut rules = TokenRules {
            offer,
            issuer: String::new(),
            scope: String::new(),
            audiences: Vec::new(),
            keys: KeysAt::Discovery,
            claim: "sub".into(),
            roles: None,
            algorithms: ALGORITHMS.map(String::from).to_vec(),
            leeway: 30,
            ends_clients: false,
            map: None,
        };
        // The same syntax as that of LDAP's options.
        let pairs = pairs(text).map_err(|(why, remedy)| (why.replace("LDAP ", ""), remedy))?;
        for (key, value) in pairs {
            match key.as_str() {
                "map" => {
                    let Some(map) = maps(&value) else {
                        return wrong(
                            format!("there is no ident map {value}"),
                            "write its lines into the file that auth_ident_file names",
                        );
                    };
                    rules.map = Some(map.clone());
                }
                _ => rules.assign(&key, &value)?,
            }
        }
        rules.judge()
    }

    fn assign(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        let words = || value.split([',', ' ']).filter(|word| !word.is_empty());
        match key {
            "issuer" => self.issuer = value.into(),
            "scope" => self.scope = value.into(),
            "audience" => self.audiences = words().map(String::from).collect(),
            "keys" if value.starts_with('/') => self.keys = KeysAt::File(value.into()),
            "keys" if is_fetchable(value) => self.keys = KeysAt::Url(value.into()),
            "keys" => {
                let text = format!("keys=\"{value}\" is neither a path nor an https address");
                return wrong(text, "write keys=/path/of/jwks.json or keys=https://...");
            }
            "claim" => self.claim = value.into(),
            "roles" => self.roles = Some(value.into()),
            "algorithms" => {
                self.algorithms = words().map(String::from).collect();
                let unknown = |name: &&String| !ALGORITHMS.contains(&name.as_str());
                if let Some(name) = self.algorithms.iter().find(unknown) {
                    let text = format!("signatures by {name} are not taken");
                    return wrong(text, format!("there are {}", ALGORITHMS.join(", ")));
                }
            }
            "leeway" => match value.parse() {
                Ok(leeway) if leeway <= MOST_LEEWAY => self.leeway = leeway,
                _ => {
                    let text = format!("invalid leeway value: \"{value}\"");
                    return wrong(text, format!("write seconds, {MOST_LEEWAY} at most"));
                }
            },
            "validator" => {
                return wrong(
                    "validator: there are no libraries that check tokens",
                    "leave it out: issuer, audience and keys say what a good token is",
                );
            }
            "delegate_ident_mapping" => {
                return wrong(
                    "delegate_ident_mapping is not supported",
                    "write roles=CLAIM, whose values are names of users, or map=",
                );
            }
            "end_with_token" => match value {
                "1" => self.ends_clients = true,
                "0" => self.ends_clients = false,
                _ => {
                    let text = format!("invalid end_with_token value: \"{value}\"");
                    return wrong(text, "write 1: clients end with their tokens; or 0");
                }
            },
            _ => return wrong(format!("unsupported parameter {key}="), OPTIONS),
        }
        Ok(())
    }

    /// Checks the options as a whole.
    fn judge(self) -> Result<TokenRules, Wrong> {
        let missing = |name: &str, remedy: &str| {
            let text = format!("tokens need {name}=");
            Err((text, remedy.to_owned()))
        };
        if self.issuer.is_empty() {
            return missing(
                "issuer",
                "write issuer=, exactly as the provider's tokens have it in iss",
            );
        }
        if self.audiences.is_empty() {
            let remedy = "write audience=, the name under which the provider knows this database: without \
                          it, tokens for any other service would be good here";
            return missing("audience", remedy);
        }
        if self.offer == TokenOffer::Oauth && self.scope.is_empty() {
            return missing("scope", "write scope=, which clients ask the provider for");
        }
        if self.keys == KeysAt::Discovery && !is_fetchable(&self.issuer) {
            let text = "an issuer without https:// describes itself nowhere";
            return wrong(text, "write keys=, a file or an https address");
        }
        Ok(self)
    }

    /// The issuer as tokens name it: the option may have the address of its description, as PostgreSQL's.
    pub fn token_issuer(&self) -> &str {
        let end = self.issuer.find("/.well-known/");
        &self.issuer[..end.unwrap_or(self.issuer.len())]
    }

    /// The address of the issuer's description of itself.
    pub fn discovery(&self) -> String {
        match self.issuer.contains("/.well-known/") {
            true => self.issuer.clone(),
            false => format!(
                "{}/.well-known/openid-configuration",
                self.issuer.trim_end_matches('/')
            ),
        }
    }
}

/// The names of this machine in an address.
pub const OWN_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Whether an address may be fetched: by https, or from this machine. An address with a user before the
/// host may not: what looks like the host may be that user's name.
pub fn is_fetchable(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let end = match authority.starts_with('[') {
        true => authority.find(']').map_or(0, |end| end + 1),
        false => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok());
    let is_known = match scheme {
        "https" => !host.is_empty(),
        "http" => OWN_NAMES.contains(&host),
        _ => false,
    };
    is_known && is_port && !host.contains(['@', '\\'])
}

fn wrong<T>(text: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((text.into(), remedy.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TokenRules, Wrong> {
        TokenRules::parse(TokenOffer::Oauth, text, |_| None)
    }

    #[test]
    fn options() {
        let rules = read(
            "issuer=https://id.example/realms/x scope=\"openid pg\" audience=pg,db2 leeway=5 \
             algorithms=\"RS256, ES256\" roles=realm_access.roles claim=email",
        );
        // A comma ends a value that is not in quotes.
        assert!(rules.is_err());
        let rules = read(
            "issuer=https://id.example/realms/x scope=\"openid pg\" audience=\"pg,db2\" leeway=5 \
             algorithms=\"RS256, ES256\" roles=realm_access.roles claim=email",
        )
        .unwrap();
        assert_eq!(rules.audiences, ["pg", "db2"]);
        assert_eq!(rules.algorithms, ["RS256", "ES256"]);
        assert_eq!(rules.leeway, 5);
        assert!(!rules.ends_clients);
        assert_eq!(
            rules.discovery(),
            "https://id.example/realms/x/.well-known/openid-configuration"
        );
        // PostgreSQL takes the description's address, too.
        let address = rules.discovery();
        let rules = read(&format!("issuer={address} scope=s audience=a")).unwrap();
        assert_eq!(rules.discovery(), address);
        assert_eq!(rules.token_issuer(), "https://id.example/realms/x");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = "issuer=https://i scope=s audience=a";
        assert!(read(good).is_ok());
        for (more, said) in [
            ("issuer=", "no value"),
            ("keys=jwks.json", "neither a path nor an https address"),
            ("keys=http://id.example/keys", "neither"),
            ("algorithms=HS256", "signatures by HS256 are not taken"),
            ("algorithms=none", "signatures by none are not taken"),
            ("leeway=3600", "invalid leeway"),
            ("validator=x", "no libraries"),
            ("delegate_ident_mapping=1", "not supported"),
            ("end_with_token=yes", "invalid end_with_token"),
            ("map=m", "there is no ident map m"),
            ("aud=x", "unsupported parameter aud="),
        ] {
            let (text, remedy) = read(&format!("{good} {more}")).unwrap_err();
            assert!(text.contains(said) && !remedy.is_empty(), "{more}: {text}");
        }
        for missing in [
            "scope=s audience=a",
            "issuer=https://i scope=s",
            "issuer=https://i audience=a",
        ] {
            let (text, _) = read(missing).unwrap_err();
            assert!(text.starts_with("tokens need "), "{text}");
        }
        assert!(read("issuer=me scope=s audience=a").is_err(), "no keys");
        assert!(read("issuer=me scope=s audience=a keys=/k").is_ok());
    }

    #[test]
    fn addresses() {
        for (address, may) in [
            ("https://id.example", true),
            ("https://id.example:8443/keys?a=b@c", true),
            ("http://[::1]:80/x", true),
            ("http://localhost", true),
            ("http://127.0.0.1/x", true),
            ("http://localhost.evil/x", false),
            ("http://localhost:x@evil/", false),
            ("http://localhost:80@evil/", false),
            ("http://localhost?@evil/", true),
            ("https://localhost@evil/", false),
            ("https://a\\@evil/", false),
            ("http://id.example/x", false),
            ("https://", false),
            ("https:///x", false),
            ("https://[::1", false),
            ("ftp://localhost/", false),
        ] {
            assert_eq!(is_fetchable(address), may, "{address}");
        }
    }
}
