//! Freight as bytes.
//!
//! Numbers are big-endian. Each byte string follows its length, in four bytes. Each optional value
//! follows one byte that says whether the value is present. Sockets travel beside the bytes, in
//! the order of their use. A table contains each statement once, before the clients and servers
//! that have it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use howdah_wire::backend::Status;

use super::{Estate, Freight, Parcel, Passenger, PoolLore, Standing};
use crate::auth::{ScramKeys, Secret};
use crate::cancel::OldKey;
use crate::client::ClientEnds;
use crate::config::{Host, HostPort};
use crate::event::{Address, Ends, LooseSocket, Time, UnixPeer, WorkerId};
use crate::login::key::LoginKey;
use crate::login::key::Welcome;
use crate::login::secrets::Secrets;
use crate::params::{Meaning, Params, Tracked};
use crate::place::Via;
use crate::pool::key::PoolKey;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::roster::fact::HostReport;
use crate::roster::lore::{HostLore, ListLore, RosterLore};
use crate::roster::view::Instance;
use crate::server::ServerParcel;
use crate::server::user_end::VanishingUser;
use crate::session::settings::{Maybe, Settings, at_login};
use crate::statement::{Constants, Named, Shape, Statement, StatementDescription};
use crate::tls::{AlternativeName, PeerCertificate, TlsFacts};

/// The bytes are damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

type Read<T> = Result<T, Damaged>;

/// Writes freight as bytes, without its [`sockets`].
pub fn write(freight: &Freight) -> Vec<u8> {
    let mut body = Writer::default();
    body.size(freight.listeners.len());
    for (address, _) in &freight.listeners {
        body.address(address);
    }
    body.size(freight.parcels.len());
    for (worker, parcel) in &freight.parcels {
        body.number(worker.0.into());
        body.parcel(parcel);
    }
    let mut all = Writer::default();
    all.size(sockets(freight).len());
    all.estate(&freight.estate);
    all.size(body.table.len());
    for statement in &body.table {
        all.string(&statement.definition);
        all.number(statement.meaning);
        all.number(statement.schema);
        all.constants(statement.constants);
    }
    all.bytes.extend_from_slice(&body.bytes);
    all.bytes
}

/// The sockets of freight, in the order that [`read`] expects.
pub fn sockets(freight: &Freight) -> Vec<&LooseSocket> {
    let listeners = freight.listeners.iter().map(|(_, socket)| socket);
    let parcels = freight.parcels.iter().flat_map(|(_, parcel)| match parcel {
        Parcel::Pool(_) => [None, None],
        Parcel::Server { parcel, .. } => [Some(&parcel.socket), None],
        Parcel::Client(passenger) => {
            let server = passenger.server.as_ref();
            [
                Some(&passenger.socket),
                server.map(|(server, _)| &server.socket),
            ]
        }
    });
    let parcels = parcels.flatten();
    listeners.chain(parcels).collect()
}

/// The number of sockets that belong to these bytes.
///
/// # Errors
/// The bytes are too short.
pub fn count_sockets(bytes: &[u8]) -> Result<usize, Damaged> {
    let front = bytes.first_chunk::<4>().ok_or(Damaged)?;
    Ok(u32::from_be_bytes(*front) as usize)
}

