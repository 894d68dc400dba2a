//! Sessions over an in-memory pair: Howdah's session on one side, the library's own on the other.

use howdah_pooler::config::SslMode;
use howdah_pooler::tls::TlsFacts;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::symm::Cipher;

use super::contexts::{TicketSeed, versions};
#[cfg(feature = "aws-lc")]
use super::library;
use super::samples::{Folder, certificate, config, contexts, elliptic, named, to};
use super::session::{HandshakeStep, Opened};
use super::{Contexts, LibrarySession, TlsSession};

type Shaken = Result<Box<TlsFacts>, String>;

/// Lets two sessions do a handshake. Bytes arrive in pieces of this size.
fn shake(
    server: &mut LibrarySession,
    client: &mut LibrarySession,
    piece: usize,
) -> (Shaken, Shaken) {
    let mut ends: [Option<Shaken>; 2] = [None, None];
    for _ in 0..100_000 {
        let sides = [&mut *server, &mut *client];
        for (end, side) in ends.iter_mut().zip(sides) {
            match side.handshake() {
                HandshakeStep::More => {}
                HandshakeStep::Done(facts) => *end = Some(Ok(facts)),
                HandshakeStep::Failed(why) => *end = Some(Err(why)),
            }
        }
        let mut said = false;
        let words = [server.take_output(), client.take_output()];
        for (from, output) in words.into_iter().enumerate() {
            for piece in output.iter().flat_map(|bytes| bytes.chunks(piece)) {
                said = true;
                let (side, end) = match from {
                    0 => (&mut *client, &mut ends[1]),
                    _ => (&mut *server, &mut ends[0]),
                };
                side.feed(piece);
                match side.handshake() {
                    HandshakeStep::More => {}
                    HandshakeStep::Done(facts) => *end = Some(Ok(facts)),
                    HandshakeStep::Failed(why) => *end = Some(Err(why)),
                }
            }
        }
        if !said {
            break;
        }
    }
    let missing = || Err("it never ended".to_string());
    let [server, client] = ends.map(|end| end.unwrap_or_else(missing));
    (server, client)
}

fn pair(contexts: &Contexts, mode: SslMode) -> (LibrarySession, LibrarySession) {
    let mut server = LibrarySession::accept(contexts, false).unwrap();
    let mut client = LibrarySession::connect(contexts, to("localhost", mode)).unwrap();
    let (ours, theirs) = shake(&mut server, &mut client, usize::MAX);
    ours.unwrap();
    theirs.unwrap();
    (server, client)
}

fn opened(session: &mut LibrarySession, bytes: &[u8]) -> (Vec<u8>, Opened) {
    let (mut block, mut len) = (Vec::new(), 0);
    session.feed(bytes);
    let end = session.open(&mut block, &mut len);
    block.truncate(len);
    (block, end)
}

#[test]
fn a_session_stands_and_its_facts_are_told() {
    let folder = Folder::new("facts");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost", "127.0.0.1"]);
    let contexts = contexts(&folder, &key, &own, "");
    let mut server = LibrarySession::accept(&contexts, true).unwrap();
    let mut client =
        LibrarySession::connect(&contexts, to("localhost", SslMode::VerifyFull)).unwrap();
    assert!(server.is_in_handshake() && server.seal(b"x", Vec::new()).is_err());
    let (ours, theirs) = shake(&mut server, &mut client, 1);
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    assert_eq!(&*ours.version, "TLSv1.3");
    assert_eq!(ours.summary(), theirs.summary());
    assert_eq!(ours.sni.as_deref(), Some("localhost"));
    assert_eq!(theirs.sni, ours.sni);
    assert_eq!(ours.alpn.as_deref(), Some("postgresql"));
    let hash = own.digest(MessageDigest::sha384()).unwrap();
    assert_eq!(ours.binding.as_deref(), Some(&*hash));
    assert_eq!(theirs.binding, ours.binding);
    let peer = theirs.peer.unwrap();
    assert_eq!(&*peer.subject, "/O=Test, Inc/CN=localhost");
    assert_eq!(&*peer.distinguished_name, "CN=localhost,O=Test\\, Inc");
    assert!(peer.is_for_host("127.0.0.1") && !peer.is_for_host("other"));
    // No certificate was asked for, because the mode does not demand one.
    assert_eq!(ours.peer, None);
}

