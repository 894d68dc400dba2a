//! Host-based rules: the first line that fits a client says how it logs in.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use super::ident::{IdentMap, IdentMaps};
use super::tokens::{RuleToken, RuleTokens};
use super::{Findings, TLS_TWICE, Wrong};
use crate::authority::{Authority, PAM_SERVICE};
use crate::ldap::LdapOptions;
use crate::{Address, CONSOLE_NAMES, Mistake, Place, is_console};

/// How deep files of names may name files of names.
const MAX_FILES: usize = 10;

/// All rules, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hba {
    rules: Vec<Rule>,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its number in the file, from 1.
    pub line: u32,
    from: From,
    databases: Names,
    users: Names,
    /// How clients it fits log in.
    pub method: HbaMethod,
    /// `map=`, for the methods peer and cert, and for `clientcert=verify-full`.
    pub map: Option<Arc<IdentMap>>,
    /// `clientcert=`: a certificate that the client must show besides. With the method cert always.
    pub client_cert: Option<ClientCert>,
    /// `clientname=`: what of a certificate is compared with the user's name.
    pub client_name: ClientName,
    /// Who knows the passwords, for the methods ldap and pam.
    pub authority: Option<Arc<Authority>>,
}

/// How a rule has clients log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HbaMethod {
    /// No password, but the user must be known.
    Trust,
    /// Not at all.
    Reject,
    /// MD5 challenge, or SCRAM when the stored secret is one.
    Md5,
    /// The password in clear text.
    Password,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// By the system's user at the other end of a unix socket.
    Peer,
    /// By a TLS client certificate that names the user.
    Cert,
    /// By a directory server.
    Ldap,
    /// By the system's PAM.
    Pam,
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
];

/// What of a client's certificate is compared with names of users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientName {
    /// Every name it has, as in PgBouncer: alternative names, and the common name.
    #[default]
    Any,
    /// `clientname=CN`: the common name alone, as in PostgreSQL.
    CommonName,
    /// `clientname=DN`: the whole subject, as in PostgreSQL.
    DistinguishedName,
}

/// What a rule demands of a client's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCert {
    /// `verify-ca`: an authority of ours has signed it.
    VerifyCa,
    /// `verify-full`: and it names the user.
    VerifyFull,
}

/// A client, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Where it comes from.
    pub remote: &'a Address,
    /// Its connection is encrypted.
    pub tls: bool,
    /// It asked for physical replication, which only the word `replication` stands for.
    pub physical_replication: bool,
    /// The database it asked for. A rule for one of the console's names holds for both.
    pub database: &'a str,
    /// The user it wants to be.
    pub user: &'a str,
}

/// Where clients come from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum From {
    /// `local`
    Unix,
    /// `host`, `hostssl` and `hostnossl`
    Tcp {
        /// With TLS only, or without only.
        tls: Option<bool>,
        network: Network,
    },
}

/// Addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Network {
    All,
    V4 { base: u32, mask: u32 },
    V6 { base: u128, mask: u128 },
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
    /// Those named.
    named: HashSet<String>,
}

impl Hba {
    /// A rule looks at clients' certificates.
    pub fn asks_for_certificates(&self) -> bool {
        let asks = |rule: &Rule| rule.method == HbaMethod::Cert || rule.client_cert.is_some();
        self.rules.iter().any(asks)
    }

    /// The first rule that fits a client.
    pub fn find(&self, candidate: &Candidate<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(candidate))
    }

    /// Those who know passwords of clients it fits.
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
                tls.is_none_or(|tls| tls == candidate.tls) && network.has(*address)
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

impl Network {
    fn has(self, address: IpAddr) -> bool {
        match (self, address) {
            (Network::All, _) => true,
            (Network::V4 { base, mask }, IpAddr::V4(address)) => address.to_bits() & mask == base,
            (Network::V6 { base, mask }, IpAddr::V6(address)) => address.to_bits() & mask == base,
            _ => false,
        }
    }
}

impl Names {
    /// Of databases: whether a user's login to this one is among what is meant.
    fn fit(&self, database: &str, user: &str) -> bool {
        self.has(database) || (self.same_user && database == user)
    }

    fn has(&self, name: &str) -> bool {
        self.all || self.named.contains(name)
    }
}

/// Reads a file of rules. tls: clients may have TLS.
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
        place: Place {
            file: file.clone(),
            line: 0,
        },
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

/// Which list of names is read.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Databases,
    Users,
}

