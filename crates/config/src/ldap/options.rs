//! The options of `auth_ldap_options` and of HBA lines with the method `ldap`. The syntax is PgBouncer's:
//! `key=value` pairs with white space or a comma between them. Keys and values may be quoted.

use std::net::Ipv6Addr;

use super::filter;
use crate::quotes::{in_quotes, quoted};

/// What is wrong with an option, and how to correct it.
type Wrong = (String, String);

/// The option whose value is secret.
const PASSWORD: &str = "ldapbindpasswd";

/// Options as they were written. When printed, the password is masked.
#[derive(Clone, PartialEq, Eq)]
pub struct LdapText(String);

impl LdapText {
    /// Keeps a text.
    pub fn new(text: &str) -> LdapText {
        LdapText(text.to_owned())
    }

    /// The whole text, for the parser.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The text with stars in place of the password.
    pub fn masked(&self) -> String {
        if !self.0.contains(PASSWORD) {
            return self.0.clone();
        }
        let Ok(pairs) = pairs(&self.0) else {
            return "***".into();
        };
        let shown = pairs.iter().map(|(key, value)| match key.as_str() {
            PASSWORD => format!("{key}=***"),
            key => format!("{key}={}", in_quotes(value)),
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Debug for LdapText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.masked())
    }
}

/// The address of a directory, and how a user's password is checked there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LdapOptions {
    /// Whether TLS begins with the first byte.
    pub scheme: LdapScheme,
    /// The servers, tried in turn until one accepts the connection.
    pub servers: Vec<LdapServer>,
    /// StartTLS before any other request.
    pub start_tls: bool,
    /// The name to bind as.
    pub bind: LdapBind,
}

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LdapScheme {
    /// `ldap`
    Ldap,
    /// `ldaps`
    Ldaps,
}

/// One directory server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LdapServer {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How the name to bind as is made from a user's name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum LdapBind {
    /// The user's name between a prefix and a suffix.
    Simple {
        /// The text before the name.
        prefix: String,
        /// The text after the name.
        suffix: String,
    },
    /// A search for the only matching entry.
    Search {
        /// The entry where the search begins.
        base: String,
        /// The depth of the search.
        scope: SearchScope,
        /// The name that searches; empty: anonymous.
        bind_dn: String,
        /// The password of this name.
        bind_password: String,
        /// The entry to search for.
        pattern: Pattern,
    },
}

/// Which entry matches a user in a search.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// The entry in which this attribute is the user's name.
    Attribute(String),
    /// The entry that this filter matches, after `$username` is replaced.
    Filter(String),
}

/// The depth of a search.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SearchScope {
    /// The base itself.
    Base,
    /// The entries right below the base.
    One,
    /// The base and all entries below it.
    Sub,
}

/// Prints no password: the search password must not appear in logs.
impl std::fmt::Debug for LdapBind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LdapBind::Simple { prefix, suffix } => write!(f, "Simple({prefix:?}, {suffix:?})"),
            LdapBind::Search { base, pattern, .. } => write!(f, "Search({base:?}, {pattern:?})"),
        }
    }
}

impl LdapScheme {
    /// The default port.
    fn port(self) -> u16 {
        match self {
            LdapScheme::Ldap => 389,
            LdapScheme::Ldaps => 636,
        }
    }

    fn read(word: &str) -> Option<LdapScheme> {
        match word {
            "ldap" => Some(LdapScheme::Ldap),
            "ldaps" => Some(LdapScheme::Ldaps),
            _ => None,
        }
    }
}

impl LdapOptions {
    /// Reads options.
    ///
    /// # Errors
    /// What is wrong, and how to correct it.
    pub fn parse(text: &str) -> Result<LdapOptions, (String, String)> {
        let mut written = Written::default();
        for (key, value) in pairs(text)? {
            written.assign(&key, value)?;
        }
        written.resolve()
    }

