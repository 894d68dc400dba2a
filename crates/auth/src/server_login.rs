//! Howdah's login to PostgreSQL.

use super::require::{RequireAuth, ServerMethod};
use super::scram::{MECHANISM, MECHANISM_PLUS, Nonce, ScramKey};
use super::scram_prover::{Binding, Credential, FAILED, ScramProver, WRONG_TYPE};
use super::{LoginRefusal, LoginStep, ScramKeys, Secret, code, md5};

/// Whether logins to servers bind the channel (SCRAM-SHA-256-PLUS).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server offers it.
    Prefer,
    /// Always.
    Require,
}

/// What a [`ServerLogin`] wants: a reply is the body of a password message.
pub type ServerStep = LoginStep<Vec<u8>, ()>;

/// The parts of a login.
#[derive(Clone, Debug)]
pub struct ServerLoginSetup<'a> {
    /// The user name on the server.
    pub user: &'a str,
    /// The user's secret.
    pub secret: Option<Secret>,
    /// The keys from a client's login, for a secret of kind SCRAM.
    pub keys: Option<ScramKeys>,
    /// The secret may be sent in clear text.
    pub in_clear: bool,
    /// Random, drawn anew for each login.
    pub nonce: &'a Nonce,
    /// The hash of PostgreSQL's certificate (`tls-server-end-point`). `None` without TLS, and for a
    /// certificate without such a hash.
    pub binding: Option<&'a [u8]>,
    /// Whether the channel must be bound.
    pub channel_binding: ChannelBinding,
    /// The methods with which PostgreSQL may ask Howdah for a proof.
    pub require_auth: &'a RequireAuth,
}

/// One login of Howdah to PostgreSQL.
pub struct ServerLogin {
    user: String,
    secret: Option<Secret>,
    keys: Option<ScramKeys>,
    in_clear: bool,
    nonce: Nonce,
    binding: Option<Box<[u8]>>,
    channel_binding: ChannelBinding,
    require_auth: RequireAuth,
    state: State,
}

enum State {
    /// PostgreSQL has not asked for anything yet.
    Fresh,
    /// The password is sent; only `Ok` may follow.
    Sent,
    /// The exchange waits for PostgreSQL's first message, or for the key derivation.
    First(ScramProver),
    /// The exchange waits for PostgreSQL's last message.
    Final(ScramProver),
    Over,
}

/// Prints nothing, because the login holds secrets.
impl std::fmt::Debug for ServerLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerLogin(..)")
    }
}

impl ServerLogin {
    /// A login that PostgreSQL has not asked anything of yet.
    pub fn new(setup: ServerLoginSetup<'_>) -> Self {
        let wanted = setup.channel_binding != ChannelBinding::Disable;
        Self {
            user: setup.user.to_owned(),
            secret: setup.secret,
            keys: setup.keys,
            in_clear: setup.in_clear,
            nonce: *setup.nonce,
            binding: setup.binding.filter(|_| wanted).map(Box::from),
            channel_binding: setup.channel_binding,
            require_auth: setup.require_auth.clone(),
            state: State::Fresh,
        }
    }

    /// True if the login can bind the channel.
    #[cfg(test)]
    pub(super) fn binds(&self) -> bool {
        self.binding.is_some()
    }

