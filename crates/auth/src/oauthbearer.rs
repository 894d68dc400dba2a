//! OAUTHBEARER (RFC 7628), as PostgreSQL 18 speaks it: a client shows a token of an identity provider.
//!
//! A client without a token asks where to get one: its first message has an empty `auth` value, the answer
//! names the issuer, and the exchange ends. That is no failed login.

use super::client_login::sasl_initial;
use super::secret::Secret;
use super::{AuthRequest, LoginRefusal};

/// The mechanism.
pub const MECHANISM: &str = "OAUTHBEARER";
/// The longest message of a client, in bytes: PostgreSQL's own limit.
pub const LONGEST: usize = 65_535;
/// The error for every refused token.
pub const OAUTH_FAILED: &str = "OAuth bearer authentication failed";
/// The error for a refused token in a password message.
pub const JWT_FAILED: &str = "JWT authentication failed";
/// The error for a client that would send a token in clear text.
pub const TOKEN_IN_CLEAR: &str = "tokens are taken over TLS only: connect with sslmode=verify-full";
/// The error for a message that breaks the rules of the mechanism.
pub const OAUTH_MALFORMED: &str = "malformed OAUTHBEARER message";
/// The error for a client that wants to act for another.
pub const OAUTH_AUTHZID: &str = "client uses authorization identity, but it is not supported";

/// Separates the parts of a message.
const SEPARATOR: u8 = 1;

/// What follows a client's message.
#[derive(Debug)]
pub enum OauthStep {
    /// Send this.
    Reply(AuthRequest),
    /// Have this token checked, then call [`OauthLogin::checked`].
    Check(Secret),
    /// The client has learned where tokens come from. It is not logged in.
    Discovered,
    /// The exchange failed.
    Refuse(LoginRefusal),
}

/// One login.
#[derive(Debug)]
pub struct OauthLogin {
    /// What a client without a good token is told.
    answer: String,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The mechanism is to come, perhaps with the first message.
    Begins,
    /// The first message is to come.
    First,
    /// The token is being checked.
    Checked,
    /// The client has been told where tokens come from, and must confirm that.
    Told {
        /// Why its token was refused; `None`: it had none.
        why: Option<String>,
    },
    Over,
}

impl OauthLogin {
    /// A login whose tokens come from an issuer, with scopes.
    pub fn new(issuer: &str, scope: &str) -> OauthLogin {
        let document = match issuer.contains("/.well-known/") {
            true => issuer.to_owned(),
            false => format!("{issuer}/.well-known/openid-configuration"),
        };
        let answer = format!(
            "{{ \"status\": \"invalid_token\", \"openid-configuration\": {}, \"scope\": {} }}",
            in_json(&document),
            in_json(scope)
        );
        OauthLogin {
            answer,
            state: State::Begins,
        }
    }

    /// The first request.
    pub fn offer() -> AuthRequest {
        AuthRequest::SaslOauth
    }

    /// Takes the body of a client's message.
    pub fn answer(&mut self, body: &[u8]) -> OauthStep {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Begins => match sasl_initial(body) {
                Err(detail) => refuse(OAUTH_MALFORMED, detail),
                Ok((mechanism, _)) if mechanism != MECHANISM.as_bytes() => {
                    let detail = "that mechanism was not offered";
                    refuse(super::MECHANISM_UNKNOWN, detail)
                }
                Ok((_, None)) => {
                    self.state = State::First;
                    OauthStep::Reply(AuthRequest::SaslContinue(Vec::new()))
                }
                Ok((_, Some(message))) => self.first(message),
            },
            State::First => self.first(body),
            State::Told { why } => match (body, why) {
                ([SEPARATOR], None) => OauthStep::Discovered,
                ([SEPARATOR], Some(why)) => refuse(OAUTH_FAILED, why),
                _ => refuse(OAUTH_MALFORMED, "Client did not send a kvsep response."),
            },
            State::Checked | State::Over => refuse(OAUTH_MALFORMED, "message out of turn"),
        }
    }

    /// The token was refused for this reason. (A good one ends the exchange.)
    pub fn refused(&mut self, why: String) -> AuthRequest {
        self.tell(Some(why))
    }

    fn first(&mut self, message: &[u8]) -> OauthStep {
        match auth_value(message) {
            Err(Wrong::Malformed(detail)) => refuse(OAUTH_MALFORMED, detail),
            Err(Wrong::Unsupported) => refuse(OAUTH_AUTHZID, "the message has an a= attribute"),
            Ok(b"") => OauthStep::Reply(self.tell(None)),
            Ok(value) => match bearer(value) {
                Ok(token) => {
                    self.state = State::Checked;
                    OauthStep::Check(Secret::Plain(token.to_owned()))
                }
                Err(why) => OauthStep::Reply(self.tell(Some(why.into()))),
            },
        }
    }

    fn tell(&mut self, why: Option<String>) -> AuthRequest {
        self.state = State::Told { why };
        AuthRequest::SaslContinue(self.answer.clone().into_bytes())
    }
}

fn refuse(text: &'static str, detail: impl Into<std::borrow::Cow<'static, str>>) -> OauthStep {
    OauthStep::Refuse(LoginRefusal::new(text, detail))
}

