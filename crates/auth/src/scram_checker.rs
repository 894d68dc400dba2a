//! SCRAM-SHA-256: a client proves itself to Howdah.
//!
//! A login with a stored SCRAM secret costs two HMACs and one hash: ClientSignature, the hash of
//! ClientKey, ServerSignature.
//!
//! Some users have no salt: those with a plain password, those who do not exist, and those who can't log in
//! by SCRAM. Howdah derives their salt from a key of this process and the user name. So the messages for all
//! of these users have the same form, number and repetition. Over TLS, channel binding (`SCRAM-SHA-256-PLUS`)
//! is offered to all users alike. Two differences remain: the first login of a known user needs a key
//! derivation, and stored secrets may have another iteration count than `scram_iterations`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::client_login::WRONG_PASSWORD;
use super::scram::{
    self, BINDING_TYPE, BindingFlag, ClientFinal, ClientFirst, Malformed, Nonce, ScramKey,
};
use super::{
    BINDING_ATTRIBUTE, BINDING_DOWNGRADE, BINDING_UNKNOWN, BINDING_WRONG, Derivation, LoginRefusal,
    LoginStep, SASL_FAILED, SCRAM_MALFORMED, ScramKeys, Verifier, saslprep,
};

/// The secret that a proof is checked against.
pub enum Against {
    /// A stored SCRAM secret.
    Verifier(Verifier),
    /// A password. The SCRAM secret is derived from the password and this salt when the proof
    /// arrives.
    Password {
        /// The password as the user types it.
        password: String,
        /// Another password that is right, too: its turn comes if the first one is wrong.
        second: Option<String>,
        /// See [`user_salt`].
        salt: [u8; 16],
        /// The setting `scram_iterations`.
        iterations: u32,
    },
    /// No secret: the exchange takes place and fails.
    Nothing {
        /// See [`user_salt`].
        salt: [u8; 16],
        /// The setting `scram_iterations`.
        iterations: u32,
        /// The reason, for the log.
        detail: &'static str,
    },
}

impl Against {
    fn salt(&self) -> &[u8] {
        match self {
            Self::Verifier(verifier) => &verifier.salt,
            Self::Password { salt, .. } | Self::Nothing { salt, .. } => salt,
        }
    }

    fn iterations(&self) -> u32 {
        match self {
            Self::Verifier(verifier) => verifier.iterations,
            Self::Password { iterations, .. } | Self::Nothing { iterations, .. } => *iterations,
        }
    }
}

/// The salt of a user without one. It is the same at every login. Nobody can guess it without the
/// key, which belongs to the process.
pub fn user_salt(key: &ScramKey, user: &str) -> [u8; 16] {
    let hash = scram::hmac(key, &[b"scram salt of ", user.as_bytes()]);
    std::array::from_fn(|i| hash[i])
}

/// The result of a successful proof.
#[derive(Debug)]
pub struct Proven {
    /// Howdah's last message, which proves Howdah to the client.
    pub server_final: Vec<u8>,
    /// The keys for pass-through, if the stored secret is a SCRAM secret.
    pub keys: Option<ScramKeys>,
}

/// The exchange, from the client's first message on. Howdah is the server of RFC 5802.
pub struct ScramChecker {
    against: Against,
    /// Howdah's half of the nonce before the client's first message, both halves after it.
    nonce: Vec<u8>,
    /// The AuthMessage of RFC 5802, section 3, as far as it is known.
    transcript: Vec<u8>,
    channel: Channel,
    /// The `c=` attribute that the client's last message must have.
    expected_binding: Vec<u8>,
    state: State,
}

/// What client and Howdah have agreed on about the channel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Channel {
    /// The hash of Howdah's certificate, if `SCRAM-SHA-256-PLUS` was offered.
    pub binding: Option<Box<[u8]>>,
    /// The client has chosen `SCRAM-SHA-256-PLUS`.
    pub bound: bool,
}

