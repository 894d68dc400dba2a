//! DNS messages (RFC 1035) to name servers. The system's resolver can't answer two questions: names by
//! another resolver file, and the serial numbers of zones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::dns::Found;
use crate::log;

/// The system's resolver file.
pub const SYSTEM_FILE: &str = "/etc/resolv.conf";
/// The file with the names that the machine itself knows.
const HOSTS_FILE: &str = "/etc/hosts";
/// The port of name servers.
const PORT: u16 = 53;

const TYPE_A: u16 = 1;
const TYPE_SOA: u16 = 6;
const TYPE_AAAA: u16 = 28;

/// A resolver file's content, with the defaults of `resolv.conf(5)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameServers {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// For a name with fewer dots, the domains in `search` are tried first.
    dots: usize,
    /// How long one server may take for one answer.
    timeout: Duration,
    /// How often the whole list of servers is tried.
    attempts: u32,
}

/// A name server's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Addresses(Vec<IpAddr>),
    Serial(u32),
    /// The name does not exist, or has no record of this kind.
    Nothing,
    /// The answer is too long for a datagram.
    Truncated,
}

impl NameServers {
    /// Reads a file of `nameserver`, `search`, `domain` and `options` lines. A name server may have
    /// a port: `127.0.0.1:5353` or `[::1]:5353`.
    pub fn read(text: &str) -> NameServers {
        let mut all = NameServers {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or("");
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => all.servers.extend(words.next().and_then(server)),
                Some("search" | "domain") => all.search = words.map(String::from).collect(),
                Some("options") => words.for_each(|word| all.option(word)),
                _ => {}
            }
        }
        if all.servers.is_empty() {
            all.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        all
    }

