//! Catches panics, so that they end one call and not the process. Two kinds are caught: panics of a library
//! that reads strangers' bytes, and panics from bugs of Howdah while it handles one connection.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static SURVIVES: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function that may panic. `None` after a panic; the panic hook has logged the reason. The
/// data that the function worked on must be verified before further use.
pub fn survive<T>(call: impl FnOnce() -> T) -> Option<T> {
    SURVIVES.set(true);
    let survived = catch_unwind(AssertUnwindSafe(call));
    SURVIVES.set(false);
    survived.ok()
}

/// True if a panic on this thread ends only a call of [`survive`].
pub fn is_asked() -> bool {
    SURVIVES.get()
}

/// Without unwinding, a stranger's bytes could end the process.
#[cfg(panic = "abort")]
compile_error!("panics must unwind: panic = \"unwind\"");
