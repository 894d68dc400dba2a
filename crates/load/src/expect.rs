//! Expected messages, and their comparison with received ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::connection::Connection;
use crate::failure::{Failure, Kind, Outcome};
use crate::messages::{Message, field, parameter_status, show_got};
use crate::notification::Notification;

/// The expected text of an error or notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Exactly this text.
    Is(String),
    /// A text that begins like this.
    Starts(String),
}

/// One expected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Exactly this message.
    Exact(Message),
    /// An ErrorResponse (`b'E'`) or NoticeResponse (`b'N'`).
    Report {
        /// `b'E'` or `b'N'`.
        tag: u8,
        /// Fields S and V.
        severity: &'static str,
        /// Field C.
        code: &'static str,
        /// Field M.
        text: Text,
    },
    /// One ParameterStatus for each of these, in any order.
    Settings(BTreeMap<String, String>),
    /// Each of these, in this order, anywhere from here up to the next ReadyForQuery.
    Heard(Vec<Notification>),
}

/// An expected ErrorResponse of severity ERROR.
pub fn error(code: &'static str, text: impl Into<String>) -> Want {
    Want::Report {
        tag: b'E',
        severity: "ERROR",
        code,
        text: Text::Is(text.into()),
    }
}

impl Want {
    /// True if `message` is as expected. Settings and notifications are checked elsewhere.
    fn accepts(&self, message: &Message) -> bool {
        match self {
            Want::Exact(wanted) => wanted == message,
            Want::Report {
                tag,
                severity,
                code,
                text,
            } => {
                let is = |name, wanted: &str| {
                    field(&message.body, name).is_some_and(|value| value == wanted)
                };
                let found = field(&message.body, b'M').unwrap_or_default();
                let fits = match text {
                    Text::Is(wanted) => found == *wanted,
                    Text::Starts(wanted) => found.starts_with(wanted.as_str()),
                };
                let named = is(b'S', severity) && is(b'V', severity) && is(b'C', code);
                message.tag == *tag && named && fits
            }
            Want::Settings(_) | Want::Heard(_) => false,
        }
    }

    /// A line for printing.
    pub fn shown(&self) -> String {
        match self {
            Want::Exact(message) => show_got(message.tag, &message.body, message.body.len()),
            Want::Report {
                tag,
                severity,
                code,
                text,
            } => {
                let name = if *tag == b'E' {
                    "ErrorResponse"
                } else {
                    "NoticeResponse"
                };
                match text {
                    Text::Is(text) => format!("{name} {severity} {code} {text}"),
                    Text::Starts(text) => format!("{name} {severity} {code} {text}..."),
                }
            }
            Want::Settings(all) => format!("ParameterStatus for each of {all:?}"),
            Want::Heard(all) => {
                let each: Vec<_> = all.iter().map(Notification::shown).collect();
                format!("before ReadyForQuery: {}", each.join(", "))
            }
        }
    }
}

fn shown(message: &Message) -> String {
    show_got(message.tag, &message.body, message.body.len())
}

/// The failure if `message` comes where `wants` were expected.
pub fn difference(connection: &mut Connection, wants: &[Want], message: &Message) -> Failure {
    // A wrong reply: an error in place of another error, or before its place. An unexpected error:
    // one that ends the connection, or that comes where no error was expected.
    let is_error = |want: &Want| matches!(want, Want::Report { tag: b'E', .. });
    let fatal = field(&message.body, b'V').is_some_and(|severity| severity == "FATAL");
    let due = wants.iter().any(is_error) && !fatal;
    // If PostgreSQL shuts down fast, or another of its processes has crashed, it sends a warning
    // and closes.
    let farewell =
        field(&message.body, b'C').is_some_and(|code| code == "57P01" || code == "57P02");
    let kind = if (message.tag == b'E' && !due) || (message.tag == b'N' && farewell) {
        Kind::Unexpected
    } else {
        Kind::Wrong
    };
    let mut got = vec![shown(message)];
    got.extend(
        connection
            .leftovers(Duration::from_millis(100))
            .iter()
            .map(shown),
    );
    Failure {
        kind,
        what: format!("got {}", shown(message)),
        expected: wants.iter().map(Want::shown).collect(),
        got,
    }
}

