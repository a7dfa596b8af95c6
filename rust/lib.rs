//! Plans micro-batch waves for LLM post-training.
//!
//! One way through the house, each stage taking the value of the stage before it:
//! rows, tree, layout, attention, assign, gdn, price, width, split. The core knows
//! numbers only: no model, no rule name, no Python. `python/` is the one folder that names
//! `PyO3`; it exists with the feature `python`.

pub mod attention;
pub mod cancel;
pub mod error;
pub mod fields;
pub mod gdn;
pub mod heads;
pub mod layout;
pub mod measures;
pub mod ownership;
pub mod pack;
pub mod price;
pub mod scattered;
pub mod search;
pub mod segments;
pub mod sequences;
#[cfg(test)]
mod testing;
pub mod tree;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
