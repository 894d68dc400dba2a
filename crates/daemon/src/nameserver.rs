//! Questions to name servers (DNS, RFC 1035). The system's resolver can't answer two questions: names by
//! another resolver file, and the serial numbers of zones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, Question, RCODE, ResourceRecord, TYPE, header_buffer,
};
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
            let (four, six) = tokio::join!(self.ask(&name, TYPE::A), self.ask(&name, TYPE::AAAA));
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
        match self.ask(zone, TYPE::SOA).await? {
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

    async fn ask(&self, name: &str, kind: TYPE) -> Result<Said, String> {
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
async fn ask_one(server: SocketAddr, name: &str, kind: TYPE) -> Result<Said, String> {
    let fail = |why: std::io::Error| log::text(&why);
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| fail(why.into()))?;
    let question = question(u16::from_ne_bytes(id), name, kind).ok_or("it is no host name")?;
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
        match answer(&buffer[..count], &question) {
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
    answer(&whole, &question).unwrap_or_else(|| Err("it answers something else".into()))
}

/// A question for records of one kind, with recursion; `None` if the name is not valid.
fn question(id: u16, name: &str, kind: TYPE) -> Option<Vec<u8>> {
    if name.split('.').any(str::is_empty) {
        return None;
    }
    let name = Name::new(name).ok()?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let question = Question::new(name, kind.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    packet.build_bytes_vec().ok()
}

/// Reads an answer; `None` if it answers another question.
fn answer(message: &[u8], question: &[u8]) -> Option<Result<Said, String>> {
    let asked = message.get(12..question.len())?;
    let is_answer = message[..2] == question[..2]
        && header_buffer::has_flags(message, PacketFlag::RESPONSE).ok()?
        && asked.eq_ignore_ascii_case(&question[12..]);
    if !is_answer {
        return None;
    }
    if header_buffer::has_flags(message, PacketFlag::TRUNCATION).ok()? {
        return Some(Ok(Said::Truncated));
    }
    let Ok(packet) = Packet::parse(message) else {
        return Some(Err("its answer is broken".into()));
    };
    Some(match packet.rcode() {
        RCODE::NoError => Ok(records(&packet.answers)),
        RCODE::NameError => Ok(Said::Nothing),
        code => Err(format!("it refuses: {code:?}")),
    })
}

/// What the records tell. CNAME records on the way are skipped.
fn records(answers: &[ResourceRecord<'_>]) -> Said {
    let mut addresses = Vec::new();
    for answer in answers {
        match &answer.rdata {
            RData::A(a) => addresses.push(Ipv4Addr::from(a.address).into()),
            RData::AAAA(aaaa) => addresses.push(Ipv6Addr::from(aaaa.address).into()),
            RData::SOA(soa) => return Said::Serial(soa.serial),
            _ => {}
        }
    }
    if addresses.is_empty() {
        return Said::Nothing;
    }
    Said::Addresses(addresses)
}

#[cfg(test)]
mod tests {
    use simple_dns::rdata::SOA;

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

    /// A reply with these records.
    fn reply(question: &[u8], code: RCODE, records: &[RData<'_>]) -> Vec<u8> {
        let mut packet = Packet::parse(question).unwrap().into_reply();
        *packet.rcode_mut() = code;
        let name = packet.questions[0].qname.clone();
        let record = |data: &RData<'_>| {
            ResourceRecord::new(name.clone(), CLASS::IN, 9, data.clone().into_owned())
        };
        packet.answers = records.iter().map(record).collect();
        packet.build_bytes_vec_compressed().unwrap()
    }

    #[test]
    fn answers() {
        let asked = |kind| question(258, "db.example", kind).unwrap();
        let a = asked(TYPE::A);
        assert_eq!(
            a,
            b"\x01\x02\x01\0\0\x01\0\0\0\0\0\0\x02db\x07example\0\0\x01\0\x01"
        );
        let alias = RData::CNAME(Name::new("www.example").unwrap().into());
        let ten = RData::A(Ipv4Addr::new(10, 0, 0, 7).into());
        let found = reply(&a, RCODE::NoError, &[alias, ten]);
        let ten = Said::Addresses(vec![[10, 0, 0, 7].into()]);
        assert_eq!(answer(&found, &a), Some(Ok(ten)));
        for code in [RCODE::NameError, RCODE::NoError] {
            assert_eq!(answer(&reply(&a, code, &[]), &a), Some(Ok(Said::Nothing)));
        }
        let refused = answer(&reply(&a, RCODE::Refused, &[]), &a);
        assert_eq!(refused, Some(Err("it refuses: Refused".into())));
        let mut long = found.clone();
        long[2] |= 2;
        assert_eq!(answer(&long, &a), Some(Ok(Said::Truncated)));
        let soa = asked(TYPE::SOA);
        let zone = RData::SOA(SOA {
            mname: Name::new("ns.example").unwrap(),
            rname: Name::new("root.example").unwrap(),
            serial: 258,
            refresh: 1,
            retry: 1,
            expire: 1,
            minimum: 1,
        });
        let told = reply(&soa, RCODE::NoError, &[zone]);
        assert_eq!(answer(&told, &soa), Some(Ok(Said::Serial(258))));
        // The answer to another question, a question, and answers that are cut off anywhere.
        assert_eq!(answer(&found, &asked(TYPE::AAAA)), None);
        let other = question(9, "db.example", TYPE::A).unwrap();
        assert_eq!(answer(&found, &other), None);
        assert_eq!(answer(&a, &a), None);
        for end in 0..found.len() {
            let seen = answer(&found[..end], &a);
            assert!(matches!(seen, None | Some(Err(_))), "{end}: {seen:?}");
        }
        for name in ["", "a..b", ".a", &"x".repeat(64), &["x"; 130].join(".")] {
            assert_eq!(question(0, name, TYPE::A), None, "{name}");
        }
    }
}
