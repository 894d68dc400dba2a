//! The contexts of TLS sessions: certificates, keys, authorities, versions and ciphers. They are built from
//! the settings and their files all together, and replaced all together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use howdah_pooler::config::{Config, Globals, SslMode, TlsFiles};
use openssl::pkey::{Id, PKey, Private};
use openssl::ssl::{
    AlpnError, SslContext, SslContextBuilder, SslMethod, SslMode as LibraryMode, SslOptions,
    SslSessionCacheMode, SslVerifyMode, select_next_proto,
};
use openssl::x509::X509;
use sha2::{Digest, Sha256, Sha512};

use super::library::{self, TICKET_KEYS};
use super::session::stack;
use super::{ciphers, curves};

/// A day in seconds.
const DAY: i64 = 86_400;

/// Files in which systems keep their trusted authorities.
pub const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The most bytes of authorities' names in a request for a certificate, which has room for 65,535
/// bytes.
const NAMES_MAX: usize = 60_000;

/// The protocol's name for ALPN, in its wire format.
const ALPN: &[u8] = b"\x0apostgresql";

/// The contexts: see the module's comment.
#[derive(Default)]
pub struct Contexts {
    pub(super) clients: Option<SslContext>,
    pub(super) servers: Option<SslContext>,
    /// For the servers of databases that name files.
    pub(super) of_databases: BTreeMap<TlsFiles, SslContext>,
    /// The context of sessions from another process. They bring the settings that matter with them.
    pub(super) travellers: Option<SslContext>,
    /// Servers' certificates can be verified.
    pub(super) knows_authorities: bool,
    /// Hosts with which TLS 1.3 does not work. `None` if TLS 1.2 is switched off.
    pub(super) elders: Option<Elders>,
    /// The private key for clients is an RSA key, with which signing takes long.
    pub(super) laborious: bool,
    /// Clients' certificates are not kept after the handshake.
    pub(super) forgets: bool,
    /// Hashes of all settings and file contents for clients' TLS.
    pub of_clients: [u8; 32],
    /// The same for servers' TLS.
    pub of_servers: [u8; 32],
    /// The expiries of certificates, in seconds since 1970, each with the setting that names the file.
    pub ends: Vec<(&'static str, i64)>,
}

impl fmt::Debug for Contexts {
    /// Prints no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contexts")
    }
}

/// Hosts whose certificates are known to work with TLS 1.2 only.
#[derive(Clone, Default)]
pub(super) struct Elders(Arc<Mutex<BTreeSet<String>>>);

impl Elders {
    pub(super) fn has(&self, host: &str) -> bool {
        self.hosts().contains(host)
    }

    /// True if the host is new.
    pub(super) fn remember(&self, host: &str) -> bool {
        self.hosts().insert(host.to_owned())
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seed of the session ticket keys. Settings and files are hashed into the keys, too.
#[derive(Clone, Copy, Default)]
pub struct TicketSeed {
    /// A secret that only this process and its successors know.
    pub secret: [u8; 32],
    /// The day, counted from 1970. On the next day no ticket is valid any more.
    pub day: i64,
}

impl fmt::Debug for TicketSeed {
    /// Prints no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSeed")
    }
}

impl TicketSeed {
    /// The seed with this secret at a time (seconds since 1970).
    pub fn at(secret: [u8; 32], now: i64) -> TicketSeed {
        let day = now.div_euclid(DAY);
        TicketSeed { secret, day }
    }