/// What is wrong with a first message.
#[derive(PartialEq, Eq, Debug)]
enum Wrong {
    /// With PostgreSQL's detail.
    Malformed(String),
    /// An authorization identity.
    Unsupported,
}

fn malformed<T>(detail: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong::Malformed(detail.into()))
}

/// The value of `auth` in a first message. The details are PostgreSQL's.
fn auth_value(message: &[u8]) -> Result<&[u8], Wrong> {
    if message.is_empty() {
        return malformed("The message is empty.");
    }
    if message.contains(&0) {
        return malformed("Message length does not match input length.");
    }
    let rest = match message {
        [b'p', ..] => {
            return malformed(
                "The server does not support channel binding for OAuth, but the client message includes \
                 channel binding data.",
            );
        }
        [b'n' | b'y', b',', rest @ ..] => rest,
        [b'n' | b'y', rest @ ..] => {
            return malformed(format!(
                "Comma expected, but found character {}.",
                first_of(rest)
            ));
        }
        other => {
            return malformed(format!(
                "Unexpected channel-binding flag {}.",
                first_of(other)
            ));
        }
    };
    let rest = match rest {
        [b'a', ..] => return Err(Wrong::Unsupported),
        [b',', rest @ ..] => rest,
        other => {
            let found = first_of(other);
            return malformed(format!(
                "Unexpected attribute {found} in client-first-message."
            ));
        }
    };
    let Some(rest) = rest.strip_prefix(&[SEPARATOR]) else {
        let found = first_of(rest);
        return malformed(format!(
            "Key-value separator expected, but found character {found}."
        ));
    };
    pairs(rest)
}

/// Reads pairs up to the empty one; `auth`'s value.
fn pairs(mut rest: &[u8]) -> Result<&[u8], Wrong> {
    let mut auth = None;
    while !rest.is_empty() {
        let Some(end) = rest.iter().position(|&byte| byte == SEPARATOR) else {
            return malformed("Message contains an unterminated key/value pair.");
        };
        let (pair, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        if pair.is_empty() {
            return match auth {
                None => malformed("Message does not contain an auth value."),
                Some(_) if !rest.is_empty() => {
                    malformed("Message contains additional data after the final terminator.")
                }
                Some(auth) => Ok(auth),
            };
        }
        let Some(equals) = pair.iter().position(|&byte| byte == b'=') else {
            return malformed("Message contains a key without a value.");
        };
        let (key, value) = (&pair[..equals], &pair[equals + 1..]);
        if key.is_empty() {
            return malformed("Message contains an empty key name.");
        }
        if !key.iter().all(u8::is_ascii_alphabetic) {
            return malformed("Message contains an invalid key name.");
        }
        let fits = |byte: &u8| matches!(byte, 0x21..=0x7e | b' ' | b'\t' | b'\r' | b'\n');
        if !value.iter().all(fits) {
            return malformed("Message contains an invalid value.");
        }
        if key == b"auth" && auth.replace(value).is_some() {
            return malformed("Message contains multiple auth values.");
        }
    }
    malformed("Message did not contain a final terminator.")
}

/// The token in the value of `auth`.
///
/// # Errors
/// Why there is none, without a byte of it.
fn bearer(value: &[u8]) -> Result<&str, &'static str> {
    const SCHEME: &[u8] = b"Bearer ";
    let Some((scheme, mut token)) = value.split_at_checked(SCHEME.len()) else {
        return Err("malformed OAuth bearer token: it is not of the Bearer scheme");
    };
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err("malformed OAuth bearer token: it is not of the Bearer scheme");
    }
    while let [b' ', rest @ ..] = token {
        token = rest;
    }
    let end = token.iter().rposition(|&byte| byte != b'=');
    let body = end.map_or(&[][..], |end| &token[..=end]);
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    if token.is_empty() {
        return Err("malformed OAuth bearer token: it is empty");
    }
    match std::str::from_utf8(token) {
        Ok(text) if body.iter().all(fits) => Ok(text),
        _ => Err("malformed OAuth bearer token: it has characters that no token has"),
    }
}

/// A byte for people, as PostgreSQL prints it.
fn first_of(bytes: &[u8]) -> String {
    match bytes.first().copied().unwrap_or(0) {
        byte @ 0x21..=0x7e => format!("\"'{}'\"", char::from(byte)),
        byte => format!("\"0x{byte:02x}\""),
    }
}