    /// Takes an authentication request: its code and the bytes after the code. `Done` answers an
    /// `AuthenticationOk`. An `AuthenticationOk` is refused while PostgreSQL has not proved itself.
    pub fn challenge(&mut self, request: u32, payload: &[u8]) -> ServerStep {
        let state = std::mem::replace(&mut self.state, State::Over);
        if matches!(state, State::Fresh)
            && let Err(refusal) = self.permits(request)
        {
            return LoginStep::Refuse(refusal);
        }
        match (request, state) {
            (code::OK, State::Fresh | State::Sent) if payload.is_empty() => LoginStep::Done(()),
            (code::OK, State::First(_) | State::Final(_)) => refuse(
                FAILED,
                "the server ended the SASL exchange without proving itself",
            ),
            (code::CLEARTEXT, State::Fresh) if payload.is_empty() => self.cleartext(),
            (code::MD5, State::Fresh) => match payload.try_into() {
                Ok(salt) => self.md5(salt),
                Err(_) => refuse(MALFORMED, "an MD5 salt is of 4 bytes"),
            },
            (code::SASL, State::Fresh) => self.sasl(payload),
            (code::SASL_CONTINUE, State::First(mut exchange)) => {
                let step = exchange.server_first(payload);
                self.continues(exchange, step)
            }
            (code::SASL_FINAL, State::Final(mut exchange)) => {
                match exchange.server_final(payload) {
                    // PostgreSQL has proved itself; `Ok` follows.
                    LoginStep::Done(()) => {
                        self.state = State::Sent;
                        LoginStep::Await
                    }
                    step => step,
                }
            }
            (
                code::OK
                | code::CLEARTEXT
                | code::MD5
                | code::SASL
                | code::SASL_CONTINUE
                | code::SASL_FINAL,
                _,
            ) => refuse(MALFORMED, "authentication request malformed or out of turn"),
            (unknown, _) => {
                let detail = format!("the server wants authentication method {unknown}");
                LoginStep::Refuse(LoginRefusal::new(UNSUPPORTED, detail))
            }
        }
    }

    /// Takes the salted password, the result of [`LoginStep::Derive`].
    pub fn derived(&mut self, salted: &ScramKey) -> ServerStep {
        match std::mem::replace(&mut self.state, State::Over) {
            State::First(mut exchange) => {
                let step = exchange.derived(salted);
                self.continues(exchange, step)
            }
            _ => refuse(MALFORMED, "derived key out of turn"),
        }
    }

    /// Checks PostgreSQL's first request against `require_auth` and `channel_binding`.
    fn permits(&self, request: u32) -> Result<(), LoginRefusal> {
        let Some(method) = ServerMethod::of_request(request) else {
            return Ok(());
        };
        if !self.require_auth.allows(method) {
            let required = &self.require_auth;
            let did = method.what_the_server_did();
            let detail = format!("require_auth is \"{required}\", but the server {did}");
            return Err(LoginRefusal::new(NOT_ALLOWED, detail));
        }
        let bound = method == ServerMethod::Scram && self.binding.is_some();
        if self.channel_binding == ChannelBinding::Require && !bound {
            return Err(LoginRefusal::new(
                NOT_BOUND,
                match method {
                    ServerMethod::Scram => {
                        "there is no TLS, or no hash is defined for the server's certificate"
                    }
                    _ => "the server asks for another proof than SCRAM",
                },
            ));
        }
        Ok(())
    }

    fn continues(&mut self, exchange: ScramProver, step: ServerStep) -> ServerStep {
        match step {
            LoginStep::Derive(_) => self.state = State::First(exchange),
            LoginStep::Reply(_) => self.state = State::Final(exchange),
            LoginStep::Await | LoginStep::Done(()) | LoginStep::Refuse(_) => {}
        }
        step
    }

    fn cleartext(&mut self) -> ServerStep {
        match &self.secret {
            Some(Secret::Plain(_)) if !self.in_clear => refuse(IN_CLEAR, IN_CLEAR_DETAIL),
            Some(Secret::Plain(password)) => {
                self.state = State::Sent;
                LoginStep::Reply([password.as_bytes(), b"\0"].concat())
            }
            secret => refuse(WRONG_TYPE, missing(secret.as_ref(), "the password itself")),
        }
    }

    fn md5(&mut self, salt: [u8; 4]) -> ServerStep {
        let answer = self
            .secret
            .as_ref()
            .and_then(|secret| md5::answer(&self.user, secret, salt));
        match answer {
            Some(answer) => {
                self.state = State::Sent;
                LoginStep::Reply([answer.as_slice(), b"\0"].concat())
            }
            None => refuse(
                WRONG_TYPE,
                missing(self.secret.as_ref(), "a password or MD5 secret"),
            ),
        }
    }

