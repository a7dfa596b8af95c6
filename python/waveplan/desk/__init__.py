"""Jobs sized at a desk: one job, or a sweep over many."""
