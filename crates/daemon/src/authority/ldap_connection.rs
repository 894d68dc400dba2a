//! A connection to a directory. The library `ldap3` speaks the protocol. The sockets and TLS are ours. A
//! relay connects the two: the library writes to one end of a socket pair, and the relay copies from the
//! other end to the directory, and back.
//!
//! The relay exists because the library (0.12.1, with lber 0.5.1) leaves four things to its caller:
//!
//! - The library collects bytes until they are a whole message, however many that takes. A length inside
//!   a message that points beyond the message's end makes the library wait for ever. The relay stops when
//!   an allowance of bytes is used up.
//! - The library reads nested values by recursion, as deep as they nest. The allowance bounds the depth,
//!   and the thread's stack is large enough for it ([`STACK`]).
//! - The library panics at answers that are BER but not LDAP, and at texts that are not UTF-8. A panic
//!   would end the process, so the library runs inside [`survive`].
//! - The library would accept bytes that arrived in clear text behind the answer to StartTLS as an answer
//!   to a request sent within TLS. So the library's connection that asked for TLS is dropped, and a new
//!   one begins within TLS.
//!
//! Referrals are not followed.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use howdah_pooler::ldap::SearchScope;
use ldap3::exop::Exop;
use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, LdapResult, SearchEntry, SearchOptions,
    StdStream,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use howdah_daemon::survive::survive;

/// How long connecting to one address may take, as in PgBouncer.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long the answer to each question may take, and each TLS handshake.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How many bytes a directory may say on one connection: an entry without attributes takes less
/// than a kilobyte, and no more than two are asked for.
const ALLOWANCE: usize = 16 << 10;
/// What is taken off the allowance for each piece that arrives, at least: with each, the library
/// reads what it has from the start.
const PIECE: usize = 64;
/// What the stack of the thread needs, in bytes. A level takes the library 1.5 KB without
/// optimisation, and an answer 4 bytes: the allowance is 6 MB deep.
pub(super) const STACK: usize = 16 << 20;

/// The name of StartTLS among the extended operations (RFC 4511, section 4.14).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
/// Asks for no attribute (RFC 4511, section 4.5.1.8).
const NO_ATTRIBUTES: [&str; 1] = ["1.1"];
/// The result code of a search that found more than was asked for.
const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// What bytes go through: encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What the library does on its own, until its connection ends.
type Drive = Pin<Box<dyn Future<Output = Result<(), LdapError>> + Send>>;

/// A connection to a directory.
pub(super) struct LdapConnection {
    host: String,
    /// To the directory.
    stream: Box<dyn Stream>,
    /// To the library.
    near: UnixStream,
    /// How many bytes the directory may still say.
    allowance: usize,
    ldap: Ldap,
    drive: Drive,
}

impl LdapConnection {
    /// Speaks LDAP through a stream to a host.
    ///
    /// # Errors
    /// The system has no sockets for it; the text is for the log, as that of all errors here.
    pub(super) async fn new(host: &str, stream: Box<dyn Stream>) -> Result<LdapConnection, String> {
        let failed = |why: &dyn std::fmt::Display| format!("no connection to the library: {why}");
        let (near, far) = std::os::unix::net::UnixStream::pair().map_err(|why| failed(&why))?;
        near.set_nonblocking(true).map_err(|why| failed(&why))?;
        let settings = LdapConnSettings::new().set_std_stream(StdStream::Unix(far));
        let made = LdapConnAsync::with_settings(settings, "ldapi:///").await;
        let (library, ldap) = made.map_err(|why| failed(&why))?;
        Ok(LdapConnection {
            host: host.to_owned(),
            stream,
            near: UnixStream::from_std(near).map_err(|why| failed(&why))?,
            allowance: ALLOWANCE,
            ldap,
            drive: Box::pin(library.drive()),
        })
    }

    /// Where it leads.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// A simple bind.
    pub(super) async fn bind(&mut self, name: &str, password: &str) -> Result<Outcome, String> {
        let mut ldap = self.ldap.clone();
        let answer = self.ask(ldap.simple_bind(name, password)).await?;
        Ok(answer.into())
    }

