//! The ladder of subforwards.
