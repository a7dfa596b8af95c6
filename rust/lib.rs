//! Plans micro-batch waves for LLM post-training.
//!
//! One way through the house, each stage taking the value of the stage before it:
//! rows, tree, layout, attention, assign, recurrent, price, width, split. The core knows
//! numbers only: no model, no rule name, no Python. `python/` is the one folder that names
//! `PyO3`; it exists with the feature `python`.

pub mod assign;
pub mod attention;
pub mod cancel;
pub mod engine;
pub mod error;
pub mod fields;
pub mod heads;
pub mod layout;
pub mod measures;
pub mod pack;
pub mod price;
pub mod recurrent;
pub mod rows;
pub mod scattered;
pub mod segments;
pub mod split;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod width;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
