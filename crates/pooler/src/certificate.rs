//! Matches the names in a certificate with the wanted host, or with the user who logs in.

use std::net::IpAddr;

pub use crate::config::access::ClientName;
use crate::tls::{AlternativeName, PeerCertificate};

impl PeerCertificate {
    /// True if the certificate is for this host (a name or an address). As in libpq, alternative
    /// names count, and the common name counts only without alternative names of the host's kind.
    pub fn is_for_host(&self, host: &str) -> bool {
        if host.is_empty() {
            return false;
        }
        let address = address(host);
        let found = self.names.iter().any(|name| match name {
            AlternativeName::Dns(name) => fits_host(name, host, address),
            AlternativeName::Ip(ip) => address == Some(*ip),
        });
        let same_kind = |name: &AlternativeName| match name {
            AlternativeName::Dns(_) => address.is_none(),
            AlternativeName::Ip(_) => address.is_some(),
        };
        let common_name_counts = !self.names.iter().any(same_kind);
        let common_name = self.common_name.as_deref();
        found
            || (common_name_counts
                && common_name.is_some_and(|name| fits_host(name, host, address)))
    }

    /// True if the certificate names this user.
    pub fn is_for_user(&self, user: &str, compared: ClientName) -> bool {
        match compared {
            ClientName::Any => self.has_name(user),
            ClientName::CommonName => self.common_name.as_deref() == Some(user),
            ClientName::DistinguishedName => *self.distinguished_name == *user,
        }
    }

