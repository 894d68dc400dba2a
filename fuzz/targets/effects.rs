#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    howdah_sql::fuzz::effects(bytes);
    howdah_sql::fuzz::gist(bytes);
    howdah_sql::fuzz::reads(bytes);
});