/// Receives one message for each of `wants` and compares. Afterwards `wants` is empty.
pub fn expect_all(connection: &mut Connection, wants: &mut Vec<Want>) -> Outcome {
    let mut done = 0;
    let result = expect_each(connection, wants, &mut done);
    if let Err(mut failure) = result {
        if failure.expected.is_empty() {
            failure.expected = wants[done..].iter().map(Want::shown).collect();
        }
        wants.clear();
        return Err(failure);
    }
    wants.clear();
    Ok(())
}

fn expect_each(connection: &mut Connection, wants: &[Want], done: &mut usize) -> Outcome {
    let mut due = VecDeque::new();
    for (index, want) in wants.iter().enumerate() {
        *done = index;
        if let Want::Heard(all) = want {
            due.extend(all);
            continue;
        }
        if let Want::Settings(all) = want {
            let mut left = all.clone();
            while !left.is_empty() {
                let message = next_but(connection, &mut due)?;
                let pair = parameter_status(&message.body).filter(|_| message.tag == b'S');
                let known = pair.is_some_and(|(name, value)| left.remove(&name) == Some(value));
                if !known {
                    return Err(difference(connection, &wants[index..], &message));
                }
            }
            continue;
        }
        let message = next_but(connection, &mut due)?;
        let early = message.tag == b'Z' && !due.is_empty();
        if early || !want.accepts(&message) {
            let mut failure = difference(connection, &wants[index..], &message);
            let missed = due.iter().map(|one| one.shown());
            failure.expected.splice(0..0, missed);
            return Err(failure);
        }
    }
    Ok(())
}

/// The next message, except for expected notifications.
fn next_but(connection: &mut Connection, due: &mut VecDeque<&Notification>) -> Outcome<Message> {
    loop {
        let message = connection.next()?;
        match due.front() {
            Some(first) if first.is(&message) => due.pop_front(),
            _ => return Ok(message),
        };
    }
}

/// True if `messages` are exactly as `wants`.
pub fn all_accept(wants: &[Want], messages: &[Message]) -> bool {
    wants.len() == messages.len()
        && wants
            .iter()
            .zip(messages)
            .all(|(want, message)| want.accepts(message))
}

#[cfg(test)]
mod tests {
    use super::{Text, Want, all_accept, error};
    use crate::messages::{Message, text_body};

    fn report(code: &str, text: &str) -> Message {
        let body = format!("SERROR\0VERROR\0C{code}\0M{text}\0\0");
        Message {
            tag: b'E',
            body: body.into_bytes(),
        }
    }

    #[test]
    fn errors_are_compared_by_severity_code_and_text() {
        let want = error("26000", "no such thing");
        assert!(want.accepts(&report("26000", "no such thing")));
        assert!(!want.accepts(&report("26001", "no such thing")));
        assert!(!want.accepts(&report("26000", "no such thing at all")));
        let start = Text::Starts("no such".to_owned());
        let want = Want::Report {
            tag: b'E',
            severity: "ERROR",
            code: "26000",
            text: start,
        };
        assert!(want.accepts(&report("26000", "no such thing at all")));
        let notice = Message {
            tag: b'N',
            ..report("26000", "no such thing")
        };
        assert!(!want.accepts(&notice));
    }

    #[test]
    fn exact_messages_are_compared_byte_by_byte() {
        let message = Message {
            tag: b'C',
            body: text_body("SELECT 1"),
        };
        let want = Want::Exact(message.clone());
        assert!(all_accept(
            std::slice::from_ref(&want),
            std::slice::from_ref(&message)
        ));
        let other = Message {
            tag: b'C',
            body: text_body("SELECT 2"),
        };
        assert!(!all_accept(
            std::slice::from_ref(&want),
            std::slice::from_ref(&other)
        ));
        assert!(!all_accept(&[want], &[]));
    }
}
