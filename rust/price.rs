//! Evaluates a bound price program over a plan's measures.
