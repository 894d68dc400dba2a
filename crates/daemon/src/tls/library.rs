//! The few calls of the library for which the crate `openssl` has no safe wrapper.
#![allow(unsafe_code)]

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContextBuilder, SslContextRef, SslRef, SslVersion};

pub use imports::travels_by;
#[cfg(test)]
pub(super) use imports::update_keys;
pub(super) use imports::{
    accept_signatures, forget_certificates, from_bytes, set_suites, set_ticket_keys, shed, to_bytes,
};

/// How many bytes session tickets' keys are made of: name, MAC and cipher.
#[cfg(feature = "aws-lc")]
pub(super) const TICKET_KEYS: usize = 48;
/// Likewise.
#[cfg(not(feature = "aws-lc"))]
pub(super) const TICKET_KEYS: usize = 80;

/// What AWS-LC says of a certificate whose keyUsage is not for signatures, which TLS 1.3 demands.
/// OpenSSL takes such certificates.
pub(super) const UNFIT_TO_SIGN: &str = "KEY_USAGE_BIT_INCORRECT";

/// The group of the last key exchange, by OpenSSL's name; `None` where there was none, as with RSA key
/// exchange.
pub(super) fn group(ssl: &SslRef) -> Option<String> {
    imports::group(ssl).map(|name| match name.as_str() {
        "P-256" => "prime256v1".to_string(),
        "P-384" => "secp384r1".to_string(),
        "P-521" => "secp521r1".to_string(),
        _ => name,
    })
}

/// A session whose handshake is done can go to another process, for all that is known now.
pub(super) fn can_travel(ssl: &SslRef) -> bool {
    let known = [SslVersion::TLS1_2, SslVersion::TLS1_3].map(Some);
    travels_by().is_some() && ssl.is_server() && known.contains(&ssl.version2())
}

fn done(result: i64) -> Result<(), ErrorStack> {
    match result {
        1 => Ok(()),
        _ => Err(ErrorStack::get()),
    }
}

#[cfg(feature = "aws-lc")]
mod imports {
    use std::ffi::{CStr, CString};
    use std::ptr::null_mut;

    use foreign_types::ForeignType;
    use openssl_sys as library;

    use super::*;

    pub(super) fn group(ssl: &SslRef) -> Option<String> {
        // SAFETY: the session is borrowed, so it lives; names are static texts, or null.
        unsafe {
            let name = library::SSL_get_group_name(library::SSL_get_group_id(ssl.as_ptr()));
            let name = (!name.is_null()).then(|| CStr::from_ptr(name));
            name.and_then(|name| name.to_str().ok()).map(str::to_string)
        }
    }

    /// Has one ticket follow a TLS 1.3 handshake, and all tickets be sealed with these keys.
    pub(in super::super) fn set_ticket_keys(
        builder: &mut SslContextBuilder,
        keys: &[u8; TICKET_KEYS],
    ) -> Result<(), ErrorStack> {
        // SAFETY: the context belongs to the builder, which is borrowed; the keys are as many bytes as
        // is said, and are copied.
        done(i64::from(unsafe {
            library::SSL_CTX_set_num_tickets(builder.as_ptr(), 1);
            library::SSL_CTX_set_tlsext_ticket_keys(
                builder.as_ptr(),
                keys.as_ptr().cast(),
                keys.len(),
            )
        }))
    }

    /// By which signatures the other side may prove itself: AWS-LC's own list, and Ed25519, which it
    /// knows and does not offer.
    const SIGNATURES: [u16; 11] = [
        0x0403, // ECDSA on P-256, SHA-256
        0x0804, // RSA-PSS
        0x0401, // RSA, PKCS#1
        0x0503, // ECDSA on P-384, SHA-384
        0x0805, 0x0501, 0x0603, // ECDSA on P-521, SHA-512
        0x0806, 0x0601, 0x0807, // Ed25519
        0x0201, // RSA, PKCS#1, SHA-1
    ];

    /// The other side may prove itself by any signature that the library knows.
    pub(in super::super) fn accept_signatures(
        builder: &mut SslContextBuilder,
    ) -> Result<(), ErrorStack> {
        // SAFETY: the context belongs to the builder, which is borrowed; the numbers are as many as is
        // said, and are copied.
        done(i64::from(unsafe {
            library::SSL_CTX_set_verify_algorithm_prefs(
                builder.as_ptr(),
                SIGNATURES.as_ptr(),
                SIGNATURES.len(),
            )
        }))
    }

    /// Certificates of clients are not kept behind the handshake: who wants something of them has to look
    /// while they are verified. True: the library can do so.
    pub(in super::super) fn forget_certificates(builder: &mut SslContextBuilder) -> bool {
        // SAFETY: the context belongs to the builder, which is borrowed.
        unsafe { library::SSL_CTX_set_retain_only_sha256_of_client_certs(builder.as_ptr(), 1) };
        true
    }

    /// Chooses the suites of TLS 1.3, by a list of names.
    pub(in super::super) fn set_suites(
        builder: &mut SslContextBuilder,
        list: &str,
    ) -> Result<(), ErrorStack> {
        let list = CString::new(list).unwrap_or_default();
        // SAFETY: the context belongs to the builder, which is borrowed; the list ends with a zero, and
        // is copied.
        done(i64::from(unsafe {
            library::SSL_CTX_set_ciphersuites(builder.as_ptr(), list.as_ptr())
        }))
    }