    /// The keys for a hash of all settings and files: the same in every process with the same hash.
    fn keys(&self, of_clients: &[u8; 32]) -> [u8; TICKET_KEYS] {
        let mut keys = [0; TICKET_KEYS];
        for (at, part) in keys.chunks_mut(64).enumerate() {
            let block = Sha512::new()
                .chain_update(b"howdah session tickets")
                .chain_update(self.secret)
                .chain_update(of_clients)
                .chain_update(self.day.to_be_bytes())
                .chain_update([at as u8]);
            part.copy_from_slice(&block.finalize()[..part.len()]);
        }
        keys
    }
}

/// A mistake, with the setting that causes it.
#[derive(PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The setting.
    pub setting: &'static str,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The settings of one side.
struct Side<'a> {
    key: (&'static str, &'a str),
    certificate: (&'static str, &'a str),
    authorities: (&'static str, &'a str),
    protocols: (&'static str, &'a str),
    ciphers: (&'static str, &'a str),
    suites: (&'static str, Option<&'a str>),
    /// The hash of all settings and files so far.
    hash: Sha256,
    ends: Vec<(&'static str, i64)>,
    /// The private key is an RSA key, with which signing takes long.
    laborious: bool,
    /// Certificates of the other side are not kept after the handshake.
    forgets: bool,
}

impl Contexts {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// The first mistake.
    pub fn build(config: &Config, tickets: TicketSeed) -> Result<Contexts, Wrong> {
        let globals = &config.globals;
        let mut contexts = Contexts::default();
        if library::travels_by().is_some() {
            let builder = SslContextBuilder::new(SslMethod::tls_server())
                .map_err(|why| wrong("client_tls_sslmode", "could not set TLS up", &stack(&why)))?;
            contexts.travellers = Some(builder.build());
        }
        if globals.client_tls_sslmode != SslMode::Disable {
            let mut side = Side::clients(globals);
            contexts.clients = Some(side.for_clients(config, tickets)?);
            contexts.laborious = side.laborious;
            contexts.forgets = side.forgets;
            contexts.of_clients = side.hash.finalize().into();
            contexts.ends.append(&mut side.ends);
        }
        if server_modes(config).any(|mode| mode != SslMode::Disable) {
            let verifies = server_modes(config).any(SslMode::is_verified);
            let mut side = Side::servers(globals);
            contexts.servers = Some(side.for_servers(verifies)?);
            contexts.knows_authorities = verifies;
            let off = versions(&globals.server_tls_protocols).unwrap_or(SslOptions::empty());
            contexts.elders = (!off.contains(SslOptions::NO_TLSV1_2)).then(Elders::default);
            side.hash
                .update(format!("{:?}", globals.server_tls_sslmode));
            contexts.ends.append(&mut side.ends);
            for (files, verifies) in files_of_databases(config) {
                let mut own = Side::servers_of(globals, &files);
                let context = own.for_servers(verifies)?;
                side.hash.update(format!("{files:?}"));
                side.hash.update(own.hash.finalize());
                contexts.ends.append(&mut own.ends);
                contexts.of_databases.insert(files, context);
            }
            contexts.of_servers = side.hash.finalize().into();
        }
        Ok(contexts)
    }

    /// Seeds the library's random source, if there is TLS. AWS-LC needs 25 ms for that, once in a
    /// process; the first handshake would have to wait.
    pub fn warm_up(&self) {
        if self.clients.is_some() || self.servers.is_some() {
            // If this fails, the first handshake reports it.
            let _ = openssl::rand::rand_bytes(&mut [0]);
        }
    }

    /// Warnings about certificates that have expired, or will expire within 30 days. `now`: seconds
    /// since 1970.
    pub fn expiring(&self, now: i64) -> Vec<String> {
        let soon = self.ends.iter().filter(|(_, end)| *end < now + 30 * DAY);
        soon.map(|(setting, end)| match (end - now).div_euclid(DAY) {
            ..0 => {
                format!("the certificate in {setting} has expired: clients and servers that verify it refuse it")
            }
            days => format!("the certificate in {setting} expires in {days} days"),
        })
        .collect()
    }

    /// The expiries of Howdah's certificates for clients and for servers.
    pub fn certificate_expiries(&self) -> [Option<i64>; 2] {
        ["client_tls_cert_file", "server_tls_cert_file"].map(|file| {
            let found = self.ends.iter().find(|(setting, _)| *setting == file);
            found.map(|(_, end)| *end)
        })
    }

