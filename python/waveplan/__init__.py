"""Plan micro-batch waves for LLM post-training: packed how, owned by which rank, at what price."""

import os as _os

from waveplan import models
from waveplan._core import __version__
from waveplan.agreement import Agreement, Alone, Mpi4py, TorchDistributed
from waveplan.assignment import (
    Assignment,
    AssignSettings,
    StageWork,
    WorkloadProfile,
    assign,
    attention_slices,
    owned_token_ms,
)
from waveplan.budget import Budget, format_bytes, parse_bytes
from waveplan.errors import (
    InputError,
    InternalError,
    RankError,
    UnpricedError,
    WaveplanError,
    WaveRefused,
)
from waveplan.layout import Layout, Score, choose_layout
from waveplan.model import Model
from waveplan.packing import Packing, pack
from waveplan.plan import Plan
from waveplan.planner import Planner
from waveplan.profiles import Profiles
from waveplan.ranks import in_step
from waveplan.recurrent import (
    GdnSchedule,
    Recurrent,
    RecurrentSettings,
    gdn_schedule,
    gdn_schedule_per_rank,
    recurrent,
)
from waveplan.requests import Requests
from waveplan.rows import Ragged, Rows
from waveplan.scoring import Scoring
from waveplan.topology import Topology
from waveplan.training import Training
from waveplan.tree import Tree, tree
from waveplan.wave import Wave

if _os.environ.get("WAVEPLAN_ART", "0") not in ("", "0"):
    from waveplan.integrations.art._hook import install_on_import as _install_on_import

    _install_on_import(shadow=_os.environ["WAVEPLAN_ART"] == "shadow")

__all__ = [
    "Agreement",
    "Alone",
    "AssignSettings",
    "Assignment",
    "Budget",
    "GdnSchedule",
    "InputError",
    "InternalError",
    "Layout",
    "Model",
    "Mpi4py",
    "Packing",
    "Plan",
    "Planner",
    "Profiles",
    "Ragged",
    "RankError",
    "Recurrent",
    "RecurrentSettings",
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
    "assign",
    "attention_slices",
    "choose_layout",
    "format_bytes",
    "gdn_schedule",
    "gdn_schedule_per_rank",
    "in_step",
    "models",
    "owned_token_ms",
    "pack",
    "parse_bytes",
    "recurrent",
    "tree",
]
