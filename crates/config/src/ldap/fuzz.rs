//! The fuzz body of LDAP: takes any bytes, and panics if a promise is broken.

use super::{LdapOptions, filter};

/// Options are read, or refused with a reason. A filter in its canonical form is read as itself. An
/// escaped value is a valid value.
pub fn ldap(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match LdapOptions::parse(&text) {
        Ok(options) => assert!(!options.servers.is_empty()),
        Err((why, remedy)) => assert!(!why.is_empty() && !remedy.is_empty()),
    }
    if let Ok(canonical) = filter::canonical(&text) {
        assert_eq!(filter::canonical(&canonical), Ok(canonical));
    }
    let escaped = format!("(uid={})", filter::escape(&text));
    assert!(
        filter::canonical(&escaped).is_ok(),
        "an escaped value is a value"
    );
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
    }
}
