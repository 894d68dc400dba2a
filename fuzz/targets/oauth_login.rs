#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| howdah_pooler::auth::fuzz::oauth_login(bytes));
