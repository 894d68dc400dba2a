//! `postgres://user:password@host:port/database`.

/// An address and a user.
#[derive(Clone, Debug)]
pub struct Url {
    /// Host name or address, or the folder of a unix socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password, may be empty.
    pub password: String,
    /// Database.
    pub database: String,
    /// Uses TLS, without verification.
    pub tls: bool,
}

fn decoded(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits: Vec<u8> = bytes.by_ref().take(2).collect();
        let digits = String::from_utf8_lossy(&digits).into_owned();
        out.push(u8::from_str_radix(&digits, 16).map_err(|_| format!("bad %-code in {text:?}"))?);
    }
    String::from_utf8(out).map_err(|_| format!("{text:?} is not UTF-8"))
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or("the address must begin with postgres://")?;
        let (place, database) = rest.split_once('/').ok_or("no /database in the address")?;
        let (login, place) = place.rsplit_once('@').ok_or("no user@ in the address")?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => (
                host,
                port.parse().map_err(|_| format!("bad port {port:?}"))?,
            ),
            None => (place, 5432),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let url = Url {
            host: decoded(host)?,
            port,
            user: decoded(user)?,
            password: decoded(password)?,
            database: decoded(database)?,
            tls: false,
        };
        if url.user.is_empty() || url.host.is_empty() || url.database.is_empty() {
            return Err("user, host and database must be given".to_owned());
        }
        Ok(url)
    }
}

impl Url {
    /// The address without its password.
    pub fn shown(&self) -> String {
        format!(
            "postgres://{}@{}:{}/{}",
            self.user, self.host, self.port, self.database
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn reads_all_parts() {
        let url: Url = "postgres://me:a%40b@127.0.0.1:6432/db"
            .parse()
            .expect("valid");
        assert_eq!((url.host.as_str(), url.port), ("127.0.0.1", 6432));
        assert_eq!((url.user.as_str(), url.password.as_str()), ("me", "a@b"));
        assert_eq!(url.database, "db");
        let url: Url = "postgresql://u@%2Ftmp%2Fs/d".parse().expect("valid");
        assert_eq!((url.host.as_str(), url.port), ("/tmp/s", 5432));
        assert!("http://x".parse::<Url>().is_err());
        assert!("postgres://u@h".parse::<Url>().is_err());
    }
}
