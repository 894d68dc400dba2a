//! The few calls of the library without a safe wrapper in the crate `openssl`.
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

/// The length of the session ticket keys: name, MAC and cipher.
#[cfg(feature = "aws-lc")]
pub(super) const TICKET_KEYS: usize = 48;
/// The length of the session ticket keys: name, MAC and cipher.
#[cfg(not(feature = "aws-lc"))]
pub(super) const TICKET_KEYS: usize = 80;

/// AWS-LC's error for a certificate whose keyUsage does not allow signatures, which TLS 1.3
/// requires. OpenSSL accepts such certificates.
pub(super) const UNFIT_TO_SIGN: &str = "KEY_USAGE_BIT_INCORRECT";

/// The group of the last key exchange, by OpenSSL's name. `None` for an RSA key exchange, which has
/// no group.
pub(super) fn group(ssl: &SslRef) -> Option<String> {
    imports::group(ssl).map(|name| match name.as_str() {
        "P-256" => "prime256v1".to_string(),
        "P-384" => "secp384r1".to_string(),
        "P-521" => "secp521r1".to_string(),
        _ => name,
    })
}

/// True if a session after its handshake can go to another process, as far as is known by now.
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

    /// One ticket follows a TLS 1.3 handshake, and these keys seal all tickets.
    pub(in super::super) fn set_ticket_keys(
        builder: &mut SslContextBuilder,
        keys: &[u8; TICKET_KEYS],
    ) -> Result<(), ErrorStack> {
        // SAFETY: the context belongs to the builder, which is borrowed; the length is that of the
        // keys, which are copied.
        done(i64::from(unsafe {
            library::SSL_CTX_set_num_tickets(builder.as_ptr(), 1);
            library::SSL_CTX_set_tlsext_ticket_keys(
                builder.as_ptr(),
                keys.as_ptr().cast(),
                keys.len(),
            )
        }))
    }

    /// The signatures that the other side may use: AWS-LC's own list, and Ed25519, which AWS-LC
    /// supports but does not offer.
    const SIGNATURES: [u16; 11] = [
        0x0403, // ECDSA on P-256, SHA-256
        0x0804, // RSA-PSS
        0x0401, // RSA, PKCS#1
        0x0503, // ECDSA on P-384, SHA-384
        0x0805, 0x0501, 0x0603, // ECDSA on P-521, SHA-512
        0x0806, 0x0601, 0x0807, // Ed25519
        0x0201, // RSA, PKCS#1, SHA-1
    ];

    /// Accepts every signature that the library supports.
    pub(in super::super) fn accept_signatures(
        builder: &mut SslContextBuilder,
    ) -> Result<(), ErrorStack> {
        // SAFETY: the context belongs to the builder, which is borrowed; the length is that of the
        // list, which is copied.
        done(i64::from(unsafe {
            library::SSL_CTX_set_verify_algorithm_prefs(
                builder.as_ptr(),
                SIGNATURES.as_ptr(),
                SIGNATURES.len(),
            )
        }))
    }

    /// Clients' certificates are not kept after the handshake. Their names must be read while the
    /// certificates are verified. True: the library supports this.
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

    /// The library and its version, if sessions can go to another process. The packed form is for
    /// the same version only.
    pub fn travels_by() -> Option<&'static str> {
        Some(openssl::version::version())
    }

    /// Packs a session: versions, keys, sequence numbers, and half a record if one has arrived.
    /// Afterwards the library refuses all use of the session.
    pub(in super::super) fn to_bytes(ssl: &SslRef) -> Result<Vec<u8>, ErrorStack> {
        let (mut data, mut length) = (null_mut(), 0);
        // SAFETY: the session is borrowed, so it lives. One thread at a time uses a session (`Ssl`
        // is Send, and the packing thread owns it). On success `data` points to `length` bytes,
        // which belong to the caller: they are copied, then freed (and wiped) once.
        unsafe {
            let result = library::SSL_to_bytes(ssl.as_ptr(), &mut data, &mut length);
            done(i64::from(result))?;
            let bytes = std::slice::from_raw_parts(data, length).to_vec();
            library::OPENSSL_free(data.cast());
            Ok(bytes)
        }
    }

    /// Unpacks the result of [`to_bytes`]. The bytes must come from the same version of the
    /// library, in a process of the same user: the library checks the lengths of buffers, but can't
    /// check the keys.
    pub(in super::super) fn from_bytes(
        bytes: &[u8],
        context: &SslContextRef,
    ) -> Result<Ssl, ErrorStack> {
        // SAFETY: the length is that of the bytes, which are copied. The context is borrowed, and
        // the session keeps a reference of its own. The result is null, or a session without
        // another owner. It has no streams; `SslStream` adds them.
        unsafe {
            let ssl = library::SSL_from_bytes(bytes.as_ptr(), bytes.len(), context.as_ptr());
            if ssl.is_null() {
                Err(ErrorStack::get())
            } else {
                Ok(Ssl::from_ptr(ssl))
            }
        }
    }

    /// Takes a new key for sending; with `both`, makes the other side do so, too.
    #[cfg(test)]
    pub(in super::super) fn update_keys(ssl: &SslRef, both: bool) -> Result<(), ErrorStack> {
        // SAFETY: the session is borrowed, so it lives.
        done(i64::from(unsafe {
            library::SSL_key_update(ssl.as_ptr(), i32::from(both))
        }))
    }

    /// Frees the memory that only a handshake needs. No handshake may be under way. Afterwards the
    /// session's configuration (such as Howdah's certificate) can't be read any more.
    pub(in super::super) fn shed(ssl: &SslRef) {
        // SAFETY: the session is borrowed, so it lives. The second call frees the memory;
        // renegotiation is switched off already.
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
    /// A group without a NID: its number in TLS is below this number.
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

    /// One ticket follows a TLS 1.3 handshake, and these keys seal all tickets.
    pub(in super::super) fn set_ticket_keys(
        builder: &mut SslContextBuilder,
        keys: &[u8; TICKET_KEYS],
    ) -> Result<(), ErrorStack> {
        builder.set_num_tickets(1)?;
        let mut keys = *keys;
        // SAFETY: the context belongs to the builder, which is borrowed; the length is that of the
        // keys, which are copied.
        done(unsafe {
            library::SSL_CTX_ctrl(
                builder.as_ptr(),
                SET_TICKET_KEYS,
                TICKET_KEYS as _,
                keys.as_mut_ptr().cast(),
            )
        })
    }

    /// OpenSSL accepts all signatures that it supports.
    pub(in super::super) fn accept_signatures(_: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        Ok(())
    }

    /// OpenSSL keeps clients' certificates.
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

    /// OpenSSL can't free the memory that only a handshake needs.
    pub(in super::super) fn shed(_: &SslRef) {}

    /// OpenSSL can't pack sessions.
    pub fn travels_by() -> Option<&'static str> {
        None
    }

    /// OpenSSL can't pack sessions.
    pub(in super::super) fn to_bytes(_: &SslRef) -> Result<Vec<u8>, ErrorStack> {
        Err(ErrorStack::get())
    }

    /// OpenSSL can't unpack sessions.
    pub(in super::super) fn from_bytes(_: &[u8], _: &SslContextRef) -> Result<Ssl, ErrorStack> {
        Err(ErrorStack::get())
    }
}
