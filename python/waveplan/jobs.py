"""A job in plain values, as a command line or a sweep spells it, and the planner it stands for."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from waveplan.budget import Budget, format_bytes
from waveplan.errors import InputError, UnpricedError
from waveplan.topology import Topology
from waveplan.training import Training

if TYPE_CHECKING:
    from waveplan.model import Model
    from waveplan.planner import Planner
    from waveplan.requests import Requests
    from waveplan.rules import RuleSet

__all__ = ["TARGETS", "Job", "Source", "model_named"]

TARGETS = ("all", "last-turn", "none")


def model_named(name: str) -> Model:
    """A bundled model by name, or one read from a Hugging Face config.json."""
    from waveplan import models
    from waveplan.model import Model

    if name.lower() in models.names():
        return models.get(name)
    path = Path(name)
    if path.suffix == ".json" or path.exists():
        return Model.from_hf(path)
    raise InputError(
        f"model {name!r} is neither a file nor bundled; bundled are {', '.join(models.names())}"
    )


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the rows are and what is asked of them.

    ``path`` is a file of token rows that every worker can read; ``targets`` is ``"all"`` tokens,
    those from each row's ``first_target`` on (``"last-turn"``) or ``"none"``; ``limit`` keeps the
    first rows only.
    """

    path: str
    targets: str = "all"
    top_k: int | None = None
    logits: bool = False
    hidden: bool = False
    gradient: bool = True
    limit: int | None = None

    def requests(self) -> Requests:
        """The requests, read once in each process.

        Raises:
            InputError: the file or an option is wrong.
        """
        return _requests(self)


@functools.lru_cache(maxsize=2)
def _requests(source: Source) -> Requests:
    from waveplan.requests import Requests
    from waveplan.rows import Rows

    if source.targets not in TARGETS:
        raise InputError(f"targets is {source.targets!r}: use {', '.join(TARGETS)}")
    rows = Rows.load(source.path)
    if source.limit is not None:
        if source.limit < 1:
            raise InputError(f"limit is {source.limit}: it must be at least 1")
        rows = rows.take(range(min(source.limit, len(rows))))
    targets: Any = source.targets == "all"
    if source.targets == "last-turn":
        if "first_target" not in rows.columns:
            raise InputError(f"{source.path} has no first_target column: use targets 'all'")
        targets = rows.columns["first_target"]
    return Requests(
        rows,
        targets=targets,
        top_k=source.top_k,
        logits=source.logits,
        hidden=source.hidden,
        gradient=source.gradient,
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """One configuration: a model by name or file, ranks, training mode, memory, prices."""

    model: str
    dp: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    recompute: str = "full"
    recompute_modules: str = ""
    lora_rank: int = 8
    full_finetuning: bool = False
    dispatcher: str = "auto"
    routing: str = "safe"
    budget: str | None = None
    available: str | None = None
    reserve: float = 0.03
    rule_set: str = "default"
    rules: str | None = None
    strict: bool = False
    margin: float = 0.1
    """Added to prices that leave out or extrapolate a rule, so that they may be trusted."""
    compatible: bool = False
    trust: Literal["rules", "profile"] = "rules"

    def key(self, source: Source) -> str:
        """What identifies this configuration over these rows in an output file."""
        return json.dumps([asdict(self), asdict(source)], sort_keys=True)

    def facts(self) -> tuple[Model, Topology, Training]:
        """Model, ranks and training mode, checked against each other."""
        model = model_named(self.model)
        topology = Topology(
            dp=self.dp,
            tp=self.tp,
            cp=self.cp,
            pp=self.pp,
            ep=self.ep,
            etp=self.etp,
            sequence_parallel=self.sequence_parallel,
        )
        topology.check(model)
        if not self.full_finetuning and self.lora_rank == 0:
            raise InputError("lora_rank is 0: say full_finetuning to train every parameter")
        training = Training(
            recompute=self.recompute,
            recompute_modules=tuple(self.recompute_modules.split(","))
            if self.recompute_modules
            else (),
            lora_rank=0 if self.full_finetuning else self.lora_rank,
            dispatcher=self.dispatcher,
            routing=self.routing,
        )
        return model, topology, training

    def memory(self) -> Budget:
        """What a rank may use."""
        if (self.budget is None) == (self.available is None):
            raise InputError("give either budget (the device's total) or available (what is free)")
        if self.budget is not None:
            return Budget(device=self.budget, reserve=self.reserve)
        return Budget(available=self.available)

    def memory_text(self) -> str:
        """The memory in a few words."""
        memory = self.memory()
        if isinstance(memory.device, int):
            return format_bytes(memory.device)
        assert isinstance(memory.available, int)
        return f"{format_bytes(memory.available)} free"

    def ranks_text(self) -> str:
        """The ranks that are not 1."""
        named = [f"{name.upper()} {getattr(self, name)}" for name in ("dp", "tp", "cp", "pp", "ep")]
        named.append(f"ETP {self.etp}")
        shown = [text for text in named if not text.endswith(" 1")]
        if self.sequence_parallel:
            shown.append("SP")
        return " ".join(shown) or "one rank"

    def rule_set_of(self) -> RuleSet:
        """The rules that price it."""
        from waveplan.rules import RuleSet, default_rules, published_rules

        base = published_rules() if self.rule_set == "published" else default_rules()
        return base if self.rules is None else RuleSet.from_toml(self.rules, base=base)

    def planner(self) -> Planner:
        """The planner of this job.

        Raises:
            InputError: the configuration is impossible; the message says why.
            UnpricedError: ``strict``, and a rule does not cover the job as measured.
        """
        from waveplan.planner import Planner

        model, topology, training = self.facts()
        planner = Planner(
            model,
            topology,
            training,
            self.memory(),
            rules=None if self.compatible else self.rule_set_of(),
            trust="profile" if self.compatible else self.trust,
            compatible=self.compatible,
            margin=None if self.compatible else self.margin,
        )
        states = (*planner.bound.off, *planner.bound.unmeasured)
        if self.strict and states:
            raise UnpricedError("; ".join(str(state) for state in states))
        return planner
