//! Host-based rules: the first line that matches a client decides how the client logs in.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::ident::{IdentMap, IdentMaps};
use super::tokens::{RuleToken, RuleTokens};
use super::{Findings, TLS_TWICE, Wrong};
use crate::authority::{Authority, PAM_SERVICE};
use crate::ldap::LdapOptions;
use crate::network::{Network, mask_of_bits};
use crate::token::{TokenOffer, TokenRules};
use crate::{Address, CONSOLE_NAMES, Mistake, Place, is_console};

/// How deep files of names may include other files of names.
const MAX_FILES: usize = 10;

/// All rules, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hba {
    rules: Vec<Rule>,
}

/// One line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The line's number in the file, from 1.
    pub line: u32,
    from: From,
    databases: Names,
    users: Names,
    /// How matching clients log in.
    pub method: HbaMethod,
    /// `map=`, for the methods peer and cert, and for `clientcert=verify-full`.
    pub map: Option<Arc<IdentMap>>,
    /// `clientcert=`: a certificate that the client must show in addition. Always set for the
    /// method cert.
    pub client_cert: Option<ClientCert>,
    /// `clientname=`: the part of a certificate that is compared with the user's name.
    pub client_name: ClientName,
    /// The authority that checks passwords or tokens, for the methods ldap, pam, oauth and jwt.
    pub authority: Option<Arc<Authority>>,
}

/// How clients log in by a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HbaMethod {
    /// No proof, but the user must be known.
    Trust,
    /// The client is rejected.
    Reject,
    /// An MD5 challenge; SCRAM if the stored secret is a SCRAM secret.
    Md5,
    /// The password in clear text.
    Password,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// The system user at the other end of a unix socket must be the right one.
    Peer,
    /// A TLS client certificate must have the user's name.
    Cert,
    /// A directory server checks the password.
    Ldap,
    /// The system's PAM checks the password.
    Pam,
    /// The client shows a token by OAUTHBEARER.
    Oauth,
    /// The client's password is a token.
    Jwt,
}

const METHODS: &[(&str, HbaMethod)] = &[
    ("trust", HbaMethod::Trust),
    ("reject", HbaMethod::Reject),
    ("md5", HbaMethod::Md5),
    ("password", HbaMethod::Password),
    ("scram-sha-256", HbaMethod::ScramSha256),
    ("peer", HbaMethod::Peer),
    ("cert", HbaMethod::Cert),
    ("ldap", HbaMethod::Ldap),
    ("pam", HbaMethod::Pam),
    ("oauth", HbaMethod::Oauth),
    ("jwt", HbaMethod::Jwt),
];

/// The part of a client's certificate that is compared with user names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientName {
    /// Every name in the certificate, as in PgBouncer: alternative names and the common name.
    #[default]
    Any,
    /// `clientname=CN`: only the common name, as in PostgreSQL.
    CommonName,
    /// `clientname=DN`: the complete subject, as in PostgreSQL.
    DistinguishedName,
}

/// The client certificate that a rule requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCert {
    /// `verify-ca`: a trusted authority has signed the certificate.
    VerifyCa,
    /// `verify-full`: the certificate must also have the user's name.
    VerifyFull,
}

/// The facts about a client that rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The client's address.
    pub remote: &'a Address,
    /// The client's connection is encrypted.
    pub tls: bool,
    /// The client wants physical replication. Only the word `replication` matches such a client.
    pub physical_replication: bool,
    /// The database that the client asks for. A rule for one name of the console's database holds
    /// for both names.
    pub database: &'a str,
    /// The user that the client wants to log in as.
    pub user: &'a str,
}

/// The connections that a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
enum From {
    /// `local`
    Unix,
    /// `host`, `hostssl` and `hostnossl`
    Tcp {
        /// Only with TLS, or only without TLS.
        tls: Option<bool>,
        /// `None`: all addresses.
        network: Option<Network>,
    },
}

