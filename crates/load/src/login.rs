//! Logins: startup packet, trust, password, md5 and SCRAM; and the cancel request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::connection::Connection;
use crate::failure::{Failure, Kind, Outcome};
use crate::messages::{field, parameter_status, put, put_text, show_got};
use crate::url::Url;

/// The facts from a login.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// Process id and secret from BackendKeyData.
    pub key: Vec<u8>,
    /// The settings reported.
    pub settings: BTreeMap<String, String>,
}

/// The startup packet for `url` with `settings`.
pub fn startup_packet(url: &Url, version: u32, settings: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    let named = [
        ("user", url.user.as_str()),
        ("database", url.database.as_str()),
    ];
    for (name, value) in named.iter().chain(settings) {
        put_text(&mut body, name);
        put_text(&mut body, value);
    }
    body.push(0);
    let mut out = (body.len() as u32 + 8).to_be_bytes().to_vec();
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn refused(what: impl Into<String>) -> Failure {
    Failure::new(Kind::Unexpected, what)
}

/// Logs in on a new connection, up to the first ReadyForQuery.
pub fn login(
    connection: &mut Connection,
    url: &Url,
    version: u32,
    settings: &[(&str, &str)],
) -> Outcome<Greeting> {
    connection.send(&startup_packet(url, version, settings))?;
    let mut scram = Scram::default();
    let mut greeting = Greeting::default();
    let mut accepted = false;
    loop {
        let message = connection.next()?;
        let body = &message.body;
        match message.tag {
            b'R' if !accepted => {
                accepted = answer(connection, url, &mut scram, body)?;
            }
            b'S' if accepted => {
                let (name, value) = parameter_status(body)
                    .ok_or_else(|| Failure::new(Kind::Wrong, "a broken ParameterStatus"))?;
                greeting.settings.insert(name, value);
            }
            b'K' if accepted && greeting.key.is_empty() => greeting.key.clone_from(body),
            b'v' => {}
            b'N' => {}
            b'Z' if accepted && body == b"I" && !greeting.key.is_empty() => return Ok(greeting),
            b'E' => {
                let of = |tag| field(body, tag).unwrap_or_default();
                return Err(refused(format!("login refused: {} {}", of(b'C'), of(b'M'))));
            }
            tag => {
                let shown = show_got(tag, body, body.len());
                return Err(Failure::new(Kind::Wrong, format!("at login came {shown}")));
            }
        }
    }
}

/// Answers an Authentication message. True once the server accepts.
fn answer(connection: &mut Connection, url: &Url, scram: &mut Scram, body: &[u8]) -> Outcome<bool> {
    let kind = body
        .first_chunk()
        .map_or(u32::MAX, |code| u32::from_be_bytes(*code));
    let rest = body.get(4..).unwrap_or_default();
    let mut out = Vec::new();
    match kind {
        0 => return Ok(true),
        3 => put(&mut out, b'p', |out| put_text(out, &url.password)),
        5 => {
            let inner = hex(&Md5::digest(format!("{}{}", url.password, url.user)));
            let outer = hex(&Md5::digest([inner.as_bytes(), rest].concat()));
            put(&mut out, b'p', |out| put_text(out, &format!("md5{outer}")));
        }
        10 => put(&mut out, b'p', |out| {
            let first = scram.first();
            put_text(out, "SCRAM-SHA-256");
            out.extend_from_slice(&(first.len() as u32).to_be_bytes());
            out.extend_from_slice(first.as_bytes());
        }),
        11 => {
            let last = scram.last(&url.password, rest).map_err(refused)?;
            put(&mut out, b'p', |out| out.extend_from_slice(last.as_bytes()));
        }
        12 => return scram.verify(rest).map_err(refused).map(|()| false),
        _ => {
            return Err(refused(format!(
                "authentication method {kind} is not supported"
            )));
        }
    }
    connection.send(&out)?;
    Ok(false)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Password, salt and iteration count.
type Recipe = (String, Vec<u8>, u32);

/// Salted passwords. The load logs in too often to derive each of them anew.
static SALTED: Mutex<Option<HashMap<Recipe, [u8; 32]>>> = Mutex::new(None);

fn keyed(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length is fine");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

fn salted(password: &str, salt: &[u8], rounds: u32) -> [u8; 32] {
    let entry = (password.to_owned(), salt.to_vec(), rounds);
    let known = |cache: &Option<HashMap<_, [u8; 32]>>| cache.as_ref()?.get(&entry).copied();
    if let Some(key) = known(&SALTED.lock().expect("no panic while held")) {
        return key;
    }
    let mut step = keyed(password.as_bytes(), &[salt, &1u32.to_be_bytes()].concat());
    let mut key = step;
    for _ in 1..rounds {
        step = keyed(password.as_bytes(), &step);
        key.iter_mut()
            .zip(step)
            .for_each(|(key, step)| *key ^= step);
    }
    SALTED
        .lock()
        .expect("no panic while held")
        .get_or_insert_default()
        .insert(entry, key);
    key
}

/// One SCRAM-SHA-256 exchange (RFC 5802, RFC 7677), without channel binding.
#[derive(Default)]
struct Scram {
    signature: Vec<u8>,
}

/// The load needs no protection from replay, so the nonce is constant.
const NONCE: &str = "howdahloadhowdahloadhowd";

impl Scram {
    fn first(&self) -> String {
        format!("n,,n=,r={NONCE}")
    }

    fn last(&mut self, password: &str, challenge: &[u8]) -> Result<String, String> {
        let challenge = String::from_utf8_lossy(challenge).into_owned();
        let part = |name: &str| {
            let mut parts = challenge.split(',');
            parts
                .find_map(|part| part.strip_prefix(name))
                .ok_or("a broken SCRAM challenge")
        };
        let nonce = part("r=")?;
        if !nonce.starts_with(NONCE) {
            return Err("the SCRAM nonce is not ours".to_owned());
        }
        let salt = BASE64
            .decode(part("s=")?)
            .map_err(|_| "a broken SCRAM salt")?;
        let rounds = part("i=")?
            .parse()
            .map_err(|_| "a broken SCRAM iteration count")?;
        let salted = salted(password, &salt, rounds);
        let client = keyed(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("n=,r={NONCE},{challenge},{without_proof}");
        let signature = keyed(&Sha256::digest(client), signed.as_bytes());
        let proof: Vec<u8> = client.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        self.signature = keyed(&keyed(&salted, b"Server Key"), signed.as_bytes()).to_vec();
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)))
    }

    fn verify(&self, last: &[u8]) -> Result<(), String> {
        let wanted = format!("v={}", BASE64.encode(&self.signature));
        if last == wanted.as_bytes() {
            return Ok(());
        }
        Err("the server's SCRAM signature is wrong".to_owned())
    }
}

/// Sends a cancel request for `key` over a separate connection, which is returned.
pub fn send_cancel(url: &Url, key: &[u8], limit: Duration) -> Outcome<Connection> {
    let mut connection = Connection::open(url, limit)?;
    connection.send(&cancel_packet(key))?;
    Ok(connection)
}

/// The cancel request for `key`.
pub fn cancel_packet(key: &[u8]) -> Vec<u8> {
    let mut out = (key.len() as u32 + 8).to_be_bytes().to_vec();
    out.extend_from_slice(&80_877_102u32.to_be_bytes());
    out.extend_from_slice(key);
    out
}
