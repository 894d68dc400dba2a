//! The types of settings: how each type is read from text and printed.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use howdah_auth::{ChannelBinding, RequireAuth};

use crate::ldap::LdapText;

/// The kind of text a setting takes, for messages and the reference page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 0 or 1 (any number but 0 is 1).
    Flag,
    /// An integer; `0x1F` is hexadecimal and `0777` octal.
    Number,
    /// Seconds, perhaps with a fraction.
    Seconds,
    /// A number from 0 to 1.
    Share,
    /// The URL of an HTTP server.
    HttpUrl,
    /// Any text.
    Text,
    /// Any text; no message shows a value.
    Secret,
    /// A port, or several separated by commas.
    Ports,
    /// Words separated by commas or blanks.
    List,
    /// Settings of PostgreSQL.
    Parameters,
    /// Lines of text.
    Lines,
    /// Methods with which Howdah may prove itself to a server.
    Methods,
    /// One of a few words, in upper or lower case.
    Word(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Flag => f.write_str("0 or 1"),
            Kind::Number => f.write_str("an integer"),
            Kind::Seconds => f.write_str("a number of seconds, 0 or more"),
            Kind::Share => f.write_str("a number from 0 to 1"),
            Kind::HttpUrl => {
                f.write_str("a URL such as http://HOST:PORT/PATH (without TLS), or nothing")
            }
            Kind::Text | Kind::Secret => f.write_str("any text"),
            Kind::Ports => f.write_str(
                "a port from 1 to 65535, or one for each host, separated by commas",
            ),
            Kind::Parameters => f.write_str("settings of PostgreSQL: `-c NAME=VALUE ...`"),
            Kind::Lines => f.write_str("lines of text"),
            Kind::List => f.write_str("a list of words separated by commas"),
            Kind::Methods => f.write_str(
                "some of password, md5, scram-sha-256 and none, separated by commas, all or none of \
                 them with ! in front",
            ),
            Kind::Word(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

/// A type of values that a setting can have.
pub(super) trait Value: Sized + Clone {
    /// The kind that an error message names.
    const KIND: Kind;
    /// The value of a setting that is unset.
    fn unset() -> Option<Self> {
        None
    }
    /// Reads a text; `None` if the text is not of this kind.
    fn read(text: &str) -> Option<Self>;
    /// The value as SHOW CONFIG prints it; `None` is NULL.
    fn show(&self) -> Option<String>;
}

/// Reads an integer as C's `strtol` does with base 0: blanks, a sign, `0x` for hexadecimal, a
/// leading `0` for octal. Nothing may follow the number.
pub(super) fn read_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -number } else { number })
}

/// Reads seconds, with a fraction or an exponent. The result has whole microseconds, as in
/// PgBouncer.
pub(super) fn read_seconds(text: &str) -> Option<Duration> {
    let text = text.trim_start();
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
        return None; // Refuses `inf`, `nan` and negative numbers.
    }
    let micros = text.parse::<f64>().ok()? * 1e6;
    // Longer durations than a few centuries would overflow `Time`.
    (micros < 1e16).then(|| Duration::from_micros(micros as u64))
}

/// Prints a number as C's `%g`: six significant digits, no trailing zeros.
pub(super) fn show_g(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let fixed = format!("{number:.*}", (5 - exponent).max(0) as usize);
        return without_trailing_zeros(&fixed).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}e{sign}{:02}",
        without_trailing_zeros(mantissa),
        exponent.abs()
    )
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Flag;
    fn read(text: &str) -> Option<bool> {
        read_number(text).map(|number| number != 0)
    }
    fn show(&self) -> Option<String> {
        Some(if *self { "1" } else { "0" }.into())
    }
}

