//! A client's login: the method, then its exchange.

use super::scram::{MECHANISM, MECHANISM_PLUS, Nonce, ScramKey};
use super::scram_client::{Against, Channel, Proven, ScramClient, user_salt};
use super::{
    AuthRequest, LoginRefusal, LoginStep, MECHANISM_UNKNOWN, Method, PASSWORD_FAILED, SASL_FAILED,
    ScramKeys, Secret, TRUST_FAILED, Verifier, md5, plain,
};

/// What a [`ClientLogin`] wants: a reply is an authentication request.
pub type ClientStep = LoginStep<AuthRequest, Admitted>;

/// What a login is made of.
#[derive(Clone, Copy, Debug)]
pub struct ClientLoginSetup<'a> {
    /// How to prove it.
    pub method: Method,
    /// The name in the startup packet.
    pub user: &'a str,
    /// `None` if nobody of that name is known. Who is known but has no password has an empty one,
    /// which nothing matches.
    pub secret: Option<&'a Secret>,
    /// The setting `scram_iterations`.
    pub iterations: u32,
    /// Random, the same for the whole process and for its life: see [`user_salt`].
    pub salt_key: &'a ScramKey,
    /// Random, drawn for this login.
    pub md5_salt: [u8; 4],
    /// Random, drawn for this login.
    pub nonce: &'a Nonce,
    /// The hash of the certificate that the client was shown (`tls-server-end-point`), where it
    /// came over TLS: SCRAM-SHA-256-PLUS is offered.
    pub binding: Option<&'a [u8]>,
}

/// A client that proved itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// To be sent before `AuthenticationOk`.
    pub before_ok: Option<AuthRequest>,
    /// What it left for pass-through, where the stored secret is SCRAM's.
    pub keys: Option<ScramKeys>,
}

/// A client proves itself to us. Lives while the client logs in.
pub struct ClientLogin(State);

enum State {
    /// The next message is the password.
    Plain {
        user: String,
        secret: Option<Secret>,
    },
    /// As `Plain`; the password is being hashed.
    PlainDeriving(Verifier),
    /// The next message is the hashed password.
    Md5 {
        user: String,
        secret: Option<Secret>,
        salt: [u8; 4],
    },
    /// The next message chooses a mechanism; with channel binding if there is a hash.
    SaslInitial(ScramClient, Option<Box<[u8]>>),
    /// The next message is SCRAM's.
    Scram(ScramClient),
    Over,
}

/// Holds secrets, so it says nothing.
impl std::fmt::Debug for ClientLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientLogin(..)")
    }
}

impl ClientLogin {
    /// Begins. Where no message of the client is needed the step is `Done` or `Refuse` at once.
    pub fn start(setup: &ClientLoginSetup<'_>) -> (Self, ClientStep) {
        let over = |step| (Self(State::Over), step);
        let user = || setup.user.to_owned();
        let secret = || setup.secret.cloned();
        match (setup.method, setup.secret) {
            (Method::Any, _) | (Method::Trust, Some(_)) => {
                over(LoginStep::Done(Admitted::default()))
            }
            (Method::Trust, None) => over(refuse(TRUST_FAILED, NO_SECRET)),
            (Method::Plain, _) => {
                let state = State::Plain {
                    user: user(),
                    secret: secret(),
                };
                (Self(state), LoginStep::Reply(AuthRequest::Cleartext))
            }
            (Method::Scram, _) | (Method::Md5, Some(Secret::Scram(_))) => {
                let exchange = ScramClient::new(against(setup), setup.nonce);
                let binding = setup.binding.map(Box::from);
                let plus = binding.is_some();
                (
                    Self(State::SaslInitial(exchange, binding)),
                    LoginStep::Reply(AuthRequest::Sasl { plus }),
                )
            }
            (Method::Md5, _) => {
                let salt = setup.md5_salt;
                let state = State::Md5 {
                    user: user(),
                    secret: secret(),
                    salt,
                };
                (Self(state), LoginStep::Reply(AuthRequest::Md5 { salt }))
            }
        }
    }

    /// The password itself is awaited, which may be long.
    pub fn takes_password(&self) -> bool {
        matches!(self.0, State::Plain { .. } | State::PlainDeriving(_))
    }

    /// Takes the body of a password message in. Don't call while a [`LoginStep::Derive`] is open.
    pub fn answer(&mut self, body: &[u8]) -> ClientStep {
        match std::mem::replace(&mut self.0, State::Over) {
            State::Plain { user, secret } => self.plain(&user, secret.as_ref(), body),
            State::Md5 { user, secret, salt } => {
                let given = match plain::read(body) {
                    Ok(given) => given,
                    Err(detail) => return refuse(PASSWORD_FAILED, detail),
                };
                let Some(secret) = usable(secret.as_ref()) else {
                    return refuse(PASSWORD_FAILED, NO_SECRET);
                };
                admit_if(md5::check(&user, secret, salt, given))
            }
            State::SaslInitial(mut exchange, binding) => {
                let (mechanism, message) = match sasl_initial(body) {
                    Ok(initial) => initial,
                    Err(detail) => return refuse(SASL_FAILED, detail),
                };
                let bound = mechanism == MECHANISM_PLUS.as_bytes() && binding.is_some();
                if !bound && mechanism != MECHANISM.as_bytes() {
                    return refuse(MECHANISM_UNKNOWN, "that mechanism was not offered");
                }
                exchange.set_channel(Channel { binding, bound });
                match message {
                    // None yet: ask for it with an empty challenge (RFC 4422, section 3).
                    None => {
                        self.0 = State::Scram(exchange);
                        LoginStep::Reply(AuthRequest::SaslContinue(Vec::new()))
                    }
                    Some(message) => self.scram(exchange, |exchange| exchange.answer(message)),
                }
            }
            State::Scram(exchange) => self.scram(exchange, |exchange| exchange.answer(body)),
            State::PlainDeriving(_) | State::Over => refuse(PASSWORD_FAILED, OUT_OF_TURN),
        }
    }