/// A list of databases or users.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Names {
    /// `all`
    all: bool,
    /// `sameuser`
    same_user: bool,
    /// `replication`
    replication: bool,
    /// The other names.
    named: HashSet<String>,
}

impl Hba {
    /// True if a rule looks at clients' certificates.
    pub fn asks_for_certificates(&self) -> bool {
        let asks = |rule: &Rule| rule.method == HbaMethod::Cert || rule.client_cert.is_some();
        self.rules.iter().any(asks)
    }

    /// The first rule that matches a client.
    pub fn find(&self, candidate: &Candidate<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(candidate))
    }

    /// The authorities that rules send passwords to.
    pub fn authorities(&self) -> impl Iterator<Item = &Authority> {
        self.rules
            .iter()
            .filter_map(|rule| rule.authority.as_deref())
    }

    /// How many rules there are.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }
}

impl Rule {
    fn fits(&self, candidate: &Candidate<'_>) -> bool {
        let from = match (&self.from, candidate.remote) {
            (From::Unix, Address::Unix(..)) => true,
            (From::Tcp { tls, network }, Address::Tcp(address, _)) => {
                tls.is_none_or(|tls| tls == candidate.tls)
                    && network.is_none_or(|network| network.has(*address))
            }
            _ => false,
        };
        let (database, user) = (candidate.database, candidate.user);
        let wanted = if candidate.physical_replication {
            self.databases.replication
        } else if is_console(database) {
            CONSOLE_NAMES
                .iter()
                .any(|name| self.databases.fit(name, user))
        } else {
            self.databases.fit(database, user)
        };
        from && wanted && self.users.has(user)
    }
}

impl Names {
    /// For a list of databases: true if it matches a login of this user to this database.
    fn fit(&self, database: &str, user: &str) -> bool {
        self.has(database) || (self.same_user && database == user)
    }

    fn has(&self, name: &str) -> bool {
        self.all || self.named.contains(name)
    }
}

/// Reads a file of rules. `tls`: clients may use TLS.
pub(super) fn parse(
    path: &str,
    text: &str,
    tls: bool,
    maps: &IdentMaps,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    findings: &mut Findings,
) -> Hba {
    let file: Arc<str> = path.into();
    let mut reader = Reader {
        tls,
        maps,
        read_file,
        findings,
        place: Place::line(file.clone(), 0),
    };
    let mut hba = Hba::default();
    for (number, line) in (1..).zip(text.lines()) {
        reader.place.line = number;
        match reader.line(line) {
            Ok(rule) => hba.rules.extend(rule),
            Err(wrong) => reader.findings.unreadable("hba", &reader.place, wrong),
        }
    }
    hba
}

/// The list of names that is being read.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Databases,
    Users,
}

struct Reader<'a> {
    /// Clients may use TLS.
    tls: bool,
    maps: &'a IdentMaps,
    read_file: &'a mut dyn FnMut(&str) -> Result<String, String>,
    findings: &'a mut Findings,
    /// The current line.
    place: Place,
}

fn wrong<T>(text: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((text.into(), remedy.into()))
}