macro_rules! number_value {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const KIND: Kind = Kind::Number;
            fn read(text: &str) -> Option<$type> {
                <$type>::try_from(read_number(text)?).ok()
            }
            fn unset() -> Option<$type> {
                Some(0)
            }
            fn show(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}
number_value!(u16, u32);

impl Value for Duration {
    const KIND: Kind = Kind::Seconds;
    fn read(text: &str) -> Option<Duration> {
        read_seconds(text)
    }
    fn show(&self) -> Option<String> {
        Some(show_g(self.as_micros() as f64 / 1e6))
    }
}

/// A number from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(f64);

impl Share {
    /// How many 64-bit numbers are below this share of their range.
    pub fn of_all(self) -> u64 {
        (self.0 * u64::MAX as f64) as u64
    }
}

impl Value for Share {
    const KIND: Kind = Kind::Share;
    fn read(text: &str) -> Option<Share> {
        let share = text.trim().parse::<f64>().ok()?;
        (0.0..=1.0).contains(&share).then_some(Share(share))
    }
    fn show(&self) -> Option<String> {
        Some(show_g(self.0))
    }
}

/// The URL of an HTTP server, without TLS. May be empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpUrl(String);

impl HttpUrl {
    /// No URL is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for HttpUrl {
    const KIND: Kind = Kind::HttpUrl;
    fn read(text: &str) -> Option<HttpUrl> {
        let url = HttpUrl(text.into());
        if text.is_empty() {
            return Some(url);
        }
        let (authority, _) = match text.strip_prefix("http://")? {
            rest if rest.contains('/') => rest.split_once('/')?,
            rest => (rest, ""),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'#' && b != b'@');
        let fits = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
        (plain && fits).then_some(url)
    }
    fn show(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

impl Value for String {
    const KIND: Kind = Kind::Text;
    fn read(text: &str) -> Option<String> {
        Some(text.into())
    }
    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// Lines of text. When printed, stars stand for the passwords of directories.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Lines(String);

/// The option of a rule that has a directory's password.
const BIND_PASSWORD: &str = "ldapbindpasswd";

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.show())
    }
}

impl Deref for Lines {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for Lines {
    const KIND: Kind = Kind::Lines;
    fn read(text: &str) -> Option<Lines> {
        Some(Lines(text.into()))
    }
    fn show(&self) -> Option<String> {
        let shown = self.0.lines().map(|line| match line.find(BIND_PASSWORD) {
            // The password may be quoted in many ways, so the rest of the line is left out.
            Some(at) => format!("{}{BIND_PASSWORD}=***", &line[..at]),
            None => line.into(),
        });
        Some(shown.collect::<Vec<_>>().join("\n"))
    }
}

impl Value for LdapText {
    const KIND: Kind = Kind::Secret;
    fn read(text: &str) -> Option<LdapText> {
        Some(LdapText::new(text))
    }
    fn show(&self) -> Option<String> {
        Some(self.masked())
    }
}

impl Value for RequireAuth {
    const KIND: Kind = Kind::Methods;
    fn read(text: &str) -> Option<RequireAuth> {
        RequireAuth::parse(text).ok()
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for ChannelBinding {
    const KIND: Kind = Kind::Word(&["disable", "prefer", "require"]);
    fn read(text: &str) -> Option<ChannelBinding> {
        Some(match text.to_ascii_lowercase().as_str() {
            "disable" => ChannelBinding::Disable,
            "prefer" => ChannelBinding::Prefer,
            "require" => ChannelBinding::Require,
            _ => return None,
        })
    }
    fn show(&self) -> Option<String> {
        let word = match self {
            ChannelBinding::Disable => "disable",
            ChannelBinding::Prefer => "prefer",
            ChannelBinding::Require => "require",
        };
        Some(word.into())
    }
}

impl<V: Value> Value for Option<V> {
    const KIND: Kind = V::KIND;
    fn unset() -> Option<Option<V>> {
        Some(None)
    }
    fn read(text: &str) -> Option<Option<V>> {
        V::read(text).map(Some)
    }
    fn show(&self) -> Option<String> {
        self.as_ref().and_then(V::show)
    }
}

/// Words separated by commas or white space, with the text from which they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    written: String,
    words: Vec<String>,
}

impl List {
    /// Whether a word is in the list, by its exact spelling.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }
}

impl Deref for List {
    type Target = [String];
    fn deref(&self) -> &[String] {
        &self.words
    }
}

impl Value for List {
    const KIND: Kind = Kind::List;
    fn read(text: &str) -> Option<List> {
        let parting = |c: char| c == ',' || c.is_ascii_whitespace();
        let words = text
            .split(parting)
            .filter(|w| !w.is_empty())
            .map(String::from)
            .collect();
        Some(List {
            written: text.into(),
            words,
        })
    }
    fn show(&self) -> Option<String> {
        Some(self.written.clone())
    }
}

/// Declares an enum whose members are words of the configuration.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// The word as written in the configuration.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl Value for $name {
            const KIND: Kind = Kind::Word(&[$($word),*]);
            fn read(text: &str) -> Option<$name> {
                $(if text.eq_ignore_ascii_case($word) { return Some($name::$variant); })*
                None
            }
            fn show(&self) -> Option<String> {
                Some(self.word().into())
            }
        }
    };
}

words! {
    /// When a server is given back to its pool.
    PoolMode {
        /// When the client disconnects.
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transaction blocks are refused.
        Statement = "statement",
    }
}

