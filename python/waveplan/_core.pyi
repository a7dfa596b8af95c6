"""The compiled core. Arrays are one-dimensional, contiguous and int64 unless said otherwise."""

__version__: str

# --- tree ---

# --- pack ---

# --- layout ---

# --- assign ---

# --- recurrent ---

# --- measures ---

PLAN_MEASURES: list[tuple[str, str]]
GROUP_MEASURES: list[tuple[str, str]]

# --- price ---

# --- width ---
