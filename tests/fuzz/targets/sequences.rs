//! Finds new inputs of one target: `cargo fuzz run sequences`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| waveplan_fuzz::sequences::check(data));
