"""Planning inside other packages, each imported only when asked for."""
