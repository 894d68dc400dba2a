//! An expected notification.

use crate::messages::{Message, show_got};

/// A notification, and its recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The process id that the recipient got at its login.
    hearer: [u8; 4],
    /// The recipient is also the sender: exactly then the notification has its process id.
    own: bool,
    channel: String,
    payload: String,
}

impl Notification {
    /// The notification for a client with this key.
    pub fn new(key: &[u8], own: bool, channel: &str, payload: &str) -> Notification {
        Notification {
            hearer: *key
                .first_chunk()
                .expect("a key begins with a process id of four bytes"),
            own,
            channel: channel.to_owned(),
            payload: payload.to_owned(),
        }
    }

    fn text(&self) -> Vec<u8> {
        format!("{}\0{}\0", self.channel, self.payload).into_bytes()
    }

    /// True if `message` is this notification.
    pub fn is(&self, message: &Message) -> bool {
        let Some((pid, text)) = message.body.split_first_chunk::<4>() else {
            return false;
        };
        message.tag == b'A' && (*pid == self.hearer) == self.own && text == self.text()
    }

    /// A line for printing.
    pub fn shown(&self) -> String {
        let whose = if self.own { "its own" } else { "another's" };
        let text = self.text();
        format!("{whose} {}", show_got(b'A', &text, text.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::Notification;
    use crate::messages::Message;

    #[test]
    fn own_ones_bear_the_hearers_process_id_and_others_another() {
        let key = [0, 0, 0, 9, 1, 2, 3, 4];
        let own = Notification::new(&key, true, "news", "first");
        let others = Notification::new(&key, false, "news", "first");
        let message = |body: &[u8]| Message {
            tag: b'A',
            body: body.to_vec(),
        };
        let (of_nine, of_ten) = (
            message(b"\0\0\0\x09news\0first\0"),
            message(b"\0\0\0\x0anews\0first\0"),
        );
        assert!(own.is(&of_nine) && !own.is(&of_ten));
        assert!(others.is(&of_ten) && !others.is(&of_nine));
        assert!(!own.is(&message(b"\0\0\0\x09news\0second\0")));
        assert!(!own.is(&message(b"\0\0")));
    }
}
