//! Starts the compared programs with a certificate.

use std::io;
use std::path::PathBuf;

use crate::contender::Certificate;
use crate::machine::{Machine, free_port, succeed};
use crate::postgres::USER;
use crate::target::{self, Running, Target};

use super::Run;
use super::rows::Who;

/// Kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// RSA with 2,048 bits.
    Rsa,
    /// RSA with 4,096 bits.
    Rsa4096,
    /// ECDSA on the curve P-256.
    Ecdsa,
}

/// Parameters of a program's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The key of the certificate.
    pub key: Key,
    /// Servers use TLS, too.
    pub both: bool,
    /// Worker threads of programs that have several.
    pub workers: usize,
}

/// A self-signed certificate of each kind.
pub struct Certificates([Certificate; 3]);

impl Certificates {
    /// Makes the certificates with `openssl`.
    ///
    /// # Errors
    /// There is no `openssl`, or it fails.
    pub fn make(machine: &Machine) -> io::Result<Certificates> {
        let make = |name: &str, algorithm: &[&str]| {
            let file = |end: &str| -> PathBuf { machine.folder().join(format!("{name}.{end}")) };
            let certificate = Certificate {
                key: file("key"),
                chain: file("crt"),
            };
            let mut openssl = machine.command("openssl");
            openssl.args(["req", "-x509", "-newkey"]).args(algorithm);
            openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
            openssl.arg("-keyout").arg(&certificate.key);
            openssl.arg("-out").arg(&certificate.chain);
            succeed(&mut openssl).map(|_| certificate)
        };
        Ok(Certificates([
            make("rsa", &["rsa:2048"])?,
            make("rsa4096", &["rsa:4096"])?,
            make("ecdsa", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])?,
        ]))
    }

    /// The certificate with this kind of key.
    pub fn of(&self, key: Key) -> &Certificate {
        &self.0[key as usize]
    }
}

/// The cipher suites for all programs, so that their own choices do not differ.
const SUITES: [&str; 2] = [
    "client_tls_ciphers = ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384",
    "client_tls13_ciphers = TLS_AES_256_GCM_SHA384",
];

/// Starts a program, and waits until a client gets in.
///
/// # Errors
/// The program does not start. The error has its last output.
pub fn start(who: Who, shape: Shape, run: &Run) -> io::Result<Running> {
    let (machine, postgres, programs) = (run.machine, run.postgres, run.programs);
    let certificate = run.certificates.of(shape.key);
    let port = free_port()?;
    let servers = if shape.both { "require" } else { "disable" };
    let mut own = format!(
        "client_tls_sslmode = allow\nclient_tls_key_file = {}\nclient_tls_cert_file = {}\n\
         server_tls_sslmode = {servers}\nserver_tls_ciphers = {}\n\
         server_tls13_ciphers = TLS_AES_256_GCM_SHA384\n{}\n",
        certificate.key.display(),
        certificate.chain.display(),
        "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384",
        SUITES.join("\n"),
    );
    let mut command = match who {
        Who::Bare => {
            return Running::start(Target::Floor, machine, postgres, programs);
        }
        Who::Howdah => {
            own.push_str(&format!("workers = {}\n", shape.workers));
            target::configured(machine, postgres, &programs.howdah, port, &own)?
        }
        Who::PgBouncer => target::configured(machine, postgres, &programs.pgbouncer, port, &own)?,
        Who::Echo | Who::ClearEcho => {
            let mut command = machine.command(&programs.echo);
            command.arg("--listen").arg(format!("127.0.0.1:{port}"));
            command.args(["--secret", postgres.secret()]);
            command.arg("--key").arg(&certificate.key);
            command.arg("--certificate").arg(&certificate.chain);
            for suite in SUITES {
                command.args(["--setting", suite]);
            }
            command
        }
    };
    let mut running = Running::of(&mut command, port, machine)?;
    running.await_login(USER, target::PATIENCE)?;
    Ok(running)
}
