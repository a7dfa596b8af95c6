"""Plan micro-batch waves for LLM post-training: packed how, owned by which rank, at what price."""

from waveplan._core import __version__
from waveplan.errors import InputError, InternalError, UnpricedError, WaveplanError, WaveRefused

__all__ = [
    "InputError",
    "InternalError",
    "UnpricedError",
    "WaveRefused",
    "WaveplanError",
    "__version__",
]
