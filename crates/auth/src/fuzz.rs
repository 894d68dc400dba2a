//! Fuzz bodies: each takes any bytes and panics if a promise is broken. The targets in `fuzz/` are
//! one line each; the unit tests below run the same functions.

use super::oauthbearer::{OauthLogin, OauthStep};
use super::{
    ClientLogin, ClientLoginSetup, LoginStep, Method, RequireAuth, ScramKeys, Secret, ServerLogin,
    ServerLoginSetup, Verifier, code, scram,
};
use crate::ChannelBinding;

/// Takes a length byte, and as many bytes, off the front. All the rest if the length is 255 or more
/// than there is.
fn chunk<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = input.split_first()?;
    let length = if length == u8::MAX {
        rest.len()
    } else {
        usize::from(length)
    };
    let (chunk, rest) = rest.split_at(length.min(rest.len()));
    *input = rest;
    Some(chunk)
}

fn secrets() -> [Option<Secret>; 5] {
    let salted = scram::salted_password(b"pencil", b"salt", 1);
    let verifier = Verifier::derive(&salted, b"salt", 1).to_string();
    [
        None,
        Some(Secret::Plain(String::new())),
        Some(Secret::Plain("pencil".into())),
        Some(Secret::Md5("md5c1add164b782f19e776b4181b75d298e".into())),
        Some(Secret::Scram(verifier)),
    ]
}

/// Whatever a client sends: a method with a proof never admits it, Howdah never panics, and answers
/// stay within bounds. (The right password would be admitted, but the fuzzer would have to guess
/// it.)
pub fn client_login(mut input: &[u8]) {
    let [choice, rest @ ..] = input else { return };
    input = rest;
    let method = [Method::Plain, Method::Md5, Method::Scram][usize::from(choice % 3)];
    let secret = &secrets()[usize::from(choice / 3 % 5)];
    let (mut login, mut step) = ClientLogin::start(&ClientLoginSetup {
        second: None,
        method,
        user: "m2",
        secret: secret.as_ref(),
        iterations: 1,
        salt_key: &[7; 32],
        md5_salt: [1, 2, 3, 4],
        nonce: &[9; 18],
        binding: (choice & 0x80 != 0).then_some(&[3; 32]),
    });
    loop {
        step = match step {
            LoginStep::Reply(request) => {
                assert!(request.payload().len() <= scram::SERVER_MESSAGE_MAX);
                match chunk(&mut input) {
                    Some(body) => login.answer(body),
                    None => return,
                }
            }
            LoginStep::Derive(derivation) => {
                assert_eq!(derivation.iterations, 1);
                login.derived(&derivation.compute())
            }
            LoginStep::Await => unreachable!("a client's login always says what to send"),
            LoginStep::Done(_) => {
                assert_eq!(method, Method::Plain, "admitted without a proof");
                return;
            }
            LoginStep::Refuse(refusal) => {
                assert!(!refusal.text.is_empty() && !refusal.detail.is_empty());
                let again = login.answer(b"");
                assert!(
                    matches!(again, LoginStep::Refuse(_)),
                    "an exchange went on after its end"
                );
                return;
            }
        };
    }
}

/// Whatever a client sends as a message of OAUTHBEARER: a token has the characters of one, and an exchange
/// that is over stays over.
pub fn oauth_login(input: &[u8]) {
    let mut body = b"OAUTHBEARER\0".to_vec();
    body.extend((input.len() as u32).to_be_bytes());
    body.extend(input);
    let mut login = OauthLogin::new("https://i", "scope");
    match login.answer(&body) {
        OauthStep::Check(token) => {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
            assert!(!token.text().is_empty() && token.text().bytes().all(fits));
        }
        OauthStep::Reply(_) => {
            let step = login.answer(input);
            assert!(matches!(step, OauthStep::Refuse(_) | OauthStep::Discovered));
        }
        OauthStep::Refuse(_) => {}
        OauthStep::Discovered => panic!("an exchange ended with its first message"),
    }
    assert!(matches!(login.answer(input), OauthStep::Refuse(_)));
}

