//! Catches panics, so that they end one call and not the process. Two kinds are caught: panics of a
//! library at bytes from strangers, and bugs of Howdah's in handling one connection.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static SURVIVES: Cell<bool> = const { Cell::new(false) };
}

/// Calls what may panic: `None` if it did; the hook that `is_asked` tells of it has logged why. What
/// it worked on must not be used again unless it can be verified.
pub fn survive<T>(call: impl FnOnce() -> T) -> Option<T> {
    SURVIVES.set(true);
    let survived = catch_unwind(AssertUnwindSafe(call));
    SURVIVES.set(false);
    survived.ok()
}

/// A panic on this thread ends what [`survive`] was asked to call, and nothing else.
pub fn is_asked() -> bool {
    SURVIVES.get()
}

/// Without unwinding, the process would end at what a stranger sends.
#[cfg(panic = "abort")]
compile_error!("panics must unwind: panic = \"unwind\"");
