//! Complete exchanges: RFC 7677's, Howdah's two sides against each other, and exchanges that must fail.

use proptest::prelude::*;

use super::scram::{Nonce, ScramKey};
use super::scram_checker::{Against, Proven, ScramChecker};
use super::scram_prover::{Binding, Credential, ScramProver};
use super::*;
use crate::ChannelBinding;

const SALT_KEY: ScramKey = [7; 32];
const OUR_NONCE: Nonce = [1; 18];
const MD5_SALT: [u8; 4] = [0, 1, 254, 255];

fn verifier(password: &str, salt: &[u8], iterations: u32) -> Verifier {
    let prepared = saslprep::prepare(password.as_bytes());
    Verifier::derive(
        &scram::salted_password(&prepared, salt, iterations),
        salt,
        iterations,
    )
}

fn every_secret(user: &str, password: &str) -> [Secret; 3] {
    let md5 = md5::secret(user, password.as_bytes());
    [
        Secret::classify(password),
        Secret::classify(str::from_utf8(&md5).unwrap()),
        Secret::classify(verifier(password, b"0123456789abcdef", 3).to_string()),
    ]
}

fn start(method: Method, user: &str, secret: Option<&Secret>) -> (ClientLogin, ClientStep) {
    ClientLogin::start(&ClientLoginSetup {
        second: None,
        method,
        user,
        secret,
        iterations: 4,
        salt_key: &SALT_KEY,
        md5_salt: MD5_SALT,
        nonce: &OUR_NONCE,
        binding: None,
    })
}

/// The messages of an exchange: codes and bodies of requests, bodies of answers.
#[derive(Default, Debug, PartialEq, Eq)]
struct Seen {
    requests: Vec<(u32, Vec<u8>)>,
    answers: Vec<Vec<u8>>,
    derivations: usize,
}

/// Lets a login of Howdah to PostgreSQL talk to a client's login to Howdah.
fn talk(
    (mut client, mut step): (ClientLogin, ClientStep),
    mut server: ServerLogin,
) -> (Result<Admitted, LoginRefusal>, Seen) {
    let mut seen = Seen::default();
    loop {
        let request = match step {
            LoginStep::Reply(request) => request,
            LoginStep::Derive(derivation) => {
                seen.derivations += 1;
                step = client.derived(&derivation.compute());
                continue;
            }
            LoginStep::Await => panic!("a client's login always says what to send"),
            LoginStep::Refuse(refusal) => return (Err(refusal), seen),
            LoginStep::Done(admitted) => {
                if let Some(last) = &admitted.before_ok {
                    seen.requests.push((last.code(), last.payload().to_vec()));
                    let step = server.challenge(last.code(), last.payload());
                    assert!(matches!(step, LoginStep::Await), "{step:?}");
                }
                let ok = AuthRequest::Ok;
                let step = server.challenge(ok.code(), ok.payload());
                assert!(matches!(step, LoginStep::Done(())), "{step:?}");
                return (Ok(admitted), seen);
            }
        };
        seen.requests
            .push((request.code(), request.payload().to_vec()));
        let mut answer = server.challenge(request.code(), request.payload());
        if let LoginStep::Derive(derivation) = answer {
            answer = server.derived(&derivation.compute());
        }
        match answer {
            LoginStep::Reply(body) => {
                step = client.answer(&body);
                seen.answers.push(body);
            }
            LoginStep::Refuse(refusal) => return (Err(refusal), seen),
            step => panic!("{step:?}"),
        }
    }
}

fn server(user: &str, password: &str) -> ServerLogin {
    server_with(user, Some(Secret::Plain(password.into())), None)
}

fn server_with(user: &str, secret: Option<Secret>, keys: Option<ScramKeys>) -> ServerLogin {
    ServerLogin::new(ServerLoginSetup {
        in_clear: true,
        user,
        secret,
        keys,
        nonce: &[2; 18],
        binding: None,
        channel_binding: ChannelBinding::Prefer,
        require_auth: &RequireAuth::default(),
    })
}

