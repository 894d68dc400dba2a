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

/// The configs of the poolers.
const HOWDAH: &str = include_str!("../../../../configs/tls/howdah.ini");
const PGBOUNCER: &str = include_str!("../../../../configs/tls/pgbouncer.ini");

/// The cipher suites of the echo: those of the configs.
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
    let workers = shape.workers.to_string();
    let own = [
        ("{workers}", &*workers),
        ("{key}", &*certificate.key.to_string_lossy()),
        ("{certificate}", &*certificate.chain.to_string_lossy()),
        ("{server_tls_sslmode}", servers),
    ];
    let mut command = match who {
        Who::Bare => {
            return Running::start(Target::Floor, machine, postgres, programs);
        }
        Who::Howdah => target::configured(machine, postgres, &programs.howdah, port, HOWDAH, &own)?,
        Who::PgBouncer => target::configured(
            machine,
            postgres,
            &programs.pgbouncer,
            port,
            PGBOUNCER,
            &own,
        )?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_config_names_what_is_filled_in_and_the_echos_suites() {
        for text in [HOWDAH, PGBOUNCER] {
            let filled = ["{port}", "{server_port}", "{users}", "{pool}"];
            let own = ["{key}", "{certificate}", "{server_tls_sslmode}"];
            for word in filled.into_iter().chain(own).chain(SUITES) {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
        assert!(HOWDAH.contains("{workers}"));
    }
}
