//! One error type for the whole core, mapped once to Python exceptions.

use std::fmt;

/// An error of the core. The text is one line that says what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A caller's value is wrong: names the argument, the offending place and value.
    Input(String),
    /// A size computed from the caller's numbers leaves 64 bits.
    Overflow(&'static str),
    /// The caller asked to stop (Ctrl-C); the border re-raises what the signal raised.
    Interrupted,
    /// A bug in this crate, never the caller's fault.
    Internal(&'static str),
}

/// Shorthand for results of the core.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An input error from anything printable.
    pub fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message) => f.write_str(message),
            Self::Overflow(what) => {
                write!(f, "{what} is too large: it must fit in 63 bits")
            }
            Self::Interrupted => f.write_str("interrupted"),
            Self::Internal(what) => write!(f, "internal error, please report it: {what}"),
        }
    }
}

impl std::error::Error for Error {}
