//! Readable versions of every stage, from their definitions: slow, and sharing no code with what
//! they are compared with.

pub mod layout;
pub mod pack;
pub mod price;
pub mod tree;
pub mod width;
