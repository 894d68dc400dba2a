//! A connection to a directory. The library `ldap3` speaks the protocol; Howdah owns the sockets and TLS. A
//! relay connects the two: the library writes to one end of a socket pair, and the relay copies from the
//! other end to the directory, and back.
//!
//! The relay exists because the library (0.12.1, with lber 0.5.1) leaves four things to its caller:
//!
//! - The library collects bytes until it has a complete message, of any length. If a length inside a message
//!   points beyond the message's end, the library waits for ever. The relay has an allowance of bytes, and
//!   stops when it is used up.
//! - The library reads nested values by recursion, to any depth. The allowance bounds the depth, and the
//!   thread's stack is large enough for that depth ([`STACK`]).
//! - The library panics at answers that are BER but not LDAP, and at texts that are not UTF-8. A panic would
//!   end the process, so the library runs inside [`survive`].
//! - Bytes in clear text may arrive right after the answer to StartTLS. The library would take these bytes
//!   for an answer to a request inside TLS. So Howdah drops the library's connection after StartTLS, and
//!   begins a new one inside TLS.
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
/// How long each answer, and each TLS handshake, may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How many bytes a directory may send on one connection. An entry without attributes takes less
/// than a kilobyte, and Howdah asks for at most two entries.
const ALLOWANCE: usize = 16 << 10;
/// The least that each received piece costs of the allowance: at each piece the library reads all
/// bytes from the start again.
const PIECE: usize = 64;
/// The stack size of the thread, in bytes. In a debug build the library needs 1.5 KB for each
/// level, and a level costs 4 bytes of the allowance. So the whole allowance needs 6 MB.
pub(super) const STACK: usize = 16 << 20;

/// The name of StartTLS among the extended operations (RFC 4511, section 4.14).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
/// Asks for no attribute (RFC 4511, section 4.5.1.8).
const NO_ATTRIBUTES: [&str; 1] = ["1.1"];
/// The result code of a search that found more than was asked for.
const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// A stream to the directory, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The library's own task, which runs until its connection ends.
type Drive = Pin<Box<dyn Future<Output = Result<(), LdapError>> + Send>>;

/// A connection to a directory.
pub(super) struct LdapConnection {
    host: String,
    /// The stream to the directory.
    stream: Box<dyn Stream>,
    /// The socket to the library.
    near: UnixStream,
    /// How many more bytes the directory may send.
    allowance: usize,
    ldap: Ldap,
    drive: Drive,
}

impl LdapConnection {
    /// Begins to speak LDAP over a stream to a host.
    ///
    /// # Errors
    /// The system has no sockets; the text is for the log, as in all errors of this file.
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

    /// The host of the directory.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// A simple bind.
    pub(super) async fn bind(&mut self, name: &str, password: &str) -> Result<LdapOutcome, String> {
        let mut ldap = self.ldap.clone();
        let answer = self.ask(ldap.simple_bind(name, password)).await?;
        Ok(answer.into())
    }

    /// The names of at most two matching entries. Two are enough to know that the match is not
    /// unique.
    pub(super) async fn search(
        &mut self,
        base: &str,
        scope: SearchScope,
        filter: &str,
    ) -> Result<(Vec<String>, LdapOutcome), String> {
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
                // A reference: another server may have more entries. Howdah does not follow
                // references.
                if !answer.is_ref() && !answer.is_intermediate() {
                    found.push(SearchEntry::construct(answer).dn);
                }
                if found.len() == 2 {
                    // More entries would change nothing.
                    return Ok((found, LdapOutcome::cut_off()));
                }
            }
            Ok((found, answers.finish().await.into()))
        };
        self.ask(searched).await
    }

    /// Sends StartTLS. Afterwards the server waits for a TLS handshake on the returned stream.
    pub(super) async fn start_tls(mut self) -> Result<Box<dyn Stream>, String> {
        let request = Exop {
            name: Some(START_TLS.into()),
            val: None,
        };
        let mut ldap = self.ldap.clone();
        let answer = self.ask(ldap.extended(request)).await?;
        let outcome = LdapOutcome::from(answer.1);
        if outcome.is_success() {
            Ok(self.stream)
        } else {
            Err(format!("could not start LDAP TLS session: {outcome}"))
        }
    }

    /// Sends an unbind. Its result does not matter.
    pub(super) async fn leave(mut self) {
        let mut ldap = self.ldap.clone();
        let _ = self.ask(ldap.unbind()).await;
        let heard = async {
            tokio::io::copy(&mut self.near, &mut self.stream).await?;
            self.stream.shutdown().await
        };
        let _ = tokio::time::timeout(CONNECT_LIMIT, heard).await;
    }

    /// Waits for the library's answer to a request, and relays bytes meanwhile.
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
                // The request is polled first. A request to an ended library fails at once, and the
                // library's ended task must not be polled again.
                biased;
                answer = &mut question => answer.map_err(|why| refused(host, &why)),
                ended = drive => match ended {
                    // An answer that arrived before the end counts.
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

/// Relays bytes in both directions. Ends only with an error, which it returns.
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
                        // The library gives its last answer when it sees this end of the stream.
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

/// The reason why the library has no answer.
fn refused(host: &str, why: &LdapError) -> String {
    match why {
        LdapError::Io { .. } => nonsense(host),
        // The parts of the library have lost their connection to each other.
        LdapError::ResultRecv { .. } | LdapError::EndOfStream | LdapError::OpSend { .. } => {
            format!("LDAP server {host} closed the connection")
        }
        why => format!("LDAP server {host}: {why}"),
    }
}

fn nonsense(host: &str) -> String {
    format!("{host} does not answer as an LDAP server does")
}

/// Waits for an answer, up to the limit.
pub(super) async fn within_limit<T>(
    who: &str,
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let limited = tokio::time::timeout(ANSWER_LIMIT, answer).await;
    let late = || format!("{who}: no answer within {} seconds", ANSWER_LIMIT.as_secs());
    limited.unwrap_or_else(|_| Err(late()))
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LdapOutcome {
    /// The result code; 0 is success.
    code: u32,
    /// The server's text; may be empty.
    text: String,
}

impl LdapOutcome {
    /// True if the operation succeeded.
    pub(super) fn is_success(&self) -> bool {
        self.code == 0
    }

    /// True if more entries match than were asked for.
    pub(super) fn is_cut_off(&self) -> bool {
        self.code == SIZE_LIMIT_EXCEEDED
    }

    /// The result that a server gives if more entries match.
    fn cut_off() -> LdapOutcome {
        LdapOutcome {
            code: SIZE_LIMIT_EXCEEDED,
            text: String::new(),
        }
    }
}

impl From<LdapResult> for LdapOutcome {
    fn from(result: LdapResult) -> LdapOutcome {
        LdapOutcome {
            code: result.rc,
            // Some servers end the text with a zero byte.
            text: result.text.trim_end_matches('\0').trim().to_owned(),
        }
    }
}

/// The meaning of the code, then the server's text.
impl std::fmt::Display for LdapOutcome {
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

    /// The library accepts every filter that the configuration accepts.
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
        let outcome = |code, text: &str| LdapOutcome {
            code,
            text: text.into(),
        };
        assert_eq!(outcome(49, "").to_string(), "Invalid credentials");
        assert_eq!(outcome(49, "no").to_string(), "Invalid credentials (no)");
        assert_eq!(outcome(777, "").to_string(), "result code 777");
    }
}
