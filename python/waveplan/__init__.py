"""Plan micro-batch waves for LLM post-training: packed how, owned by which rank, at what price."""

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from waveplan._core import __version__
from waveplan.errors import DoubtfulError, InputError, InternalError, RankError, WaveplanError

if _TYPE_CHECKING:
    from waveplan._core import (
        Balance,
        Composition,
        Gdn,
        GdnSchedule,
        GdnSettings,
        Layout,
        Ownership,
        OwnershipSettings,
        Packing,
        Score,
        StageWork,
        Tree,
        WorkloadProfile,
        attention_slices,
        balance,
        choose_layout,
        gdn,
        gdn_schedule,
        gdn_schedule_per_rank,
        own,
    )
    from waveplan.agreement.adapters import Agreement, AllShares, Alone, Mpi4py, TorchDistributed
    from waveplan.agreement.protocol import in_step
    from waveplan.budget import Budget, format_bytes, parse_bytes
    from waveplan.facts import models
    from waveplan.facts.megatron import MegatronJob, read_megatron
    from waveplan.facts.model import Model
    from waveplan.facts.topology import Sharding, Topology
    from waveplan.facts.training import Training
    from waveplan.plan import Plan
    from waveplan.planner import Planner
    from waveplan.profiles import Profiles
    from waveplan.refusal import WaveRefused
    from waveplan.scoring import Scoring
    from waveplan.sequences.requests import Requests
    from waveplan.sequences.sequences import Ragged, Sequences
    from waveplan.stages import owned_token_ms, pack, tree
    from waveplan.wave import Wave

# Modules and their public names, imported when first read: `import waveplan` costs little more than
# numpy.
_NAMES = {
    "_core": "Balance Composition Gdn GdnSchedule GdnSettings Layout Ownership OwnershipSettings "
    "Packing Score StageWork Tree WorkloadProfile attention_slices balance choose_layout gdn "
    "gdn_schedule gdn_schedule_per_rank own",
    "agreement.adapters": "Agreement AllShares Alone Mpi4py TorchDistributed",
    "agreement.protocol": "in_step",
    "budget": "Budget format_bytes parse_bytes",
    "facts.megatron": "MegatronJob read_megatron",
    "facts.model": "Model",
    "facts.topology": "Sharding Topology",
    "facts.training": "Training",
    "plan": "Plan",
    "planner": "Planner",
    "profiles": "Profiles",
    "refusal": "WaveRefused",
    "scoring": "Scoring",
    "sequences.requests": "Requests",
    "sequences.sequences": "Ragged Sequences",
    "stages": "owned_token_ms pack tree",
    "wave": "Wave",
}
_MODULES = {"models": "facts.models"}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> _Any:
    """Return a public name from its module, or a module of the package."""
    if name in _HOME:
        value = getattr(_import_module(f"waveplan.{_HOME[name]}"), name)
    else:
        try:
            if name.startswith("_"):
                raise ModuleNotFoundError(name)
            value = _import_module(f"waveplan.{_MODULES.get(name, name)}")
        except ModuleNotFoundError:
            raise AttributeError(f"module 'waveplan' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "WAVEPLAN_ART" in _os.environ:  # where the wheel's .pth file has not run
    from waveplan.integrations.art._hook import arm as _arm

    _arm()

# fmt: off
__all__ = [
    "Agreement",
    "AllShares",
    "Alone",
    "Balance",
    "Budget",
    "Composition",
    "DoubtfulError",
    "Gdn",
    "GdnSchedule",
    "GdnSettings",
    "InputError",
    "InternalError",
    "Layout",
    "MegatronJob",
    "Model",
    "Mpi4py",
    "Ownership",
    "OwnershipSettings",
    "Packing",
    "Plan",
    "Planner",
    "Profiles",
    "Ragged",
    "RankError",
    "Requests",
    "Score",
    "Scoring",
    "Sequences",
    "Sharding",
    "StageWork",
    "Topology",
    "TorchDistributed",
    "Training",
    "Tree",
    "Wave",
    "WaveRefused",
    "WaveplanError",
    "WorkloadProfile",
    "__version__",
    "attention_slices",
    "balance",
    "choose_layout",
    "format_bytes",
    "gdn",
    "gdn_schedule",
    "gdn_schedule_per_rank",
    "in_step",
    "models",
    "own",
    "owned_token_ms",
    "pack",
    "parse_bytes",
    "read_megatron",
    "tree",
]
# fmt: on
