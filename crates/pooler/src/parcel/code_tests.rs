use std::sync::Arc;

use howdah_wire::backend::Status;

use super::code::{count_sockets, read, write};
use super::{Estate, Freight, Parcel, Passenger, PoolLore, Standing};
use crate::auth::{ScramKeys, Secret};
use crate::cancel::OldKey;
use crate::client::ClientEnds;
use crate::config::{Host, HostPort};
use crate::event::{Address, Ends, LooseSocket, Time, UnixPeer, WorkerId};
use crate::login::LoginKey;
use crate::login::key::Welcome;
use crate::login::secrets::Secrets;
use crate::params::{Meaning, Params, Tracked};
use crate::place::Via;
use crate::pool::key::PoolKey;
use crate::roster::fact::HostReport;
use crate::roster::lore::{HostLore, ListLore, RosterLore};
use crate::roster::view::Instance;
use crate::server::ServerParcel;
use crate::server::user_end::VanishingUser;
use crate::statement::{Constants, Named, Shape, Statement, StatementDescription};
use crate::tls::{AlternativeName, PeerCertificate, TlsFacts};

fn names() -> Tracked {
    Tracked::new(["IntervalStyle"])
}

fn ends(port: u16) -> Ends {
    Ends {
        remote: Address::Tcp("127.0.0.1".parse().unwrap(), port),
        local: Address::Unix("/tmp/.s.PGSQL.6432".into(), 6432),
        unix_peer: Some(UnixPeer { pid: 7, uid: 70 }),
    }
}

fn freight() -> Freight {
    let tracked = names();
    let params = Arc::new(
        Params::unknown(&tracked)
            .with(1, b"ISO")
            .with(5, b"iso_8601"),
    );
    let statement = Statement::new(9, Constants::Of(10), b"select 1\0\0\0", 11);
    let statement = Arc::new(statement);
    let key = Arc::new(PoolKey::of_clients(LoginKey::new("d", "u")));
    let lore = PoolLore {
        key: key.clone(),
        database: [3; 32],
        welcome: Some(Welcome {
            parameters: vec![(b"a"[..].into(), b"b"[..].into())].into(),
            tracked: params.clone(),
        }),
        secrets: Secrets {
            keys: Some(ScramKeys {
                client_key: [1; 32],
                server_key: [2; 32],
                salt: b"salt"[..].into(),
                iterations: 4096,
            }),
            found: Some(Secret::classify("secret")),
        },
        left_behind: 3,
    };
    let shape = Shape(17);
    let server = |socket| ServerParcel {
        socket: LooseSocket::new(socket),
        ends: ends(5432),
        host: None,
        tls: None,
        number: 4,
        pool: key.clone(),
        key: Some((77, b"four"[..].into())),
        params: params.clone(),
        session: some_settings(),
        statements: vec![(statement.key(), statement.clone(), Some(shape))],
        status: Status::Idle,
        connected: Time(1),
        served: true,
        followed: true,
        since: Time(2),
        standby: None,
        instance: Some(Instance(77)),
        vanishing: Some(VanishingUser::until(Time(9))),
        welcome: None,
        epoch: u64::MAX,
    };
    let told = StatementDescription {
        shape,
        parameters: b"\0\0"[..].into(),
    };
    let named = Named {
        told: Some(Arc::new(told)),
        ..Named::new(statement.clone(), 1)
    };
    let mut with_tls = LooseSocket::new(13);
    with_tls.set_packed_session(b"keys".to_vec());
    let client = Passenger {
        socket: with_tls,
        standing: Standing::Bound,
        ends: ends(1),
        via: Via::Balancer { near: true },
        tls: Some(Arc::new(tls())),
        number: 5,
        connected: Time(3),
        request: Time(4),
        quiet: Time(5),
        ends_at: Some(ClientEnds {
            token: Some(Time(6)),
            user: None,
            lifetime: None,
            drain: Some(Time(7)),
        }),
        database: "d".into(),
        user: "u".into(),
        admitted: true,
        long_key: false,
        key: OldKey {
            pid: 1 << 22 | 1,
            secret: b"ours"[..].into(),
        },
        params: Some(params.clone()),
        asked: None,
        session: [some_settings(), None],
        meaning: Meaning {
            names: 9,
            constants: 10,
        },
        names: vec![(b"s"[..].into(), named)],
        names_given: 1,
        unnamed: Some(statement.clone()),
        group_failed: true,
        standby: Some(true),
        read_mark: None,
        held: b"Q\0\0".to_vec(),
        left: 6,
        tag: b'P',
        server: Some((Box::new(server(14)), [4; 32])),
    };
    let database = [3; 32];
    let parcel = Box::new(server(12));
    Freight {
        estate: Estate {
            lasting: [8; 32],
            schemas: vec![("d".into(), 11)],
            last_number: 5,
            disabled: vec!["off".into()],
            tracked: tracked.names().to_vec(),
            roster: roster(),
        },
        listeners: vec![(ends(6432).local, LooseSocket::new(11))],
        parcels: vec![
            (WorkerId(0), Parcel::Pool(Box::new(lore))),
            (WorkerId(1), Parcel::Server { parcel, database }),
            (WorkerId(1), Parcel::Client(Box::new(client))),
        ],
    }
}

