#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    howdah_shard::fuzz::shapes(bytes);
    howdah_shard::fuzz::hints(bytes);
});