struct Reader<'a> {
    /// Clients may have TLS.
    tls: bool,
    maps: &'a IdentMaps,
    read_file: &'a mut dyn FnMut(&str) -> Result<String, String>,
    findings: &'a mut Findings,
    /// The line at hand.
    place: Place,
}

fn wrong<T>(text: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((text.into(), remedy.into()))
}

impl Reader<'_> {
    /// A line; nothing for one without words.
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
            // PgBouncer has no clientcert: it means what PostgreSQL means by it.
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

    /// Names with commas between them.
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

    /// A name without quotes, which may stand for others. `file` is where it stands.
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

    /// A file of names, with white space or commas between them. A path that is not absolute
    /// starts where the file stands that has it.
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

    /// What follows the method: nothing, or `name=value` once or several times.
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

    /// Says what a rule can't mean, or can't have.
    fn judge(&mut self, rule: &Rule) {
        let place = &self.place;
        if let Some(Authority::Ldap(options)) = rule.authority.as_deref()
            && options.wants_tls_twice()
        {
            let doubt = Mistake::at(place, TLS_TWICE, "write one of them");
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
            self.findings.idle.push(Mistake::at(place, text, remedy));
        }
    }
}

/// What may follow a method.
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

/// What follows `pam`: nothing, or the name of a service.
fn pam_service(tokens: &mut RuleTokens<'_>) -> Result<String, Wrong> {
    let only = "only pamservice=name may follow pam";
    let Some(word) = tokens.text() else {
        return match tokens.is_empty() {
            true => Ok(PAM_SERVICE.into()),
            false => wrong("unsupported parameters", only),
        };
    };
    let Some(mut service) = word.strip_prefix("pamservice=").map(str::to_owned) else {
        return wrong(format!("unsupported parameter {word}"), only);
    };
    if service.is_empty() {
        // The name itself may be quoted.
        service = tokens.text().unwrap_or_default();
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if service.is_empty() || service.starts_with('.') || !service.chars().all(fine) {
        let text = format!("\"{service}\" is no name of a PAM service");
        return wrong(text, "write the name of a file in /etc/pam.d");
    }
    match tokens.is_empty() {
        true => Ok(service),
        false => wrong("unsupported parameters", only),
    }
}

/// `all`, `address/bits` or `address mask`. Bits of the address that the mask leaves open count for
/// nothing, as in PostgreSQL: `10.1.2.3/8` is `10.0.0.0/8`.
fn network(tokens: &mut RuleTokens<'_>) -> Result<Network, Wrong> {
    let Some(word) = tokens.word() else {
        return wrong(
            "did not find address",
            "write all, an address with its bits (10.0.0.0/8), or an address and a mask",
        );
    };
    if word == "all" {
        return Ok(Network::All);
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
        Some(bits) => mask_of_bits(base, bits),
        None => {
            let Some(mask) = tokens.word() else {
                return wrong("did not find mask", format!("write {address}/bits"));
            };
            mask.parse().map_err(|_| mask)
        }
    };
    match (base, mask) {
        (IpAddr::V4(base), Ok(IpAddr::V4(mask))) => Ok(Network::V4 {
            base: base.to_bits() & mask.to_bits(),
            mask: mask.to_bits(),
        }),
        (IpAddr::V6(base), Ok(IpAddr::V6(mask))) => Ok(Network::V6 {
            base: base.to_bits() & mask.to_bits(),
            mask: mask.to_bits(),
        }),
        (_, Ok(mask)) => wrong(
            format!("invalid mask {mask}"),
            "address and mask must be of one kind",
        ),
        (_, Err(mask)) => wrong(
            format!("invalid mask {mask}"),
            "write up to 32 bits, for IPv6 up to 128, or a mask like 255.255.0.0",
        ),
    }
}

fn mask_of_bits(base: IpAddr, bits: &str) -> Result<IpAddr, String> {
    let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let number = bits.parse::<u32>().ok().filter(|_| digits);
    let mask = number.and_then(|number| match base {
        IpAddr::V4(_) if number <= 32 => {
            let mask = u32::MAX.checked_shl(32 - number).unwrap_or(0);
            Some(IpAddr::V4(Ipv4Addr::from_bits(mask)))
        }
        IpAddr::V6(_) if number <= 128 => {
            let mask = u128::MAX.checked_shl(128 - number).unwrap_or(0);
            Some(IpAddr::V6(Ipv6Addr::from_bits(mask)))
        }
        _ => None,
    });
    mask.ok_or_else(|| bits.to_owned())
}