words! {
    /// What happens to a client's session state, where servers are shared.
    SessionState {
        /// Each client keeps its own state.
        Keep = "keep",
        /// The state is lost when the transaction ends.
        Discard = "discard",
        /// The state stays on the server, for the next client.
        Share = "share",
    }
}

words! {
    /// Which connection listens for a client that sends LISTEN, where servers are shared.
    Listen {
        /// One connection that listens for all clients.
        Share = "share",
        /// The client's server, which the client keeps.
        Pin = "pin",
    }
}

words! {
    /// What becomes of unnamed statements with parameters, where servers are shared.
    UnnamedStatements {
        /// PostgreSQL parses them each time.
        Pass = "pass",
        /// A server keeps those whose texts come again, for all clients.
        Share = "share",
    }
}

words! {
    /// What happens to clients whose listening connection is lost.
    ListenLost {
        /// The clients are disconnected.
        Disconnect = "disconnect",
        /// The clients get a warning, and a new connection listens for them.
        Notice = "notice",
    }
}

words! {
    /// The format of log lines.
    LogFormat {
        /// Text, as in PgBouncer.
        Text = "text",
        /// One JSON object on each line.
        Json = "json",
    }
}

words! {
    /// How clients prove their identity.
    AuthType {
        /// No proof, and any user name is accepted. Every database must force a user.
        Any = "any",
        /// No proof, but the user must be known.
        Trust = "trust",
        /// The password in clear text.
        Plain = "plain",
        /// An MD5 challenge; SCRAM if the stored secret is a SCRAM secret.
        Md5 = "md5",
        /// A TLS client certificate with the user's name.
        Cert = "cert",
        /// The rules in a file decide.
        Hba = "hba",
        /// A directory server checks the password.
        Ldap = "ldap",
        /// The system's PAM checks the password.
        Pam = "pam",
        /// A token of an identity provider, by SASL's OAUTHBEARER.
        Oauth = "oauth",
        /// A token of an identity provider, as the password.
        Jwt = "jwt",
        /// SCRAM-SHA-256.
        ScramSha256 = "scram-sha-256",
    }
}

words! {
    /// How TLS is used on one side.
    SslMode {
        /// No TLS.
        Disable = "disable",
        /// TLS if the other side wants it.
        Allow = "allow",
        /// TLS if the other side supports it.
        Prefer = "prefer",
        /// Always TLS; certificates are not checked.
        Require = "require",
        /// Always TLS; a known authority must have signed the certificate.
        VerifyCa = "verify-ca",
        /// Always TLS; a known authority must have signed the certificate, and it must name the
        /// other side.
        VerifyFull = "verify-full",
    }
}

words! {
    /// How TLS to a server begins.
    SslNegotiation {
        /// With an SSLRequest.
        Postgres = "postgres",
        /// With the TLS handshake at once.
        Direct = "direct",
    }
}

impl SslMode {
    /// The other side must use TLS.
    pub fn is_required(self) -> bool {
        self.is_verified() || self == SslMode::Require
    }

    /// The other side's certificate must be signed by a known authority.
    pub fn is_verified(self) -> bool {
        matches!(self, SslMode::VerifyCa | SslMode::VerifyFull)
    }
}

impl SslNegotiation {
    /// True without an SSLRequest.
    pub fn is_direct(self) -> bool {
        self == SslNegotiation::Direct
    }
}

words! {
    /// How several hosts of a database are used.
    LoadBalance {
        /// The first host, until it fails.
        Disable = "disable",
        /// All hosts in turn.
        RoundRobin = "round-robin",
        /// Any host, by chance.
        Random = "random",
    }
}

words! {
    /// Which of its hosts a database uses, in libpq's words.
    SessionAttrs {
        /// All of them, whatever they are.
        Any = "any",
        /// The primary, unless its sessions are read-only.
        ReadWrite = "read-write",
        /// Standbys, and a primary whose sessions are read-only.
        ReadOnly = "read-only",
        /// The primary.
        Primary = "primary",
        /// Standbys.
        Standby = "standby",
        /// Standbys, and the primary while there is none.
        PreferStandby = "prefer-standby",
    }
}

words! {
    /// Which requests are reads that a standby may answer.
    ReadRouting {
        /// None.
        Off = "off",
        /// Transactions that are declared READ ONLY.
        Transactions = "transactions",
        /// These, and single statements that only read.
        Statements = "statements",
    }
}

words! {
    /// Where reads go.
    ReadTarget {
        /// To standbys, and to the primary while none fits.
        PreferStandby = "prefer-standby",
        /// To standbys.
        Standby = "standby",
        /// To standbys and the primary alike.
        Any = "any",
    }
}

