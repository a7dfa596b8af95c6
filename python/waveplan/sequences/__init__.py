"""Token sequences and requests in memory, and the files they are read from."""
