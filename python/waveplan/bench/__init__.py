"""Measurements: our search beside the reference planner's, growth, memory, threads."""