enum State {
    First,
    Final,
    Deriving { proof: ScramKey },
    Over,
}

impl ScramChecker {
    /// `nonce` must be drawn anew for every exchange.
    pub fn new(against: Against, nonce: &Nonce) -> Self {
        Self::with_nonce(against, STANDARD.encode(nonce).into_bytes())
    }

    pub(super) fn with_nonce(against: Against, nonce: Vec<u8>) -> Self {
        let transcript = Vec::new();
        Self {
            against,
            nonce,
            transcript,
            channel: Channel::default(),
            expected_binding: Vec::new(),
            state: State::First,
        }
    }

    /// Sets what was offered and chosen. The default is neither.
    pub fn set_channel(&mut self, channel: Channel) {
        self.channel = channel;
    }

    /// Takes the client's first or last message.
    pub fn answer(&mut self, message: &[u8]) -> LoginStep<Vec<u8>, Proven> {
        let step = match std::mem::replace(&mut self.state, State::Over) {
            State::First => self.first(message).map(LoginStep::Reply),
            State::Final => self.last(message),
            State::Deriving { .. } | State::Over => Err(Malformed("message out of turn").into()),
        };
        step.unwrap_or_else(LoginStep::Refuse)
    }

    fn first(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginRefusal> {
        let first = ClientFirst::read(message)?;
        let binding = self.agreed_binding(first.flag)?;
        self.expected_binding = scram::binding_attribute(first.gs2_header, binding);
        let ours = std::mem::replace(&mut self.nonce, first.nonce.to_vec());
        self.nonce.extend(ours);

        let mut reply = Vec::with_capacity(128);
        reply.extend(b"r=");
        reply.extend(&self.nonce);
        reply.extend(b",s=");
        scram::push_base64(&mut reply, self.against.salt());
        reply.extend(b",i=");
        reply.extend(self.against.iterations().to_string().as_bytes());

        self.transcript
            .reserve(first.bare.len() + reply.len() + self.nonce.len() + 16);
        self.transcript.extend(first.bare);
        self.transcript.push(b',');
        self.transcript.extend(&reply);
        self.state = State::Final;
        Ok(reply)
    }

    /// The binding that the client must prove; empty for none. An error if the client's flag
    /// contradicts its mechanism or the offer.
    fn agreed_binding(&self, flag: BindingFlag<'_>) -> Result<&[u8], LoginRefusal> {
        let refuse = |text, detail| Err(LoginRefusal::new(text, detail));
        match (flag, self.channel.bound, &self.channel.binding) {
            (BindingFlag::Unsupported | BindingFlag::NotOffered, true, _) => refuse(
                SCRAM_MALFORMED,
                "the client chose SCRAM-SHA-256-PLUS, but binds no channel",
            ),
            // Somebody between client and Howdah may have removed the offer (RFC 5802, section 6).
            (BindingFlag::NotOffered, false, Some(_)) => refuse(
                BINDING_DOWNGRADE,
                "the client believes that channel binding was not offered, but it was",
            ),
            (BindingFlag::Unsupported | BindingFlag::NotOffered, false, _) => Ok(b""),
            (BindingFlag::Bound(_), false, _) | (_, _, None) => refuse(
                SCRAM_MALFORMED,
                "the client binds the channel, but did not choose SCRAM-SHA-256-PLUS",
            ),
            (BindingFlag::Bound(kind), true, Some(binding)) => {
                if kind == BINDING_TYPE.as_bytes() {
                    Ok(binding)
                } else {
                    refuse(
                        BINDING_UNKNOWN,
                        "the client binds the channel in another way than tls-server-end-point",
                    )
                }
            }
        }
    }

    fn last(&mut self, message: &[u8]) -> Result<LoginStep<Vec<u8>, Proven>, LoginRefusal> {
        let last = ClientFinal::read(message)?;
        if last.binding != self.expected_binding {
            let (text, detail) = if self.channel.bound {
                (
                    BINDING_WRONG,
                    "the client was shown another certificate than ours, or the binding changed",
                )
            } else {
                (BINDING_ATTRIBUTE, "the channel binding changed")
            };
            return Err(LoginRefusal::new(text, detail));
        }
        if !bool::from(last.nonce.ct_eq(&self.nonce)) {
            return Err(Malformed("the nonce changed").into());
        }
        self.transcript.push(b',');
        self.transcript.extend(last.without_proof);
        Ok(match &self.against {
            Against::Verifier(verifier) => match self.signature(verifier, &last.proof) {
                None => wrong_password(),
                Some((client_key, server_final)) => {
                    let keys = ScramKeys {
                        client_key,
                        server_key: verifier.server_key,
                        salt: verifier.salt.clone(),
                        iterations: verifier.iterations,
                    };
                    LoginStep::Done(Proven {
                        server_final,
                        keys: Some(keys),
                    })
                }
            },
            Against::Password { password, .. } => {
                let derivation = self.derivation(password);
                self.state = State::Deriving { proof: last.proof };
                LoginStep::Derive(derivation)
            }
            Against::Nothing { detail, .. } => {
                // The same work as for a wrong password, so that the time is the same, too.
                let [stored_key, server_key] = [[0; 32]; 2];
                let nobody = Verifier {
                    iterations: 1,
                    salt: Box::default(),
                    stored_key,
                    server_key,
                };
                std::hint::black_box(self.signature(&nobody, &last.proof));
                LoginStep::Refuse(LoginRefusal::new(SASL_FAILED, *detail))
            }
        })
    }

    /// Takes the salted password, the result of the derivation.
    pub fn derived(&mut self, salted: &ScramKey) -> LoginStep<Vec<u8>, Proven> {
        let State::Deriving { proof } = std::mem::replace(&mut self.state, State::Over) else {
            return LoginStep::Refuse(Malformed("derived key out of turn").into());
        };
        let verifier = Verifier::derive(salted, self.against.salt(), self.against.iterations());
        match self.signature(&verifier, &proof) {
            None => match &mut self.against {
                Against::Password { second, .. } if second.is_some() => {
                    let second = second.take().unwrap_or_default();
                    self.state = State::Deriving { proof };
                    LoginStep::Derive(self.derivation(&second))
                }
                _ => wrong_password(),
            },
            Some((_, server_final)) => LoginStep::Done(Proven {
                server_final,
                keys: None,
            }),
        }
    }

    /// What must be computed to check the proof against a password.
    fn derivation(&self, password: &str) -> Derivation {
        Derivation {
            password: saslprep::prepare(password.as_bytes()).into_owned(),
            salt: self.against.salt().to_vec(),
            iterations: self.against.iterations(),
        }
    }

    /// RFC 5802, section 3: the client's key and Howdah's last message, if the proof is right.
    fn signature(&self, verifier: &Verifier, proof: &ScramKey) -> Option<(ScramKey, Vec<u8>)> {
        let client_signature = scram::hmac(&verifier.stored_key, &[&self.transcript]);
        let client_key = scram::xor(proof, &client_signature);
        if !bool::from(scram::sha256(&client_key).ct_eq(&verifier.stored_key)) {
            return None;
        }
        let server_signature = scram::hmac(&verifier.server_key, &[&self.transcript]);
        let mut server_final = b"v=".to_vec();
        scram::push_base64(&mut server_final, &server_signature);
        Some((client_key, server_final))
    }
}

/// The refusal of a malformed message.
impl From<Malformed> for LoginRefusal {
    fn from(malformed: Malformed) -> Self {
        LoginRefusal::new(SASL_FAILED, malformed)
    }
}

fn wrong_password<D>() -> LoginStep<Vec<u8>, D> {
    LoginStep::Refuse(LoginRefusal::new(SASL_FAILED, WRONG_PASSWORD))
}
