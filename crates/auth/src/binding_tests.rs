//! Channel binding: complete exchanges, exchanges that contradict themselves, and `require_auth`.

use super::require::RequireAuth;
use super::scram_checker::{Against, Channel, Proven, ScramChecker};
use super::scram_prover::{Binding, Credential, ScramProver};
use super::*;
use crate::ChannelBinding;

const HASH: &[u8] = &[0xab; 32];

fn verifier() -> Verifier {
    let salted = scram::salted_password(b"pencil", b"0123456789abcdef", 3);
    Verifier::derive(&salted, b"0123456789abcdef", 3)
}

fn client(binding: Option<&[u8]>) -> ClientLogin {
    let secret = Secret::classify(verifier().to_string());
    let (login, step) = ClientLogin::start(&ClientLoginSetup {
        second: None,
        method: Method::Scram,
        user: "bob",
        secret: Some(&secret),
        iterations: 4,
        salt_key: &[7; 32],
        md5_salt: [0; 4],
        nonce: &[1; 18],
        binding,
    });
    let LoginStep::Reply(request) = step else {
        panic!("{step:?}")
    };
    let list: &[u8] = match binding {
        Some(_) => b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
        None => b"SCRAM-SHA-256\0\0",
    };
    assert_eq!((request.code(), request.payload()), (code::SASL, list));
    login
}

fn server(
    binding: Option<&[u8]>,
    channel_binding: ChannelBinding,
    require_auth: &str,
) -> ServerLogin {
    ServerLogin::new(ServerLoginSetup {
        in_clear: true,
        user: "bob",
        secret: Some(Secret::Plain("pencil".into())),
        keys: None,
        nonce: &[2; 18],
        binding,
        channel_binding,
        require_auth: &RequireAuth::parse(require_auth).unwrap(),
    })
}

fn initial(mechanism: &str, message: &str) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [mechanism.as_bytes(), b"\0", &length, message.as_bytes()].concat()
}

/// The end of a client's login with this first message, this `c=` attribute in the last message,
/// and the right proof.
fn ends(
    binding: Option<&[u8]>,
    mechanism: &str,
    header: &str,
    attribute: &[u8],
) -> Option<LoginRefusal> {
    let mut login = client(binding);
    let bare = "n=,r=abc";
    let reply = match login.answer(&initial(mechanism, &format!("{header}{bare}"))) {
        LoginStep::Reply(AuthRequest::SaslContinue(reply)) => String::from_utf8(reply).unwrap(),
        LoginStep::Refuse(refusal) => return Some(refusal),
        step => panic!("{step:?}"),
    };
    let nonce = reply.split_once(',').unwrap().0;
    let mut without_proof = b"c=".to_vec();
    scram::push_base64(&mut without_proof, attribute);
    without_proof.extend(format!(",{nonce}").as_bytes());
    let transcript = [format!("{bare},{reply},").as_bytes(), &without_proof].concat();
    let salted = scram::salted_password(b"pencil", b"0123456789abcdef", 3);
    let client_key = scram::client_key(&salted);
    let signature = scram::hmac(&scram::sha256(&client_key), &[&transcript]);
    let mut last = [&without_proof, b",p=".as_slice()].concat();
    scram::push_base64(&mut last, &scram::xor(&client_key, &signature));
    match login.answer(&last) {
        LoginStep::Done(_) => None,
        LoginStep::Refuse(refusal) => Some(refusal),
        step => panic!("{step:?}"),
    }
}

