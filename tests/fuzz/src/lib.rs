//! Each target decodes bytes into an input, runs the planner's core on it and compares the answer
//! with a slow, readable version of the same definition. What is invalid must be refused.
//!
//! `cargo test` replays kept inputs and runs pseudo-random ones; `cargo fuzz` looks for new ones.

pub mod draw;
pub mod layouts;
pub mod price;
pub mod sequences;
pub mod slow;
pub mod width;

/// A target: its name and its check.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 4] = [
    ("sequences", sequences::check),
    ("layouts", layouts::check),
    ("price", price::check),
    ("width", width::check),
];
