"""Agreement between the ranks of a job."""