    /// Takes the salted password in that [`LoginStep::Derive`] asked for.
    pub fn derived(&mut self, salted: &ScramKey) -> ClientStep {
        match std::mem::replace(&mut self.0, State::Over) {
            State::PlainDeriving(verifier) => match plain::check_derived(&verifier, salted) {
                None => refuse(PASSWORD_FAILED, WRONG_PASSWORD),
                keys => LoginStep::Done(Admitted {
                    before_ok: None,
                    keys,
                }),
            },
            State::Scram(exchange) => self.scram(exchange, |exchange| exchange.derived(salted)),
            _ => refuse(PASSWORD_FAILED, OUT_OF_TURN),
        }
    }

    fn plain(&mut self, user: &str, secret: Option<&Secret>, body: &[u8]) -> ClientStep {
        let password = match plain::read(body) {
            Ok(password) => password,
            Err(detail) => return refuse(PASSWORD_FAILED, detail),
        };
        let Some(secret) = secret else {
            return refuse(PASSWORD_FAILED, NO_SECRET);
        };
        match plain::check(user, secret, password) {
            plain::Check::Known(right) => admit_if(right),
            plain::Check::Derive(derivation, verifier) => {
                self.0 = State::PlainDeriving(verifier);
                LoginStep::Derive(derivation)
            }
        }
    }

    fn scram(
        &mut self,
        mut exchange: ScramClient,
        step: impl FnOnce(&mut ScramClient) -> LoginStep<Vec<u8>, Proven>,
    ) -> ClientStep {
        match step(&mut exchange) {
            LoginStep::Reply(message) => {
                self.0 = State::Scram(exchange);
                LoginStep::Reply(AuthRequest::SaslContinue(message))
            }
            LoginStep::Derive(derivation) => {
                self.0 = State::Scram(exchange);
                LoginStep::Derive(derivation)
            }
            LoginStep::Await => LoginStep::Await,
            LoginStep::Done(Proven { server_final, keys }) => {
                let before_ok = Some(AuthRequest::SaslFinal(server_final));
                LoginStep::Done(Admitted { before_ok, keys })
            }
            LoginStep::Refuse(refusal) => LoginStep::Refuse(refusal),
        }
    }
}

/// A refusal's detail: no secret is known of the user.
pub const NO_SECRET: &str = "no such user, or the user has no password";
const OUT_OF_TURN: &str = "message out of turn";
/// A refusal's detail: the password is another.
pub const WRONG_PASSWORD: &str = "password authentication failed";

fn refuse(text: &'static str, detail: &'static str) -> ClientStep {
    LoginStep::Refuse(LoginRefusal::new(text, detail))
}

fn admit_if(right: bool) -> ClientStep {
    if right {
        LoginStep::Done(Admitted::default())
    } else {
        refuse(PASSWORD_FAILED, WRONG_PASSWORD)
    }
}

/// A secret something can match: not an empty password.
fn usable(secret: Option<&Secret>) -> Option<&Secret> {
    secret.filter(|secret| !secret.text().is_empty())
}

fn against(setup: &ClientLoginSetup<'_>) -> Against {
    let salt = || user_salt(setup.salt_key, setup.user);
    let iterations = setup.iterations;
    let nothing = |detail| Against::Nothing {
        salt: salt(),
        iterations,
        detail,
    };
    match usable(setup.secret) {
        Some(Secret::Plain(password)) => Against::Password {
            password: password.clone(),
            salt: salt(),
            iterations,
        },
        Some(Secret::Md5(_)) => nothing("SCRAM authentication failed: user has MD5 secret"),
        Some(Secret::Scram(text)) => match Verifier::parse(text) {
            Some(verifier) => Against::Verifier(verifier),
            None => nothing("the user's SCRAM secret is malformed"),
        },
        None => nothing(NO_SECRET),
    }
}

/// Reads a SASLInitialResponse: the mechanism, then a length and so many bytes, or -1 and none.
fn sasl_initial(body: &[u8]) -> Result<(&[u8], Option<&[u8]>), &'static str> {
    let end = body
        .iter()
        .position(|&b| b == 0)
        .ok_or("malformed SASL response")?;
    let mechanism = &body[..end];
    match &body[end + 1..] {
        [0xff, 0xff, 0xff, 0xff] => Ok((mechanism, None)),
        [a, b, c, d, message @ ..]
            if usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])) == Ok(message.len()) =>
        {
            Ok((mechanism, Some(message)))
        }
        _ => Err("malformed SASL response"),
    }
}