words! {
    /// What a client may rely on in reads at standbys.
    ReadConsistency {
        /// They show all that the client has written or seen before.
        Session = "session",
        /// They show what the standby has.
        Eventual = "eventual",
    }
}

words! {
    /// The facility of syslog messages.
    Facility {
        /// Logins and other security messages.
        Auth = "auth",
        /// The same, but readable for fewer people.
        Authpriv = "authpriv",
        /// A system service.
        Daemon = "daemon",
        /// A user's program.
        User = "user",
        /// For local use.
        Local0 = "local0",
        /// For local use.
        Local1 = "local1",
        /// For local use.
        Local2 = "local2",
        /// For local use.
        Local3 = "local3",
        /// For local use.
        Local4 = "local4",
        /// For local use.
        Local5 = "local5",
        /// For local use.
        Local6 = "local6",
        /// For local use.
        Local7 = "local7",
    }
}

words! {
    /// How many workers serve a pool's clients.
    PoolSpread {
        /// As few workers as the load needs.
        Load = "load",
        /// As many workers as the pool's size allows.
        Always = "always",
    }
}

words! {
    /// How the process does socket I/O.
    IoDriver {
        /// io_uring if the system allows it, else epoll.
        Auto = "auto",
        /// io_uring only: without it the process does not start.
        IoUring = "io_uring",
        /// epoll.
        Epoll = "epoll",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtol_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("42", Some(42)),
            (" +42", Some(42)),
            ("-1", Some(-1)),
            ("0777", Some(511)),
            ("0x1F", Some(31)),
            ("-0x10", Some(-16)),
            ("08", None),
            ("0x", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("1 ", None),
            ("1k", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(read_number(text), number, "{text:?}");
        }
        assert_eq!(u16::read("65536"), None);
        assert_eq!(u32::read("-1"), None);
        assert_eq!((bool::read("2"), bool::read("on")), (Some(true), None));
    }

    #[test]
    fn seconds_have_fractions_and_are_printed_as_g() {
        for (text, shown) in [
            ("0", Some("0")),
            ("15", Some("15")),
            ("0.5", Some("0.5")),
            (".25", Some("0.25")),
            ("3600", Some("3600")),
            ("1e3", Some("1000")),
            ("123456", Some("123456")),
            ("1000000", Some("1e+06")),
            ("2592000", Some("2.592e+06")),
            ("0.0000125", Some("1.2e-05")), // Truncated to microseconds.
            ("1.23456789", Some("1.23457")),
            ("-1", None),
            ("inf", None),
            ("nan", None),
            ("5s", None),
            ("", None),
            ("1e300", None),
        ] {
            assert_eq!(
                read_seconds(text).and_then(|d| d.show()).as_deref(),
                shown,
                "{text:?}"
            );
        }
    }

    #[test]
    fn shares_are_from_0_to_1() {
        for (text, shown) in [
            ("0", Some("0")),
            ("0.01", Some("0.01")),
            (" 1 ", Some("1")),
            ("1.1", None),
            ("-0.1", None),
            ("nan", None),
            ("", None),
        ] {
            assert_eq!(
                Share::read(text).and_then(|s| s.show()).as_deref(),
                shown,
                "{text:?}"
            );
        }
        assert_eq!((Share(0.0).of_all(), Share(1.0).of_all()), (0, u64::MAX));
    }

    #[test]
    fn collectors_are_spoken_to_without_tls() {
        let reads = |text: &str| HttpUrl::read(text).is_some();
        for text in [
            "",
            "http://h:4318/v1/traces",
            "http://127.0.0.1",
            "http://[::1]:1/",
            "http://[::1]",
        ] {
            assert!(reads(text), "{text}");
        }
        for text in [
            "https://h:1/",
            "h:1",
            "http://",
            "http://h:x/",
            "http://h:0",
            "http://u@h/",
            "http://h/ x",
        ] {
            assert!(!reads(text), "{text}");
        }
    }

    #[test]
    fn lists_keep_their_text() {
        let list = List::read(" a, b\tc,,d ").unwrap();
        assert_eq!(&*list, ["a", "b", "c", "d"]);
        assert!(list.has("b") && !list.has("B"));
        assert_eq!(list.show().unwrap(), " a, b\tc,,d ");
        assert!(List::read("").unwrap().is_empty());
    }

    #[test]
    fn words_have_no_case() {
        assert_eq!(PoolMode::read("TRANSaction"), Some(PoolMode::Transaction));
        assert_eq!(AuthType::read("SCRAM-SHA-256"), Some(AuthType::ScramSha256));
        assert_eq!(PoolMode::read("transactions"), None);
        assert_eq!(
            PoolMode::KIND.to_string(),
            "one of session, transaction, statement"
        );
    }
}