/// A text as a string of JSON, as PostgreSQL writes one.
fn in_json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> OauthLogin {
        OauthLogin::new("https://id.example", "openid postgres")
    }

    fn initial(message: Option<&[u8]>) -> Vec<u8> {
        let mut body = b"OAUTHBEARER\0".to_vec();
        let length = message.map_or(-1, |message| message.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend(message.unwrap_or_default());
        body
    }

    #[test]
    fn a_token_is_taken_at_once_or_later() {
        let message = b"n,,\x01host=h\x01auth=bEARER  a.b-c_~+/==\x01port=1\x01\x01";
        let mut at_once = login();
        let OauthStep::Check(token) = at_once.answer(&initial(Some(message))) else {
            panic!()
        };
        assert_eq!(token.text(), "a.b-c_~+/==");
        let mut later = login();
        let step = later.answer(&initial(None));
        assert!(
            matches!(step, OauthStep::Reply(AuthRequest::SaslContinue(text)) if text.is_empty())
        );
        assert!(matches!(later.answer(message), OauthStep::Check(_)));
    }

    #[test]
    fn discovery_is_no_failure() {
        let mut login = login();
        let OauthStep::Reply(AuthRequest::SaslContinue(text)) =
            login.answer(&initial(Some(b"n,,\x01auth=\x01\x01")))
        else {
            panic!()
        };
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{ \"status\": \"invalid_token\", \"openid-configuration\": \
             \"https://id.example/.well-known/openid-configuration\", \"scope\": \"openid postgres\" }"
        );
        assert!(matches!(login.answer(b"\x01"), OauthStep::Discovered));
        let own = OauthLogin::new("https://x/.well-known/y", "a\"\n");
        assert!(
            own.answer.contains("\"https://x/.well-known/y\""),
            "as it is"
        );
        assert!(own.answer.ends_with("\"a\\\"\\n\" }"));
    }

    #[test]
    fn a_refused_token_is_confirmed_before_the_end() {
        for message in [
            &b"n,,\x01auth=Basic abc\x01\x01"[..],
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Bearer  \x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"n,,\x01auth=Bearer a=b\x01\x01",
            b"n,,\x01auth=Bearer a%\x01\x01",
            b"n,,\x01auth=Bearer\x01\x01",
        ] {
            let mut login = login();
            let step = login.answer(&initial(Some(message)));
            assert!(matches!(step, OauthStep::Reply(_)), "{step:?}");
            let OauthStep::Refuse(refusal) = login.answer(b"\x01") else {
                panic!()
            };
            assert_eq!(refusal.text, OAUTH_FAILED);
            assert!(!refusal.detail.contains("abc"));
        }
        let mut login = login();
        login.answer(&initial(Some(b"n,,\x01auth=Bearer a\x01\x01")));
        login.refused("the signature is wrong".into());
        let OauthStep::Refuse(refusal) = login.answer(b"\x01\x01") else {
            panic!()
        };
        assert_eq!(refusal.text, OAUTH_MALFORMED);
    }

    #[test]
    fn what_breaks_the_rules() {
        for (message, detail) in [
            (&b""[..], "The message is empty."),
            (b"n,,\x01auth=\x01\x01\0", "Message length does not"),
            (b"p,,\x01auth=\x01\x01", "channel binding"),
            (
                b"n;,\x01auth=\x01\x01",
                "Comma expected, but found character \"';'\".",
            ),
            (b"n", "Comma expected, but found character \"0x00\"."),
            (
                b"x,,\x01auth=\x01\x01",
                "Unexpected channel-binding flag \"'x'\".",
            ),
            (b"\x02", "Unexpected channel-binding flag \"0x02\"."),
            (b"n,b=c,\x01auth=\x01\x01", "Unexpected attribute \"'b'\""),
            (
                b"n,,auth=\x01\x01",
                "Key-value separator expected, but found character \"'a'\".",
            ),
            (b"n,,\x01auth=", "unterminated"),
            (b"n,,\x01auth\x01\x01", "a key without a value"),
            (b"n,,\x01=x\x01\x01", "an empty key name"),
            (b"n,,\x01a1=x\x01\x01", "an invalid key name"),
            (b"n,,\x01auth=\x7f\x01\x01", "an invalid value"),
            (b"n,,\x01auth=\x01auth=\x01\x01", "multiple auth values"),
            (b"n,,\x01auth=\x01\x01x", "additional data"),
            (b"n,,\x01auth=\x01", "did not contain a final terminator"),
            (b"n,,\x01\x01", "does not contain an auth value"),
            (b"y,,\x01host=x\x01\x01", "does not contain an auth value"),
        ] {
            let OauthStep::Refuse(refusal) = login().answer(&initial(Some(message))) else {
                panic!("{detail}")
            };
            assert_eq!(refusal.text, OAUTH_MALFORMED);
            assert!(
                refusal.detail.contains(detail),
                "{} {detail}",
                refusal.detail
            );
        }
        let step = login().answer(&initial(Some(b"n,a=me,\x01auth=\x01\x01")));
        assert!(matches!(step, OauthStep::Refuse(refusal) if refusal.text == OAUTH_AUTHZID));
        for cut in [
            &b"OAUTHBEARER"[..],
            b"OAUTHBEARER\0\0",
            b"OAUTHBEARER\0\0\0\0\x02n",
        ] {
            let step = login().answer(cut);
            assert!(matches!(step, OauthStep::Refuse(refusal) if refusal.text == OAUTH_MALFORMED));
        }
        let step = login().answer(b"SCRAM-SHA-256\0\0\0\0\x01n");
        assert!(
            matches!(step, OauthStep::Refuse(refusal) if refusal.text == crate::MECHANISM_UNKNOWN)
        );
    }
}