impl Reader<'_> {
    /// Reads a line; `None` for a line without words.
    fn line(&mut self, line: &str) -> Result<Option<Rule>, Wrong> {
        let mut tokens = RuleTokens::of(line)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        let kind = tokens.word();
        let tls = match kind.as_deref() {
            Some("local" | "host") => None,
            Some("hostssl") => Some(true),
            Some("hostnossl") => Some(false),
            other => {
                let text = format!("unknown type {}", other.unwrap_or("(in quotes)"));
                return wrong(text, "begin with local, host, hostssl or hostnossl");
            }
        };
        let databases = self.names(&mut tokens, Field::Databases)?;
        let users = self.names(&mut tokens, Field::Users)?;
        let from = if kind.as_deref() == Some("local") {
            From::Unix
        } else {
            let network = network(&mut tokens)?;
            From::Tcp { tls, network }
        };
        let method = method(&mut tokens)?;
        let mut options = Options::default();
        let mut authority = None;
        match method {
            HbaMethod::Ldap => {
                let options = LdapOptions::parse(tokens.take_rest())?;
                authority = Some(Arc::new(Authority::Ldap(options)));
            }
            HbaMethod::Oauth | HbaMethod::Jwt => {
                let offer = match method {
                    HbaMethod::Oauth => TokenOffer::Oauth,
                    _ => TokenOffer::Jwt,
                };
                let maps = |name: &str| self.maps.get(name);
                let rules = TokenRules::parse(offer, tokens.take_rest(), maps)?;
                authority = Some(Arc::new(Authority::Token(Box::new(rules))));
            }
            HbaMethod::Pam => authority = Some(Arc::new(Authority::Pam(pam_service(&mut tokens)?))),
            _ => options = self.options(&mut tokens)?,
        }
        let is_tls = matches!(
            from,
            From::Tcp {
                tls: Some(true),
                ..
            }
        );
        if options.client_cert.is_some() && !is_tls {
            return wrong(
                "clientcert needs TLS",
                "begin the line with hostssl, or leave clientcert out",
            );
        }
        let names_user = matches!(method, HbaMethod::Peer | HbaMethod::Cert)
            || options.client_cert == Some(ClientCert::VerifyFull);
        if options.map.is_some() && !names_user {
            return wrong(
                "map= has no name to map here",
                "write it behind peer, cert or clientcert=verify-full, or leave it out",
            );
        }
        let has_certificate = method == HbaMethod::Cert || options.client_cert.is_some();
        if options.client_name != ClientName::default() && !has_certificate {
            return wrong(
                "clientname= needs a certificate",
                "write it behind cert or clientcert=verify-full, or leave it out",
            );
        }
        if method == HbaMethod::Cert {
            if options.client_cert == Some(ClientCert::VerifyCa) {
                return wrong(
                    "clientcert=verify-ca is less than cert asks for",
                    "leave clientcert out, or write verify-full",
                );
            }
            options.client_cert = Some(ClientCert::VerifyFull);
        } else if options.client_cert.is_some() && options.client_name == ClientName::Any {
            // PgBouncer has no clientcert, so the meaning is PostgreSQL's.
            options.client_name = ClientName::CommonName;
        }
        let rule = Rule {
            line: self.place.line,
            from,
            databases,
            users,
            method,
            map: options.map,
            client_cert: options.client_cert,
            client_name: options.client_name,
            authority,
        };
        self.judge(&rule);
        Ok(Some(rule))
    }

    /// Reads names with commas between them.
    fn names(&mut self, tokens: &mut RuleTokens<'_>, field: Field) -> Result<Names, Wrong> {
        let mut names = Names::default();
        loop {
            let file = self.place.file.clone();
            match tokens.take() {
                Some(RuleToken::Word(word)) => self.word(&word, &file, field, 0, &mut names)?,
                Some(RuleToken::Quoted(name)) => {
                    names.named.insert(name);
                }
                Some(RuleToken::Comma) | None => {
                    let (what, of) = match field {
                        Field::Databases => ("a database", "type"),
                        Field::Users => ("a user", "databases"),
                    };
                    let remedy = format!("name one behind the {of}, or write all");
                    return wrong(format!("{what} is missing"), remedy);
                }
            }
            if !tokens.comma() {
                return Ok(names);
            }
        }
    }

    /// Reads a name without quotes. The name may be a keyword such as `all`, or `@file`. `file` is
    /// the file that has the name.
    fn word(
        &mut self,
        word: &str,
        file: &str,
        field: Field,
        depth: usize,
        names: &mut Names,
    ) -> Result<(), Wrong> {
        match (word, field) {
            ("all", _) => names.all = true,
            ("sameuser", Field::Databases) => names.same_user = true,
            ("replication", Field::Databases) => names.replication = true,
            ("samerole" | "samegroup", Field::Databases) => {
                return wrong(format!("{word} is not supported"), "name the databases");
            }
            _ if word.starts_with('+') => {
                return wrong(
                    format!("{word}: members of a role are not supported"),
                    "name the users, here or in a file: @file",
                );
            }
            _ if word.starts_with('@') => return self.file(&word[1..], file, field, depth, names),
            _ if word.starts_with('/') => {
                return wrong(
                    format!("{word}: regular expressions are not supported, here or in PgBouncer"),
                    "name what is meant, or all; a name that begins with a slash goes into quotes",
                );
            }
            _ => {
                names.named.insert(word.into());
            }
        }
        Ok(())
    }

    /// Reads a file of names, with white space or commas between them. A relative path begins at
    /// the directory of the file that names it.
    fn file(
        &mut self,
        path: &str,
        from: &str,
        field: Field,
        depth: usize,
        names: &mut Names,
    ) -> Result<(), Wrong> {
        if path.is_empty() {
            return wrong("@ names no file", "write @file, without blanks or quotes");
        }
        if depth >= MAX_FILES {
            let remedy = format!("nest at most {MAX_FILES} files; is there a circle?");
            return wrong(format!("{from} names one file too many"), remedy);
        }
        let path = match Path::new(from).parent() {
            Some(folder) => folder.join(path).to_string_lossy().into_owned(),
            None => path.to_owned(),
        };
        let text = (self.read_file)(&path).or_else(|why| {
            let remedy = format!("check the path, which starts where {from} is");
            wrong(format!("could not open {path}: {why}"), remedy)
        })?;
        for (number, line) in (1..).zip(text.lines()) {
            let tokens = RuleTokens::of(line);
            let mut tokens =
                tokens.map_err(|(text, remedy)| (format!("{text}, in {path}:{number}"), remedy))?;
            while let Some(token) = tokens.take() {
                match token {
                    RuleToken::Word(word) => self.word(&word, &path, field, depth + 1, names)?,
                    RuleToken::Quoted(name) => {
                        names.named.insert(name);
                    }
                    RuleToken::Comma => {}
                }
            }
        }
        Ok(())
    }

    /// Reads the options after the method: none, or `name=value` pairs.
    fn options(&mut self, tokens: &mut RuleTokens<'_>) -> Result<Options, Wrong> {
        let only = "map=, clientcert= and clientname= may follow the method";
        let mut options = Options::default();
        while let Some(word) = tokens.word() {
            match word.split_once('=') {
                Some(("map", name)) => {
                    let Some(map) = self.maps.get(name) else {
                        return wrong(
                            format!("there is no ident map {name}"),
                            "write its lines into the file that auth_ident_file names",
                        );
                    };
                    options.map = Some(map.clone());
                }
                Some(("clientcert", "verify-ca")) => {
                    options.client_cert = Some(ClientCert::VerifyCa);
                }
                Some(("clientcert", "verify-full")) => {
                    options.client_cert = Some(ClientCert::VerifyFull);
                }
                Some(("clientname", "CN")) => options.client_name = ClientName::CommonName,
                Some(("clientname", "DN")) => options.client_name = ClientName::DistinguishedName,
                Some(("clientcert", _)) => {
                    return wrong(format!("invalid {word}"), "write verify-ca or verify-full");
                }
                Some(("clientname", _)) => {
                    return wrong(format!("invalid {word}"), "write CN or DN");
                }
                _ => return wrong(format!("unsupported parameter {word}"), only),
            }
        }
        if tokens.is_empty() {
            Ok(options)
        } else {
            wrong("unsupported parameters", only)
        }
    }

    /// Notes a rule that contradicts itself or other settings.
    fn judge(&mut self, rule: &Rule) {
        let place = &self.place;
        if let Some(Authority::Ldap(options)) = rule.authority.as_deref()
            && options.wants_tls_twice()
        {
            let doubt = Mistake::new(Some(place), TLS_TWICE, "write one of them");
            self.findings.doubtful.push(doubt);
        }
        let text = match (&rule.from, rule.method) {
            _ if self.tls => return,
            (_, HbaMethod::Cert) => "client_tls_sslmode is disable: cert refuses its clients",
            (From::Tcp { tls, .. }, _) if *tls == Some(true) => {
                "client_tls_sslmode is disable: hostssl lines match nobody"
            }
            _ => return,
        };
        if !self.findings.idle.iter().any(|seen| seen.text == text) {
            let remedy = "switch TLS on, or give such clients another line";
            self.findings
                .idle
                .push(Mistake::new(Some(place), text, remedy));
        }
    }
}

