"""Plan micro-batch waves for LLM post-training: packed how, owned by which rank, at what price."""

from waveplan import models
from waveplan._core import __version__
from waveplan.budget import Budget, format_bytes, parse_bytes
from waveplan.errors import InputError, InternalError, UnpricedError, WaveplanError, WaveRefused
from waveplan.model import Model
from waveplan.packing import Packing, pack
from waveplan.rows import Ragged, Rows
from waveplan.topology import Topology
from waveplan.training import Training
from waveplan.tree import Tree, tree

__all__ = [
    "Budget",
    "InputError",
    "InternalError",
    "Model",
    "Packing",
    "Ragged",
    "Rows",
    "Topology",
    "Training",
    "Tree",
    "UnpricedError",
    "WaveRefused",
    "WaveplanError",
    "__version__",
    "format_bytes",
    "models",
    "pack",
    "parse_bytes",
    "tree",
]