    fn option(&mut self, word: &str) {
        let Some((name, number)) = word.split_once(':') else {
            return;
        };
        let Ok(number) = number.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.dots = number.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(number.clamp(1, 30).into()),
            "attempts" => self.attempts = number.clamp(1, 5),
            _ => {}
        }
    }

    /// The addresses of a name. The machine's own names come first.
    ///
    /// # Errors
    /// The name has no address, or no name server answers.
    pub async fn addresses(&self, host: &str) -> Found {
        let own = std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
        let own = named_in(&own, host);
        if !own.is_empty() {
            return Ok(own);
        }
        for name in self.candidates(host) {
            let (four, six) = tokio::join!(self.ask(&name, TYPE_A), self.ask(&name, TYPE_AAAA));
            let mut found = Vec::new();
            for said in [&four, &six].into_iter().flatten() {
                if let Said::Addresses(addresses) = said {
                    found.extend(addresses);
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
            // No name server answered, so the next candidate would not be found either.
            if let (Err(why), _) | (_, Err(why)) = (four, six) {
                return Err(why);
            }
        }
        Err("no such host".into())
    }

    /// The serial number of a zone.
    ///
    /// # Errors
    /// There is no such zone, or no name server answers.
    pub async fn serial(&self, zone: &str) -> Result<u32, String> {
        match self.ask(zone, TYPE_SOA).await? {
            Said::Serial(serial) => Ok(serial),
            _ => Err("it is no zone".into()),
        }
    }

    /// The full names that a name may stand for.
    fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(full) = host.strip_suffix('.') {
            return vec![full.into()];
        }
        let mut names: Vec<_> = self
            .search
            .iter()
            .map(|domain| format!("{host}.{}", domain.trim_end_matches('.')))
            .collect();
        if host.matches('.').count() >= self.dots {
            names.insert(0, host.into());
        } else {
            names.push(host.into());
        }
        names
    }

    async fn ask(&self, name: &str, kind: u16) -> Result<Said, String> {
        let mut problem = String::new();
        for _ in 0..self.attempts {
            for server in &self.servers {
                let asked = tokio::time::timeout(self.timeout, ask_one(*server, name, kind)).await;
                match asked {
                    Ok(Ok(said)) => return Ok(said),
                    Ok(Err(why)) => problem = format!("name server {server}: {why}"),
                    Err(_) => problem = format!("name server {server} does not answer"),
                }
            }
        }
        Err(problem)
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    let bare = text.parse::<IpAddr>().ok();
    bare.map(|ip| (ip, PORT).into())
        .or_else(|| text.parse().ok())
}

/// The addresses of a name in a hosts file.
fn named_in(text: &str, host: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_ascii_whitespace();
        let Some(ip) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        if words.any(|word| word.eq_ignore_ascii_case(host)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// Asks one server: by datagram, and by stream if the answer does not fit into a datagram.
async fn ask_one(server: SocketAddr, name: &str, kind: u16) -> Result<Said, String> {
    let fail = |why: std::io::Error| log::text(&why);
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| fail(why.into()))?;
    let question = question(id, name, kind).ok_or("it is no host name")?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(fail)?;
    // From now on the kernel drops datagrams from other senders.
    socket.connect(server).await.map_err(fail)?;
    socket.send(&question).await.map_err(fail)?;
    let mut buffer = [0; 4096];
    loop {
        let count = socket.recv(&mut buffer).await.map_err(fail)?;
        // An answer to another question is late or forged.
        match answer(&buffer[..count], &question, kind) {
            Some(Ok(Said::Truncated)) => break,
            Some(said) => return said,
            None => {}
        }
    }
    let mut stream = TcpStream::connect(server).await.map_err(fail)?;
    let length = (question.len() as u16).to_be_bytes();
    stream
        .write_all(&[&length, &question[..]].concat())
        .await
        .map_err(fail)?;
    let length = stream.read_u16().await.map_err(fail)?;
    let mut whole = vec![0; length.into()];
    stream.read_exact(&mut whole).await.map_err(fail)?;
    answer(&whole, &question, kind).unwrap_or_else(|| Err("it answers something else".into()))
}

/// A question for records of one kind, with recursion; `None` if the name is not valid.
fn question(id: [u8; 2], name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut message = Vec::from(id);
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|n| (1..64).contains(n))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    // The type, and the class IN.
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    (name.len() < 254).then_some(message)
}

/// Reads an answer; `None` if it answers another question.
fn answer(message: &[u8], question: &[u8], kind: u16) -> Option<Result<Said, String>> {
    let asked = message.get(12..question.len())?;
    let is_answer = message[..2] == question[..2]
        && message[2] & 0x80 != 0
        && asked.eq_ignore_ascii_case(&question[12..]);
    if !is_answer {
        return None;
    }
    if message[2] & 2 != 0 {
        return Some(Ok(Said::Truncated));
    }
    Some(match message[3] & 15 {
        0 => records(message, question.len(), kind).ok_or("its answer is broken".into()),
        3 => Ok(Said::Nothing),
        code => Err(format!("it refuses, with code {code}")),
    })
}

/// The records of one kind after the question. CNAME records on the way to them are skipped.
fn records(message: &[u8], mut at: usize, kind: u16) -> Option<Said> {
    let short = |at: usize| {
        let bytes = message.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let mut addresses = Vec::new();
    for _ in 0..short(6)? {
        at = behind_name(message, at)?;
        let (found, length) = (short(at)?, usize::from(short(at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        match (found, kind) {
            (TYPE_A, TYPE_A) => addresses.push(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            (TYPE_AAAA, TYPE_AAAA) => {
                addresses.push(IpAddr::from(<[u8; 16]>::try_from(data).ok()?));
            }
            (TYPE_SOA, TYPE_SOA) => {
                let serial = behind_name(message, behind_name(message, at + 10)?)?;
                let bytes = message.get(serial..serial + 4)?;
                return Some(Said::Serial(u32::from_be_bytes(bytes.try_into().ok()?)));
            }
            _ => {}
        }
        at += 10 + length;
    }
    Some(if addresses.is_empty() {
        Said::Nothing
    } else {
        Said::Addresses(addresses)
    })
}

/// The position after a name. A name ends with an empty label, or with a pointer to its rest.
fn behind_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length if length < 64 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_file() {
        let all = NameServers::read(
            "# comment\nnameserver 10.0.0.1\nnameserver ::1 ; local\nnameserver 127.0.0.1:5353\n\
             nameserver what\ndomain a.example\nsearch b.example c.example.\n\
             options ndots:2 timeout:1 attempts:3 rotate\n",
        );
        let servers: Vec<_> = all.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[::1]:53", "127.0.0.1:5353"]);
        assert_eq!((all.timeout.as_secs(), all.attempts), (1, 3));
        let names = |host: &str| all.candidates(host).join(" ");
        assert_eq!(names("db"), "db.b.example db.c.example db");
        assert_eq!(names("a.b.c"), "a.b.c a.b.c.b.example a.b.c.c.example");
        assert_eq!(names("db."), "db");
        assert_eq!(
            NameServers::read("").servers,
            ["127.0.0.1:53".parse().unwrap()]
        );
    }

    #[test]
    fn a_hosts_file() {
        let text = "127.0.0.1 localhost me # here\n::1 localhost\n# 1.1.1.1 me\nx y\n";
        let seen: Vec<_> = named_in(text, "LOCALHOST")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(seen, ["127.0.0.1", "::1"]);
        assert!(named_in(text, "here").is_empty() && named_in(text, "y").is_empty());
    }

    /// A record: a pointer to the name in the question, type, class, time to live, data.
    fn record(kind: u16, data: &[u8]) -> Vec<u8> {
        let mut record = vec![0xc0, 12];
        record.extend(kind.to_be_bytes());
        record.extend([0, 1, 0, 0, 0, 9]);
        record.extend((data.len() as u16).to_be_bytes());
        record.extend(data);
        record
    }

    fn reply(question: &[u8], code: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let mut message = question.to_vec();
        message[2] |= 0x80;
        message[3] = code;
        message[7] = records.len() as u8;
        message.extend(records.concat());
        message
    }

    #[test]
    fn answers() {
        let asked = |kind| question([1, 2], "db.example", kind).unwrap();
        let a = asked(TYPE_A);
        assert_eq!(&a[12..], b"\x02db\x07example\0\0\x01\0\x01");
        let alias = record(5, b"\x03www\xc0\x0c");
        let found = reply(&a, 0, &[alias, record(TYPE_A, &[10, 0, 0, 7])]);
        let ten = Said::Addresses(vec![[10, 0, 0, 7].into()]);
        assert_eq!(answer(&found, &a, TYPE_A), Some(Ok(ten)));
        assert_eq!(
            answer(&reply(&a, 3, &[]), &a, TYPE_A),
            Some(Ok(Said::Nothing))
        );
        assert_eq!(
            answer(&reply(&a, 0, &[]), &a, TYPE_A),
            Some(Ok(Said::Nothing))
        );
        assert!(matches!(
            answer(&reply(&a, 5, &[]), &a, TYPE_A),
            Some(Err(_))
        ));
        let mut long = found.clone();
        long[2] |= 2;
        assert_eq!(answer(&long, &a, TYPE_A), Some(Ok(Said::Truncated)));
        let soa = asked(TYPE_SOA);
        let data = b"\x02ns\xc0\x0c\x04root\0\0\0\x01\x02and the rest of it";
        let told = reply(&soa, 0, &[record(TYPE_SOA, data)]);
        assert_eq!(answer(&told, &soa, TYPE_SOA), Some(Ok(Said::Serial(258))));
        // The answer to another question, a question, and answers that are cut off anywhere.
        assert_eq!(answer(&found, &asked(TYPE_AAAA), TYPE_AAAA), None);
        let other = question([9, 9], "db.example", TYPE_A).unwrap();
        assert_eq!(answer(&found, &other, TYPE_A), None);
        assert_eq!(answer(&a, &a, TYPE_A), None);
        for end in 0..found.len() {
            let seen = answer(&found[..end], &a, TYPE_A);
            assert!(matches!(seen, None | Some(Err(_))), "{end}: {seen:?}");
        }
        for name in ["", "a..b", ".a", &"x".repeat(64), &["x"; 130].join(".")] {
            assert_eq!(question([0, 0], name, TYPE_A), None, "{name}");
        }
    }
}
