//! Plans micro-batch waves for LLM post-training.
//!
//! Stages, each computing from the value of the stage before it: sequences, tree, layout,
//! ownership, gdn, measures, price, search. The core knows numbers only: no model, no rule name.
//! The border to Python exists with the feature `python`: `python/`, and the `python` blocks of
//! [`fields`] beside the types that Python sees.

pub mod attention;
pub mod balance;
pub mod cancel;
pub mod error;
pub mod fields;
pub mod gdn;
pub mod hash;
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
