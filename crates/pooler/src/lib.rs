//! The decisions of Howdah: who is linked to whom, and what is sent when.
#![forbid(unsafe_code)]

pub mod auth;
pub mod config;
pub mod event;
pub mod mail;
pub mod note;

use event::{Event, Out, Time};

/// One worker's decisions.
///
/// ```text
///               Event                      Action
///   driver  ------------>  Pooler  ------------------>  driver
///            handle(now, event, out)    out.actions
/// ```
///
/// The contract: call [`Pooler::handle`] for each event, carry out everything in `out` in order,
/// clear `out`, then handle the next. When [`Pooler::next_deadline`] passes, handle
/// [`Event::Tick`]. Getters may be called at any time. [`Pooler::check`] verifies every invariant.
pub struct Pooler {}

impl Pooler {
    /// Takes in what happened and says what to do.
    pub fn handle(&mut self, _now: Time, _event: Event<'_>, _out: &mut Out) {}

    /// When `Tick` is due; `None` if nothing waits for time.
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }
}