#[test]
fn rfc_7677() {
    const NONCE: &[u8] = b"rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &[u8] = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81";
    let against = Against::Verifier(verifier("pencil", salt, 4096));
    let mut checker = ScramChecker::with_nonce(against, SERVER_NONCE.to_vec());
    let password = Credential::Password("pencil".into());
    let mut prover =
        ScramProver::with_nonce(password, NONCE.to_vec(), "user", Binding::Unsupported);

    let first = prover.client_first();
    assert_eq!(first, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let LoginStep::Reply(server_first) = checker.answer(&first) else {
        panic!()
    };
    assert_eq!(
        server_first,
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let LoginStep::Derive(derivation) = prover.server_first(&server_first) else {
        panic!()
    };
    let LoginStep::Reply(last) = prover.derived(&derivation.compute()) else {
        panic!()
    };
    assert_eq!(
        last,
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
          p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let LoginStep::Done(Proven { server_final, keys }) = checker.answer(&last) else {
        panic!()
    };
    assert_eq!(
        server_final,
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    );
    assert!(matches!(
        prover.server_final(&server_final),
        LoginStep::Done(())
    ));
    assert_eq!(
        keys.unwrap().client_key,
        scram::client_key(&derivation.compute())
    );
}

#[test]
fn a_token_is_not_sent_in_clear_text() {
    let login = |in_clear| {
        ServerLogin::new(ServerLoginSetup {
            in_clear,
            user: "u",
            secret: Some(Secret::Plain("token".into())),
            keys: None,
            nonce: &[2; 18],
            binding: None,
            channel_binding: ChannelBinding::Prefer,
            require_auth: &RequireAuth::default(),
        })
    };
    let step = login(false).challenge(code::CLEARTEXT, b"");
    assert!(matches!(step, LoginStep::Refuse(_)), "{step:?}");
    let step = login(true).challenge(code::CLEARTEXT, b"");
    assert!(matches!(step, LoginStep::Reply(_)), "{step:?}");
    // SCRAM shows nobody the password.
    let step = login(false).challenge(code::SASL, b"SCRAM-SHA-256\0\0");
    assert!(matches!(step, LoginStep::Reply(_)), "{step:?}");
}

#[test]
fn either_of_two_passwords() {
    let [first, second] = ["one", "two"].map(|text| Secret::Plain(text.into()));
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        for (given, is_right) in [("one", true), ("two", true), ("three", false), ("", false)] {
            let login = ClientLogin::start(&ClientLoginSetup {
                second: Some(&second),
                method,
                user: "u",
                secret: Some(&first),
                iterations: 4,
                salt_key: &SALT_KEY,
                md5_salt: MD5_SALT,
                nonce: &OUR_NONCE,
                binding: None,
            });
            let (result, _) = talk(login, server("u", given));
            assert_eq!(result.is_ok(), is_right, "{method:?} {given}");
        }
    }
}

#[test]
fn every_method_and_secret() {
    use Method::*;
    // Method, index of the secret, the first request. No request: the login must fail.
    let rows = [
        (Plain, 0, Some(code::CLEARTEXT)),
        (Plain, 1, Some(code::CLEARTEXT)),
        (Plain, 2, Some(code::CLEARTEXT)),
        (Md5, 0, Some(code::MD5)),
        (Md5, 1, Some(code::MD5)),
        (Md5, 2, Some(code::SASL)),
        (Scram, 0, Some(code::SASL)),
        (Scram, 1, None),
        (Scram, 2, Some(code::SASL)),
    ];
    for (method, kind, request) in rows {
        let secret = &every_secret("bob", "pässwörd")[kind];
        let row = format!("{method:?} {secret:?}");
        let right = talk(
            start(method, "bob", Some(secret)),
            server("bob", "pässwörd"),
        );
        assert_eq!(
            right.1.requests.first().map(|(code, _)| *code),
            request.or(Some(code::SASL))
        );
        assert_eq!(right.0.is_ok(), request.is_some(), "{row}: {right:?}");
        let wrong = talk(
            start(method, "bob", Some(secret)),
            server("bob", "passwort"),
        );
        let text = if right.1.requests[0].0 == code::SASL {
            SASL_FAILED
        } else {
            PASSWORD_FAILED
        };
        assert_eq!(wrong.0.unwrap_err().text, text, "{row}");
        let empty = talk(start(method, "bob", Some(secret)), server("bob", ""));
        assert_eq!(empty.0.unwrap_err().text, text, "{row}");
    }
}

#[test]
fn md5_secret_under_scram_is_named_in_the_log_only() {
    let secret = &every_secret("bob", "x")[1];
    let refusal = talk(
        start(Method::Scram, "bob", Some(secret)),
        server("bob", "x"),
    )
    .0
    .unwrap_err();
    assert_eq!(refusal.text, "SASL authentication failed");
    assert_eq!(
        refusal.detail,
        "SCRAM authentication failed: user has MD5 secret"
    );
}

#[test]
fn trust_and_any() {
    let known = Secret::Plain(String::new());
    for (method, secret) in [
        (Method::Any, None),
        (Method::Any, Some(&known)),
        (Method::Trust, Some(&known)),
    ] {
        let (_, step) = start(method, "bob", secret);
        let LoginStep::Done(admitted) = step else {
            panic!("{method:?}")
        };
        assert_eq!(admitted, Admitted::default());
    }
    let (_, step) = start(Method::Trust, "bob", None);
    let LoginStep::Refuse(refusal) = step else {
        panic!()
    };
    assert_eq!(refusal.text, "\"trust\" authentication failed");
}

#[test]
fn an_empty_password_opens_nothing() {
    let blank = Secret::Plain(String::new());
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        for password in ["", "x"] {
            let (result, _) = talk(start(method, "bob", Some(&blank)), server("bob", password));
            assert!(result.is_err(), "{method:?} {password:?}");
        }
    }
}

/// Three users: one is unknown, one sends a wrong password, one can't log in this way. All three
/// get messages of the same kinds and lengths, the same salt at their next login, and the same
/// error.
#[test]
fn unknown_users_look_like_known_ones() {
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        let shape = |user: &str, secret: Option<&Secret>| {
            let (result, seen) = talk(start(method, user, secret), server(user, "wrong"));
            let lengths: Vec<_> = seen
                .requests
                .iter()
                .map(|(c, body)| (*c, body.len()))
                .collect();
            (result.unwrap_err().text, lengths, seen.answers.len())
        };
        let known = shape("bob", Some(&Secret::Plain("right".into())));
        assert_eq!(shape("eve", None), known);
        assert_eq!(shape("eve", Some(&Secret::Plain(String::new()))), known);
        assert_eq!(shape("bob", Some(&every_secret("bob", "right")[1])), known);
    }
    let salt_of = |user: &str| {
        let (_, seen) = talk(start(Method::Scram, user, None), server(user, "x"));
        String::from_utf8(seen.requests[1].1.clone()).unwrap()
    };
    assert_eq!(salt_of("eve"), salt_of("eve"));
    assert_ne!(salt_of("eve"), salt_of("eva"));
    assert!(salt_of("eve").ends_with(",i=4"));
}