    /// The names of up to two entries: more than one is one too many.
    pub(super) async fn search(
        &mut self,
        base: &str,
        scope: SearchScope,
        filter: &str,
    ) -> Result<(Vec<String>, Outcome), String> {
        let mut ldap = self.ldap.clone();
        ldap.with_search_options(SearchOptions::new().sizelimit(2));
        let searched = async {
            let scope = match scope {
                SearchScope::Base => ldap3::Scope::Base,
                SearchScope::One => ldap3::Scope::OneLevel,
                SearchScope::Sub => ldap3::Scope::Subtree,
            };
            let search = ldap.streaming_search(base, scope, filter, NO_ATTRIBUTES);
            let mut answers = search.await?;
            let mut found = Vec::new();
            while let Some(answer) = answers.next().await? {
                // A reference says that there may be more on another server, which is not asked.
                if !answer.is_ref() && !answer.is_intermediate() {
                    found.push(SearchEntry::construct(answer).dn);
                }
                if found.len() == 2 {
                    // There may be more, which tell nothing more.
                    return Ok((found, Outcome::cut_off()));
                }
            }
            Ok((found, answers.finish().await.into()))
        };
        self.ask(searched).await
    }

    /// Asks for TLS: the server waits for a handshake on the stream when this returns.
    pub(super) async fn start_tls(mut self) -> Result<Box<dyn Stream>, String> {
        let request = Exop {
            name: Some(START_TLS.into()),
            val: None,
        };
        let mut ldap = self.ldap.clone();
        let answer = self.ask(ldap.extended(request)).await?;
        let outcome = Outcome::from(answer.1);
        match outcome.is_success() {
            true => Ok(self.stream),
            false => Err(format!("could not start LDAP TLS session: {outcome}")),
        }
    }

    /// Says goodbye; whether it is heard does not matter.
    pub(super) async fn leave(mut self) {
        let mut ldap = self.ldap.clone();
        let _ = self.ask(ldap.unbind()).await;
        let heard = async {
            tokio::io::copy(&mut self.near, &mut self.stream).await?;
            self.stream.shutdown().await
        };
        let _ = tokio::time::timeout(CONNECT_LIMIT, heard).await;
    }

    /// Waits for what the library says to a question, which reaches the directory meanwhile.
    async fn ask<T>(
        &mut self,
        question: impl Future<Output = Result<T, LdapError>>,
    ) -> Result<T, String> {
        let LdapConnection {
            host,
            stream,
            near,
            allowance,
            drive,
            ..
        } = self;
        let answered = async {
            let mut question = pin!(question);
            tokio::select! {
                // First, as a question to a library that has ended fails at once, and what has
                // ended is not waited for again.
                biased;
                answer = &mut question => answer.map_err(|why| refused(host, &why)),
                ended = drive => match ended {
                    // What was answered before counts.
                    Ok(()) => question.await.map_err(|why| refused(host, &why)),
                    Err(why) => Err(refused(host, &why)),
                },
                why = relay(host, stream, near, allowance) => Err(why),
            }
        };
        let mut answered = pin!(answered);
        let survived = poll_fn(|context| {
            let polled = survive(|| answered.as_mut().poll(context));
            polled.unwrap_or_else(|| Poll::Ready(Err(nonsense(host))))
        });
        within_limit(&format!("LDAP server {host}"), survived).await
    }
}

/// Carries bytes both ways; why it cannot go on is what it says in the end.
async fn relay(
    host: &str,
    stream: &mut Box<dyn Stream>,
    near: &mut UnixStream,
    allowance: &mut usize,
) -> String {
    let carried = async {
        let (mut asked, mut said) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                length = near.read(&mut asked) => match length? {
                    0 => return Ok(nonsense(host)),
                    length => {
                        stream.write_all(&asked[..length]).await?;
                        stream.flush().await?;
                    }
                },
                length = stream.read(&mut said) => match length? {
                    0 => {
                        // The library says what is left to say when it knows.
                        near.shutdown().await?;
                        std::future::pending::<()>().await;
                    }
                    length => match allowance.checked_sub(length.max(PIECE)) {
                        Some(left) => {
                            *allowance = left;
                            near.write_all(&said[..length]).await?;
                        }
                        None => return Ok(format!("LDAP server {host} says too much")),
                    },
                },
            }
        }
    };
    let carried: std::io::Result<String> = carried.await;
    carried.unwrap_or_else(|why| format!("lost the connection to LDAP server {host}: {why}"))
}

