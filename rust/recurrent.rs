//! The second layout, of gated-delta-net layers: which rank runs which segment.