/// Sends bytes in both directions.
fn talk(server: &mut LibrarySession, client: &mut LibrarySession, plain: &[u8]) {
    for turn in 0..2 {
        let (from, to) = match turn {
            0 => (&mut *client, &mut *server),
            _ => (&mut *server, &mut *client),
        };
        let mut sealed = from.take_output().unwrap_or_default();
        sealed = from.seal(plain, sealed).unwrap();
        assert_eq!(opened(to, &sealed), (plain.to_vec(), Opened::More));
    }
}

#[cfg(feature = "aws-lc")]
#[test]
fn sessions_travel() {
    let folder = Folder::new("travel");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    // The settings of the process that receives the session do not matter.
    let bare = Contexts::build(&super::samples::read(""), TicketSeed::default()).unwrap();
    let long = vec![b'l'; 100_000];
    for more in [
        "client_tls_protocols = tlsv1.3",
        "client_tls_protocols = tlsv1.3\nclient_tls13_ciphers = TLS_CHACHA20_POLY1305_SHA256",
        "client_tls_protocols = tlsv1.2",
        "client_tls_protocols = tlsv1.2\nclient_tls_ciphers = ECDHE-ECDSA-CHACHA20-POLY1305",
        "client_tls_protocols = tlsv1.2\nclient_tls_ciphers = ECDHE-ECDSA-AES128-SHA",
        "client_tls_protocols = tlsv1.3\nclient_tls_sslmode = verify-ca",
        "client_tls_protocols = tlsv1.2\nclient_tls_sslmode = verify-ca",
    ] {
        let contexts = contexts(&folder, &key, &own, more);
        let mut server = LibrarySession::accept(&contexts, false).unwrap();
        let to = to("localhost", SslMode::VerifyFull);
        let mut client = LibrarySession::connect(&contexts, to).unwrap();
        let (facts, _) = shake(&mut server, &mut client, usize::MAX);
        assert!(facts.unwrap().travels, "{more}");
        talk(&mut server, &mut client, b"before");
        for turn in 0..3u8 {
            // Half a record has arrived when the session leaves. It is cut in its header or its
            // body.
            let sealed = client.seal(b"cut in two", Vec::new()).unwrap();
            let (front, back) = sealed.split_at([3, 9, 5][usize::from(turn)]);
            assert_eq!(opened(&mut server, front), (Vec::new(), Opened::More));
            let packed = server.pack().unwrap();
            assert!(server.pack().is_err() && server.seal(b"x", Vec::new()).is_err());
            server.close();
            assert_eq!(server.take_output(), None, "nothing is said by two");
            server = LibrarySession::unpack(&bare, &packed).unwrap();
            assert_eq!(opened(&mut server, back).0, b"cut in two");
            talk(&mut server, &mut client, &long);
            if more.contains("tlsv1.3") {
                library::update_keys(server.stream.ssl(), turn == 1).unwrap();
                talk(&mut server, &mut client, b"new keys");
                library::update_keys(client.stream.ssl(), turn != 1).unwrap();
                talk(&mut server, &mut client, b"new keys again");
            }
            for cut in [0, 3, packed.len() / 2, packed.len() - 1] {
                assert!(
                    LibrarySession::unpack(&bare, &packed[..cut]).is_err(),
                    "{cut}"
                );
            }
        }
        let mut packed = server.pack().unwrap();
        packed[5] ^= 1;
        let why = LibrarySession::unpack(&bare, &packed).err().unwrap();
        assert!(why.contains("not by AWS-LC"), "{why}");
        packed[5] ^= 1;
        server = LibrarySession::unpack(&bare, &packed).unwrap();
        server.close();
        let goodbye = server.take_output().unwrap();
        assert_eq!(opened(&mut client, &goodbye).1, Opened::End);
        // A session that the client has ended does not travel.
        let mut server = LibrarySession::unpack(&bare, &packed).unwrap();
        client.close();
        let goodbye = client.take_output().unwrap();
        assert_eq!(opened(&mut server, &goodbye).1, Opened::End);
        assert!(server.pack().is_err());
    }
}