#[test]
fn keys_pass_through() {
    let secret = &every_secret("bob", "pencil")[2];
    let through = |keys: Option<ScramKeys>, on_server: &Secret| {
        let server = server_with("bob", Some(secret.clone()), keys);
        talk(start(Method::Scram, "bob", Some(on_server)), server)
    };
    for method in [Method::Scram, Method::Md5, Method::Plain] {
        let login = talk(start(method, "bob", Some(secret)), server("bob", "pencil"));
        let keys = login.0.unwrap().keys.expect("a SCRAM secret leaves keys");
        assert_eq!(
            (&*keys.salt, keys.iterations),
            (&b"0123456789abcdef"[..], 3)
        );
        let (result, seen) = through(Some(keys.clone()), secret);
        assert_eq!(result.unwrap().keys, Some(keys.clone()));
        assert_eq!(seen.derivations, 0);

        // The server's secret has changed: another salt, another count, another password.
        for (password, salt, iterations, text) in [
            (
                "pencil",
                b"0123456789abcdeF",
                3,
                "server login failed: wrong password type",
            ),
            (
                "pencil",
                b"0123456789abcdef",
                2,
                "server login failed: wrong password type",
            ),
            ("other", b"0123456789abcdef", 3, SASL_FAILED),
        ] {
            let other = Secret::classify(verifier(password, salt, iterations).to_string());
            assert_eq!(
                through(Some(keys.clone()), &other).0.unwrap_err().text,
                text
            );
        }
    }
    let refusal = through(None, secret).0.unwrap_err();
    assert_eq!(refusal.text, "server login failed: wrong password type");
}