#[test]
fn what_clients_say_of_channel_binding() {
    let bound = [b"p=tls-server-end-point,,".as_slice(), HASH].concat();
    let other = [b"p=tls-server-end-point,,".as_slice(), &[0xac; 32]].concat();
    let (plain, plus) = ("SCRAM-SHA-256", "SCRAM-SHA-256-PLUS");
    let point = "p=tls-server-end-point,,";
    // Offered or not, mechanism, GS2 header, binding in the last message, expected refusal.
    for (offered, mechanism, header, attribute, told) in [
        (true, plus, point, bound.as_slice(), None),
        (true, plain, "n,,", b"n,,", None),
        (false, plain, "n,,", b"n,,", None),
        // Not offered: the client has no TLS, or the certificate has no such hash.
        (false, plain, "y,,", b"y,,", None),
        // Somebody between client and server has removed the offer.
        (true, plain, "y,,", b"y,,", Some(BINDING_DOWNGRADE)),
        (true, plus, point, &other, Some(BINDING_WRONG)),
        (true, plus, point, point.as_bytes(), Some(BINDING_WRONG)),
        (true, plus, point, b"n,,", Some(BINDING_WRONG)),
        (true, plus, "n,,", b"n,,", Some(SCRAM_MALFORMED)),
        (true, plus, "y,,", b"y,,", Some(SCRAM_MALFORMED)),
        (true, plain, point, &bound, Some(SCRAM_MALFORMED)),
        (false, plain, point, &bound, Some(SCRAM_MALFORMED)),
        (true, plus, "p=tls-unique,,", &bound, Some(BINDING_UNKNOWN)),
        (true, plus, "p=,,", &bound, Some(BINDING_UNKNOWN)),
        (false, plus, point, &bound, Some(MECHANISM_UNKNOWN)),
        (
            true,
            "SCRAM-SHA-1-PLUS",
            point,
            &bound,
            Some(MECHANISM_UNKNOWN),
        ),
        (true, plain, "n,,", b"y,,", Some(BINDING_ATTRIBUTE)),
        (false, plain, "y,,", b"n,,", Some(BINDING_ATTRIBUTE)),
        (false, plain, "n,,", &bound, Some(BINDING_ATTRIBUTE)),
        (true, plain, "x,,", b"x,,", Some(SASL_FAILED)),
        (true, plus, "p,,", b"p,,", Some(SASL_FAILED)),
    ] {
        let refusal = ends(offered.then_some(HASH), mechanism, header, attribute);
        let row = format!("{offered} {mechanism} {header} {attribute:?}");
        assert_eq!(
            refusal.map(|refusal| refusal.text),
            told.map(Into::into),
            "{row}"
        );
    }
}

