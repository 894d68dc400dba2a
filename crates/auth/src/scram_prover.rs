//! SCRAM-SHA-256: Howdah proves itself to PostgreSQL, and PostgreSQL proves itself to Howdah.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::scram::{self, BINDING_TYPE, Malformed, Nonce, ScramKey, ServerFinal, ServerFirst};
use super::{Derivation, LoginRefusal, LoginStep, ScramKeys, saslprep};

/// The secret with which Howdah proves itself.
pub enum Credential {
    /// The password.
    Password(String),
    /// The keys of a client's login. They work if PostgreSQL stores the same secret.
    Keys(ScramKeys),
}

/// What Howdah says about channel binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// Howdah can't bind the channel, or `channel_binding` forbids it.
    Unsupported,
    /// Howdah could bind the channel, but PostgreSQL has not offered it.
    NotOffered,
    /// Howdah binds the channel with this hash of PostgreSQL's certificate.
    Bound(Box<[u8]>),
}

impl Binding {
    fn gs2_header(&self) -> String {
        match self {
            Self::Unsupported => "n,,".into(),
            Self::NotOffered => "y,,".into(),
            Self::Bound(_) => format!("p={BINDING_TYPE},,"),
        }
    }

    /// The `c=` attribute of Howdah's last message.
    fn attribute(&self) -> Vec<u8> {
        let hash: &[u8] = match self {
            Self::Unsupported | Self::NotOffered => b"",
            Self::Bound(hash) => hash,
        };
        scram::binding_attribute(self.gs2_header().as_bytes(), hash)
    }
}

/// The error if a pass-through login can't work.
pub const WRONG_TYPE: &str = "server login failed: wrong password type";

/// The error if PostgreSQL's messages in the exchange are wrong.
pub const FAILED: &str = "server login failed: SASL authentication failed";

/// One exchange, from Howdah's first message on. Howdah is the client of RFC 5802.
pub struct ScramProver {
    credential: Credential,
    binding: Binding,
    /// Howdah's half of the nonce at first, both halves after PostgreSQL's first message.
    nonce: Vec<u8>,
    /// The AuthMessage of RFC 5802, section 3, as far as it is known.
    transcript: Vec<u8>,
    state: State,
}

enum State {
    First,
    Deriving,
    Final { signature: ScramKey },
    Over,
}

impl ScramProver {
    /// `nonce` must be drawn anew for every exchange.
    pub fn new(credential: Credential, nonce: &Nonce, binding: Binding) -> Self {
        let nonce = STANDARD.encode(nonce).into_bytes();
        Self::with_nonce(credential, nonce, "", binding)
    }

    /// PostgreSQL takes the user name from the startup packet. So libpq sends no name here, and
    /// Howdah sends none either.
    pub(super) fn with_nonce(
        credential: Credential,
        nonce: Vec<u8>,
        name: &str,
        binding: Binding,
    ) -> Self {
        let mut transcript = format!("n={name},r=").into_bytes();
        transcript.extend(&nonce);
        Self {
            credential,
            binding,
            nonce,
            transcript,
            state: State::First,
        }
    }

    /// The first message, without the mechanism's name.
    pub fn client_first(&self) -> Vec<u8> {
        [
            self.binding.gs2_header().as_bytes(),
            self.transcript.as_slice(),
        ]
        .concat()
    }

    /// Takes PostgreSQL's first message.
    pub fn server_first(&mut self, message: &[u8]) -> LoginStep<Vec<u8>, ()> {
        self.first(message).unwrap_or_else(refuse)
    }

    fn first(&mut self, message: &[u8]) -> Result<LoginStep<Vec<u8>, ()>, Malformed> {
        let State::First = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Malformed("message out of turn"));
        };
        let first = ServerFirst::read(message)?;
        if !first.nonce.starts_with(&self.nonce) || first.nonce.len() == self.nonce.len() {
            return Err(Malformed("the nonce does not extend ours"));
        }
        self.nonce = first.nonce.to_vec();
        self.transcript.push(b',');
        self.transcript.extend(message);
        self.transcript.extend(b",c=");
        self.transcript.extend(self.binding.attribute());
        self.transcript.extend(b",r=");
        self.transcript.extend(first.nonce);
        Ok(match &self.credential {
            Credential::Password(password) => {
                self.state = State::Deriving;
                LoginStep::Derive(Derivation {
                    password: saslprep::prepare(password.as_bytes()).into_owned(),
                    salt: first.salt.into(),
                    iterations: first.iterations,
                })
            }
            Credential::Keys(keys) => {
                if keys.salt != first.salt || keys.iterations != first.iterations {
                    let detail = "the client's keys belong to another salt or iteration count";
                    return Ok(LoginStep::Refuse(LoginRefusal::new(WRONG_TYPE, detail)));
                }
                let (client_key, server_key) = (keys.client_key, keys.server_key);
                LoginStep::Reply(self.last(&client_key, &server_key))
            }
        })
    }

    /// Takes the salted password, the result of the derivation.
    pub fn derived(&mut self, salted: &ScramKey) -> LoginStep<Vec<u8>, ()> {
        let State::Deriving = std::mem::replace(&mut self.state, State::Over) else {
            return refuse(Malformed("derived key out of turn"));
        };
        LoginStep::Reply(self.last(&scram::client_key(salted), &scram::server_key(salted)))
    }

    /// Howdah's last message.
    fn last(&mut self, client_key: &ScramKey, server_key: &ScramKey) -> Vec<u8> {
        let stored_key = scram::sha256(client_key);
        let client_signature = scram::hmac(&stored_key, &[&self.transcript]);
        let signature = scram::hmac(server_key, &[&self.transcript]);
        self.state = State::Final { signature };

        let mut message = Vec::with_capacity(self.nonce.len() + 64);
        message.extend(b"c=");
        message.extend(self.binding.attribute());
        message.extend(b",r=");
        message.extend(&self.nonce);
        message.extend(b",p=");
        scram::push_base64(&mut message, &scram::xor(client_key, &client_signature));
        message
    }

    /// Takes PostgreSQL's last message.
    pub fn server_final(&mut self, message: &[u8]) -> LoginStep<Vec<u8>, ()> {
        let State::Final { signature } = std::mem::replace(&mut self.state, State::Over) else {
            return refuse(Malformed("message out of turn"));
        };
        match ServerFinal::read(message) {
            Err(malformed) => refuse(malformed),
            Ok(ServerFinal::Error) => {
                LoginStep::Refuse(LoginRefusal::new(FAILED, "the server refused our proof"))
            }
            Ok(ServerFinal::Signature(given)) if bool::from(given.ct_eq(&signature)) => {
                LoginStep::Done(())
            }
            Ok(ServerFinal::Signature(_)) => {
                let detail = "the server does not know the password: its signature is wrong";
                LoginStep::Refuse(LoginRefusal::new(FAILED, detail))
            }
        }
    }
}

fn refuse(malformed: Malformed) -> LoginStep<Vec<u8>, ()> {
    LoginStep::Refuse(LoginRefusal::new(FAILED, malformed))
}
