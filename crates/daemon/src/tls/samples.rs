//! Keys, certificates and settings for the tests of this folder.

use std::path::PathBuf;

use howdah_pooler::config::{Config, SslMode};
use howdah_pooler::tls::TlsConnect;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};

use super::Contexts;
use super::contexts::TicketSeed;

/// A directory of its own for each test, removed after the test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("howdah-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn elliptic() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

/// A certificate for localhost and alternative names, signed by itself.
pub(super) fn certificate(key: &PKey<Private>, version: i32, names: &[&str]) -> X509 {
    named("localhost", key, version, names)
}

/// A certificate for a common name and alternative names, signed by itself.
pub(super) fn named(name: &str, key: &PKey<Private>, version: i32, names: &[&str]) -> X509 {
    let digest = match key.id() {
        openssl::pkey::Id::ED25519 => MessageDigest::null(),
        _ => MessageDigest::sha384(),
    };
    signed_with(digest, name, key, version, names)
}

/// The same, signed with this hash.
pub(super) fn signed_with(
    digest: MessageDigest,
    name: &str,
    key: &PKey<Private>,
    version: i32,
    names: &[&str],
) -> X509 {
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("O", "Test, Inc").unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(version - 1).unwrap();
    let number = BigNum::from_u32(7).unwrap().to_asn1_integer().unwrap();
    builder.set_serial_number(&number).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(&subject).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(9).unwrap())
        .unwrap();
    if version == 3 {
        let constraints = BasicConstraints::new().ca().build().unwrap();
        builder.append_extension(constraints).unwrap();
    }
    if !names.is_empty() {
        let mut all = SubjectAlternativeName::new();
        for name in names {
            match name.parse::<std::net::IpAddr>() {
                Ok(_) => all.ip(name),
                Err(_) => all.dns(name),
            };
        }
        let extension = all.build(&builder.x509v3_context(None, None)).unwrap();
        builder.append_extension(extension).unwrap();
    }
    builder.sign(key, digest).unwrap();
    builder.build()
}

/// Both sides' contexts with one certificate, which is its own authority.
pub(super) fn contexts(
    folder: &Folder,
    key: &PKey<Private>,
    certificate: &X509,
    more: &str,
) -> Contexts {
    Contexts::build(
        &config(folder, key, certificate, more),
        TicketSeed::default(),
    )
    .unwrap()
}

pub(super) fn config(
    folder: &Folder,
    key: &PKey<Private>,
    certificate: &X509,
    more: &str,
) -> Config {
    let key = folder.write("key", &key.private_key_to_pem_pkcs8().unwrap());
    let chain = folder.write("chain", &certificate.to_pem().unwrap());
    read(&format!(
        "client_tls_sslmode = require\nclient_tls_key_file = {key}\n\
         client_tls_cert_file = {chain}\nclient_tls_ca_file = {chain}\n\
         server_tls_sslmode = verify-full\nserver_tls_ca_file = {chain}\n\
         server_tls_key_file = {key}\nserver_tls_cert_file = {chain}\n{more}"
    ))
}

pub(super) fn read(settings: &str) -> Config {
    let text = format!("[pgbouncer]\nauth_type = trust\n{settings}");
    Config::load("x.ini", &text, &mut |_| Ok(String::new()))
        .unwrap()
        .0
}

pub(super) fn to(host: &str, mode: SslMode) -> TlsConnect {
    TlsConnect {
        mode,
        host: host.into(),
        direct: false,
        files: Default::default(),
    }
}
