//! Unit tests of the assignment.
