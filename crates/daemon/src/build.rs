//! What this program was built from, and what it runs on: `-V -v`.

use std::fmt::Write as _;

use howdah_daemon::driver::choose;

/// A line for each fact.
pub fn story() -> String {
    let features = [
        ("aws-lc", cfg!(feature = "aws-lc")),
        ("cloud", cfg!(feature = "cloud")),
        ("ldap", cfg!(feature = "ldap")),
        ("pam", cfg!(feature = "pam")),
        ("top", cfg!(feature = "top")),
        ("traces", cfg!(feature = "traces")),
    ];
    let features: Vec<_> = features.iter().filter(|(_, on)| *on).collect();
    let features: Vec<_> = features.iter().map(|(name, _)| *name).collect();
    let driver = match choose::choose(choose::IoDriver::Auto) {
        Ok((_, story)) => format!("io_uring and epoll; here auto means {story}"),
        Err(why) => why,
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let kernel = kernel.unwrap_or_else(|_| "unknown".into());
    let mut text = String::new();
    for (name, value) in [
        ("commit", env!("BUILT_COMMIT")),
        ("compiler", env!("BUILT_COMPILER")),
        ("target", env!("BUILT_TARGET")),
        ("features", &*features.join(" ")),
        ("TLS", openssl::version::version()),
        ("drivers", &*driver),
        ("kernel", kernel.trim()),
    ] {
        let _ = writeln!(text, "{:10}{value}", format!("{name}:"));
    }
    text
}