    fn sasl(&mut self, mechanisms: &[u8]) -> ServerStep {
        let Some(offer) = Offer::read(mechanisms) else {
            return refuse(MALFORMED, "malformed list of SASL mechanisms");
        };
        let (mechanism, binding) = match (offer, self.binding.take()) {
            (Offer { plus: true, .. }, Some(hash)) => (MECHANISM_PLUS, Binding::Bound(hash)),
            _ if self.channel_binding == ChannelBinding::Require => {
                return refuse(NOT_BOUND, "the server does not offer SCRAM-SHA-256-PLUS");
            }
            (Offer { plain: true, .. }, Some(_)) => (MECHANISM, Binding::NotOffered),
            (Offer { plain: true, .. }, None) => (MECHANISM, Binding::Unsupported),
            _ => {
                let detail = "the server offers no SASL mechanism that we speak";
                return refuse(UNSUPPORTED, detail);
            }
        };
        let credential = match (&self.secret, self.keys.take()) {
            (Some(Secret::Plain(password)), _) => Credential::Password(password.clone()),
            (Some(Secret::Scram(_)), Some(keys)) => Credential::Keys(keys),
            (secret, _) => {
                let wanted = "a password, or a SCRAM secret and the keys of a client's login";
                return refuse(WRONG_TYPE, missing(secret.as_ref(), wanted));
            }
        };
        let exchange = ScramProver::new(credential, &self.nonce, binding);
        let message = exchange.client_first();
        self.state = State::First(exchange);

        let mut body = Vec::with_capacity(mechanism.len() + 5 + message.len());
        body.extend(mechanism.as_bytes());
        body.push(0);
        body.extend((message.len() as u32).to_be_bytes());
        body.extend(message);
        LoginStep::Reply(body)
    }
}

const MALFORMED: &str = "server login failed: malformed authentication request";
const UNSUPPORTED: &str = "server login failed: unsupported authentication method";
const NOT_ALLOWED: &str = "server login failed: require_auth forbids the server's method";
const IN_CLEAR: &str = "server login failed: PostgreSQL asks for the password in clear text";
const IN_CLEAR_DETAIL: &str = "a password of a source goes out in clear text only over a unix socket, \
     loopback, or TLS with sslmode verify-ca or verify-full";
const NOT_BOUND: &str = "server login failed: channel binding is required";

fn refuse(text: &'static str, detail: impl Into<std::borrow::Cow<'static, str>>) -> ServerStep {
    LoginStep::Refuse(LoginRefusal::new(text, detail))
}

fn missing(secret: Option<&Secret>, wanted: &str) -> String {
    let have = match secret {
        None => "no password is known",
        Some(Secret::Plain(_)) => "a password is known",
        Some(Secret::Md5(_)) => "only an MD5 secret is known",
        Some(Secret::Scram(_)) => "only a SCRAM secret is known",
    };
    format!("the server's method needs {wanted}; {have}")
}

/// The mechanisms that PostgreSQL offers and Howdah knows.
#[derive(Clone, Copy, Default)]
struct Offer {
    plain: bool,
    plus: bool,
}

impl Offer {
    /// Reads a list of mechanisms in any order. Each name ends with a zero byte, and one more zero
    /// byte ends the list. `None` if the list is malformed.
    fn read(list: &[u8]) -> Option<Self> {
        let names = list.strip_suffix(b"\0\0")?;
        let mut offer = Self::default();
        for name in names.split(|&b| b == 0) {
            if name.is_empty() {
                return None;
            }
            offer.plain |= name == MECHANISM.as_bytes();
            offer.plus |= name == MECHANISM_PLUS.as_bytes();
        }
        Some(offer)
    }
}