/// Sessions in which Howdah is the TLS client, and sessions of old versions.
#[test]
fn other_sessions_stay() {
    let folder = Folder::new("stay");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    let contexts = contexts(&folder, &key, &own, "");
    let mut server = LibrarySession::accept(&contexts, false).unwrap();
    assert!(server.pack().is_err(), "it is in its handshake");
    let to = to("localhost", SslMode::VerifyFull);
    let mut client = LibrarySession::connect(&contexts, to).unwrap();
    let (ours, theirs) = shake(&mut server, &mut client, usize::MAX);
    assert_eq!(ours.unwrap().travels, cfg!(feature = "aws-lc"));
    assert!(!theirs.unwrap().travels && client.pack().is_err());
    talk(&mut server, &mut client, b"as before");
}

#[test]
fn records_may_be_cut_anywhere() {
    let folder = Folder::new("cut");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    for protocol in ["tlsv1.2", "tlsv1.3"] {
        let more = format!("client_tls_protocols = {protocol}");
        let contexts = contexts(&folder, &key, &own, &more);
        let (mut server, mut client) = pair(&contexts, SslMode::VerifyFull);
        let plain: Vec<u8> = (0..100u8).collect();
        let mut sealed = Vec::new();
        for part in [&plain[..3], &plain[3..50], &plain[50..]] {
            sealed = client.seal(part, sealed).unwrap();
        }
        let mut got = Vec::new();
        for byte in sealed {
            let (part, end) = opened(&mut server, &[byte]);
            assert_eq!(end, Opened::More);
            got.extend(part);
        }
        assert_eq!(got, plain);
        // Longer than a record, in both directions.
        let long: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        for cut in [1, 5, 4096, 16_389, 80_000] {
            let sealed = server.seal(&long, Vec::new()).unwrap();
            let (front, back) = sealed.split_at(cut);
            let mut got = opened(&mut client, front).0;
            got.extend(opened(&mut client, back).0);
            assert!(got == long, "{cut}");
        }
    }
}

#[test]
fn changed_bytes_are_noticed() {
    let folder = Folder::new("changed");
    let key = elliptic();
    let contexts = contexts(&folder, &key, &certificate(&key, 3, &["localhost"]), "");
    let length = {
        let (_, mut client) = pair(&contexts, SslMode::Require);
        client.seal(b"select 1", Vec::new()).unwrap().len()
    };
    for at in [0, 1, 5, length / 2, length - 1] {
        let (mut server, mut client) = pair(&contexts, SslMode::Require);
        let mut sealed = client.seal(b"select 1", Vec::new()).unwrap();
        sealed[at] ^= 0x40;
        let (got, end) = opened(&mut server, &sealed);
        assert_eq!(got, b"");
        assert!(matches!(end, Opened::Failed(_)), "{at}: {end:?}");
        // The session sends an alert, and nothing afterwards.
        assert!(server.take_output().is_some() && server.seal(b"x", Vec::new()).is_err());
        server.close();
        assert_eq!(server.take_output(), None);
    }
}

#[test]
fn an_end_is_said_and_understood() {
    let folder = Folder::new("end");
    let key = elliptic();
    let contexts = contexts(&folder, &key, &certificate(&key, 3, &["localhost"]), "");
    let (mut server, mut client) = pair(&contexts, SslMode::Require);
    let mut last = client.seal(b"goodbye", Vec::new()).unwrap();
    client.close();
    last.extend(client.take_output().unwrap());
    client.close();
    assert_eq!(client.take_output(), None);
    assert_eq!(
        opened(&mut server, &last),
        (b"goodbye".to_vec(), Opened::End)
    );
}

#[test]
fn what_is_no_handshake_fails() {
    let folder = Folder::new("garbage");
    let key = elliptic();
    let contexts = contexts(&folder, &key, &certificate(&key, 3, &["localhost"]), "");
    let long = [b"\x16\x03\x01\xff\xff".to_vec(), vec![0; 70_000]].concat();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0x16; 64], &long] {
        let mut server = LibrarySession::accept(&contexts, false).unwrap();
        server.feed(garbage);
        let step = server.handshake();
        assert!(matches!(step, HandshakeStep::Failed(_)), "{step:?}");
        assert!(matches!(server.handshake(), HandshakeStep::More));
    }
    // Half a record is not a reason to give up.
    let mut server = LibrarySession::accept(&contexts, false).unwrap();
    server.feed(b"\x16\x03\x01\x02\x00\x01");
    assert!(matches!(server.handshake(), HandshakeStep::More));
}

