//! Kept inputs of every target, and pseudo-random ones: few by default, many with
//! `WAVEPLAN_DEEP=1`.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use waveplan_fuzz::TARGETS;

/// Bytes of a pseudo-random input, at most.
const MOST: usize = 600;

fn deep() -> bool {
    std::env::var_os("WAVEPLAN_DEEP").is_some()
}

fn target(name: &str) -> fn(&[u8]) {
    let found = TARGETS.iter().find(|target| target.0 == name);
    found.expect("a target of this name").1
}

/// Runs every file of `folder/name`; how many there were.
fn replay(folder: &str, name: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.sort();
    for file in &files {
        println!("{}", file.display());
        target(name)(&std::fs::read(file).unwrap());
    }
    files.len()
}

fn pseudo_random(name: &str) {
    let config = Config {
        cases: if deep() { 200_000 } else { 4_000 },
        max_shrink_iters: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = if deep() {
        TestRunner::new(config)
    } else {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        TestRunner::new_with_rng(config, rng)
    };
    let check = target(name);
    let bytes = proptest::collection::vec(any::<u8>(), 0..MOST);
    let outcome = runner.run(&bytes, |bytes| {
        check(&bytes);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{name}: {error}");
    }
}

macro_rules! targets {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            assert!(replay("seeds", stringify!($name)) > 0, "seeds are kept");
            replay("regressions", stringify!($name));
            pseudo_random(stringify!($name));
        }
    )*};
}

targets!(sequences, layouts, price, width);