    /// True if TLS is wanted in two ways at once, which no server supports.
    pub fn wants_tls_twice(&self) -> bool {
        self.start_tls && self.scheme == LdapScheme::Ldaps
    }
}

impl LdapBind {
    /// The name for a simple bind; `None` if the name must be searched for.
    ///
    /// If prefix and suffix make a distinguished name, special characters in the user's name are
    /// escaped (RFC 4514). So a user's name can't lead to another place in the directory. Names of
    /// other kinds (`user@domain`, `DOMAIN\user`) need no escapes.
    pub fn simple_name(&self, user: &str) -> Option<String> {
        let LdapBind::Simple { prefix, suffix } = self else {
            return None;
        };
        let user = if prefix.contains('=') {
            escape_in_name(user)
        } else {
            user.to_owned()
        };
        Some(format!("{prefix}{user}{suffix}"))
    }
}

impl Pattern {
    /// The filter that finds a user's entry.
    pub fn filter(&self, user: &str) -> String {
        let user = filter::escape(user);
        match self {
            Pattern::Attribute(name) => format!("({name}={user})"),
            Pattern::Filter(filter) => filter.replace("$username", &user),
        }
    }
}

/// Escapes a value in a distinguished name (RFC 4514, section 2.4).
fn escape_in_name(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let special = match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => true,
            '#' => at == 0,
            ' ' => at == 0 || at == last,
            _ => false,
        };
        match c {
            c if special => escaped.extend(['\\', c]),
            c if c.is_ascii_control() => escaped.push_str(&format!("\\{:02x}", c as u32)),
            c => escaped.push(c),
        }
    }
    escaped
}

fn wrong<T>(text: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((text.into(), remedy.into()))
}

/// The options as they were written; the last of each kind counts.
#[derive(Default)]
struct Written {
    scheme: Option<LdapScheme>,
    servers: Option<String>,
    port: Option<u16>,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Option<SearchScope>,
    bind_dn: Option<String>,
    bind_password: Option<String>,
    attribute: Option<String>,
    filter: Option<String>,
}

impl Written {
    fn assign(&mut self, key: &str, value: String) -> Result<(), Wrong> {
        match key {
            "ldaptls" => {
                self.start_tls = match value.as_str() {
                    "1" => true,
                    "0" => false,
                    _ => {
                        return wrong(
                            format!("invalid ldaptls value: \"{value}\""),
                            "write 0 or 1",
                        );
                    }
                }
            }
            "ldapscheme" => {
                let Some(scheme) = LdapScheme::read(&value) else {
                    let text = format!("invalid ldapscheme value: \"{value}\"");
                    return wrong(text, "write ldap or ldaps");
                };
                self.scheme = Some(scheme);
            }
            "ldapport" => self.port = Some(port(&value)?),
            "ldapserver" => self.servers = Some(value),
            "ldapbinddn" => self.bind_dn = Some(value),
            PASSWORD => self.bind_password = Some(value),
            "ldapsearchattribute" => self.attribute = Some(value),
            "ldapsearchfilter" => self.filter = Some(value),
            "ldapbasedn" => self.base = Some(value),
            "ldapprefix" => self.prefix = Some(value),
            "ldapsuffix" => self.suffix = Some(value),
            "ldapurl" => self.url(&value)?,
            _ => {
                let text = match self.bind_password {
                    // The text may be the rest of a password: it is not repeated.
                    Some(_) => "invalid LDAP option behind ldapbindpasswd".into(),
                    None => format!("invalid LDAP option: \"{key}\""),
                };
                return wrong(
                    text,
                    "there are ldapserver, ldapport, ldapscheme, ldaptls, ldapprefix, ldapsuffix, \
                     ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, \
                     ldapsearchfilter and ldapurl; quote values that hold commas or blanks",
                );
            }
        }
        Ok(())
    }

