//! What a plan's price depends on: integers known once a plan exists.
