#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| waveplan_fuzz::price::check(data));
