//! The fuzz body of LDAP: takes any bytes and panics if a promise is broken.

use super::{LdapOptions, filter, message};

/// Options are read or refused with a reason; filters that are read are whole values; what a server
/// sends is read without a panic, and each message takes bytes off.
pub fn ldap(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match LdapOptions::parse(&text) {
        Ok(options) => assert!(!options.servers.is_empty()),
        Err((why, remedy)) => assert!(!why.is_empty() && !remedy.is_empty()),
    }
    let _ = filter::encode(&text);
    let escaped = format!("(uid={})", filter::escape(&text));
    assert!(
        filter::encode(&escaped).is_ok(),
        "an escaped value is a value"
    );
    let mut rest = input;
    while let Ok(Some((_, _, taken))) = message::read(rest) {
        assert!(taken > 0);
        rest = &rest[taken..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes(input: Vec<u8>) {
            ldap(&input);
        }

        #[test]
        fn near_filters(input in r#"[()&|!=*:~<>\\a-c0-9 ,"?/%$#]{0,40}"#) {
            ldap(input.as_bytes());
            ldap(format!("ldapurl=\"ldap://h/{input}\" ldapbasedn={input}").as_bytes());
        }

        #[test]
        fn near_messages(input in proptest::collection::vec(
            prop::sample::select(vec![0x30u8, 0, 1, 2, 3, 4, 5, 7, 10, 12, 0x61, 0x64, 0x65, 0x78, 0x81, 0x84]),
            0..40,
        )) {
            ldap(&input);
        }
    }
}
