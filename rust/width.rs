//! The width search, as a machine that asks for a verdict and is told.
