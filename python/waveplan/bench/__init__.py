"""Measurements: our search beside the published planner's, growth, memory, threads."""
