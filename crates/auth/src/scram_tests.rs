//! Messages: the RFC's own, and messages that must be refused.

use super::*;

#[test]
fn hi_of_rfc_7677() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let salted = salted_password(b"pencil", &salt, 4096);
    let transcript = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let signature = hmac(&server_key(&salted), &[transcript]);
    assert_eq!(
        STANDARD.encode(signature),
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    );
}

#[test]
fn one_part_or_many() {
    assert_eq!(hmac(b"key", &[b"ab", b"", b"c"]), hmac(b"key", &[b"abc"]));
}

#[test]
fn client_first_accepted() {
    for (message, flag, nonce) in [
        ("n,,n=,r=abc", BindingFlag::Unsupported, "abc"),
        ("y,,n=user,r=abc", BindingFlag::NotOffered, "abc"),
        ("n,,n=us=2Cer,r=!~=", BindingFlag::Unsupported, "!~="),
        (
            "n,,n=\u{e9},r=a,x=ignored,y=",
            BindingFlag::Unsupported,
            "a",
        ),
        (
            "p=tls-unique,,n=,r=a",
            BindingFlag::Bound(b"tls-unique"),
            "a",
        ),
        ("p=,,n=,r=a", BindingFlag::Bound(b""), "a"),
    ] {
        let first = ClientFirst::read(message.as_bytes()).expect(message);
        assert_eq!(
            (first.flag, first.nonce),
            (flag, nonce.as_bytes()),
            "{message}"
        );
        let bare = message.find(",,").expect(message) + 2;
        assert_eq!(first.gs2_header, &message.as_bytes()[..bare]);
        assert_eq!(first.bare, &message.as_bytes()[bare..]);
    }
}

#[test]
fn client_first_refused() {
    let long = format!("n,,n=,r={}", "a".repeat(CLIENT_MESSAGE_MAX));
    for message in [
        "",
        "n",
        "n,",
        "n,,",
        ",,",
        "x,,n=,r=abc",
        "N,,n=,r=abc",
        "p,,n=,r=abc",
        "p=tls-server-end-point",
        "p=tls-server-end-point,n=,r=abc",
        "p=tls-server-end-point,a=x,n=,r=abc",
        "nn=,r=abc",
        "n,n=,r=abc",
        "n,a=admin,n=,r=abc",
        "n,a=,n=,r=abc",
        "n,,m=x,n=,r=abc",
        "n,,r=abc",
        "n,,n=,",
        "n,,n=",
        "n,,n=,r",
        "n,,n=,r=",
        "n,,n=,r=a c",
        "n,,n=,r=abc,",
        "n,,n=,r=abc,,",
        "n,,n=,r=abc,x",
        "n,,n=,r=abc,1=x",
        "n,,n=,r=abc\0",
        "n,,n=,r=ab\u{e9}",
        "n,,n=,s=abc",
        "n,,,r=abc",
        "n,,=user,r=abc",
        &long,
    ] {
        assert!(ClientFirst::read(message.as_bytes()).is_err(), "{message}");
    }
}

#[test]
fn client_final() {
    let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let good = format!("c=biws,r=abc,x=1,p={proof}");
    let last = ClientFinal::read(good.as_bytes()).unwrap();
    assert_eq!((last.binding, last.nonce), (&b"biws"[..], &b"abc"[..]));
    assert_eq!(last.without_proof, b"c=biws,r=abc,x=1");
    assert_eq!(STANDARD.encode(last.proof), proof);

    let long = format!("c=biws,r={},p={proof}", "a".repeat(CLIENT_MESSAGE_MAX));
    for message in [
        "",
        "c",
        "c=",
        "c=biws",
        "c=biws,",
        "r=abc,c=biws",
        "c=biws,r=abc",
        "c=biws,r=abc,",
        "c=biws,r=abc,p",
        "c=biws,r=abc,p=",
        "c=biws,r=abc,x=1",
        &good.replace("c=biws,", ""),
        &good.replace("r=abc,", ""),
        &good[..good.len() - 1],
        &good.replace("dHzb", ""),
        &good.replace("dHzb", "d!zb"),
        &good.replace("dHzb", "dHzbdHzb"),
        &good.replace("VQ=", "VQA"),
        &format!("{good},"),
        &format!("{good},x=1"),
        &format!("{good} "),
        &format!("{good}\0"),
        &long,
    ] {
        assert!(ClientFinal::read(message.as_bytes()).is_err(), "{message}");
    }
}

#[test]
fn server_first() {
    let first = ServerFirst::read(b"r=abcdef,s=c2FsdA==,i=1").unwrap();
    assert_eq!(
        (first.nonce, &*first.salt, first.iterations),
        (&b"abcdef"[..], &b"salt"[..], 1)
    );
    for length in [1, 2, 15, 16, 17, 32, 64, SALT_MAX] {
        let salt = STANDARD.encode(vec![7; length]);
        let message = format!("r=abcdef,s={salt},i={ITERATIONS_MAX},x=ignored");
        let first = ServerFirst::read(message.as_bytes()).expect(&message);
        assert_eq!(
            (first.salt.len(), first.iterations),
            (length, ITERATIONS_MAX)
        );
    }

    let long_salt = format!("r=abc,s={},i=1", STANDARD.encode([7; SALT_MAX + 1]));
    let long = format!("r={},s=c2FsdA==,i=1", "a".repeat(SERVER_MESSAGE_MAX));
    for message in [
        "",
        "r",
        "r=abc",
        "r=abc,s=c2FsdA==",
        "r=abc,s=c2FsdA==,",
        "r=abc,s=c2FsdA==,i",
        "r=abc,s=c2FsdA==,i=",
        "r=abc,s=c2FsdA==,i=0",
        "r=abc,s=c2FsdA==,i=-1",
        "r=abc,s=c2FsdA==,i=+1",
        "r=abc,s=c2FsdA==,i= 1",
        "r=abc,s=c2FsdA==,i=1 ",
        "r=abc,s=c2FsdA==,i=0x10",
        "r=abc,s=c2FsdA==,i=4294967297",
        "r=abc,s=c2FsdA==,i=10000001",
        "r=abc,s=c2FsdA==,i=1,",
        "r=abc,s=c2FsdA==,i=1,x",
        "r=abc,s=c2FsdA==,i=1\0",
        "r=abc,s=,i=1",
        "r=abc,s=c2FsdA,i=1",
        "r=abc,s=c2F dA==,i=1",
        "r=abc,i=1,s=c2FsdA==",
        "s=c2FsdA==,r=abc,i=1",
        "r=,s=c2FsdA==,i=1",
        "r=a\u{e9},s=c2FsdA==,i=1",
        "m=x,r=abc,s=c2FsdA==,i=1",
        "e=other-error",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        &long_salt,
        &long,
    ] {
        assert!(ServerFirst::read(message.as_bytes()).is_err(), "{message}");
    }
}

#[test]
fn server_final() {
    let good = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert!(matches!(
        ServerFinal::read(good.as_bytes()),
        Ok(ServerFinal::Signature(_))
    ));
    assert_eq!(
        ServerFinal::read(b"e=invalid-proof"),
        Ok(ServerFinal::Error)
    );
    for message in [
        "",
        "v",
        "v=",
        "V=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        &good[..good.len() - 1],
        &format!("{good}="),
        &format!("{good},"),
        &format!("{good}\0"),
        "p=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        "v=6rri",
    ] {
        assert!(ServerFinal::read(message.as_bytes()).is_err(), "{message}");
    }
}
