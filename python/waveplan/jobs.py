"""A job in plain values, as a command line or a sweep spells it, and the planner it stands for."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from waveplan._values import choice, flag, integer, shown, text
from waveplan.budget import Budget
from waveplan.errors import InputError, UnpricedError
from waveplan.files import kind
from waveplan.topology import Topology
from waveplan.training import Training

if TYPE_CHECKING:
    from waveplan.model import Model
    from waveplan.planner import Planner
    from waveplan.pricing import RuleSet
    from waveplan.requests import Requests

__all__ = ["TARGETS", "Job", "Source", "model_named"]

TARGETS = ("all", "last-turn", "none")


def model_named(name: str) -> Model:
    """A bundled model by name, or one read from a Hugging Face config.json."""
    from waveplan import models
    from waveplan.model import Model

    if text("model", name).lower() in models.names():
        return models.get(name)
    path = Path(name)
    if path.suffix == ".json" or kind(path) is not None:
        return Model.from_hf(path)
    close = difflib.get_close_matches(name[:100].lower(), models.names(), n=3, cutoff=0.5)
    known = f"did you mean {' or '.join(close)}" if close else ", ".join(models.names())
    raise InputError(f"model {shown(name)} is neither a file nor bundled: {known}")


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

    def _check(self) -> None:
        if not isinstance(self.path, os.PathLike):
            text("path", self.path)
        choice("targets", self.targets, TARGETS)
        for name in ("logits", "hidden", "gradient"):
            flag(name, getattr(self, name))
        for name in ("top_k", "limit"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(name, getattr(self, name), 1))

    def requests(self, on_read: Callable[[int, int | None], object] | None = None) -> Requests:
        """The requests, read once in each process.

        ``on_read(bytes read, bytes in all)`` is called while a long file of JSON lines is read;
        the second is None for stdin.

        Raises:
            InputError: the file or an option is wrong, or there is no row.
        """
        self._check()
        if self not in _READ:
            made = _requests(self, on_read)
            while len(_READ) > 1:
                del _READ[next(iter(_READ))]
            _READ[self] = made
        return _READ[self]


# A worker plans many configurations over the same rows.
_READ: dict[Source, Requests] = {}


def _requests(
    source: Source, on_read: Callable[[int, int | None], object] | None = None
) -> Requests:
    from waveplan.requests import Requests
    from waveplan.rows import Rows
    from waveplan.sequences.files import read

    if source.targets == "none" and not (source.top_k or source.logits or source.hidden):
        raise InputError("targets is 'none' and nothing else is asked for: ask for some output")
    told = None
    if on_read is not None:
        is_file = source.path != "-" and kind(source.path) == "file"
        total = Path(source.path).stat().st_size if is_file else None
        told = functools.partial(_tell, on_read, total)
    rows = Rows(*read(source.path, told))
    if not len(rows):
        raise InputError(f"{'stdin' if source.path == '-' else source.path} holds no rows")
    if source.limit is not None:
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


def _tell(on_read: Callable[[int, int | None], object], total: int | None, done: int) -> None:
    on_read(done, total)


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
    compiled: bool = False
    gradients_pending: bool = False
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
        if (
            not flag("full_finetuning", self.full_finetuning)
            and integer("lora_rank", self.lora_rank) == 0
        ):
            raise InputError("lora_rank is 0: say full_finetuning to train every parameter")
        modules = text("recompute_modules", self.recompute_modules)
        training = Training(
            recompute=self.recompute,
            recompute_modules=tuple(filter(None, modules.split(","))),
            lora_rank=0 if self.full_finetuning else self.lora_rank,
            compiled=self.compiled,
            gradients_pending=self.gradients_pending,
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
        return Budget(available=self.available, reserve=self.reserve)

    def memory_text(self) -> str:
        """The memory in a few words."""
        return f"{self.budget} device" if self.budget is not None else f"{self.available} free"

    def training_text(self) -> str:
        """The training mode in a few words."""
        what = "full fine-tuning" if self.full_finetuning else f"LoRA rank {self.lora_rank}"
        return f"{self.recompute} recompute, {what}"

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
        from waveplan.pricing import default_rules, reference_rules

        choice("rule_set", self.rule_set, ("default", "published"))
        base = reference_rules() if self.rule_set == "published" else default_rules()
        return base if self.rules is None else base.with_file(self.rules)

    def planner(self) -> Planner:
        """The planner of this job.

        Raises:
            InputError: the configuration is impossible; the message says why.
            UnpricedError: ``strict``, and a rule does not cover the job as measured.
        """
        from waveplan.planner import Planner

        flag("strict", self.strict)
        if flag("compatible", self.compatible) and self.rules is not None:
            raise InputError("rules are fixed in compatible mode: leave out one of the two")
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