#[test]
fn servers_are_verified_as_the_mode_demands() {
    let folder = Folder::new("verify");
    let (key, other) = (elliptic(), elliptic());
    let own = certificate(&key, 3, &["localhost"]);
    let contexts_of_own = contexts(&folder, &key, &own, "");
    let stranger = Folder::new("stranger");
    let strange = certificate(&other, 3, &["localhost"]);
    let contexts_of_stranger = contexts(&stranger, &other, &strange, "");
    for (theirs, host, mode, verdict) in [
        (&contexts_of_own, "localhost", SslMode::VerifyFull, Ok(())),
        (&contexts_of_own, "elsewhere", SslMode::VerifyCa, Ok(())),
        (
            &contexts_of_own,
            "elsewhere",
            SslMode::VerifyFull,
            Err("name 'elsewhere' not present in server certificate"),
        ),
        (&contexts_of_stranger, "localhost", SslMode::Require, Ok(())),
        (
            &contexts_of_stranger,
            "localhost",
            SslMode::VerifyCa,
            Err("certificate verify failed"),
        ),
    ] {
        let mut server = LibrarySession::accept(theirs, false).unwrap();
        let mut client = LibrarySession::connect(&contexts_of_own, to(host, mode)).unwrap();
        let (_, ours) = shake(&mut server, &mut client, usize::MAX);
        match verdict {
            Ok(()) => assert!(ours.is_ok(), "{mode:?} {host}: {ours:?}"),
            Err(text) => assert!(ours.unwrap_err().starts_with(text), "{mode:?} {host}"),
        }
    }
}

#[test]
fn clients_are_asked_where_the_mode_demands() {
    let folder = Folder::new("clients");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    let demands = "client_tls_sslmode = verify-ca";
    let with = contexts(&folder, &key, &own, demands);
    let (mut server, mut client) = (
        LibrarySession::accept(&with, false).unwrap(),
        LibrarySession::connect(&with, to("localhost", SslMode::Require)).unwrap(),
    );
    let (theirs, _) = shake(&mut server, &mut client, usize::MAX);
    let peer = theirs.unwrap().peer.expect("it showed one");
    assert_eq!(peer.common_name.as_deref(), Some("localhost"));
    let kept = server.stream.ssl().peer_certificate().is_some();
    assert_eq!(kept, !cfg!(feature = "aws-lc"));
    let more = format!("{demands}\nserver_tls_key_file =\nserver_tls_cert_file =");
    let without = contexts(&folder, &key, &own, &more);
    let mut server = LibrarySession::accept(&with, false).unwrap();
    let mut client = LibrarySession::connect(&without, to("localhost", SslMode::Require)).unwrap();
    let (theirs, _) = shake(&mut server, &mut client, usize::MAX);
    let why = theirs.unwrap_err().to_lowercase().replace('_', " ");
    assert!(why.contains("did not return a certificate"), "{why}");
}

/// As many authorities as some companies have. Their names do not fit into the request for a
/// certificate.
#[test]
fn thousands_of_authorities_do() {
    let folder = Folder::new("many");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    let mut many = own.to_pem().unwrap();
    for number in 0..2000 {
        let name = format!("authority {number}");
        many.extend(named(&name, &elliptic(), 3, &[]).to_pem().unwrap());
    }
    let many = folder.write("many", &many);
    for version in ["tlsv1.2", "tlsv1.3"] {
        let more = format!(
            "client_tls_sslmode = verify-full\nclient_tls_ca_file = {many}\n\
             server_tls_ca_file = {many}\nclient_tls_protocols = {version}"
        );
        let contexts = contexts(&folder, &key, &own, &more);
        let mut server = LibrarySession::accept(&contexts, false).unwrap();
        let to = to("localhost", SslMode::VerifyFull);
        let mut client = LibrarySession::connect(&contexts, to).unwrap();
        let (ours, theirs) = shake(&mut server, &mut client, usize::MAX);
        assert!(ours.unwrap().peer.is_some(), "{version}");
        theirs.unwrap();
    }
}