/// Reads freight. `tracked` has the parameters that this process tracks.
///
/// # Errors
/// The bytes are damaged, or do not match the number of sockets.
pub fn read(
    bytes: &[u8],
    sockets: Vec<LooseSocket>,
    tracked: &Tracked,
) -> Result<Freight, Damaged> {
    let mut reader = Reader {
        bytes,
        sockets: sockets.into_iter(),
        table: Vec::new(),
        places: Vec::new(),
        tracked,
    };
    reader.size()?;
    let estate = reader.estate()?;
    let places = estate.tracked.iter();
    reader.places = places
        .map(|name| tracked.position(name.as_bytes()))
        .collect();
    for _ in 0..reader.size()? {
        let definition = reader.string()?;
        let (meaning, schema) = (reader.number()?, reader.number()?);
        let statement = Statement::new(meaning, reader.constants()?, &definition, schema);
        reader.table.push(Arc::new(statement));
    }
    let mut listeners = Vec::new();
    for _ in 0..reader.size()? {
        listeners.push((reader.address()?, reader.socket()?));
    }
    let mut parcels = Vec::new();
    for _ in 0..reader.size()? {
        let worker = WorkerId(u16::try_from(reader.number()?).map_err(|_| Damaged)?);
        parcels.push((worker, reader.parcel()?));
    }
    if !reader.bytes.is_empty() || reader.sockets.next().is_some() {
        return Err(Damaged);
    }
    if estate.tracked != tracked.names() {
        // The servers' values of the other parameters are unknown, so no client can get these
        // servers.
        for (_, parcel) in &mut parcels {
            match parcel {
                Parcel::Server { database, .. } => *database = [0; 32],
                // A client may keep its own server. A greeting must have all values.
                Parcel::Client(passenger) => {
                    if let Some((_, database)) = &mut passenger.server {
                        *database = [0; 32];
                    }
                }
                Parcel::Pool(lore) => lore.database = [0; 32],
            }
        }
    }
    Ok(Freight {
        estate,
        listeners,
        parcels,
    })
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    table: Vec<Arc<Statement>>,
    /// Indexes in the table, by the address of the statement.
    places: BTreeMap<usize, usize>,
}

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Messages are far below 4 GB, so strings and tables are, too.
    fn size(&mut self, size: usize) {
        let size = u32::try_from(size).expect("less than 4 GB");
        self.bytes.extend_from_slice(&size.to_be_bytes());
    }

    fn string(&mut self, string: &[u8]) {
        self.size(string.len());
        self.bytes.extend_from_slice(string);
    }

    fn constants(&mut self, constants: Constants) {
        match constants {
            Constants::Fixed => self.bytes.push(0),
            Constants::Unknown => self.bytes.push(1),
            Constants::Of(settings) => {
                self.bytes.push(2);
                self.number(settings);
            }
        }
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.byte(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn shape(&mut self, shape: &Shape) {
        self.number(shape.0);
    }

    fn address(&mut self, address: &Address) {
        let (kind, text, port) = match address {
            Address::Tcp(ip, port) => (0, ip.to_string(), port),
            Address::Unix(path, port) => (1, path.clone(), port),
        };
        self.byte(kind);
        self.string(text.as_bytes());
        self.number(u64::from(*port));
    }

    fn ends(&mut self, ends: &Ends) {
        self.address(&ends.remote);
        self.address(&ends.local);
        self.maybe(ends.unix_peer, |w, peer| {
            w.number(peer.pid.into());
            w.number(peer.uid.into());
        });
    }

    fn estate(&mut self, estate: &Estate) {
        self.bytes.extend_from_slice(&estate.lasting);
        self.size(estate.schemas.len());
        for (database, changes) in &estate.schemas {
            self.string(database.as_bytes());
            self.number(*changes);
        }
        self.number(estate.last_number);
        for names in [&estate.disabled, &estate.tracked] {
            self.size(names.len());
            names.iter().for_each(|name| self.string(name.as_bytes()));
        }
        self.roster(&estate.roster);
    }

    fn params(&mut self, params: &Params) {
        self.size(params.known().count());
        for (position, value) in params.known() {
            self.size(position);
            self.string(value);
        }
    }

    fn settings(&mut self, settings: &Maybe) {
        let count = settings.as_ref().map_or(0, |settings| settings.len());
        self.size(count);
        for (name, value) in settings.iter().flat_map(|settings| settings.iter()) {
            self.string(name);
            self.string(value);
        }
    }

    fn statement(&mut self, statement: &Arc<Statement>) {
        let address = Arc::as_ptr(statement).addr();
        let next = self.table.len();
        let place = *self.places.entry(address).or_insert(next);
        if place == next {
            self.table.push(statement.clone());
        }
        self.size(place);
    }

    fn pool_key(&mut self, key: &PoolKey) {
        self.string(key.login.database.as_bytes());
        self.string(key.login.user.as_bytes());
        match &key.target {
            TargetName::Entry => self.byte(0),
            TargetName::NoHost => self.byte(1),
            TargetName::Host(host) => {
                self.byte(2);
                self.host(host);
            }
        }
        self.byte(key.purpose as u8);
    }

    fn host(&mut self, host: &HostPort) {
        let (kind, text) = match &host.host {
            Host::Name(name) => (0, name.clone()),
            Host::Ip(address) => (1, address.to_string()),
            Host::Unix(folder) => (2, folder.clone()),
            Host::Address { name, .. } => (3, name.clone()),
        };
        self.byte(kind);
        self.string(text.as_bytes());
        if let Host::Address { ip, .. } = &host.host {
            self.string(ip.to_string().as_bytes());
        }
        self.size(host.port.into());
    }

    fn roster(&mut self, lore: &RosterLore) {
        self.size(lore.hosts.len());
        for host in &lore.hosts {
            self.host(&host.host);
            self.byte(host.is_drained.into());
            self.maybe(host.down.as_ref(), |w, why| w.string(why.as_bytes()));
            self.maybe(host.report.as_ref(), |w, report| w.report(report));
        }
        self.size(lore.lists.len());
        for list in &lore.lists {
            self.size(list.hosts.len());
            list.hosts.iter().for_each(|host| self.host(host));
            self.maybe(list.incumbent, |w, at| w.number(at.into()));
            self.maybe(list.system, Writer::number);
            self.size(list.fences.len());
            for (at, timeline, why) in &list.fences {
                self.number((*at).into());
                self.maybe(*timeline, |w, timeline| w.number(timeline.into()));
                self.string(why.as_bytes());
            }
        }
    }

    fn report(&mut self, report: &HostReport) {
        self.byte(report.in_recovery.into());
        self.maybe(report.started.as_ref(), |w, text| w.string(text.as_bytes()));
        self.maybe(report.system, Writer::number);
        self.maybe(report.timeline, |w, timeline| w.number(timeline.into()));
        self.maybe(report.lsn, Writer::number);
        self.byte(report.read_only.into());
    }

    fn parcel(&mut self, parcel: &Parcel) {
        match parcel {
            Parcel::Pool(lore) => {
                self.byte(0);
                self.pool(lore);
            }
            Parcel::Server { parcel, database } => {
                self.byte(1);
                self.bytes.extend_from_slice(database);
                self.server(parcel);
            }
            Parcel::Client(passenger) => {
                self.byte(2);
                self.client(passenger);
            }
        }
    }

    fn pool(&mut self, lore: &PoolLore) {
        self.pool_key(&lore.key);
        self.bytes.extend_from_slice(&lore.database);
        self.maybe(lore.welcome.as_ref(), |w, welcome| {
            w.size(welcome.parameters.len());
            for (name, value) in &*welcome.parameters {
                w.string(name);
                w.string(value);
            }
            w.params(&welcome.tracked);
        });
        self.maybe(lore.secrets.keys.as_ref(), |w, keys| {
            w.bytes.extend_from_slice(&keys.client_key);
            w.bytes.extend_from_slice(&keys.server_key);
            w.string(&keys.salt);
            w.number(keys.iterations.into());
        });
        self.maybe(lore.secrets.found.as_ref(), |w, secret| {
            w.string(secret.text().as_bytes());
        });
        self.number(lore.left_behind.into());
    }

    fn server(&mut self, server: &ServerParcel) {
        self.ends(&server.ends);
        self.number(server.number);
        self.pool_key(&server.pool);
        self.maybe(server.key.as_ref(), |w, (pid, secret)| {
            w.number(u64::from(*pid));
            w.string(secret);
        });
        self.params(&server.params);
        self.settings(&server.session);
        self.size(server.statements.len());
        for (key, statement, shape) in &server.statements {
            self.bytes.extend_from_slice(&key.to_be_bytes());
            self.statement(statement);
            self.maybe(shape.as_ref(), Writer::shape);
        }
        self.number(server.connected.0);
        self.number(server.since.0);
        self.byte(server.served.into());
        self.byte(server.followed.into());
        self.maybe(server.instance, |w, instance| w.number(instance.0));
        self.maybe(server.vanishing.as_ref(), |w, user| {
            w.number(user.retires().0)
        });
    }

    fn client(&mut self, client: &Passenger) {
        self.byte(match client.standing {
            Standing::Startup => 0,
            Standing::Newcomer => 1,
            Standing::Ready => 2,
            Standing::Console { admin: false } => 3,
            Standing::Console { admin: true } => 4,
            Standing::Bound => 5,
        });
        self.ends(&client.ends);
        self.byte(match client.via {
            Via::Direct => 0,
            Via::HeaderDue => 1,
            Via::Balancer { near: false } => 2,
            Via::Balancer { near: true } => 3,
        });
        self.number(client.number);
        for time in [client.connected, client.request, client.quiet] {
            self.number(time.0);
        }
        self.maybe(client.ends_at, |w, ends| {
            for at in [ends.token, ends.user, ends.lifetime, ends.drain] {
                w.maybe(at, |w, at| w.number(at.0));
            }
        });
        self.string(client.database.as_bytes());
        self.string(client.user.as_bytes());
        for flag in [client.admitted, client.long_key, client.group_failed] {
            self.byte(flag.into());
        }
        self.maybe(client.standby, |w, standby| w.byte(standby.into()));
        self.number(client.key.pid.into());
        self.string(&client.key.secret);
        for params in [&client.params, &client.asked] {
            self.maybe(params.as_ref(), |w, params| w.params(params));
        }
        for settings in &client.session {
            self.settings(settings);
        }
        self.number(client.meaning.names);
        self.number(client.meaning.constants);
        self.size(client.names.len());
        for (name, named) in &client.names {
            self.string(name);
            self.number(named.number);
            self.statement(&named.statement);
            self.maybe(named.told.as_ref(), |w, told| {
                w.shape(&told.shape);
                w.string(&told.parameters);
            });
        }
        self.number(client.names_given);
        self.maybe(client.unnamed.as_ref(), Writer::statement);
        self.string(&client.held);
        self.number(client.left.into());
        self.byte(client.tag);
        self.maybe(client.server.as_ref(), |w, (server, database)| {
            w.bytes.extend_from_slice(database);
            w.server(server);
        });
        self.maybe(client.tls.as_ref(), |w, tls| {
            w.tls(tls);
            w.string(client.socket.packed_session().unwrap_or_default());
        });
    }

    fn tls(&mut self, tls: &TlsFacts) {
        self.string(tls.version.as_bytes());
        self.string(tls.cipher.as_bytes());
        for text in [&tls.group, &tls.sni, &tls.alpn] {
            self.maybe(text.as_ref(), |w, text| w.string(text.as_bytes()));
        }
        self.maybe(tls.binding.as_ref(), |w, hash| w.string(hash));
        self.maybe(tls.peer.as_ref(), |w, peer| {
            let name = peer.common_name.as_ref();
            w.maybe(name, |w, name| w.string(name.as_bytes()));
            w.size(peer.names.len());
            for name in &peer.names {
                let (kind, text) = match name {
                    AlternativeName::Dns(name) => (0, name.to_string()),
                    AlternativeName::Ip(address) => (1, address.to_string()),
                };
                w.byte(kind);
                w.string(text.as_bytes());
            }
            w.string(peer.subject.as_bytes());
            w.string(peer.distinguished_name.as_bytes());
        });
        for flag in [tls.resumed, tls.travels] {
            self.byte(flag.into());
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    sockets: std::vec::IntoIter<LooseSocket>,
    table: Vec<Arc<Statement>>,
    /// This process's position of each parameter, by the writer's position.
    places: Vec<Option<usize>>,
    tracked: &'a Tracked,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (front, rest) = self.bytes.split_first_chunk::<N>().ok_or(Damaged)?;
        self.bytes = rest;
        Ok(*front)
    }

    fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Read<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }

    fn number(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Read<T> {
        T::try_from(self.number()?).map_err(|_| Damaged)
    }

    fn size(&mut self) -> Read<usize> {
        self.array().map(|size| u32::from_be_bytes(size) as usize)
    }

    fn time(&mut self) -> Read<Time> {
        self.number().map(Time)
    }

    fn string(&mut self) -> Read<Vec<u8>> {
        let size = self.size()?;
        let (front, rest) = self.bytes.split_at_checked(size).ok_or(Damaged)?;
        self.bytes = rest;
        Ok(front.to_vec())
    }

    fn text(&mut self) -> Read<String> {
        String::from_utf8(self.string()?).map_err(|_| Damaged)
    }

    fn constants(&mut self) -> Read<Constants> {
        match self.byte()? {
            0 => Ok(Constants::Fixed),
            1 => Ok(Constants::Unknown),
            2 => self.number().map(Constants::Of),
            _ => Err(Damaged),
        }
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    fn many<T>(&mut self, mut read: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let size = self.size()?;
        (0..size).map(|_| read(self)).collect()
    }

    fn shape(&mut self) -> Read<Shape> {
        self.number().map(Shape)
    }

    fn named(&mut self) -> Read<Named> {
        let (number, statement) = (self.number()?, self.statement()?);
        let told = self.maybe(|r| {
            let shape = r.shape()?;
            let parameters = r.string()?.into();
            Ok(Arc::new(StatementDescription { shape, parameters }))
        })?;
        Ok(Named {
            told,
            ..Named::new(statement, number)
        })
    }

    fn socket(&mut self) -> Read<LooseSocket> {
        self.sockets.next().ok_or(Damaged)
    }

    fn address(&mut self) -> Read<Address> {
        let (kind, text, port) = (self.byte()?, self.text()?, self.small()?);
        match kind {
            0 => Ok(Address::Tcp(
                text.parse::<IpAddr>().map_err(|_| Damaged)?,
                port,
            )),
            1 => Ok(Address::Unix(text, port)),
            _ => Err(Damaged),
        }
    }

    fn ends(&mut self) -> Read<Ends> {
        Ok(Ends {
            remote: self.address()?,
            local: self.address()?,
            unix_peer: self.maybe(|r| {
                let (pid, uid) = (r.small()?, r.small()?);
                Ok(UnixPeer { pid, uid })
            })?,
        })
    }

    fn estate(&mut self) -> Read<Estate> {
        Ok(Estate {
            lasting: self.array()?,
            schemas: self.many(|r| Ok((r.text()?, r.number()?)))?,
            last_number: self.number()?,
            disabled: self.many(Self::text)?,
            tracked: self.many(Self::text)?,
            roster: self.roster()?,
        })
    }

    fn host(&mut self) -> Read<HostPort> {
        let (kind, text) = (self.byte()?, self.text()?);
        let host = match kind {
            0 => Host::Name(text),
            1 => Host::Ip(text.parse().map_err(|_| Damaged)?),
            2 => Host::Unix(text),
            3 => Host::Address {
                name: text,
                ip: self.text()?.parse().map_err(|_| Damaged)?,
            },
            _ => return Err(Damaged),
        };
        let port = u16::try_from(self.size()?).map_err(|_| Damaged)?;
        Ok(HostPort { host, port })
    }

    fn roster(&mut self) -> Read<RosterLore> {
        let hosts = self.many(|r| {
            Ok(HostLore {
                host: r.host()?,
                is_drained: r.flag()?,
                down: r.maybe(Self::text)?,
                report: r.maybe(Self::report)?,
            })
        })?;
        let lists = self.many(|r| {
            Ok(ListLore {
                hosts: r.many(Self::host)?,
                incumbent: r.maybe(Self::small)?,
                system: r.maybe(Self::number)?,
                fences: r.many(|r| Ok((r.small()?, r.maybe(Self::small)?, r.text()?)))?,
            })
        })?;
        Ok(RosterLore { hosts, lists })
    }

    fn report(&mut self) -> Read<HostReport> {
        Ok(HostReport {
            in_recovery: self.flag()?,
            started: self.maybe(Self::text)?,
            system: self.maybe(Self::number)?,
            timeline: self.maybe(Self::small)?,
            lsn: self.maybe(Self::number)?,
            read_only: self.flag()?,
            // A successor asks anew.
            flushed: None,
        })
    }

    fn settings(&mut self) -> Read<Maybe> {
        let mut settings = Settings::default();
        for _ in 0..self.size()? {
            let (name, value) = (self.string()?, self.string()?);
            // Howdah puts these names into SQL, so they must be valid.
            let name = at_login(&name).ok_or(Damaged)?;
            settings.set(&name, &value);
        }
        Ok(settings.shared())
    }

    fn params(&mut self) -> Read<Params> {
        let mut params = Params::unknown(self.tracked);
        for _ in 0..self.size()? {
            let position = self.size()?;
            let value = self.string()?;
            if let Some(place) = *self.places.get(position).ok_or(Damaged)? {
                params = params.with(place, &value);
            }
        }
        Ok(params)
    }

    fn statement(&mut self) -> Read<Arc<Statement>> {
        let place = self.size()?;
        self.table.get(place).cloned().ok_or(Damaged)
    }

    fn pool_key(&mut self) -> Read<Arc<PoolKey>> {
        let (database, user) = (self.text()?.into(), self.text()?.into());
        let target = match self.byte()? {
            0 => TargetName::Entry,
            1 => TargetName::NoHost,
            2 => TargetName::Host(Arc::new(self.host()?)),
            _ => return Err(Damaged),
        };
        let purpose = match self.byte()? {
            0 => Purpose::Clients,
            1 => Purpose::Lookups,
            2 => Purpose::Listening,
            3 => Purpose::Checks,
            4 => Purpose::Catalogue,
            5 => Purpose::Placing,
            _ => return Err(Damaged),
        };
        let login = Arc::new(LoginKey { database, user });
        Ok(Arc::new(PoolKey {
            login,
            target,
            purpose,
        }))
    }

    fn parcel(&mut self) -> Read<Parcel> {
        match self.byte()? {
            0 => Ok(Parcel::Pool(Box::new(self.pool()?))),
            1 => {
                let database = self.array()?;
                let parcel = Box::new(self.server()?);
                Ok(Parcel::Server { parcel, database })
            }
            2 => Ok(Parcel::Client(Box::new(self.client()?))),
            _ => Err(Damaged),
        }
    }

    fn pool(&mut self) -> Read<PoolLore> {
        Ok(PoolLore {
            key: self.pool_key()?,
            database: self.array()?,
            welcome: self.maybe(|r| {
                let parameters = r.many(|r| Ok((r.string()?.into(), r.string()?.into())))?;
                Ok(Welcome {
                    parameters: parameters.into(),
                    tracked: Arc::new(r.params()?),
                })
            })?,
            secrets: Secrets {
                keys: self.maybe(|r| {
                    Ok(ScramKeys {
                        client_key: r.array()?,
                        server_key: r.array()?,
                        salt: r.string()?.into(),
                        iterations: r.small()?,
                    })
                })?,
                found: self.maybe(|r| r.text().map(Secret::classify))?,
            },
            left_behind: self.small()?,
        })
    }

    fn server(&mut self) -> Read<ServerParcel> {
        Ok(ServerParcel {
            socket: self.socket()?,
            ends: self.ends()?,
            // Servers with TLS are not handed over.
            host: None,
            tls: None,
            number: self.number()?,
            pool: self.pool_key()?,
            key: self.maybe(|r| Ok((r.small()?, r.string()?.into())))?,
            params: Arc::new(self.params()?),
            session: self.settings()?,
            statements: self.many(|r| {
                let key = u128::from_be_bytes(r.array()?);
                Ok((key, r.statement()?, r.maybe(Self::shape)?))
            })?,
            status: Status::Idle,
            connected: self.time()?,
            since: self.time()?,
            served: self.flag()?,
            followed: self.flag()?,
            standby: None,
            instance: self.maybe(Self::number)?.map(Instance),
            vanishing: self.maybe(Self::time)?.map(VanishingUser::until),
            welcome: None,
            epoch: u64::MAX,
        })
    }

    fn client_ends(&mut self) -> Read<ClientEnds> {
        Ok(ClientEnds {
            token: self.maybe(Self::time)?,
            user: self.maybe(Self::time)?,
            lifetime: self.maybe(Self::time)?,
            drain: self.maybe(Self::time)?,
        })
    }

    fn client(&mut self) -> Read<Passenger> {
        let standing = match self.byte()? {
            0 => Standing::Startup,
            1 => Standing::Newcomer,
            2 => Standing::Ready,
            3 => Standing::Console { admin: false },
            4 => Standing::Console { admin: true },
            5 => Standing::Bound,
            _ => return Err(Damaged),
        };
        let (socket, ends) = (self.socket()?, self.ends()?);
        let via = match self.byte()? {
            0 => Via::Direct,
            1 => Via::HeaderDue,
            2 => Via::Balancer { near: false },
            3 => Via::Balancer { near: true },
            _ => return Err(Damaged),
        };
        let number = self.number()?;
        let (connected, request, quiet) = (self.time()?, self.time()?, self.time()?);
        let ends_at = self.maybe(Self::client_ends)?;
        let (database, user) = (self.text()?, self.text()?);
        let (admitted, long_key, group_failed) = (self.flag()?, self.flag()?, self.flag()?);
        let mut passenger = Passenger {
            socket,
            standing,
            ends,
            via,
            tls: None,
            number,
            connected,
            request,
            quiet,
            ends_at,
            database,
            user,
            admitted,
            long_key,
            group_failed,
            standby: self.maybe(Self::flag)?,
            read_mark: None,
            key: OldKey {
                pid: self.small()?,
                secret: self.string()?.into(),
            },
            params: self.maybe(|r| r.params().map(Arc::new))?,
            asked: self.maybe(|r| r.params().map(Arc::new))?,
            session: [self.settings()?, self.settings()?],
            meaning: Meaning {
                names: self.number()?,
                constants: self.number()?,
            },
            names: self.many(|r| Ok((r.string()?.into(), r.named()?)))?,
            names_given: self.number()?,
            unnamed: self.maybe(Self::statement)?,
            held: self.string()?,
            left: self.small()?,
            tag: self.byte()?,
            server: self.maybe(|r| {
                let database = r.array()?;
                Ok((Box::new(r.server()?), database))
            })?,
        };
        if let Some((tls, session)) = self.maybe(|r| Ok((r.tls()?, r.string()?)))? {
            passenger.tls = Some(Arc::new(tls));
            passenger.socket.set_packed_session(session);
        }
        let bound = passenger.standing == Standing::Bound;
        if bound != passenger.server.is_some() {
            return Err(Damaged);
        }
        Ok(passenger)
    }

    fn short(&mut self) -> Read<Box<str>> {
        self.text().map(Box::from)
    }

    fn tls(&mut self) -> Read<TlsFacts> {
        Ok(TlsFacts {
            version: self.short()?,
            cipher: self.short()?,
            group: self.maybe(Self::short)?,
            sni: self.maybe(Self::short)?,
            alpn: self.maybe(Self::short)?,
            binding: self.maybe(|r| r.string().map(Box::from))?,
            peer: self.maybe(|r| {
                Ok(Box::new(PeerCertificate {
                    common_name: r.maybe(Self::short)?,
                    names: r.many(Self::alternative_name)?,
                    subject: r.short()?,
                    distinguished_name: r.short()?,
                }))
            })?,
            resumed: self.flag()?,
            travels: self.flag()?,
        })
    }

    fn alternative_name(&mut self) -> Read<AlternativeName> {
        let (kind, text) = (self.byte()?, self.short()?);
        match kind {
            0 => Ok(AlternativeName::Dns(text)),
            1 => text.parse().map(AlternativeName::Ip).map_err(|_| Damaged),
            _ => Err(Damaged),
        }
    }
}