    /// All files that the settings name.
    pub fn files(config: &Config) -> Vec<String> {
        let globals = &config.globals;
        let paths = [
            &globals.client_tls_key_file,
            &globals.client_tls_cert_file,
            &globals.client_tls_ca_file,
            &globals.server_tls_key_file,
            &globals.server_tls_cert_file,
            &globals.server_tls_ca_file,
        ];
        let own = files_of_databases(config);
        let of_databases = own.keys().flat_map(|files| files.paths(globals));
        let paths = paths.into_iter().map(String::as_str).chain(of_databases);
        let named = paths.filter(|path| !path.is_empty());
        named.map(String::from).collect()
    }

    /// The state of all files that the settings name. A changed state means that a file was
    /// replaced.
    pub fn looks(config: &Config) -> Vec<Look> {
        let globals = &config.globals;
        let named = Contexts::files(config);
        let mut looks: Vec<_> = named.iter().map(|path| look(path)).collect();
        let of_clients = globals.client_tls_ca_file.is_empty() && config.wants_certificates().0;
        let of_servers =
            globals.server_tls_ca_file.is_empty() && server_modes(config).any(SslMode::is_verified);
        if of_clients || of_servers {
            looks.extend(system_looks());
        }
        looks
    }

    /// Warnings about values that the library does not support, with the values in force instead.
    pub fn doubts(config: &Config) -> Vec<String> {
        let globals = &config.globals;
        let mut doubts = Vec::new();
        if !matches!(globals.client_tls_dheparams.as_str(), "auto" | "none" | "") {
            doubts.push(format!(
                "client_tls_dheparams = {}: finite-field Diffie-Hellman is not offered; key \
                 exchange is by elliptic curves",
                globals.client_tls_dheparams
            ));
        }
        let lists = [
            ("client_tls_ciphers", &globals.client_tls_ciphers),
            ("server_tls_ciphers", &globals.server_tls_ciphers),
        ];
        for (name, written) in lists {
            let ciphers::CiphersInForce { list, unknown } = ciphers::in_force(written);
            if !unknown.is_empty() {
                let list = list.as_deref().unwrap_or("the library's default");
                doubts.push(unknown_words(name, written, &unknown, list));
            }
        }
        let written = &globals.client_tls_ecdhcurve;
        let curves::CurvesInForce { list, unknown } = curves::in_force(written);
        if !unknown.is_empty() {
            let list = list.as_deref().unwrap_or("the library's default");
            doubts.push(unknown_words(
                "client_tls_ecdhcurve",
                written,
                &unknown,
                list,
            ));
        }
        if config.wants_certificates().0 && globals.client_tls_ca_file.is_empty() {
            doubts.push(
                "client_tls_ca_file is not set: certificates of clients are taken from every \
                 authority that the system trusts, the public ones of the web included"
                    .into(),
            );
        }
        doubts
    }
}

/// The warning about words that the library does not know.
fn unknown_words(name: &str, written: &str, unknown: &[String], in_force: &str) -> String {
    let unknown = unknown.join(", ");
    format!("{name} = {written}: the TLS library does not know {unknown}; in force: {in_force}")
}

impl<'a> Side<'a> {
    fn clients(globals: &'a Globals) -> Side<'a> {
        Side {
            key: ("client_tls_key_file", &globals.client_tls_key_file),
            certificate: ("client_tls_cert_file", &globals.client_tls_cert_file),
            authorities: ("client_tls_ca_file", &globals.client_tls_ca_file),
            protocols: ("client_tls_protocols", &globals.client_tls_protocols),
            ciphers: ("client_tls_ciphers", &globals.client_tls_ciphers),
            suites: (
                "client_tls13_ciphers",
                globals.client_tls13_ciphers.as_deref(),
            ),
            hash: Sha256::new(),
            ends: Vec::new(),
            laborious: false,
            forgets: false,
        }
    }

    fn servers(globals: &'a Globals) -> Side<'a> {
        Side {
            key: ("server_tls_key_file", &globals.server_tls_key_file),
            certificate: ("server_tls_cert_file", &globals.server_tls_cert_file),
            authorities: ("server_tls_ca_file", &globals.server_tls_ca_file),
            protocols: ("server_tls_protocols", &globals.server_tls_protocols),
            ciphers: ("server_tls_ciphers", &globals.server_tls_ciphers),
            suites: (
                "server_tls13_ciphers",
                globals.server_tls13_ciphers.as_deref(),
            ),
            hash: Sha256::new(),
            ends: Vec::new(),
            laborious: false,
            forgets: false,
        }
    }

    /// The settings for a database that names files.
    fn servers_of(globals: &'a Globals, files: &'a TlsFiles) -> Side<'a> {
        let [authorities, certificate, key] = files.paths(globals);
        Side {
            key: ("sslkey", key),
            certificate: ("sslcert", certificate),
            authorities: ("sslrootcert", authorities),
            ..Side::servers(globals)
        }
    }

    fn for_clients(&mut self, config: &Config, seed: TicketSeed) -> Result<SslContext, Wrong> {
        let globals = &config.globals;
        for (_, path) in [self.key, self.certificate] {
            if path.is_empty() {
                let setting = "client_tls_sslmode";
                let text = "to allow TLS connections from clients, client_tls_key_file and \
                            client_tls_cert_file must be set"
                    .into();
                return Err(Wrong { setting, text });
            }
        }
        let mut builder = self.begin(SslMethod::tls_server())?;
        self.show_certificate(&mut builder)?;
        self.choose_curve(&mut builder, &globals.client_tls_ecdhcurve)?;
        let mode = globals.client_tls_sslmode;
        let (asks, demands) = config.wants_certificates();
        self.hash.update(format!("{mode:?}{asks}{demands}"));
        let blame = |why: String| wrong("client_tls_sslmode", "could not set TLS up", &why);
        if asks {
            self.trust(&mut builder)?;
            let must = if demands {
                SslVerifyMode::FAIL_IF_NO_PEER_CERT
            } else {
                SslVerifyMode::NONE
            };
            builder.set_verify(SslVerifyMode::PEER | must);
            self.forgets = library::forget_certificates(&mut builder);
        } else {
            // A resumed session keeps the identity of its first handshake. So there are no tickets
            // if certificates matter.
            self.hash.update(seed.day.to_be_bytes());
            builder.clear_options(SslOptions::NO_TICKET);
            let keys = seed.keys(&self.hash.clone().finalize().into());
            library::set_ticket_keys(&mut builder, &keys).map_err(|why| blame(stack(&why)))?;
        }
        builder
            .set_session_id_context(b"howdah")
            .map_err(|why| blame(stack(&why)))?;
        builder.set_alpn_select_callback(|_, offered| {
            select_next_proto(ALPN, offered).ok_or(AlpnError::ALERT_FATAL)
        });
        builder.set_options(SslOptions::CIPHER_SERVER_PREFERENCE);
        Ok(builder.build())
    }

    fn for_servers(&mut self, verifies: bool) -> Result<SslContext, Wrong> {
        let mut builder = self.begin(SslMethod::tls_client())?;
        let ((key, key_path), (certificate, path)) = (self.key, self.certificate);
        match (key_path.is_empty(), path.is_empty()) {
            (true, true) => {}
            (false, false) => self.show_certificate(&mut builder)?,
            (true, false) => {
                let text = format!("{certificate} is set and {key} is not: set both, or neither");
                return Err(Wrong {
                    setting: certificate,
                    text,
                });
            }
            (false, true) => {
                let text = format!("{key} is set and {certificate} is not: set both, or neither");
                return Err(Wrong { setting: key, text });
            }
        }
        if verifies {
            self.trust(&mut builder)?;
        }
        let blame = |why: String| wrong("server_tls_sslmode", "could not set TLS up", &why);
        builder
            .set_alpn_protos(ALPN)
            .map_err(|why| blame(stack(&why)))?;
        Ok(builder.build())
    }

    /// Sets versions and ciphers, and the options of all sessions: empty buffers are freed; no
    /// renegotiation, no compression, no early data; no tickets unless they are switched on later.
    fn begin(&mut self, method: SslMethod) -> Result<SslContextBuilder, Wrong> {
        let (name, protocols) = self.protocols;
        let mut builder = SslContextBuilder::new(method)
            .map_err(|why| wrong(name, "could not set TLS up", &stack(&why)))?;
        // The settings decide the versions, whatever the system's own configuration says.
        builder.clear_options(SslOptions::NO_TLSV1 | SslOptions::NO_TLSV1_1);
        let blame = |why| wrong(name, "could not set TLS up", &stack(&why));
        builder.set_min_proto_version(None).map_err(blame)?;
        builder.set_max_proto_version(None).map_err(blame)?;
        let switched_off = versions(protocols).map_err(|why| Wrong {
            setting: name,
            text: why,
        })?;
        builder.set_options(switched_off | SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
        // AWS-LC has no compression.
        #[cfg(not(feature = "aws-lc"))]
        builder.set_options(SslOptions::NO_COMPRESSION);
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        #[cfg(not(feature = "aws-lc"))]
        builder.set_num_tickets(0).map_err(blame)?;
        builder.set_mode(
            LibraryMode::RELEASE_BUFFERS
                | LibraryMode::ENABLE_PARTIAL_WRITE
                | LibraryMode::ACCEPT_MOVING_WRITE_BUFFER,
        );
        builder.set_verify(SslVerifyMode::NONE);
        library::accept_signatures(&mut builder).map_err(blame)?;
        self.choose_ciphers(&mut builder)?;
        self.hash.update(format!(
            "{protocols}\n{}\n{:?}\n",
            self.ciphers.1, self.suites.1
        ));
        Ok(builder)
    }

    fn choose_ciphers(&self, builder: &mut SslContextBuilder) -> Result<(), Wrong> {
        let (name, written) = self.ciphers;
        if let Some(list) = ciphers::in_force(written).list {
            let text = format!("failed to set ciphers: {name} = {written}");
            builder
                .set_cipher_list(&list)
                .map_err(|why| wrong(name, &text, &stack(&why)))?;
        }
        if let (name, Some(suites)) = self.suites
            && !suites.is_empty()
        {
            let text = format!("failed to set the TLSv1.3 cipher suites: {name} = {suites}");
            library::set_suites(builder, suites).map_err(|why| wrong(name, &text, &stack(&why)))?;
        }
        Ok(())
    }

    fn choose_curve(
        &mut self,
        builder: &mut SslContextBuilder,
        written: &str,
    ) -> Result<(), Wrong> {
        self.hash.update(format!("{written}\n"));
        let Some(list) = curves::in_force(written).list else {
            return Ok(());
        };
        let name = "client_tls_ecdhcurve";
        let text = format!("failed to set the curve: {name} = {written}");
        builder
            .set_groups_list(&list)
            .map_err(|why| wrong(name, &text, &stack(&why)))
    }

    /// Sets Howdah's certificate, the certificates up to its authority, and the key.
    fn show_certificate(&mut self, builder: &mut SslContextBuilder) -> Result<(), Wrong> {
        let (name, path) = self.certificate;
        let text = self.read(self.certificate)?;
        let unread = |why: &str| wrong(name, &format!("could not use {name} = {path}"), why);
        let mut chain = X509::stack_from_pem(&text)
            .map_err(|why| unread(&stack(&why)))?
            .into_iter();
        let own = chain
            .next()
            .ok_or_else(|| unread("there is no certificate in it"))?;
        let key = self.key()?;
        self.laborious = key.id() == Id::RSA;
        if !own.public_key().is_ok_and(|public| public.public_eq(&key)) {
            let (setting, key_path) = self.key;
            let text =
                format!("{setting} = {key_path} does not fit {name} = {path}: key values mismatch");
            return Err(Wrong { setting, text });
        }
        if let Some(end) = seconds(&own) {
            self.ends.push((name, end));
        }
        let refused = |why| unread(&stack(&why));
        builder.set_certificate(&own).map_err(refused)?;
        builder.set_private_key(&key).map_err(refused)?;
        for certificate in chain {
            builder.add_extra_chain_cert(certificate).map_err(refused)?;
        }
        Ok(())
    }

    fn key(&mut self) -> Result<PKey<Private>, Wrong> {
        let (name, path) = self.key;
        let text = self.read(self.key)?;
        let mut encrypted = false;
        // Without a callback, the library would ask for a password on the terminal.
        let key = PKey::private_key_from_pem_callback(&text, |_| {
            encrypted = true;
            Ok(0)
        });
        let says = |what: &str| {
            let text = String::from_utf8_lossy(&text);
            text.contains(what)
        };
        key.map_err(|why| {
            let encrypted = encrypted || says("ENCRYPTED");
            let why = if encrypted {
                "it is encrypted, and there is no setting for its password: decrypt it \
                         (openssl pkey -in FILE -out FILE)"
                    .into()
            } else {
                stack(&why)
            };
            wrong(name, &format!("could not use {name} = {path}"), &why)
        })
    }

    /// Sets the authorities that may sign the other side's certificates.
    fn trust(&mut self, builder: &mut SslContextBuilder) -> Result<(), Wrong> {
        let (name, path) = self.authorities;
        let unread = |why: &str| wrong(name, &format!("could not use {name} = {path}"), why);
        if path.is_empty() {
            self.hash
                .update(format!("the system's authorities {:?}", system_looks()));
            let text = "could not read the system's authorities";
            // Reads all authorities now: the library would read a directory in the middle of
            // handshakes.
            let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
            let bundle = SYSTEM_BUNDLES.iter().find(|path| look(path).is_some());
            return match bundle.filter(|_| named == [None, None]) {
                Some(bundle) => builder.set_ca_file(bundle),
                None => builder.set_default_verify_paths(),
            }
            .map_err(|why| wrong(name, text, &stack(&why)));
        }
        let text = self.read(self.authorities)?;
        let authorities = X509::stack_from_pem(&text).map_err(|why| unread(&stack(&why)))?;
        if authorities.is_empty() {
            return Err(unread("there is no certificate in it"));
        }
        let length =
            |authority: &X509| authority.subject_name().to_der().map(|name| name.len() + 2);
        let lengths = authorities
            .iter()
            .map(length)
            .collect::<Result<Vec<_>, _>>();
        let lengths = lengths.map_err(|why| unread(&stack(&why)))?;
        // If no names are sent, clients choose among all their certificates.
        let told = lengths.into_iter().sum::<usize>() <= NAMES_MAX;
        for authority in authorities {
            let refused = |why| unread(&stack(&why));
            if told {
                builder.add_client_ca(&authority).map_err(refused)?;
            }
            builder
                .cert_store_mut()
                .add_cert(authority)
                .map_err(refused)?;
        }
        Ok(())
    }

    fn read(&mut self, (setting, path): (&'static str, &str)) -> Result<Vec<u8>, Wrong> {
        let bytes = std::fs::read(path).map_err(|why| {
            let mut why = why.to_string();
            if let Some(end) = why.rfind(" (os error") {
                why.truncate(end);
            }
            wrong(setting, &format!("could not read {setting} = {path}"), &why)
        })?;
        self.hash.update(bytes.len().to_be_bytes());
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

fn wrong(setting: &'static str, what: &str, why: &str) -> Wrong {
    Wrong {
        setting,
        text: format!("{what}: {why}"),
    }
}

/// A file's number and length, and the time of its last change.
pub type Look = Option<(u64, u64, (i64, i64))>;

fn look(path: &str) -> Look {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.ino(), file.len(), (file.mtime(), file.mtime_nsec())))
}

/// The TLS modes for servers.
fn server_modes(config: &Config) -> impl Iterator<Item = SslMode> {
    let databases = config.databases.values().chain(&config.fallback);
    let modes = databases.filter_map(|database| database.sslmode);
    modes.chain([config.globals.server_tls_sslmode])
}

/// The files that databases with TLS name, and whether certificates of their servers are verified.
fn files_of_databases(config: &Config) -> BTreeMap<TlsFiles, bool> {
    let mut all = BTreeMap::new();
    for database in config.databases.values().chain(&config.fallback) {
        let files = database.tls_files();
        let mode = database
            .sslmode
            .unwrap_or(config.globals.server_tls_sslmode);
        if files != TlsFiles::default() && mode != SslMode::Disable {
            *all.entry(files).or_default() |= mode.is_verified();
        }
    }
    all
}

/// The state of the files with the system's authorities.
fn system_looks() -> Vec<Look> {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
    let named = named.iter().flatten().filter_map(|path| path.to_str());
    named.chain(SYSTEM_BUNDLES).map(look).collect()
}

/// The end of a certificate, in seconds since 1970.
fn seconds(certificate: &X509) -> Option<i64> {
    let epoch = openssl::asn1::Asn1Time::from_unix(0).ok()?;
    let since = epoch.diff(certificate.not_after()).ok()?;
    Some(i64::from(since.days) * DAY + i64::from(since.secs))
}

/// The versions that are switched off. The text has PgBouncer's words, separated by commas or
/// colons: versions, `all` and `secure`. A `!` before a word removes a version.
///
/// # Errors
/// How to write the value instead.
pub fn versions(written: &str) -> Result<SslOptions, String> {
    const ALL: [(&str, SslOptions); 4] = [
        ("tlsv1.0", SslOptions::NO_TLSV1),
        ("tlsv1.1", SslOptions::NO_TLSV1_1),
        ("tlsv1.2", SslOptions::NO_TLSV1_2),
        ("tlsv1.3", SslOptions::NO_TLSV1_3),
    ];
    let mut off = SslOptions::empty();
    for (_, option) in ALL {
        off |= option;
    }
    let words = written.split([',', ':']).map(str::trim);
    for (at, word) in words.enumerate() {
        let lower = word.to_ascii_lowercase();
        let (less, word) = match lower.strip_prefix('!') {
            Some(word) => (true, word),
            None => (false, lower.as_str()),
        };
        let named = match word {
            "all" | "legacy" | "tlsv1" => &ALL[..],
            "secure" | "default" | "" => &ALL[2..],
            _ => match ALL.iter().position(|(name, _)| *name == word) {
                Some(found) => &ALL[found..=found],
                None => {
                    return Err(format!(
                        "invalid TLS protocol \"{word}\": there are tlsv1.0, tlsv1.1, tlsv1.2, \
                         tlsv1.3, all, secure"
                    ));
                }
            },
        };
        if less && at == 0 {
            off = SslOptions::empty();
        }
        for (_, option) in named {
            if less {
                off |= *option
            } else {
                off.remove(*option)
            }
        }
    }
    Ok(off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_keys_last_a_day_and_are_those_of_a_secret_and_of_settings() {
        let keys = |secret, now, settings| TicketSeed::at([secret; 32], now).keys(&[settings; 32]);
        assert_eq!(keys(1, 0, 1), keys(1, DAY - 1, 1));
        assert_ne!(keys(1, 0, 1), keys(1, DAY, 1));
        assert_ne!(keys(1, 0, 1), keys(2, 0, 1));
        assert_ne!(keys(1, 0, 1), keys(1, 0, 2));
    }
}