    /// Reads `ldap[s]://host[:port]/base[?attribute[?scope[?filter]]]` with percent escapes (RFC
    /// 4516).
    fn url(&mut self, url: &str) -> Result<(), Wrong> {
        const FORM: &str = "write ldap[s]://host[:port]/base[?attribute[?scope[?filter]]]";
        let broken = |why: &str| {
            (
                format!("could not parse LDAP URL \"{url}\": {why}"),
                FORM.into(),
            )
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(broken("there is no scheme"));
        };
        let Some(scheme) = LdapScheme::read(&scheme.to_ascii_lowercase()) else {
            return wrong(format!("unsupported LDAP URL scheme: {scheme}"), FORM);
        };
        let (place, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let mut parts = rest.split('?').map(unescape);
        let mut part = || match parts.next() {
            None => Ok(String::new()),
            Some(Ok(part)) => Ok(part),
            Some(Err(())) => Err(broken("a percent escape is malformed")),
        };
        let (base, attributes, scope, filter) = (part()?, part()?, part()?, part()?);
        let (host, port_text) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (place, None),
        };
        self.port = match port_text {
            None | Some("") => Some(scheme.port()),
            Some(text) => Some(port(text)?),
        };
        self.scheme = Some(scheme);
        if !host.is_empty() {
            let host = unescape(host).map_err(|()| broken("a percent escape is malformed"))?;
            self.servers = Some(host);
        }
        self.base = Some(base);
        self.scope = Some(match scope.to_ascii_lowercase().as_str() {
            "" | "base" => SearchScope::Base,
            "one" | "onelevel" => SearchScope::One,
            "sub" | "subtree" => SearchScope::Sub,
            other => return Err(broken(&format!("there is no scope {other}"))),
        });
        // Only the first attribute is used.
        let attribute = attributes.split(',').next().unwrap_or("");
        if !attribute.is_empty() {
            self.attribute = Some(attribute.to_owned());
        }
        if !filter.is_empty() {
            self.filter = Some(filter);
        }
        Ok(())
    }

    fn resolve(mut self) -> Result<LdapOptions, Wrong> {
        let simple = self.prefix.is_some() || self.suffix.is_some();
        if simple && self.base.as_deref() == Some("") {
            // A base from a URL that only gave the server's address.
            self.base = None;
        }
        let searches = [
            &self.base,
            &self.bind_dn,
            &self.bind_password,
            &self.attribute,
            &self.filter,
        ];
        if simple && searches.iter().any(|option| option.is_some()) {
            return wrong(
                "cannot mix options for simple bind and search+bind modes",
                "write ldapprefix and ldapsuffix only, or neither of them",
            );
        }
        if !simple && self.base.is_none() {
            return wrong(
                "authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", \
                 or \"ldapsuffix\" to be set",
                "write ldapprefix and ldapsuffix to bind as the user at once, or ldapbasedn to \
                 search for the user first",
            );
        }
        let scheme = self.scheme.unwrap_or(LdapScheme::Ldap);
        let port = self.port.unwrap_or(scheme.port());
        let servers = servers(self.servers.as_deref().unwrap_or(""), port)?;
        let bind = match self.base.take() {
            None => LdapBind::Simple {
                prefix: self.prefix.unwrap_or_default(),
                suffix: self.suffix.unwrap_or_default(),
            },
            Some(base) => LdapBind::Search {
                base,
                scope: self.scope.unwrap_or(SearchScope::Sub),
                bind_dn: self.bind_dn.unwrap_or_default(),
                bind_password: self.bind_password.unwrap_or_default(),
                pattern: pattern(self.attribute, self.filter)?,
            },
        };
        Ok(LdapOptions {
            scheme,
            servers,
            start_tls: self.start_tls,
            bind,
        })
    }
}