/// The options after a method.
#[derive(Default)]
struct Options {
    map: Option<Arc<IdentMap>>,
    client_cert: Option<ClientCert>,
    client_name: ClientName,
}

fn method(tokens: &mut RuleTokens<'_>) -> Result<HbaMethod, Wrong> {
    let word = tokens.word();
    let known = METHODS
        .iter()
        .find(|(name, _)| Some(*name) == word.as_deref());
    if let Some((_, method)) = known {
        return Ok(*method);
    }
    let remedy = match word.as_deref() {
        Some("plain") => "write password".to_owned(),
        _ => {
            let names: Vec<_> = METHODS.iter().map(|(name, _)| *name).collect();
            format!("there are {}", names.join(", "))
        }
    };
    match word {
        Some(word) => wrong(format!("unsupported method {word}"), remedy),
        None => wrong("no method", remedy),
    }
}

/// Reads the option of `pam`: none, or a service's name.
fn pam_service(tokens: &mut RuleTokens<'_>) -> Result<String, Wrong> {
    let only = "only pamservice=name may follow pam";
    let Some(word) = tokens.text() else {
        return if tokens.is_empty() {
            Ok(PAM_SERVICE.into())
        } else {
            wrong("unsupported parameters", only)
        };
    };
    let Some(mut service) = word.strip_prefix("pamservice=").map(str::to_owned) else {
        return wrong(format!("unsupported parameter {word}"), only);
    };
    if service.is_empty() {
        // The name may be quoted.
        service = tokens.text().unwrap_or_default();
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if service.is_empty() || service.starts_with('.') || !service.chars().all(fine) {
        let text = format!("\"{service}\" is no name of a PAM service");
        return wrong(text, "write the name of a file in /etc/pam.d");
    }
    if tokens.is_empty() {
        Ok(service)
    } else {
        wrong("unsupported parameters", only)
    }
}

/// Reads `all`, `address/bits` or `address mask`. Bits of the address beyond the mask are ignored,
/// as in PostgreSQL: `10.1.2.3/8` is `10.0.0.0/8`.
fn network(tokens: &mut RuleTokens<'_>) -> Result<Option<Network>, Wrong> {
    let Some(word) = tokens.word() else {
        return wrong(
            "did not find address",
            "write all, an address with its bits (10.0.0.0/8), or an address and a mask",
        );
    };
    if word == "all" {
        return Ok(None);
    }
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (&*word, None),
    };
    let Ok(base) = address.parse::<IpAddr>() else {
        let text = format!("failed to parse address {word}");
        return wrong(
            text,
            "host names, samehost and samenet are not supported: write numbers",
        );
    };
    let mask = match bits {
        Some(bits) => mask_of_bits(base, bits).ok_or(bits.to_owned()),
        None => {
            let Some(mask) = tokens.word() else {
                return wrong("did not find mask", format!("write {address}/bits"));
            };
            mask.parse().map_err(|_| mask)
        }
    };
    match mask {
        Ok(mask) => match Network::new(base, mask) {
            None => wrong(
                format!("invalid mask {mask}"),
                "address and mask must be of one kind",
            ),
            network => Ok(network),
        },
        Err(mask) => wrong(
            format!("invalid mask {mask}"),
            "write up to 32 bits, for IPv6 up to 128, or a mask like 255.255.0.0",
        ),
    }
}