/// Whatever a server sends: Howdah never believes that the server knows the secret, never panics,
/// and its answers stay within bounds.
pub fn server_login(mut input: &[u8]) {
    let [choice, rest @ ..] = input else { return };
    input = rest;
    let secret = secrets()[usize::from(choice % 5)].clone();
    let keys = (choice / 5 % 2 == 1).then(|| ScramKeys {
        client_key: [1; 32],
        server_key: [2; 32],
        salt: (*b"salt").into(),
        iterations: 1,
    });
    let mut login = ServerLogin::new(ServerLoginSetup {
        in_clear: true,
        user: "m2",
        secret,
        keys,
        nonce: &[9; 18],
        binding: (choice & 0x80 != 0).then_some(&[3; 32]),
        channel_binding: ChannelBinding::Prefer,
        require_auth: &RequireAuth::default(),
    });
    let mut sasl = false;
    while let Some([request, payload @ ..]) = chunk(&mut input) {
        sasl |= u32::from(*request) == code::SASL;
        let mut step = login.challenge(u32::from(*request), payload);
        if let LoginStep::Derive(derivation) = &step {
            if derivation.iterations > 16 {
                return;
            }
            step = login.derived(&derivation.compute());
        }
        match step {
            LoginStep::Reply(body) => assert!(body.len() <= 2 * scram::SERVER_MESSAGE_MAX),
            LoginStep::Await => panic!("a signature was guessed"),
            LoginStep::Derive(_) => unreachable!("one derivation is enough"),
            LoginStep::Done(()) => {
                assert!(!sasl, "believed without a signature");
                return;
            }
            LoginStep::Refuse(refusal) => {
                assert!(!refusal.text.is_empty() && !refusal.detail.is_empty());
                let again = login.challenge(code::OK, b"");
                assert!(
                    matches!(again, LoginStep::Refuse(_)),
                    "an exchange went on after its end"
                );
                return;
            }
        }
    }
}

/// Any text is classified, and its text comes back unchanged. Readers of SCRAM messages take any
/// bytes.
pub fn texts(input: &[u8]) {
    let _ = scram::ClientFirst::read(input);
    let _ = scram::ServerFirst::read(input);
    let _ = scram::ServerFinal::read(input);
    if let Ok(last) = scram::ClientFinal::read(input) {
        assert!(input.starts_with(last.without_proof));
        assert_eq!(
            input.get(last.without_proof.len()..).map(|rest| &rest[..3]),
            Some(&b",p="[..])
        );
    }
    let _ = super::saslprep::prepare(input);
    if let Ok(text) = str::from_utf8(input) {
        let secret = Secret::classify(text);
        assert_eq!(secret.text(), text);
        if let Secret::Scram(text) = &secret {
            let verifier = Verifier::parse(text).expect("classified as SCRAM");
            assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Seeds that lead each body deep: good messages of one side.
    const SEEDS: &[&[u8]] = &[
        b"",
        b"\x00\x07pencil\0",
        b"\x06\x07pencil\0",
        b"\x01\x24md5c1add164b782f19e776b4181b75d298e\0",
        b"\x02\x1cSCRAM-SHA-256\0\0\0\0\x0an,,n=,r=ab\x09c=biws,r=",
        b"\x0e\x12SCRAM-SHA-256\0\xff\xff\xff\xff\x0an,,n=,r=ab",
        b"\x02\x10\x0aSCRAM-SHA-256\0\0\x11\x0br=,s=c2FsdA==,i=1\x0a\x0cv=",
        b"\x02\x05\x05salt\x01\x00",
        b"\x02\x01\x03\x01\x00",
        b"r=abc,s=c2FsdA==,i=4096",
        b"c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        b"SCRAM-SHA-256$4096:W7rlyLVkwGiV5i0YGKTiKA==$fg/d3AUjON6PulXjBFypS8ezSSZSgzdeI1dHovdU1/c=:wMWn0TX14FB7aJSEnN2K1lMfKohyxpjbETdj/G1X5Wk=",
        b"n,,\x01host=h\x01auth=Bearer a.b-c==\x01\x01",
        b"n,,\x01auth=\x01\x01",
    ];

    fn all(input: &[u8]) {
        client_login(input);
        server_login(input);
        texts(input);
        oauth_login(input);
    }

    #[test]
    fn seeds_and_their_prefixes() {
        for seed in SEEDS {
            for end in 0..=seed.len() {
                all(&seed[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes(input: Vec<u8>) {
            all(&input);
        }

        #[test]
        fn seeds_with_changes(
            seed in 0..SEEDS.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut input = SEEDS[seed].to_vec();
            for (at, byte) in changes {
                if !input.is_empty() {
                    let at = at.index(input.len());
                    input[at] = byte;
                }
            }
            all(&input);
        }
    }
}
