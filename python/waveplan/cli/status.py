"""Exit statuses of the commands."""

DONE, REFUSED, BAD_INPUT, BUG, INTERRUPTED = 0, 1, 2, 70, 130
