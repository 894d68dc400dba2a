//! Logins by AWS's IAM: the password is a request to `rds-db`, signed by the rules of SigV4 and written as
//! an address. Each login signs its own, so no token is kept, and none grows old.

use std::fmt;
use std::fmt::Write;

use super::scram::{hmac, sha256};
use super::secret::wipe;

/// For how many seconds after its signature a token is good.
const EXPIRES: u32 = 900;

/// Who signs.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The id of the access key.
    pub id: String,
    /// The secret access key.
    pub secret: String,
    /// The session token of temporary credentials.
    pub session: Option<String>,
}

impl Drop for AwsCredentials {
    fn drop(&mut self) {
        wipe(&mut self.secret);
        self.session.as_mut().into_iter().for_each(wipe);
    }
}

/// Prints no part of them.
impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsCredentials(..)")
    }
}

/// The login that a token is for.
#[derive(Clone, Copy, Debug)]
pub struct AwsLogin<'a> {
    /// The host's own name, not an alias.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The user in PostgreSQL.
    pub user: &'a str,
    /// The region of the database.
    pub region: &'a str,
}

impl AwsCredentials {
    /// The password for a login. `now` is in seconds since 1970.
    pub fn token(&self, login: AwsLogin<'_>, now: i64) -> String {
        let AwsLogin {
            host,
            port,
            user,
            region,
        } = login;
        let (day, time) = date(now);
        let scope = format!("{day}/{region}/rds-db/aws4_request");
        let first = [
            ("Action", "connect".to_owned()),
            ("DBUser", user.to_owned()),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{}/{scope}", self.id)),
            ("X-Amz-Date", time.clone()),
            ("X-Amz-Expires", EXPIRES.to_string()),
        ];
        let session = self
            .session
            .as_deref()
            .map(|token| ("X-Amz-Security-Token", token.to_owned()));
        let last = ("X-Amz-SignedHeaders", "host".to_owned());
        // What is signed is in the order of the names, what is sent in that of AWS's own tools.
        let signed = query(first.iter().chain(session.iter()).chain([&last]));
        let sent = query(first.iter().chain([&last]).chain(session.iter()));
        let at = host.to_ascii_lowercase();
        let nothing = hex(&sha256(b""));
        let request = format!("GET\n/\n{signed}\nhost:{at}:{port}\n\nhost\n{nothing}");
        let text = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hex(&sha256(request.as_bytes()))
        );
        let mut secret = format!("AWS4{}", self.secret);
        let key = hmac(secret.as_bytes(), &[day.as_bytes()]);
        wipe(&mut secret);
        let key = [region, "rds-db", "aws4_request"]
            .iter()
            .fold(key, |key, part| hmac(&key, &[part.as_bytes()]));
        let signature = hex(&hmac(&key, &[text.as_bytes()]));
        format!("{host}:{port}/?{sent}&X-Amz-Signature={signature}")
    }
}

/// The region in the name of a host of RDS: `NAME.ID.REGION.rds.amazonaws.com`.
pub fn region_of(host: &str) -> Option<&str> {
    let end = host.find(".rds.amazonaws.com")?;
    host[..end]
        .rsplit('.')
        .next()
        .filter(|region| !region.is_empty())
}

fn query<'a>(all: impl Iterator<Item = &'a (&'static str, String)>) -> String {
    let pairs = all.map(|(name, value)| format!("{name}={}", percent(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Every byte but letters, digits and `-._~` as `%XX`.
pub fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The day (`20261128`) and the time (`20261128T024521Z`) in UTC. Days are counted from March on, so that
/// the leap day is a year's last.
fn date(now: i64) -> (String, String) {
    let (days, seconds) = (now.div_euclid(86400), now.rem_euclid(86400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let day = format!("{year:04}{month:02}{day:02}");
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let time = format!("{day}T{hour:02}{minute:02}{second:02}Z");
    (day, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (now, time) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (1_709_251_200, "20240301T000000Z"),
            (1_795_833_921, "20261128T024521Z"),
        ] {
            assert_eq!(date(now).1, time);
        }
    }

    /// Tokens of AWS's own library, with its clock fixed.
    #[test]
    fn tokens_are_those_of_botocore() {
        for ((id, secret, session), (host, port, user, region), now, token) in [
            (
                (
                    "AKIAO42BHJ767GELIOA2",
                    "=ca+X/=1ac/ZbYZc9+9b0aZ=ZX=cYc9Y=Y1c/X10",
                    None,
                ),
                (
                    "cdabhebd.c1.eu-west-1.rds.amazonaws.com",
                    6432,
                    "+Xä~-=+_/&1cbY=",
                    "eu-west-1",
                ),
                1653024430,
                "cdabhebd.c1.eu-west-1.rds.amazonaws.com:6432/?Action=connect&DBUser=%2BX%C3%A4~-%3D%2B_%2F%261cbY%3D&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAO42BHJ767GELIOA2%2F20220520%2Feu-west-1%2Frds-db%2Faws4_request&X-Amz-Date=20220520T052710Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=402ac563bce73fe3f737fef8229fadffd666c1d88bd9a4ab08e7a12a61645491",
            ),
            (
                (
                    "AKIAEKIHMIKHBHJD67E6",
                    "Y/91109/99bZ=+=Z9X1//+X091/1Ycc1=ca1Z+Z9",
                    Some("b9ccc1a9bY9Yb/aZ9a0019/09+Z0c//XaaYb1Y1ZYZ=+0Z00c+10cY+==0ZZ1=1"),
                ),
                (
                    "afac-hhh.c1.ap-southeast-2.rds.amazonaws.com",
                    3306,
                    "é~ /~=éä/9",
                    "ap-southeast-2",
                ),
                61443553,
                "afac-hhh.c1.ap-southeast-2.rds.amazonaws.com:3306/?Action=connect&DBUser=%C3%A9~%20%2F~%3D%C3%A9%C3%A4%2F9&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAEKIHMIKHBHJD67E6%2F19711213%2Fap-southeast-2%2Frds-db%2Faws4_request&X-Amz-Date=19711213T033913Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Security-Token=b9ccc1a9bY9Yb%2FaZ9a0019%2F09%2BZ0c%2F%2FXaaYb1Y1ZYZ%3D%2B0Z00c%2B10cY%2B%3D%3D0ZZ1%3D1&X-Amz-Signature=e0a280b1974c4c639a757197d0a9224a8e4039da4ee92a4c3a49bce3541ad064",
            ),
        ] {
            let credentials = AwsCredentials {
                id: id.to_owned(),
                secret: secret.to_owned(),
                session: session.map(str::to_owned),
            };
            let login = AwsLogin {
                host,
                port,
                user,
                region,
            };
            assert_eq!(credentials.token(login, now), token);
        }
    }

    #[test]
    fn regions() {
        let host = "db.c1a2.eu-central-1.rds.amazonaws.com";
        assert_eq!(region_of(host), Some("eu-central-1"));
        assert_eq!(
            region_of("db.c1a2.cn-north-1.rds.amazonaws.com.cn"),
            Some("cn-north-1")
        );
        assert_eq!(region_of("db.example.com"), None);
    }
}
