//! The few calls of the library for which the crate `openssl` has no safe wrapper.
#![allow(unsafe_code)]

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslRef};

pub(super) use imports::{set_suites, set_ticket_keys, shed};

/// How many bytes session tickets' keys are made of: name, MAC and cipher.
#[cfg(feature = "aws-lc")]
pub(super) const TICKET_KEYS: usize = 48;
/// Likewise.
#[cfg(not(feature = "aws-lc"))]
pub(super) const TICKET_KEYS: usize = 80;

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

fn done(result: i64) -> Result<(), ErrorStack> {
    match result {
        1 => Ok(()),
        _ => Err(ErrorStack::get()),
    }
}

#[cfg(feature = "aws-lc")]
mod imports {
    use std::ffi::{CStr, CString};

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

    /// Chooses the suites of TLS 1.3, by a list of names.
    pub(in super::super) fn set_suites(
        builder: &mut SslContextBuilder,
        list: &str,
    ) -> Result<(), ErrorStack> {
        builder.set_ciphersuites(list)
    }

    /// Gives back what only a handshake needs: OpenSSL keeps it.
    pub(in super::super) fn shed(_: &SslRef) {}
}