    /// By which library and version of it sessions go to another process, if by any: what they are
    /// packed into is for the same version only.
    pub fn travels_by() -> Option<&'static str> {
        Some(openssl::version::version())
    }

    /// A session as bytes: versions, keys, sequence numbers, and half a record if one has come. The
    /// library lets nothing be done with the session afterwards.
    pub(in super::super) fn to_bytes(ssl: &SslRef) -> Result<Vec<u8>, ErrorStack> {
        let (mut data, mut length) = (null_mut(), 0);
        // SAFETY: the session is borrowed, so it lives, and sessions are used by one thread at a time
        // (`Ssl` is Send, and whoever packs owns it). On success `data` points to `length` bytes that
        // are ours: they are copied, then given back (and wiped) once.
        unsafe {
            let result = library::SSL_to_bytes(ssl.as_ptr(), &mut data, &mut length);
            done(i64::from(result))?;
            let bytes = std::slice::from_raw_parts(data, length).to_vec();
            library::OPENSSL_free(data.cast());
            Ok(bytes)
        }
    }

    /// The session that [`to_bytes`] of the same version of the library was given, in a process whose
    /// user is the same: what the bytes say of buffers is checked by the library, their keys can't be.
    pub(in super::super) fn from_bytes(
        bytes: &[u8],
        context: &SslContextRef,
    ) -> Result<Ssl, ErrorStack> {
        // SAFETY: the bytes are as many as is said, and are copied; the context is borrowed, and the
        // session keeps a reference of its own. What comes back is null, or a session that nobody else
        // has. It has no streams, which `SslStream` gives it.
        unsafe {
            let ssl = library::SSL_from_bytes(bytes.as_ptr(), bytes.len(), context.as_ptr());
            match ssl.is_null() {
                true => Err(ErrorStack::get()),
                false => Ok(Ssl::from_ptr(ssl)),
            }
        }
    }

    /// Takes a new key to write with, and has the other side do so if told to.
    #[cfg(test)]
    pub(in super::super) fn update_keys(ssl: &SslRef, both: bool) -> Result<(), ErrorStack> {
        // SAFETY: the session is borrowed, so it lives.
        done(i64::from(unsafe {
            library::SSL_key_update(ssl.as_ptr(), i32::from(both))
        }))
    }

    /// Gives back what only a handshake needs. There must be none under way, and what belongs to the
    /// configuration (the certificate we showed, how we verify) can't be asked for afterwards.
    pub(in super::super) fn shed(ssl: &SslRef) {
        // SAFETY: the session is borrowed, so it lives. The second call sheds, as renegotiation is
        // switched off already.
        unsafe {
            library::SSL_set_shed_handshake_config(ssl.as_ptr(), 1);
            library::SSL_set_renegotiate_mode(
                ssl.as_ptr(),
                library::ssl_renegotiate_mode_t_ssl_renegotiate_never,
            );
        }
    }
}

#[cfg(not(feature = "aws-lc"))]
mod imports {
    use std::ffi::c_int;
    use std::ptr::null_mut;

    use openssl::nid::Nid;
    use openssl_sys as library;

    use super::*;

    const SET_TICKET_KEYS: c_int = 59;
    const GET_NEGOTIATED_GROUP: c_int = 134;
    /// A group without a NID: its number in TLS stands below this.
    const WITHOUT_NID: i64 = 0x0100_0000;

    pub(super) fn group(ssl: &SslRef) -> Option<String> {
        // SAFETY: the session is borrowed, so it lives; this request takes no pointer.
        let number =
            unsafe { library::SSL_ctrl(ssl.as_ptr(), GET_NEGOTIATED_GROUP, 0, null_mut()) };
        match number {
            ..=0 => None,
            number if number & WITHOUT_NID != 0 => match number & 0xffff {
                0x11eb => Some("SecP256r1MLKEM768".into()),
                0x11ec => Some("X25519MLKEM768".into()),
                0x11ed => Some("SecP384r1MLKEM1024".into()),
                other => Some(format!("{other:#06x}")),
            },
            number => {
                let nid = Nid::from_raw(c_int::try_from(number).ok()?);
                nid.short_name().ok().map(str::to_string)
            }
        }
    }

    /// Has one ticket follow a TLS 1.3 handshake, and all tickets be sealed with these keys.
    pub(in super::super) fn set_ticket_keys(
        builder: &mut SslContextBuilder,
        keys: &[u8; TICKET_KEYS],
    ) -> Result<(), ErrorStack> {
        builder.set_num_tickets(1)?;
        let mut keys = *keys;
        // SAFETY: the context belongs to the builder, which is borrowed; the keys are as many bytes as
        // is said, and are copied.
        done(unsafe {
            library::SSL_CTX_ctrl(
                builder.as_ptr(),
                SET_TICKET_KEYS,
                TICKET_KEYS as _,
                keys.as_mut_ptr().cast(),
            )
        })
    }

    /// OpenSSL accepts all that it knows.
    pub(in super::super) fn accept_signatures(_: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        Ok(())
    }

    /// OpenSSL keeps certificates of clients.
    pub(in super::super) fn forget_certificates(_: &mut SslContextBuilder) -> bool {
        false
    }

    /// Chooses the suites of TLS 1.3, by a list of names.
    pub(in super::super) fn set_suites(
        builder: &mut SslContextBuilder,
        list: &str,
    ) -> Result<(), ErrorStack> {
        builder.set_ciphersuites(list)
    }

    /// Gives back what only a handshake needs: OpenSSL keeps it.
    pub(in super::super) fn shed(_: &SslRef) {}

    /// By which library sessions go to another process: OpenSSL has nothing for it.
    pub fn travels_by() -> Option<&'static str> {
        None
    }

    /// See there.
    pub(in super::super) fn to_bytes(_: &SslRef) -> Result<Vec<u8>, ErrorStack> {
        Err(ErrorStack::get())
    }

    /// Likewise.
    pub(in super::super) fn from_bytes(_: &[u8], _: &SslContextRef) -> Result<Ssl, ErrorStack> {
        Err(ErrorStack::get())
    }
}