    /// PgBouncer's check of users: like that of hosts, but the common name always counts, and a
    /// wildcard needs at least two labels behind the star.
    fn has_name(&self, user: &str) -> bool {
        let address = address(user);
        let alternative = self.names.iter().any(|name| match name {
            AlternativeName::Dns(name) => address.is_none() && fits_user(name, user),
            AlternativeName::Ip(ip) => address == Some(*ip),
        });
        let common_name = self.common_name.as_deref();
        alternative
            || common_name.is_some_and(|name| match address {
                Some(_) => name == user,
                None => fits_user(name, user),
            })
    }
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// A name with a zero byte is meant to deceive programs that read it as a C string.
fn is_deceptive(name: &str) -> bool {
    name.contains('\0')
}

/// `*.example.com` stands for one label in front: `a.example.com`, but neither `example.com` nor
/// `a.b.example.com`. No wildcard matches an address.
fn fits_host(pattern: &str, host: &str, address: Option<IpAddr>) -> bool {
    if is_deceptive(pattern) {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let behind_star = pattern.strip_prefix('*').filter(|rest| rest.len() > 1);
    match (behind_star, host.find('.')) {
        (Some(rest), Some(dot)) if address.is_none() && rest.starts_with('.') => {
            dot > 0 && host[dot..].eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

/// As `fits_host`, but `*.com` matches no user.
fn fits_user(pattern: &str, user: &str) -> bool {
    if is_deceptive(pattern) || pattern.is_empty() {
        return false;
    }
    if pattern.eq_ignore_ascii_case(user) {
        return true;
    }
    let domain = pattern.strip_prefix("*.");
    let deep = domain.is_some_and(|domain| {
        let mut parts = domain.splitn(3, '.');
        let [first, second] = [parts.next(), parts.next()];
        first.is_some_and(|part| !part.is_empty()) && second.is_some_and(|part| !part.is_empty())
    });
    deep && fits_host(pattern, user, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `cn=NAME`, `dns=NAME` and `ip=ADDRESS`, separated by blanks.
    fn certificate(text: &str) -> PeerCertificate {
        let mut certificate = PeerCertificate::default();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once('=').unwrap() {
                ("cn", name) => certificate.common_name = Some(name.into()),
                ("dns", name) => certificate.names.push(AlternativeName::Dns(name.into())),
                ("ip", ip) => {
                    let ip = AlternativeName::Ip(ip.parse().unwrap());
                    certificate.names.push(ip);
                }
                ("dn", name) => certificate.distinguished_name = name.into(),
                _ => panic!("{word}"),
            }
        }
        certificate
    }

    #[test]
    fn hosts_as_libpq_compares_them() {
        for (text, host, fits) in [
            ("cn=db.example.com", "db.example.com", true),
            ("cn=DB.Example.COM", "db.example.com", true),
            ("cn=db.example.com", "db.example.org", false),
            ("cn=db.example.com", "", false),
            ("", "db", false),
            // With an alternative name of the same kind, the common name does not count.
            ("cn=db dns=other", "db", false),
            ("cn=db dns=other", "other", true),
            ("cn=db dns=a dns=b dns=c", "c", true),
            ("cn=db ip=10.0.0.1", "db", true),
            ("cn=10.0.0.1 ip=10.0.0.2", "10.0.0.1", false),
            ("cn=10.0.0.1 dns=db", "10.0.0.1", true),
            ("cn=10.0.0.1", "10.0.0.1", true),
            ("cn=db ip=10.0.0.1", "10.0.0.1", true),
            ("dns=10.0.0.1", "10.0.0.1", true),
            ("ip=::1", "::1", true),
            ("ip=::1", "0:0:0:0:0:0:0:1", true),
            ("ip=::1", "::2", false),
            // A wildcard stands for one label.
            ("cn=*.example.com", "db.example.com", true),
            ("dns=*.example.com", "DB.example.com", true),
            ("dns=*.example.com", "example.com", false),
            ("dns=*.example.com", "a.db.example.com", false),
            ("dns=*.example.com", ".example.com", false),
            ("dns=*.com", "example.com", true),
            ("dns=*", "db", false),
            ("dns=*.", "db.", false),
            ("dns=*db.example.com", "mydb.example.com", false),
            ("dns=d*.example.com", "db.example.com", false),
            ("dns=db.*.com", "db.example.com", false),
            ("dns=*.0.0.1", "127.0.0.1", false),
            ("dns=*.example.com", "*.example.com", true),
            ("dns=db\0.evil.com", "db", false),
            ("cn=db\0", "db", false),
            ("dns=*.exämple.com", "ä.exämple.com", true),
            ("dns=*.b", "ä", false),
        ] {
            let seen = certificate(text).is_for_host(host);
            assert_eq!(seen, fits, "{text:?} for {host:?}");
        }
    }

    #[test]
    fn users_as_pgbouncer_compares_them() {
        for (text, user, fits) in [
            ("cn=bob", "bob", true),
            ("cn=Bob", "bob", true),
            ("cn=bob", "bobby", false),
            ("cn=", "", false),
            ("", "bob", false),
            ("cn=ann dns=bob", "bob", true),
            ("cn=ann dns=bob", "ann", true),
            ("cn=10.0.0.1", "10.0.0.1", true),
            ("ip=10.0.0.1", "10.0.0.1", true),
            ("dns=10.0.0.1", "10.0.0.1", false),
            ("dns=*.example.com", "app.example.com", true),
            ("cn=*.example.com", "app.example.com", true),
            ("cn=*.example.com", "bob", false),
            ("cn=*.com", "example.com", false),
            ("cn=*.com.", "example.com.", false),
            ("cn=*..com", "a..com", false),
            ("cn=*", "bob", false),
            ("cn=bob\0", "bob", false),
        ] {
            let seen = certificate(text).is_for_user(user, ClientName::Any);
            assert_eq!(seen, fits, "{text:?} for {user:?}");
        }
    }

    #[test]
    fn users_as_postgresql_compares_them() {
        use ClientName::{CommonName, DistinguishedName};
        for (text, compared, user, fits) in [
            ("cn=bob", CommonName, "bob", true),
            ("cn=Bob", CommonName, "bob", false),
            ("cn=ann dns=bob", CommonName, "bob", false),
            ("cn=*.example.com", CommonName, "a.example.com", false),
            ("dns=bob", CommonName, "bob", false),
            ("cn=bob dn=CN=bob,O=org", DistinguishedName, "bob", false),
            ("dn=CN=bob,O=org", DistinguishedName, "CN=bob,O=org", true),
            ("dn=CN=bob,O=org", DistinguishedName, "CN=bob", false),
        ] {
            let seen = certificate(text).is_for_user(user, compared);
            assert_eq!(seen, fits, "{text:?} for {user:?}");
        }
    }
}
