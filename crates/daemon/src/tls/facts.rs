//! Facts about an established TLS session.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use howdah_pooler::tls::{AlternativeName, PeerCertificate, TlsFacts};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::ssl::{NameType, SslRef, SslVerifyMode};
use openssl::x509::{X509NameEntryRef, X509NameRef, X509Ref, X509VerifyResult};

use super::library;

/// The names in the other side's certificate, available after its verification.
pub(super) type Shown = Arc<Mutex<Option<Box<PeerCertificate>>>>;

/// Reads the other side's certificate while it is verified.
pub(super) fn look(ssl: &mut SslRef) -> Shown {
    let shown = Shown::default();
    let seen = shown.clone();
    ssl.set_verify_callback(ssl.verify_mode(), move |valid, chain| {
        if valid
            && chain.error_depth() == 0
            && let Some(certificate) = chain.current_cert()
        {
            let names = Some(Box::new(names(certificate)));
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = names;
        }
        valid
    });
    shown
}

/// The facts of a session. `shown`: the names in a certificate that is not kept.
pub(super) fn facts(ssl: &SslRef, sni: Option<&str>, shown: Option<&Shown>) -> TlsFacts {
    let served = if ssl.is_server() {
        ssl.certificate().map(ToOwned::to_owned)
    } else {
        ssl.peer_certificate()
    };
    let text = |bytes: &[u8]| Box::from(String::from_utf8_lossy(bytes));
    let sni = sni.map(Into::into);
    let asked = || ssl.servername_raw(NameType::HOST_NAME).map(text);
    TlsFacts {
        version: ssl.version_str().into(),
        cipher: ssl.current_cipher().map_or("", |c| c.name()).into(),
        group: library::group(ssl).map(Into::into),
        sni: sni.or_else(asked),
        alpn: ssl.selected_alpn_protocol().map(text),
        binding: served.and_then(|certificate| binding(&certificate)),
        peer: verified(ssl, shown),
        resumed: ssl.session_reused(),
        travels: library::can_travel(ssl),
    }
}

/// `tls-server-end-point` of RFC 5929: a hash of the certificate. The hash function is that of the
/// signature, but never MD5 or SHA-1.
fn binding(certificate: &X509Ref) -> Option<Box<[u8]>> {
    let signature = certificate.signature_algorithm().object().nid();
    let digest = match signature.signature_algorithms()?.digest {
        Nid::UNDEF if signature == Nid::RSASSAPSS => pss_digest(&certificate.to_der().ok()?)?,
        Nid::UNDEF => return None,
        Nid::MD5 | Nid::SHA1 => MessageDigest::sha256(),
        digest => MessageDigest::from_nid(digest)?,
    };
    let hash = certificate.digest(digest).ok()?;
    Some(Box::from(&*hash))
}

/// The hash function of an RSA-PSS signature. It is in the signature's parameters.
fn pss_digest(certificate: &[u8]) -> Option<MessageDigest> {
    // The identifier id-RSASSA-PSS, and the common beginning of the SHA-2 identifiers.
    const PSS: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";
    const SHA_2: &[u8] = b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02";
    // The parameters begin with the heads of three nested values, two bytes each.
    const LENGTHS: usize = 3 * 2;
    let at = certificate
        .windows(PSS.len())
        .position(|part| part == PSS)?;
    let parameters = certificate.get(at + PSS.len() + LENGTHS..)?;
    match parameters.strip_prefix(SHA_2)?.first()? {
        1 => Some(MessageDigest::sha256()),
        2 => Some(MessageDigest::sha384()),
        3 => Some(MessageDigest::sha512()),
        _ => None,
    }
}

/// The other side's certificate, if it was verified.
pub(super) fn verified(ssl: &SslRef, shown: Option<&Shown>) -> Option<Box<PeerCertificate>> {
    let checked = ssl.verify_mode().contains(SslVerifyMode::PEER);
    if !checked || ssl.verify_result() != X509VerifyResult::OK {
        return None;
    }
    if let Some(shown) = shown {
        return shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    let certificate = ssl.peer_certificate()?;
    Some(Box::new(names(&certificate)))
}

/// The names in a certificate.
pub(super) fn names(certificate: &X509Ref) -> PeerCertificate {
    let subject = certificate.subject_name();
    let common_name = subject.entries_by_nid(Nid::COMMONNAME).next();
    let mut names = Vec::new();
    for name in certificate.subject_alt_names().into_iter().flatten() {
        if let Some(host) = name.dnsname() {
            // An invalid name still counts as a name: the common name is not used beside it.
            names.push(AlternativeName::Dns(honest(host).unwrap_or_default()));
        } else if let Some(ip) = name.ipaddress().and_then(address) {
            names.push(AlternativeName::Ip(ip));
        }
    }
    PeerCertificate {
        common_name: common_name.and_then(|entry| honest(&value(entry))),
        names,
        subject: oneline(subject).into(),
        distinguished_name: rfc2253(subject).into(),
    }
}

/// A name, unless it has a zero byte: a reader that stops there would see another name.
fn honest(name: &str) -> Option<Box<str>> {
    (!name.contains('\0')).then(|| name.into())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn value(entry: &X509NameEntryRef) -> String {
    let text = entry.data().to_string();
    text.unwrap_or_else(|_| String::from_utf8_lossy(entry.data().as_slice()).into_owned())
}

fn key(entry: &X509NameEntryRef) -> String {
    let nid = entry.object().nid();
    nid.short_name()
        .map_or_else(|_| entry.object().to_string(), str::to_string)
}

/// `/O=org/CN=user`: from the first part to the last.
fn oneline(name: &X509NameRef) -> String {
    let part = |entry| format!("/{}={}", key(entry), value(entry));
    name.entries().map(part).collect()
}

/// `CN=user,O=org`: by RFC 2253, from the last part to the first.
fn rfc2253(name: &X509NameRef) -> String {
    let mut parts: Vec<_> = name
        .entries()
        .map(|entry| format!("{}={}", key(entry), escaped(&value(entry))))
        .collect();
    parts.reverse();
    parts.join(",")
}

/// A value by RFC 2253. Control characters and bytes beyond ASCII are in hexadecimal, as in
/// OpenSSL.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    let last = value.len().wrapping_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' ' if at == 0 || at == last => text.push_str("\\ "),
            b'#' if at == 0 => text.push_str("\\#"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::samples::{elliptic, signed_with};

    #[test]
    fn weak_hashes_of_signatures_bind_by_another() {
        let key = elliptic();
        for (signed, bound) in [
            (MessageDigest::sha1(), MessageDigest::sha256()),
            (MessageDigest::sha256(), MessageDigest::sha256()),
            (MessageDigest::sha512(), MessageDigest::sha512()),
        ] {
            let own = signed_with(signed, "localhost", &key, 3, &[]);
            let expected = own.digest(bound).unwrap();
            assert_eq!(binding(&own).as_deref(), Some(&*expected));
        }
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escaped("a b"), "a b");
        assert_eq!(
            escaped(" a,b+\"c\\<>; "),
            "\\ a\\,b\\+\\\"c\\\\\\<\\>\\;\\ "
        );
        assert_eq!(escaped("#1\u{e4}\0"), "\\#1\\C3\\A4\\00");
    }
}