/// Why the library has no answer.
fn refused(host: &str, why: &LdapError) -> String {
    match why {
        LdapError::Io { .. } => nonsense(host),
        // Its parts do not hear of each other any more.
        LdapError::ResultRecv { .. } | LdapError::EndOfStream | LdapError::OpSend { .. } => {
            format!("LDAP server {host} closed the connection")
        }
        why => format!("LDAP server {host}: {why}"),
    }
}

fn nonsense(host: &str) -> String {
    format!("{host} does not answer as an LDAP server does")
}

/// Waits for an answer, but not for ever.
pub(super) async fn within_limit<T>(
    who: &str,
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let limited = tokio::time::timeout(ANSWER_LIMIT, answer).await;
    let late = || format!("{who}: no answer within {} seconds", ANSWER_LIMIT.as_secs());
    limited.unwrap_or_else(|_| Err(late()))
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// 0 is success.
    code: u32,
    /// The server's own words, or none.
    text: String,
}

impl Outcome {
    /// It succeeded.
    pub(super) fn is_success(&self) -> bool {
        self.code == 0
    }

    /// More entries fit than were asked for.
    pub(super) fn is_cut_off(&self) -> bool {
        self.code == SIZE_LIMIT_EXCEEDED
    }

    /// As if the server had said so.
    fn cut_off() -> Outcome {
        Outcome {
            code: SIZE_LIMIT_EXCEEDED,
            text: String::new(),
        }
    }
}

impl From<LdapResult> for Outcome {
    fn from(result: LdapResult) -> Outcome {
        Outcome {
            code: result.rc,
            // Some servers end it with a zero byte.
            text: result.text.trim_end_matches('\0').trim().to_owned(),
        }
    }
}

/// What the code means, then what the server says of it.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match meaning(self.code) {
            Some(meaning) => f.write_str(meaning)?,
            None => write!(f, "result code {}", self.code)?,
        }
        if !self.text.is_empty() {
            write!(f, " ({})", self.text)?;
        }
        Ok(())
    }
}

/// The result codes that a bind or a search can meet (RFC 4511, appendix A), in words.
fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "Success",
        1 => "Operations error",
        2 => "Protocol error",
        3 => "Time limit exceeded",
        4 => "Size limit exceeded",
        7 => "Authentication method not supported",
        8 => "Strong(er) authentication required",
        10 => "Referral",
        11 => "Administrative limit exceeded",
        13 => "Confidentiality required",
        18 => "Inappropriate matching",
        32 => "No such object",
        34 => "Invalid DN syntax",
        48 => "Inappropriate authentication",
        49 => "Invalid credentials",
        50 => "Insufficient access",
        51 => "Server is busy",
        52 => "Server is unavailable",
        53 => "Server is unwilling to perform",
        80 => "Internal (implementation specific) error",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_pooler::ldap::filter::canonical;

    /// What the decisions take for a filter, the library does, too.
    #[test]
    fn the_library_reads_our_filters() {
        for text in [
            "uid=jürgen",
            "(a=\\2a\\29)",
            "(a= b *c**d )",
            "(a=*)",
            "(&)",
            "( & (!(a>=b)) (|(cn;lang-de;x<=)(2.5.4.3~=b)) )",
            "(a:=b)",
            "(a:dn:=b)",
            "(a:DN:2.4.0:=b)",
            "(:caseExactMatch:=b)",
            "(:dn:r:=\0)",
        ] {
            let canonical = canonical(text).unwrap();
            assert!(ldap3::parse_filter(&canonical).is_ok(), "{canonical}");
        }
        let deep = format!("{}a=b{}", "(!".repeat(31) + "(", ")".repeat(32));
        assert!(ldap3::parse_filter(canonical(&deep).unwrap()).is_ok());
    }

    #[test]
    fn outcomes_are_told() {
        let outcome = |code, text: &str| Outcome {
            code,
            text: text.into(),
        };
        assert_eq!(outcome(49, "").to_string(), "Invalid credentials");
        assert_eq!(outcome(49, "no").to_string(), "Invalid credentials (no)");
        assert_eq!(outcome(777, "").to_string(), "result code 777");
    }
}