#[test]
fn a_plain_password_leaves_no_keys_and_derives_once() {
    let secret = Secret::Plain("pencil".into());
    let (result, seen) = talk(
        start(Method::Scram, "bob", Some(&secret)),
        server("bob", "pencil"),
    );
    assert_eq!(result.unwrap().keys, None);
    assert_eq!(seen.derivations, 1);
}

#[test]
fn a_channel_binding_flag_of_y_is_accepted() {
    // A client over TLS that could bind the channel, but got no offer.
    let secret = &every_secret("bob", "pencil")[2];
    let (mut login, _) = start(Method::Scram, "bob", Some(secret));
    let first = b"SCRAM-SHA-256\0\0\0\0\x0by,,n=,r=abc";
    let LoginStep::Reply(AuthRequest::SaslContinue(reply)) = login.answer(first) else {
        panic!()
    };
    let reply = String::from_utf8(reply).unwrap();
    let nonce = reply.split_once(',').unwrap().0;
    let salted = scram::salted_password(b"pencil", b"0123456789abcdef", 3);
    let without_proof = format!("c=eSws,{nonce}");
    let transcript = format!("n=,r=abc,{reply},{without_proof}");
    let client_key = scram::client_key(&salted);
    let signature = scram::hmac(&scram::sha256(&client_key), &[transcript.as_bytes()]);
    let mut last = format!("{without_proof},p=").into_bytes();
    scram::push_base64(&mut last, &scram::xor(&client_key, &signature));
    assert!(matches!(login.answer(&last), LoginStep::Done(_)));
}

#[test]
fn a_missing_initial_message_is_asked_for() {
    let secret = &every_secret("bob", "pencil")[2];
    let (mut login, _) = start(Method::Scram, "bob", Some(secret));
    let step = login.answer(b"SCRAM-SHA-256\0\xff\xff\xff\xff");
    assert!(matches!(step, LoginStep::Reply(AuthRequest::SaslContinue(m)) if m.is_empty()));
    let step = login.answer(b"n,,n=,r=abc");
    assert!(
        matches!(step, LoginStep::Reply(AuthRequest::SaslContinue(m)) if m.starts_with(b"r=abc"))
    );
}

#[test]
fn hostile_clients() {
    let secret = &every_secret("bob", "pencil")[2];
    let big_length = b"SCRAM-SHA-256\0\x7f\xff\xff\xffn,,n=,r=abc";
    for body in [
        &b""[..],
        b"\0",
        b"SCRAM-SHA-256",
        b"SCRAM-SHA-256\0",
        b"SCRAM-SHA-256\0\0\0\0",
        b"SCRAM-SHA-256\0\0\0\0\0",
        b"SCRAM-SHA-256\0\0\0\0\x0an,,n=,r=abc",
        b"SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=abc",
        b"SCRAM-SHA-256\0\x80\0\0\x0bn,,n=,r=abc",
        b"SCRAM-SHA-256\0\xff\xff\xff\xffn,,n=,r=abc",
        b"pencil\0",
        big_length,
    ] {
        let (mut login, _) = start(Method::Scram, "bob", Some(secret));
        let LoginStep::Refuse(refusal) = login.answer(body) else {
            panic!("{body:?}")
        };
        assert_eq!(refusal.text, SASL_FAILED, "{body:?}");
        assert!(
            matches!(login.answer(b"n,,n=,r=abc"), LoginStep::Refuse(_)),
            "went on: {body:?}"
        );
    }
    for body in [&b""[..], b"\0", b"x", b"md5\0x", b"md5\0\0"] {
        for method in [Method::Plain, Method::Md5] {
            let (mut login, _) = start(method, "bob", Some(&Secret::Plain("x".into())));
            let LoginStep::Refuse(refusal) = login.answer(body) else {
                panic!("{body:?}")
            };
            assert_eq!(refusal.text, PASSWORD_FAILED, "{body:?}");
        }
    }
    // A proof from another exchange: the nonce differs.
    let (mut login, _) = start(Method::Scram, "bob", Some(secret));
    login.answer(b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc");
    let replay = b"c=biws,r=abd,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let LoginStep::Refuse(refusal) = login.answer(replay) else {
        panic!()
    };
    assert_eq!(refusal.detail, "malformed SCRAM message: the nonce changed");
}

