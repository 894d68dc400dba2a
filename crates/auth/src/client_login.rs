//! A client's login: the method, then the method's exchange.

use super::scram::{MECHANISM, MECHANISM_PLUS, Nonce, ScramKey};
use super::scram_checker::{Against, Channel, Proven, ScramChecker, user_salt};
use super::{
    AuthRequest, LoginRefusal, LoginStep, MECHANISM_UNKNOWN, Method, PASSWORD_FAILED, SASL_FAILED,
    ScramKeys, Secret, TRUST_FAILED, Verifier, md5, plain,
};

/// What a [`ClientLogin`] wants: a reply is an authentication request.
pub type ClientStep = LoginStep<AuthRequest, Admitted>;

/// The parts of a login.
#[derive(Clone, Copy, Debug)]
pub struct ClientLoginSetup<'a> {
    /// The proof that is required.
    pub method: Method,
    /// The name in the startup packet.
    pub user: &'a str,
    /// `None` for an unknown user. A known user without a password has an empty one, which nothing
    /// matches.
    pub secret: Option<&'a Secret>,
    /// Another password that is right, too, if `secret` is a password.
    pub second: Option<&'a Secret>,
    /// The setting `scram_iterations`.
    pub iterations: u32,
    /// A random key, the same for the life of the process: see [`user_salt`].
    pub salt_key: &'a ScramKey,
    /// Random, drawn anew for each login.
    pub md5_salt: [u8; 4],
    /// Random, drawn anew for each login.
    pub nonce: &'a Nonce,
    /// The hash of the certificate that the client saw (`tls-server-end-point`), if the client uses
    /// TLS. Then SCRAM-SHA-256-PLUS is offered.
    pub binding: Option<&'a [u8]>,
}

/// The result of a successful login.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The request to send before `AuthenticationOk`.
    pub before_ok: Option<AuthRequest>,
    /// The keys for pass-through, if the stored secret is a SCRAM secret.
    pub keys: Option<ScramKeys>,
}

/// One login of a client to Howdah.
pub struct ClientLogin(State);

enum State {
    /// The next message is the password.
    Plain {
        user: String,
        secret: Option<Secret>,
        second: Option<Secret>,
    },
    /// As `Plain`, while the password is being hashed.
    PlainDeriving(Verifier),
    /// The next message is the hashed password.
    Md5 {
        user: String,
        secret: Option<Secret>,
        second: Option<Secret>,
        salt: [u8; 4],
    },
    /// The next message chooses a mechanism. With a hash, the mechanism may bind the channel.
    SaslInitial(ScramChecker, Option<Box<[u8]>>),
    /// The next message belongs to SCRAM.
    Scram(ScramChecker),
    Over,
}

/// Prints nothing, because the login holds secrets.
impl std::fmt::Debug for ClientLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientLogin(..)")
    }
}

impl ClientLogin {
    /// Begins a login. If no message of the client is needed, the step is `Done` or `Refuse`.
    pub fn start(setup: &ClientLoginSetup<'_>) -> (Self, ClientStep) {
        let over = |step| (Self(State::Over), step);
        let user = || setup.user.to_owned();
        let secret = || setup.secret.cloned();
        let second = || setup.second.cloned();
        match (setup.method, setup.secret) {
            (Method::Any, _) | (Method::Trust, Some(_)) => {
                over(LoginStep::Done(Admitted::default()))
            }
            (Method::Trust, None) => over(refuse(TRUST_FAILED, NO_SECRET)),
            (Method::Plain, _) => {
                let state = State::Plain {
                    user: user(),
                    secret: secret(),
                    second: second(),
                };
                (Self(state), LoginStep::Reply(AuthRequest::Cleartext))
            }
            (Method::Scram, _) | (Method::Md5, Some(Secret::Scram(_))) => {
                let exchange = ScramChecker::new(against(setup), setup.nonce);
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
                    second: second(),
                    salt,
                };
                (Self(state), LoginStep::Reply(AuthRequest::Md5 { salt }))
            }
        }
    }

    /// True while a clear-text password is awaited, which may be long.
    pub fn takes_password(&self) -> bool {
        matches!(self.0, State::Plain { .. } | State::PlainDeriving(_))
    }

    /// Takes the body of a password message. Must not be called while a [`LoginStep::Derive`] is
    /// open.
    pub fn answer(&mut self, body: &[u8]) -> ClientStep {
        match std::mem::replace(&mut self.0, State::Over) {
            State::Plain {
                user,
                secret,
                second,
            } => self.plain(&user, (secret.as_ref(), second.as_ref()), body),
            State::Md5 {
                user,
                secret,
                second,
                salt,
            } => {
                let given = match plain::read(body) {
                    Ok(given) => given,
                    Err(detail) => return refuse(PASSWORD_FAILED, detail),
                };
                let Some(secret) = usable(secret.as_ref()) else {
                    return refuse(PASSWORD_FAILED, NO_SECRET);
                };
                let second = usable(second.as_ref());
                let of_second = second.is_some_and(|it| md5::check(&user, it, salt, given));
                admit_if(md5::check(&user, secret, salt, given) | of_second)
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
                    // The client has sent no first message: ask for it with an empty challenge (RFC
                    // 4422, section 3).
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

    /// Takes the salted password, the result of [`LoginStep::Derive`].
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

    fn plain(
        &mut self,
        user: &str,
        (secret, second): (Option<&Secret>, Option<&Secret>),
        body: &[u8],
    ) -> ClientStep {
        let password = match plain::read(body) {
            Ok(password) => password,
            Err(detail) => return refuse(PASSWORD_FAILED, detail),
        };
        let Some(secret) = secret else {
            return refuse(PASSWORD_FAILED, NO_SECRET);
        };
        match plain::check(user, secret, password) {
            plain::Check::Known(right) => {
                let second = second.map(|second| plain::check(user, second, password));
                admit_if(right | matches!(second, Some(plain::Check::Known(true))))
            }
            plain::Check::Derive(derivation, verifier) => {
                self.0 = State::PlainDeriving(verifier);
                LoginStep::Derive(derivation)
            }
        }
    }

    fn scram(
        &mut self,
        mut exchange: ScramChecker,
        step: impl FnOnce(&mut ScramChecker) -> LoginStep<Vec<u8>, Proven>,
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

/// A refusal's detail: the user has no known secret.
pub const NO_SECRET: &str = "no such user, or the user has no password";
const OUT_OF_TURN: &str = "message out of turn";
/// A refusal's detail: the password is wrong.
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

/// The secret, unless it is an empty password, which nothing may match.
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
            second: match usable(setup.second) {
                Some(Secret::Plain(second)) => Some(second.clone()),
                _ => None,
            },
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

/// Reads a SASLInitialResponse: the mechanism, then a length and as many bytes; or -1 and no bytes.
pub(super) fn sasl_initial(body: &[u8]) -> Result<(&[u8], Option<&[u8]>), &'static str> {
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