/// Some libraries end an AES-GCM connection after 2^24 records.
#[test]
#[ignore = "takes half a minute when optimised: cargo test --release -p howdah-daemon --lib -- --ignored records"]
fn a_session_has_any_number_of_records() {
    let folder = Folder::new("records");
    let key = elliptic();
    let own = certificate(&key, 3, &["localhost"]);
    for version in ["tlsv1.2", "tlsv1.3"] {
        let more = format!("client_tls_protocols = {version}");
        let contexts = contexts(&folder, &key, &own, &more);
        let (mut server, mut client) = pair(&contexts, SslMode::VerifyFull);
        let mut block = Vec::new();
        for from_client in [true, false] {
            let (from, to) = if from_client {
                (&mut client, &mut server)
            } else {
                (&mut server, &mut client)
            };
            for thousand in 0..(1 << 24) / 1000 + 2 {
                let mut sealed = from.take_output().unwrap_or_default();
                for _ in 0..1000 {
                    sealed = from.seal(b"x", sealed).unwrap();
                }
                to.feed(&sealed);
                let mut len = 0;
                assert_eq!(to.open(&mut block, &mut len), Opened::More, "{thousand}");
                assert_eq!(len, 1000);
            }
        }
    }
}

#[test]
fn old_certificates_and_every_kind_of_key_do() {
    let folder = Folder::new("kinds");
    let rsa = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let kinds = [
        (rsa.clone(), 1, true),
        (rsa, 3, true),
        (elliptic(), 1, true),
        (PKey::generate_ed25519().unwrap(), 3, false),
    ];
    for (key, version, binds) in kinds {
        // AWS-LC can sign with Ed25519, but not by this call. The tests of the process use such
        // keys.
        if cfg!(feature = "aws-lc") && key.id() == openssl::pkey::Id::ED25519 {
            continue;
        }
        let own = certificate(&key, version, &[]);
        let contexts = contexts(&folder, &key, &own, "");
        let mut server = LibrarySession::accept(&contexts, false).unwrap();
        let to = to("localhost", SslMode::VerifyFull);
        let mut client = LibrarySession::connect(&contexts, to).unwrap();
        let (_, facts) = shake(&mut server, &mut client, usize::MAX);
        assert_eq!(facts.unwrap().binding.is_some(), binds, "{:?}", key.id());
    }
}

#[test]
fn direct_tls_wants_our_protocol() {
    let folder = Folder::new("direct");
    let key = elliptic();
    let contexts = contexts(&folder, &key, &certificate(&key, 3, &[]), "");
    for (protocol, done) in [(None, false), (Some(&b"\x0apostgresql"[..]), true)] {
        use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream};
        let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
        if let Some(protocol) = protocol {
            builder.set_alpn_protos(protocol).unwrap();
        }
        let ssl = Ssl::new(&builder.build()).unwrap();
        let mut client = SslStream::new(ssl, Loop::default()).unwrap();
        let mut server = LibrarySession::accept(&contexts, true).unwrap();
        let mut end = HandshakeStep::More;
        for _ in 0..4 {
            let _ = client.connect();
            server.feed(&std::mem::take(&mut client.get_mut().said));
            if let HandshakeStep::More = end {
                end = server.handshake();
            }
            let answer = server.take_output().unwrap_or_default();
            client.get_mut().heard.extend(answer);
        }
        match end {
            HandshakeStep::Done(_) => assert!(done),
            HandshakeStep::Failed(why) => assert!(!done && why.contains("without ALPN"), "{why}"),
            HandshakeStep::More => panic!("it never ended"),
        }
    }
}

/// The input and output of the library's own client.
#[derive(Default)]
struct Loop {
    heard: std::collections::VecDeque<u8>,
    said: Vec<u8>,
}

