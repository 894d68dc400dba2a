//! Sockets that the kernel knows by their connection's slot: its "registered files".
//!
//! An operation by descriptor looks it up and counts it as used, atomically, then again as unused;
//! by slot it does not. Only quiet sends go by slot: they end while they are submitted. Up to Linux
//! 6.12 a socket that leaves the table stays open until all operations by slot have ended that were
//! begun before, those of other sockets too, so none may ever wait.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::Submitter;

/// The most slots, which take eight bytes of the kernel's each. Connections with higher ones go by
/// their descriptors.
const MOST: u32 = 16 * 1024;

/// See the module.
pub(super) struct Files {
    slots: u32,
}

impl Files {
    /// Makes the table. Without one (no memory for it, say) all goes by descriptor.
    pub(super) fn register(submitter: &Submitter<'_>) -> Files {
        let open = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let slots = open.map_or(MOST, |open| u32::try_from(open).unwrap_or(MOST).min(MOST));
        match submitter.register_files_sparse(slots) {
            Ok(()) => Files { slots },
            Err(_) => Files { slots: 0 },
        }
    }

    /// The socket is this slot's. False if it has no place in the table.
    pub(super) fn enter(&self, submitter: &Submitter<'_>, slot: u32, socket: &OwnedFd) -> bool {
        let update = || submitter.register_files_update(slot, &[socket.as_raw_fd()]);
        slot < self.slots && update().is_ok()
    }

    /// The slot is nobody's, as its socket is to be closed or to leave.
    pub(super) fn leave(&self, submitter: &Submitter<'_>, slot: u32) {
        let left = submitter.register_files_update(slot, &[-1]);
        debug_assert!(left.is_ok(), "the slot is in the table: {left:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use crate::driver::uring::Uring;
    use crate::driver::{Completion, Driver as _, Key, socket};

    /// Waits for what is wanted, as long as that takes; the test's limit is the reader's.
    fn until<T>(driver: &mut Uring, mut wanted: impl FnMut(Completion) -> Option<T>) -> T {
        loop {
            driver.wait(None);
            while let Some(completion) = driver.next() {
                if let Some(found) = wanted(completion) {
                    return found;
                }
            }
        }
    }

    #[test]
    fn nothing_holds_a_socket_that_has_left() {
        // Where there is no io_uring, there is nothing to test.
        let Ok(mut driver) = Uring::new(Vec::new(), None) else {
            return;
        };
        for (generation, slot) in [(1, 3), (2, 3), (1, 3 + super::MOST)] {
            let (mut theirs, ours) = UnixStream::pair().unwrap();
            let limit = Some(Duration::from_secs(20));
            theirs.set_read_timeout(limit).unwrap();
            let key = Key { slot, generation };
            driver.attach(key, socket::loosen(ours.into()));
            let filed = slot < driver.files.slots;
            assert_eq!(driver.get(key).unwrap().filed, filed);
            driver.receive(key, true);
            assert!(driver.send(key, b"hello".to_vec(), false).is_none());
            // A quiet send ends no wait.
            theirs.write_all(b"!").unwrap();
            until(&mut driver, |completion| match completion {
                Completion::Sent { result, .. } => Some(result.unwrap()),
                _ => None,
            });
            let mut five = [0; 5];
            theirs.read_exact(&mut five).unwrap();
            driver.detach(key);
            let socket = until(&mut driver, |completion| match completion {
                Completion::Detached { socket, .. } => Some(socket),
                _ => None,
            });
            driver.discard(socket);
            assert_eq!(theirs.read(&mut five).unwrap(), 0, "it is closed now");
            assert!(theirs.write_all(b"?").is_err());
        }
    }
}