/// The exchange of RFC 7677, section 3, with the channel bound. Its signatures were computed by
/// another implementation (Python's hashlib and hmac).
#[test]
fn the_example_of_the_rfc_with_a_bound_channel() {
    let salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81";
    let salted = scram::salted_password(b"pencil", salt, 4096);
    let against = Against::Verifier(Verifier::derive(&salted, salt, 4096));
    let nonce = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_vec();
    let mut checker = ScramChecker::with_nonce(against, nonce);
    checker.set_channel(Channel {
        binding: Some(HASH.into()),
        bound: true,
    });
    let mut prover = ScramProver::with_nonce(
        Credential::Password("pencil".into()),
        b"rOprNGfwEbeRWgbNEkqO".to_vec(),
        "user",
        Binding::Bound(HASH.into()),
    );
    let first = prover.client_first();
    assert_eq!(
        first,
        b"p=tls-server-end-point,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    );
    let LoginStep::Reply(server_first) = checker.answer(&first) else {
        panic!()
    };
    let LoginStep::Derive(_) = prover.server_first(&server_first) else {
        panic!()
    };
    let LoginStep::Reply(last) = prover.derived(&salted) else {
        panic!()
    };
    assert_eq!(str::from_utf8(&last).unwrap(), CLIENT_FINAL);
    let LoginStep::Done(Proven { server_final, .. }) = checker.answer(&last) else {
        panic!()
    };
    assert_eq!(str::from_utf8(&server_final).unwrap(), SERVER_FINAL);
    assert!(matches!(
        prover.server_final(&server_final),
        LoginStep::Done(())
    ));
}

const CLIENT_FINAL: &str = "c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsq6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=tyYWR6d/N2L2QkI4gWfKtFrp3AIq2iXx4kbU9H2wGrE=";
const SERVER_FINAL: &str = "v=Jhh/esOsK8GB9gIAY3YFY113NXrjLGTdHjD0WSJrU78=";

/// The first message of Howdah's login to a server with these mechanisms, or the refusal.
fn begins(login: &mut ServerLogin, mechanisms: &[u8]) -> Result<String, LoginRefusal> {
    match login.challenge(code::SASL, mechanisms) {
        LoginStep::Reply(body) => {
            let end = body.iter().position(|&b| b == 0).unwrap();
            let header = &body[end + 5..];
            let header = &header[..header.windows(2).position(|w| w == b",,").unwrap()];
            Ok(String::from_utf8([&body[..end], b" ", header].concat()).unwrap())
        }
        LoginStep::Refuse(refusal) => Err(refusal),
        step => panic!("{step:?}"),
    }
}

#[test]
fn what_we_say_of_channel_binding() {
    use ChannelBinding::{Disable, Prefer, Require};
    let both = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0".as_slice();
    let reversed = b"X\0SCRAM-SHA-256\0SCRAM-SHA-256-PLUS\0\0".as_slice();
    let (plain, plus) = (
        b"SCRAM-SHA-256\0\0".as_slice(),
        b"SCRAM-SHA-256-PLUS\0\0".as_slice(),
    );
    let bound = Ok("SCRAM-SHA-256-PLUS p=tls-server-end-point");
    let required = Err("server login failed: channel binding is required");
    let unspoken = Err("server login failed: unsupported authentication method");
    for (hash, setting, mechanisms, begins_with) in [
        (true, Prefer, both, bound),
        (true, Prefer, reversed, bound),
        (true, Prefer, plus, bound),
        (true, Prefer, plain, Ok("SCRAM-SHA-256 y")),
        (true, Disable, both, Ok("SCRAM-SHA-256 n")),
        (true, Disable, plus, unspoken),
        (true, Require, both, bound),
        (true, Require, plain, required),
        // Without TLS, or with a certificate without such a hash.
        (false, Prefer, both, Ok("SCRAM-SHA-256 n")),
        (false, Prefer, plus, unspoken),
        (false, Require, both, required),
    ] {
        let mut login = server(hash.then_some(HASH), setting, "");
        let seen = begins(&mut login, mechanisms);
        let seen = seen.as_deref().map_err(|refusal| &*refusal.text);
        assert_eq!(seen, begins_with, "{hash} {setting:?} {mechanisms:?}");
    }
    for (code, payload) in [
        (code::OK, &b""[..]),
        (code::CLEARTEXT, b""),
        (code::MD5, b"salt"),
    ] {
        let step = server(Some(HASH), Require, "").challenge(code, payload);
        assert!(matches!(step, LoginStep::Refuse(_)), "{code}: {step:?}");
    }
}

#[test]
fn keys_pass_through_between_a_bound_channel_and_another() {
    for (at_client, at_server) in [(true, false), (false, true), (true, true)] {
        let bound = |bound: bool| bound.then_some(HASH);
        // A client logs in to Howdah ...
        let keys = talk(
            client(bound(at_client)),
            server(bound(at_client), ChannelBinding::Prefer, ""),
        );
        // ... and Howdah logs in to a server with the client's keys. Howdah's own client side plays
        // the server.
        let login = ServerLogin::new(ServerLoginSetup {
            in_clear: true,
            user: "bob",
            secret: Some(Secret::classify(verifier().to_string())),
            keys: Some(keys),
            nonce: &[3; 18],
            binding: bound(at_server),
            channel_binding: ChannelBinding::Prefer,
            require_auth: &RequireAuth::default(),
        });
        talk(client(bound(at_server)), login);
    }
}

/// A successful login: the keys that it leaves.
fn talk(mut client: ClientLogin, mut server: ServerLogin) -> ScramKeys {
    let list: &[u8] = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    let plain = &list[b"SCRAM-SHA-256-PLUS\0".len()..];
    let offer = if server.binds() { list } else { plain };
    let mut step = server.challenge(code::SASL, offer);
    loop {
        if let LoginStep::Derive(derivation) = step {
            step = server.derived(&derivation.compute());
        }
        let LoginStep::Reply(body) = step else {
            panic!("{step:?}")
        };
        match client.answer(&body) {
            LoginStep::Reply(request) => step = server.challenge(request.code(), request.payload()),
            LoginStep::Done(admitted) => {
                let last = admitted.before_ok.unwrap();
                let step = server.challenge(last.code(), last.payload());
                assert!(matches!(step, LoginStep::Await), "{step:?}");
                return admitted.keys.unwrap();
            }
            step => panic!("{step:?}"),
        }
    }
}

#[test]
fn require_auth_is_asked_before_anything_is_given_away() {
    let text = "server login failed: require_auth forbids the server's method";
    let both = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0".as_slice();
    for (required, code, payload, fine) in [
        ("", code::CLEARTEXT, &b""[..], true),
        ("scram-sha-256", code::CLEARTEXT, b"", false),
        ("scram-sha-256", code::MD5, b"salt", false),
        ("scram-sha-256", code::OK, b"", false),
        ("scram-sha-256", code::SASL, both, true),
        ("!password", code::CLEARTEXT, b"", false),
        ("!password", code::MD5, b"salt", true),
        ("!password", code::OK, b"", true),
        ("!password,!none", code::OK, b"", false),
        ("none", code::OK, b"", true),
        ("none", code::SASL, both, false),
    ] {
        let mut login = server(None, ChannelBinding::Prefer, required);
        let refused = match login.challenge(code, payload) {
            LoginStep::Refuse(refusal) => {
                assert_eq!(refusal.text, text, "{required} {code}");
                assert!(refusal.detail.contains(required), "{}", refusal.detail);
                assert!(matches!(
                    login.challenge(code::OK, b""),
                    LoginStep::Refuse(_)
                ));
                true
            }
            _ => false,
        };
        assert_eq!(!refused, fine, "{required} {code}");
    }
}