impl std::io::Read for Loop {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match std::io::Read::read(&mut self.heard, into)? {
            0 => Err(std::io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl std::io::Write for Loop {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.said.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn mistakes_in_settings_and_files_are_named() {
    let folder = Folder::new("mistakes");
    let (key, other) = (elliptic(), elliptic());
    let own = certificate(&key, 3, &[]);
    let path = |name: &str| folder.0.join(name).to_string_lossy().into_owned();
    let other_key = folder.write("other", &other.private_key_to_pem_pkcs8().unwrap());
    let sealed = key
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret")
        .unwrap();
    let sealed = folder.write("sealed", &sealed);
    let empty = folder.write("empty", b"");
    for (more, setting, text) in [
        (
            "client_tls_key_file = ".to_string(),
            "client_tls_sslmode",
            "must be set",
        ),
        (
            format!("client_tls_cert_file = {}", path("none")),
            "client_tls_cert_file",
            "No such file or directory",
        ),
        (
            format!("client_tls_key_file = {other_key}"),
            "client_tls_key_file",
            "key values mismatch",
        ),
        (
            format!("server_tls_key_file = {sealed}"),
            "server_tls_key_file",
            "it is encrypted",
        ),
        (
            format!("server_tls_ca_file = {empty}"),
            "server_tls_ca_file",
            "no certificate in it",
        ),
        (
            "server_tls_key_file =".to_string(),
            "server_tls_cert_file",
            "set both, or neither",
        ),
        (
            "client_tls_ciphers = NONSENSE".to_string(),
            "client_tls_ciphers",
            "failed to set ciphers",
        ),
        (
            "server_tls_protocols = tlsv9".to_string(),
            "server_tls_protocols",
            "invalid TLS protocol \"tlsv9\"",
        ),
        (
            "client_tls_ecdhcurve = round".to_string(),
            "client_tls_ecdhcurve",
            "failed to set the curve",
        ),
    ] {
        let wrong = Contexts::build(&config(&folder, &key, &own, &more), TicketSeed::default())
            .unwrap_err();
        assert_eq!(wrong.setting, setting, "{more}: {wrong}");
        assert!(wrong.text.contains(text), "{more}: {wrong}");
    }
}

#[test]
fn a_change_of_one_side_is_seen_as_one() {
    let folder = Folder::new("change");
    let key = elliptic();
    let own = certificate(&key, 3, &[]);
    let first = contexts(&folder, &key, &own, "");
    let same = contexts(&folder, &key, &own, "");
    let ciphers = contexts(&folder, &key, &own, "client_tls_ciphers = HIGH");
    let authorities = folder.write("more", &own.to_pem().unwrap().repeat(2));
    let trust = format!("server_tls_ca_file = {authorities}");
    let trust = contexts(&folder, &key, &own, &trust);
    let sides = |contexts: &Contexts| (contexts.of_clients, contexts.of_servers);
    assert_eq!(sides(&first), sides(&same));
    let changed = |other: &Contexts| {
        let (clients, servers) = sides(other);
        (clients != first.of_clients, servers != first.of_servers)
    };
    assert_eq!(changed(&ciphers), (true, false));
    assert_eq!(changed(&trust), (false, true));
    let ends = |days: i64| first.expiring(first.ends[0].1 - days * 86_400 - 1);
    assert_eq!(first.ends.len(), 2);
    assert_eq!(ends(31), [""; 0]);
    assert!(ends(9)[0].contains("client_tls_cert_file expires in 9 days"));
    assert!(ends(-2)[1].contains("server_tls_cert_file has expired"));
    let settings = config(&folder, &key, &own, "");
    let before = Contexts::looks(&settings);
    assert!(before.len() == 6 && before.iter().all(Option::is_some));
    assert_eq!(Contexts::looks(&settings), before);
    // A replaced file counts as another file, even with the same content and time.
    let (path, old) = (folder.0.join("chain"), folder.0.join("old"));
    std::fs::rename(&path, &old).unwrap();
    std::fs::copy(&old, &path).unwrap();
    assert_ne!(Contexts::looks(&settings), before);
}

#[test]
fn versions_are_named_as_pgbouncer_names_them() {
    use openssl::ssl::SslOptions as O;
    let old = O::NO_TLSV1 | O::NO_TLSV1_1;
    for (written, off) in [
        ("secure", old),
        ("default", old),
        ("", old),
        ("all", O::empty()),
        ("legacy", O::empty()),
        ("tlsv1.3", old | O::NO_TLSV1_2),
        ("TLSv1.2, tlsv1.3", old),
        ("tlsv1.0", O::NO_TLSV1_1 | O::NO_TLSV1_2 | O::NO_TLSV1_3),
        ("all,!tlsv1.0", O::NO_TLSV1),
        ("!tlsv1.3", O::NO_TLSV1_3),
    ] {
        assert_eq!(versions(written), Ok(off), "{written}");
    }
    assert!(versions("tls").unwrap_err().contains("\"tls\""));
}

/// Checks the promises of [`super::fuzz::handshake`] with random input.
#[test]
fn tampered_handshakes_end_well() {
    let mut state = 7u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    let mut failed = 0;
    for _ in 0..150 {
        let input: Vec<u8> = std::iter::repeat_with(&mut random).take(40).collect();
        failed += usize::from(!super::fuzz::handshake(&input));
    }
    assert!(failed > 50, "{failed}");
    assert!(super::fuzz::handshake(&[]));
}
