"""Token sequences: what holds them in memory, and the files they are read from."""