fn pattern(attribute: Option<String>, filter: Option<String>) -> Result<Pattern, Wrong> {
    let pattern = match (attribute, filter) {
        (Some(_), Some(_)) => {
            return wrong(
                "cannot use ldapsearchattribute together with ldapsearchfilter",
                "write one of them (a URL may name either, too)",
            );
        }
        (None, Some(filter)) => Pattern::Filter(filter),
        (attribute, None) => Pattern::Attribute(attribute.unwrap_or_else(|| "uid".into())),
    };
    match filter::canonical(&pattern.filter("user")) {
        Ok(_) => Ok(pattern),
        Err(why) => wrong(
            format!("invalid LDAP search filter: {why}"),
            "write one as (uid=$username) or (&(uid=$username)(objectClass=person)), or an \
             attribute's name",
        ),
    }
}

fn port(text: &str) -> Result<u16, Wrong> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => wrong(
            format!("invalid LDAP port number: \"{text}\""),
            "write one from 1 to 65535",
        ),
    }
}

/// Reads host names with blanks between them.
fn servers(text: &str, port: u16) -> Result<Vec<LdapServer>, Wrong> {
    let server = |word: &str| {
        let inner = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
        let host = inner.unwrap_or(word);
        if host.contains(':') && host.parse::<Ipv6Addr>().is_err() {
            return wrong(
                format!("\"{word}\" in ldapserver is no host"),
                "write names or addresses, and the port of all of them as ldapport",
            );
        }
        let host = host.to_owned();
        Ok(LdapServer { host, port })
    };
    let servers: Vec<_> = text
        .split_whitespace()
        .map(server)
        .collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return wrong(
            "no LDAP server is named",
            "write ldapserver or a host in ldapurl: servers are not looked for in DNS",
        );
    }
    Ok(servers)
}

/// Decodes percent escapes.
fn unescape(text: &str) -> Result<String, ()> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(())?;
        let hex = |digit: u8| char::from(digit).to_digit(16).ok_or(());
        bytes.push((hex(digits[0])? * 16 + hex(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).map_err(drop)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The pairs of a text, without quotes. A `#` at the start of a pair begins a comment.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, Wrong> {
    const FORM: &str = "write key=value, without blanks around the =, or key=\"a value\"";
    let mut pairs = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_space);
        rest = rest.strip_prefix(',').unwrap_or(rest);
        rest = rest.trim_start_matches(is_space);
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(pairs);
        }
        let key;
        if rest.starts_with('"') {
            (key, rest) = closed(rest)?;
            // As in PostgreSQL's files, the whole pair may be in quotes.
            if let Some((key, value)) = key.split_once('=')
                && !rest.starts_with('=')
            {
                pairs.push((key.to_owned(), value.to_owned()));
                continue;
            }
        } else {
            let ends = |c: char| is_space(c) || matches!(c, '=' | ',');
            let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            (key, rest) = (word.to_owned(), after);
        }
        let Some(after) = rest.strip_prefix('=') else {
            let what = "quote values that hold commas or blanks";
            // The text may be the rest of a password: it is not repeated.
            return wrong("no value for an LDAP option", format!("{FORM}; {what}"));
        };
        let value;
        if after.starts_with('"') {
            (value, rest) = closed(after)?;
        } else {
            let ends = |c: char| is_space(c) || c == ',';
            let (word, after) = after.split_at(after.find(ends).unwrap_or(after.len()));
            (value, rest) = (word.to_owned(), after);
        }
        if key.is_empty() || value.is_empty() {
            let text = if pairs.iter().any(|(key, _)| key == PASSWORD) {
                "no value for an LDAP option behind ldapbindpasswd".into()
            } else {
                format!("no value for LDAP option \"{key}\"")
            };
            return wrong(text, FORM);
        }
        pairs.push((key, value));
    }
}

/// The text between the quotes at the start, and the text after them.
fn closed(text: &str) -> Result<(String, &str), Wrong> {
    quoted(text, '"').ok_or_else(|| ("a quote is not closed".into(), "close it".into()))
}
