"""Plan micro-batch waves for LLM post-training: packed how, owned by which rank, at what price."""

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from waveplan._core import __version__
from waveplan.errors import (
    InputError,
    InternalError,
    RankError,
    UnpricedError,
    WaveplanError,
    WaveRefused,
)
from waveplan.tree import Tree, tree

if _TYPE_CHECKING:
    from waveplan import models
    from waveplan.agreement import Agreement, Alone, Mpi4py, TorchDistributed
    from waveplan.assignment import (
        Ownership,
        OwnershipSettings,
        StageWork,
        WorkloadProfile,
        attention_slices,
        own,
        owned_token_ms,
    )
    from waveplan.budget import Budget, format_bytes, parse_bytes
    from waveplan.layout import Layout, Score, choose_layout
    from waveplan.model import Model
    from waveplan.packing import Packing, pack
    from waveplan.plan import Plan
    from waveplan.planner import Planner
    from waveplan.profiles import Profiles
    from waveplan.ranks import in_step
    from waveplan.recurrent import (
        Gdn,
        GdnSchedule,
        GdnSettings,
        gdn,
        gdn_schedule,
        gdn_schedule_per_rank,
    )
    from waveplan.requests import Requests
    from waveplan.rows import Ragged, Rows
    from waveplan.scoring import Scoring
    from waveplan.topology import Topology
    from waveplan.training import Training
    from waveplan.wave import Wave

# Loaded when first asked for, so that importing the package costs little more than numpy. The
# module `tree` is loaded above because a function bears its name.
_HOME = {
    "Agreement": "agreement",
    "Alone": "agreement",
    "OwnershipSettings": "assignment",
    "Gdn": "recurrent",
    "GdnSchedule": "recurrent",
    "GdnSettings": "recurrent",
    "gdn": "recurrent",
    "gdn_schedule": "recurrent",
    "gdn_schedule_per_rank": "recurrent",
    "Ownership": "assignment",
    "Budget": "budget",
    "Layout": "layout",
    "Model": "model",
    "Mpi4py": "agreement",
    "Packing": "packing",
    "Plan": "plan",
    "Planner": "planner",
    "Profiles": "profiles",
    "Ragged": "rows",
    "Requests": "requests",
    "Rows": "rows",
    "Score": "layout",
    "Scoring": "scoring",
    "StageWork": "assignment",
    "Topology": "topology",
    "TorchDistributed": "agreement",
    "Training": "training",
    "Wave": "wave",
    "WorkloadProfile": "assignment",
    "own": "assignment",
    "attention_slices": "assignment",
    "choose_layout": "layout",
    "format_bytes": "budget",
    "in_step": "ranks",
    "owned_token_ms": "assignment",
    "pack": "packing",
    "parse_bytes": "budget",
}


def __getattr__(name: str) -> _Any:
    """A public name from its module, or a module of the package."""
    if name in _HOME:
        value = getattr(_import_module(f"waveplan.{_HOME[name]}"), name)
    else:
        try:
            if name.startswith("_"):
                raise ModuleNotFoundError(name)
            value = _import_module(f"waveplan.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module 'waveplan' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if _os.environ.get("WAVEPLAN_ART", "0") not in ("", "0"):
    from waveplan.integrations.art._hook import install_on_import as _install_on_import

    _install_on_import(shadow=_os.environ["WAVEPLAN_ART"] == "shadow")

__all__ = [
    "Agreement",
    "Alone",
    "Budget",
    "Gdn",
    "GdnSchedule",
    "GdnSettings",
    "InputError",
    "InternalError",
    "Layout",
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
    "Rows",
    "Score",
    "Scoring",
    "StageWork",
    "Topology",
    "TorchDistributed",
    "Training",
    "Tree",
    "UnpricedError",
    "Wave",
    "WaveRefused",
    "WaveplanError",
    "WorkloadProfile",
    "__version__",
    "attention_slices",
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
    "tree",
]