fn roster() -> RosterLore {
    let host = |host, port| HostPort { host, port };
    let hosts = [
        host(Host::Name("db1".into()), 5432),
        host(Host::Ip("::1".parse().unwrap()), 5433),
        host(Host::Unix("/run".into()), 5434),
        host(
            Host::Address {
                name: "db1".into(),
                ip: "10.0.0.1".parse().unwrap(),
            },
            5435,
        ),
    ];
    let report = HostReport {
        flushed: None,
        in_recovery: true,
        started: Some("1.5".into()),
        system: Some(7),
        timeline: Some(3),
        lsn: Some(1 << 40),
        read_only: true,
    };
    let lore = |host: &HostPort| HostLore {
        host: host.clone(),
        is_drained: host.port == 5432,
        down: (host.port == 5433).then(|| "refused".into()),
        report: (host.port != 5433).then(|| report.clone()),
    };
    RosterLore {
        hosts: hosts.iter().map(lore).collect(),
        lists: vec![ListLore {
            hosts: hosts.to_vec(),
            incumbent: Some(2),
            system: Some(7),
            fences: vec![(1, Some(2), "it is old".into()), (0, None, String::new())],
        }],
    }
}

fn tls() -> TlsFacts {
    TlsFacts {
        version: "TLSv1.3".into(),
        cipher: "TLS_AES_128_GCM_SHA256".into(),
        group: Some("X25519".into()),
        sni: Some("db.example.com".into()),
        alpn: None,
        binding: Some(b"hash"[..].into()),
        peer: Some(Box::new(PeerCertificate {
            common_name: Some("u".into()),
            names: vec![
                AlternativeName::Dns("*.example.com".into()),
                AlternativeName::Ip("::1".parse().unwrap()),
            ],
            subject: "/CN=u".into(),
            distinguished_name: "CN=u".into(),
        })),
        resumed: true,
        travels: true,
    }
}

fn loose() -> Vec<LooseSocket> {
    (11..15).map(LooseSocket::new).collect()
}

/// Freight as text, without fields that are computed late.
fn shown(freight: &Freight) -> String {
    let text = format!("{freight:?}");
    let mut parts = text.split("key: OnceLock(");
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (_, rest) = part.split_once("query_text").unwrap_or_default();
        shown.push_str(rest);
    }
    shown.replace("<uninit>", "")
}

#[test]
fn what_was_written_is_read() {
    let freight = freight();
    let bytes = write(&freight);
    assert_eq!(count_sockets(&bytes), Ok(4));
    let read = read(&bytes, loose(), &names()).unwrap();
    assert_eq!(shown(&read), shown(&freight));
    let numbers = |freight| -> Vec<i32> {
        let sockets = super::code::sockets(freight).into_iter();
        sockets.map(|socket| *socket.inside()).collect()
    };
    assert_eq!(numbers(&read), numbers(&freight));
    let Parcel::Client(client) = &read.parcels[2].1 else {
        panic!("a client")
    };
    assert_eq!(client.socket.packed_session(), Some(&b"keys"[..]));
    let unnamed = client.unnamed.as_ref().unwrap();
    assert!(
        Arc::ptr_eq(&client.names[0].1.statement, unnamed),
        "one text"
    );
}

#[test]
fn who_tracks_other_parameters_trusts_no_server() {
    let bytes = write(&freight());
    let other = Tracked::new(["search_path", "IntervalStyle"]);
    let read = read(&bytes, loose(), &other).unwrap();
    let Parcel::Client(client) = &read.parcels[2].1 else {
        panic!("a client")
    };
    let params = client.params.as_ref().unwrap();
    assert_eq!(params.get(6), Some(&b"iso_8601"[..]));
    assert_eq!(params.get(5), None);
    assert!(matches!(
        read.parcels[1].1,
        Parcel::Server { database, .. } if database == [0; 32]
    ));
    // A session's server serves no later client, and the reported parameters are incomplete.
    assert_eq!(client.server.as_ref().unwrap().1, [0; 32]);
    assert!(matches!(
        &read.parcels[0].1,
        Parcel::Pool(lore) if lore.database == [0; 32]
    ));
}

#[test]
fn damage_is_noticed() {
    let bytes = write(&freight());
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len], loose(), &names()).is_err(), "{len}");
    }
    assert!(read(&bytes, Vec::new(), &names()).is_err());
    let mut more = loose();
    more.push(LooseSocket::new(15));
    assert!(read(&bytes, more, &names()).is_err());
    let long = [bytes, vec![0]].concat();
    assert!(read(&long, loose(), &names()).is_err());
}

fn some_settings() -> crate::session::settings::Maybe {
    let mut settings = crate::session::settings::Settings::default();
    settings.set(b"app.tenant", b"it's \xff");
    settings.set(b"work_mem", b"");
    settings.shared()
}
