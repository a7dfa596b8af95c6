"""Which shared prefixes are stored once, and which are replayed by each row."""

from waveplan._core import Layout, Score, choose_layout

__all__ = ["Layout", "Score", "choose_layout"]
