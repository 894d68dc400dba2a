//! The effects of Howdah: sockets, kernel, clock, threads, files.
//!
//! A worker thread runs one [`worker::Worker`]: a [`driver::Driver`] (the kernel, or a simulated
//! one), the connection layer [`sockets::Sockets`] above it, a [`mailbox::Mailbox`], and the
//! decisions of `howdah_pooler`.

pub mod broker;
mod connections;
pub mod driver;
pub mod helper;
pub mod mailbox;
mod output;
pub mod reserve;
pub mod secure;
pub mod sockets;
pub mod survive;
pub mod tls;
pub mod vitals;
pub mod worker;
