//! Which segments are shared: candidates, score, search.