fn fresh() -> ServerLogin {
    server("bob", "pencil")
}

#[test]
fn hostile_servers() {
    let refused = |login: &mut ServerLogin, code: u32, payload: &[u8]| {
        let step = login.challenge(code, payload);
        assert!(
            matches!(step, LoginStep::Refuse(_)),
            "{code} {payload:?}: {step:?}"
        );
        let step = login.challenge(code::OK, b"");
        assert!(
            matches!(step, LoginStep::Refuse(_)),
            "went on after {code} {payload:?}"
        );
    };
    for (code, payload) in [
        (code::OK, &b"x"[..]),
        (code::CLEARTEXT, b"x"),
        (code::MD5, b""),
        (code::MD5, b"abc"),
        (code::MD5, b"abcde"),
        (code::SASL, b""),
        (code::SASL, b"\0"),
        (code::SASL, b"\0\0"),
        (code::SASL, b"SCRAM-SHA-256"),
        (code::SASL, b"SCRAM-SHA-256\0"),
        (code::SASL, b"SCRAM-SHA-256\0\0\0"),
        (code::SASL, b"\0SCRAM-SHA-256\0\0"),
        (code::SASL, b"SCRAM-SHA-256-PLUS\0\0"),
        (code::SASL, b"OAUTHBEARER\0SCRAM-SHA-1\0\0"),
        (code::SASL_CONTINUE, b"r=abc,s=c2FsdA==,i=1"),
        (
            code::SASL_FINAL,
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
        (2, b""),
        (7, b""),
        (9, b""),
        (u32::MAX, b""),
    ] {
        refused(&mut fresh(), code, payload);
    }

    let in_sasl = || {
        let mut login = fresh();
        let step = login.challenge(code::SASL, b"SCRAM-SHA-256\0\0");
        assert!(matches!(step, LoginStep::Reply(_)));
        login
    };
    // A foreign nonce; only Howdah's own half of the nonce; a skipped step; a request for the
    // password.
    let ours = "AgICAgICAgICAgICAgICAgIC";
    for (code, payload) in [
        (code::OK, String::new()),
        (code::CLEARTEXT, String::new()),
        (code::MD5, "abcd".into()),
        (code::SASL, "SCRAM-SHA-256\0\0".into()),
        (
            code::SASL_FINAL,
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".into(),
        ),
        (code::SASL_CONTINUE, String::new()),
        (code::SASL_CONTINUE, "r=abc,s=c2FsdA==,i=1".into()),
        (code::SASL_CONTINUE, format!("r={ours},s=c2FsdA==,i=1")),
        (
            code::SASL_CONTINUE,
            format!("r={ours}x,s=c2FsdA==,i=10000001"),
        ),
    ] {
        refused(&mut in_sasl(), code, payload.as_bytes());
    }

    let proven = || {
        let mut login = in_sasl();
        let first = format!("r={ours}x,s=c2FsdA==,i=1");
        let LoginStep::Derive(derivation) = login.challenge(code::SASL_CONTINUE, first.as_bytes())
        else {
            panic!()
        };
        assert!(matches!(
            login.derived(&derivation.compute()),
            LoginStep::Reply(_)
        ));
        login
    };
    // The server never proves that it knows the password.
    for (code, payload) in [
        (code::OK, &b""[..]),
        (code::CLEARTEXT, b""),
        (code::SASL_CONTINUE, b"r=abc,s=c2FsdA==,i=1"),
        (code::SASL_FINAL, b""),
        (code::SASL_FINAL, b"e=other-error"),
        (
            code::SASL_FINAL,
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ] {
        refused(&mut proven(), code, payload);
    }
    // A message while a derivation is open.
    let mut login = in_sasl();
    let first = format!("r={ours}x,s=c2FsdA==,i=1");
    assert!(matches!(
        login.challenge(code::SASL_CONTINUE, first.as_bytes()),
        LoginStep::Derive(_)
    ));
    refused(&mut login, code::SASL_FINAL, b"v=");
}

#[test]
fn our_mechanism_is_found_anywhere() {
    for list in [
        &b"SCRAM-SHA-256\0\0"[..],
        b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
        b"SCRAM-SHA-256\0SCRAM-SHA-256-PLUS\0\0",
        b"OAUTHBEARER\0X\0SCRAM-SHA-256\0Y\0\0",
    ] {
        let LoginStep::Reply(body) = fresh().challenge(code::SASL, list) else {
            panic!("{list:?}")
        };
        assert_eq!(
            body,
            b"SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=AgICAgICAgICAgICAgICAgIC"
        );
    }
}

#[test]
fn what_a_server_secret_can_do() {
    let [plain, md5, scram] = every_secret("bob", "pencil").map(Some);
    let can = |secret: &Option<Secret>, code: u32, payload: &[u8]| {
        let mut login = server_with("bob", secret.clone(), None);
        match login.challenge(code, payload) {
            LoginStep::Refuse(refusal) => {
                assert_eq!(refusal.text, "server login failed: wrong password type");
                false
            }
            LoginStep::Reply(_) | LoginStep::Done(()) => true,
            step => panic!("{step:?}"),
        }
    };
    for (secret, expected) in [
        (&plain, [true, true, true, true]),
        (&md5, [true, false, true, false]),
        (&scram, [true, false, false, false]),
        (&None, [true, false, false, false]),
    ] {
        let rows = [
            (code::OK, &b""[..]),
            (code::CLEARTEXT, b""),
            (code::MD5, b"salt"),
            (code::SASL, b"SCRAM-SHA-256\0\0"),
        ];
        assert_eq!(
            rows.map(|(code, payload)| can(secret, code, payload)),
            expected,
            "{secret:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any two passwords, by every method and kind of secret: the right one opens, the other does
    /// not.
    #[test]
    fn any_password(
        password in "[^\0]{1,12}",
        other in "[^\0]{1,12}",
        user in "[^\0]{1,12}",
        method in 0..3usize,
        kind in 0..3usize,
    ) {
        let method = [Method::Plain, Method::Md5, Method::Scram][method];
        prop_assume!(!(method == Method::Scram && kind == 1));
        let secret = &every_secret(&user, &password)[kind];
        let (result, _) = talk(start(method, &user, Some(secret)), server(&user, &password));
        prop_assert!(result.is_ok(), "{:?}", result);
        // SASLprep makes some different passwords equal.
        let prepared = |text: &str| saslprep::prepare(text.as_bytes()).into_owned();
        if prepared(&password) != prepared(&other) {
            let (result, _) = talk(start(method, &user, Some(secret)), server(&user, &other));
            prop_assert!(result.is_err());
        }
    }

    /// One changed byte anywhere in the client's messages: the login fails.
    #[test]
    fn any_tampering(at: prop::sample::Index, byte: u8, which in 0..2usize) {
        let secret = &every_secret("bob", "pencil")[2];
        let (mut login, _) = start(Method::Scram, "bob", Some(secret));
        let mut server = server("bob", "pencil");
        let mut tampered = false;
        let mut request = AuthRequest::Sasl { plus: false };
        for turn in 0..2 {
            let mut step = server.challenge(request.code(), request.payload());
            if let LoginStep::Derive(derivation) = step {
                step = server.derived(&derivation.compute());
            }
            let LoginStep::Reply(mut body) = step else { panic!("{step:?}") };
            if turn == which {
                let at = at.index(body.len());
                tampered = body[at] != byte;
                body[at] = byte;
            }
            match login.answer(&body) {
                LoginStep::Reply(next) => request = next,
                LoginStep::Done(_) => {
                    prop_assert!(!tampered);
                    return Ok(());
                }
                _ => {
                    prop_assert!(tampered);
                    return Ok(());
                }
            }
            // The changed nonce came back: Howdah's client side notices.
            let reply = ScramProver::new(Credential::Password("pencil".into()), &[2; 18], Binding::Unsupported)
                .server_first(request.payload());
            if matches!(reply, LoginStep::Refuse(_)) {
                prop_assert!(tampered);
                return Ok(());
            }
        }
    }
}
