"""A job in plain values, as a command line or a sweep gives it, and its planner."""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from waveplan.agreement.adapters import AllShares
from waveplan.budget import MARGIN, Budget
from waveplan.checks import choice, integer, shown, text
from waveplan.errors import InputError
from waveplan.facts.fields import check, checked, count, given, switch, word
from waveplan.facts.topology import Topology, ranks_text
from waveplan.facts.training import Training
from waveplan.files import kind

if TYPE_CHECKING:
    from waveplan.facts.megatron import MegatronJob
    from waveplan.facts.model import Model
    from waveplan.planner import Planner
    from waveplan.pricing import RuleSet
    from waveplan.sequences.requests import Requests
    from waveplan.sequences.sequences import Sequences

__all__ = ["Job", "Source", "megatron_values", "model_named"]


def model_named(name: str, like: str | None = None) -> Model:
    """A bundled model by name or by its address on a hub, or one read from a config.json or the
    folder of a checkpoint; ``like`` is the family of one whose own is unknown."""
    from waveplan.facts import models
    from waveplan.facts.model import Model

    if (key := models.find(text("model", name))) is not None:
        return models.get(key)
    path = Path(name)
    if path.suffix == ".json" or kind(path) is not None or name.startswith(("http:", "https:")):
        return Model.from_hf(name if "://" in name else path, like)
    last = name[:100].lower().rpartition("/")[2]
    close = difflib.get_close_matches(last, models.names(), n=3, cutoff=0.5)
    known = f"did you mean {' or '.join(close)}" if close else ", ".join(models.names())
    raise InputError(
        f"model {shown(name)} is neither a file nor bundled: {known}; or give its config.json, the "
        "folder of its checkpoint, or --megatron FILE"
    )


@lru_cache(maxsize=64)
def _megatron(path: str, world: int | None, padded_vocab: int | None) -> MegatronJob:
    from waveplan.facts.megatron import read_megatron

    return read_megatron(path, world, padded_vocab)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files of sequences and the outputs of their requests.

    ``path`` is a file or folder of sequences that every worker can read, or several; ``targets``
    is ``"given"`` (those that the file labels, all where it labels none), ``"all"`` tokens,
    ``"last-turn"`` (those that the file labels, refused where it labels none) or ``"none"``;
    ``columns`` renames columns, ``"input_ids=ids,labels=y"``; ``limit`` keeps the first sequences
    only. The other fields are options of `Sequences.load` and `Requests`.
    """

    path: str | tuple[str, ...]
    targets: str = word(
        "given",
        ("given", "all", "last-turn", "none"),
        "labelled tokens: those that the file labels, or all where it labels none (default); all; "
        "those that it must label; none",
    )
    top_k: int | None = count(None, "return the K best tokens too", 1, metavar="K")
    logits: bool = switch(doc="return full logits too")
    hidden: bool = switch(doc="return hidden states too")
    gradient: bool = switch(True, "forward only, no gradients", flag="--no-grad")
    limit: int | None = count(None, "take the first N sequences only", 1)
    columns: str = given(
        "",
        "other names of columns, such as input_ids=ids (repeatable); an empty one leaves it out",
        kind="text",
        metavar="NAME=COLUMN",
        flag="--column",
    )
    pad: int | None = count(None, "drop runs of this id at both ends of a sequence", metavar="ID")
    skip_empty: bool = switch(doc="leave out sequences without a token")
    sharing: bool = switch(True, "plan without shared prefixes", flag="--no-sharing")
    padding: str | None = given(
        None,
        "price padded batches: to the longest, or to a multiple of N",
        kind="text",
        metavar="longest|N",
    )
    groups: bool = switch(doc="keep the sequences of a group in one wave", flag="--keep-groups")

    def requests(
        self,
        on_read: Callable[[int, int | None], object] | None = None,
        unshareable: tuple[int, ...] = (),
    ) -> Requests:
        """The requests, read once in each process, without the empty ones: ``requests.empty`` has
        their places unless ``skip_empty``.

        ``on_read(bytes read, bytes in all)`` is called while long files of JSON lines are read;
        the second is None for stdin. ``unshareable`` are token ids, see `Requests`.

        Raises:
            InputError: a file or an option is wrong, or there is no sequence.
        """
        for path in self.path if isinstance(self.path, tuple) else (self.path,):
            if not isinstance(path, os.PathLike):
                text("path", path)
        check(self)
        key = self, unshareable
        if key not in _READ:
            made = _requests(self, on_read, unshareable)
            while len(_READ) > 1:
                del _READ[next(iter(_READ))]
            _READ[key] = made
        return _READ[key]

    def sequences(self, on_read: Callable[[int, int | None], object] | None = None) -> Sequences:
        """The sequences, the empty ones among them; see `requests`."""
        from waveplan.sequences.files import files_of, read
        from waveplan.sequences.sequences import Sequences

        files = files_of(self.path)
        sizes = [Path(file).stat().st_size for file in files if kind(str(file)) == "file"]
        total = sum(sizes) if len(sizes) == len(files) else None
        progress = None if on_read is None else lambda done: on_read(done, total)
        sequences = Sequences.of(read(self.path, self.names(), progress, self.pad))
        if not len(sequences):
            raise InputError(f"{self.path_text()} holds no sequences")
        if self.limit is not None and self.limit < len(sequences):
            sequences = sequences.take(range(self.limit))
        return sequences

    def names(self) -> dict[str, str]:
        """The columns that have other names."""
        pairs = [pair.partition("=") for pair in self.columns.split(",") if pair]
        for name, equals, _ in pairs:
            if not equals or not name:
                raise InputError(
                    f"columns: {shown(name or '=')} is no pair: give input_ids=COLUMN, for example"
                )
        return {name.strip(): column.strip() for name, _, column in pairs}

    def path_text(self) -> str:
        """The names of the files in a few words."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        first = "stdin" if str(paths[0]) == "-" else str(paths[0])
        return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"


# A worker plans many configurations over the same files.
_READ: dict[tuple[Source, tuple[int, ...]], Requests] = {}


def _requests(
    source: Source,
    on_read: Callable[[int, int | None], object] | None,
    unshareable: tuple[int, ...],
) -> Requests:
    import numpy as np

    from waveplan.sequences.requests import Requests

    if source.targets == "none" and not (source.top_k or source.logits or source.hidden):
        raise InputError("targets is 'none' and there is no other output: add some output")
    padding: Any = source.padding
    if padding is not None and padding != "longest":
        if not (padding.isascii() and padding.isdecimal() and 0 < len(padding) < 10):
            raise InputError(f"padding is {shown(padding)}: give longest or a multiple such as 64")
        padding = int(padding)
    sequences = source.sequences(on_read)
    empty = np.flatnonzero(sequences.lengths == 0)
    if len(empty) == len(sequences):
        raise InputError(f"{source.path_text()}: every sequence is empty: give token ids")
    places = [sequences.place(int(i)) for i in empty]
    if empty.size:
        sequences = sequences.take(np.flatnonzero(sequences.lengths))
    targets: Any = "given" if source.targets == "given" else source.targets == "all"
    if source.targets == "last-turn":
        if sequences.labelled is None and "first_target" not in sequences.columns:
            raise InputError(
                f"{source.path_text()} has no labels, such as loss_mask, labels, completion_ids or "
                "first_target: use targets 'all'"
            )
        targets = "given"
    groups = sequences.columns.get("group")
    if source.groups and groups is None:
        raise InputError(f"{source.path_text()} has no groups, such as a column group or uid")
    made = Requests(
        sequences,
        targets=targets,
        top_k=source.top_k,
        logits=source.logits,
        hidden=source.hidden,
        gradient=source.gradient,
        groups=groups.tolist() if source.groups and groups is not None else None,
        sharing=source.sharing,
        unshareable=unshareable if source.sharing else (),
        padding=padding,
    )
    made.empty = () if source.skip_empty else tuple(places)
    return made


def _options(facts: type[Any]) -> dict[str, Field[Any]]:
    return {item.name: item for item in fields(facts) if "option" in item.metadata}


_RULES = ("default", "reference")
_TRAINING, _BUDGET = _options(Training), _options(Budget)
# Documents list full_finetuning behind the rank of the adapters.
_LORA = list(_TRAINING).index("lora_rank") + 1
_FIELDS: dict[str, Any] = {
    "model": given(
        MISSING,
        "a bundled model by name, or a Hugging Face config.json",
        option="model",
        metavar="NAME|FILE",
    ),
    "megatron": given(
        None,
        "Megatron arguments: a launch script, YAML or JSON; they state ranks and training too",
        option="model",
        metavar="FILE",
    ),
    "like": given(
        None,
        "the family whose class an unknown model_type follows",
        option="facts",
        metavar="FAMILY",
    ),
    "dtype": given(
        None,
        "type of parameters and activations (default: as the model's file says)",
        option="facts",
        metavar="TYPE",
    ),
    "gpus": count(None, "ranks of the whole job, for dp", 1, 1 << 24, option="facts"),
    "padded_vocab": count(
        None,
        "rows of the embedding, where --megatron leaves them to a tokenizer",
        1,
        option="facts",
    ),
    **_options(Topology),
    **dict(list(_TRAINING.items())[:_LORA]),
    "full_finetuning": switch(doc="train every parameter, no adapters", option="facts"),
    **_TRAINING,
    "budget": given(
        None,
        'the device\'s total, such as "141GB" or "80GiB": weights and what else stays resident '
        "come off, and a reserve",
        option="memory",
        metavar="BYTES",
    ),
    "available": _BUDGET["available"],
    "reserve": _BUDGET["reserve"],
    "rule_set": word(
        "default",
        _RULES,
        "ours, or what the reference planner charges",
        option="rules",
        metavar="SET",
    ),
    "rules": given(None, "a TOML file of rules to add or override", option="rules", metavar="FILE"),
    "strict": switch(
        doc="refuse where a rule that matters is uncharged or unmeasured", option="prices"
    ),
    "margin": given(
        MARGIN,
        "of what is available, kept back where a rule that matters is uncharged or unmeasured "
        f"(default: {MARGIN})",
        option="prices",
        kind="share",
        metavar="SHARE",
    ),
    "mode": word(
        "best",
        ("best", "reference"),
        "best of all (default), or the reference planner's decisions, bit for bit, with its prices",
        option="plan",
    ),
    "objective": word(
        "time",
        ("time", "widest"),
        "waves that do the most work in their modelled time (default), or the widest that fit",
        option="plan",
    ),
    "trust": word(
        "rules",
        ("rules", "profile"),
        "trust measured rules for a first wave (default), or observed waves only",
        option="plan",
    ),
}
"""Fields of a job, in the order of its documents: its own, and those of facts with an option."""


def _plain(default: Any) -> Any:
    return "" if default == () else default


if TYPE_CHECKING:

    class _Values:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

        def __init__(self, **values: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:
    _Values = make_dataclass(
        "_Values",
        [
            # Lists are written as text with commas between.
            (name, Any, field(default=_plain(item.default), metadata=item.metadata))
            for name, item in _FIELDS.items()
        ],
        frozen=True,
        kw_only=True,
    )


def megatron_values(
    path: str, world: int | None = None, padded_vocab: int | None = None
) -> dict[str, Any]:
    """The fields of a `Job` that a file of Megatron arguments states."""
    found = _megatron(path, world, padded_vocab)
    values = {
        name: getattr(facts, name)
        for facts in (found.topology, found.training)
        for name in _options(type(facts))
    }
    values = {n: ",".join(v) if isinstance(v, tuple) else v for n, v in values.items()}
    values |= {"sharding": found.topology.sharding.kind, "full_finetuning": True}
    del values["lora_rank"]
    return {"model": path, "megatron": path, "padded_vocab": padded_vocab, **values}


class Job(_Values):
    """One configuration in plain values: model, ranks, training mode, memory, prices.

    It has the fields of `Topology`, `Training` and `Budget` that are options of the command line,
    and ``model`` (a name or a file), ``megatron`` (a file of arguments, instead of it and as the
    defaults of the others: see `megatron_values`), ``gpus``, ``padded_vocab``, ``like``,
    ``dtype``, ``full_finetuning``, ``budget`` (`Budget.device`), ``rule_set`` ("default" or
    "reference"), ``rules`` (a TOML file), ``strict``, ``margin``, ``mode``, ``objective`` and
    ``trust``.
    """

    def facts(self) -> tuple[Model, Topology, Training]:
        """Model, ranks and training mode, checked against each other."""
        model = self.read_model()
        ranks, training = self._of(Topology), self._of(Training)
        if self.full_finetuning:
            training["lora_rank"] = 0
        elif integer("lora_rank", self.lora_rank) == 0:
            raise InputError("lora_rank is 0: say full_finetuning to train every parameter")
        if self.megatron is None:
            topology, mode = Topology(**ranks), Training(**training)
        else:
            found = _megatron(self.megatron, self.gpus, self.padded_vocab)
            if ranks["sharding"] == found.topology.sharding.kind:
                del ranks["sharding"]
            topology = replace(found.topology, **ranks)
            mode = replace(found.training, **training)
        if self.gpus is not None and topology.world != integer("gpus", self.gpus):
            raise InputError(
                f"gpus is {self.gpus}, but dp {topology.dp}, tp {topology.tp}, cp {topology.cp}, "
                f"pp {topology.pp} take {topology.world}: it must be a multiple of tp x cp x pp"
            )
        topology.check(model)
        return model, topology, mode

    def read_model(self) -> Model:
        """The model, with ``dtype`` where that is given."""
        if self.megatron is None:
            model = model_named(self.model, self.like)
        else:
            model = _megatron(self.megatron, self.gpus, self.padded_vocab).model
        return model if self.dtype is None else replace(model, dtype=self.dtype)

    def read(self) -> dict[str, Any]:
        """What was read of the model, as JSON values."""
        model, notes = self.read_model(), list[str]()
        kinds = sorted({*model.layer_kinds})
        if self.megatron is not None:
            found = _megatron(self.megatron, self.gpus, self.padded_vocab)
            notes = list(found.notes)
            if found.unpriced:
                notes.append(f"no price depends on {', '.join(found.unpriced)}")
        return {
            "text": model.describe(),
            "notes": notes,
            "family": model.family,
            "layers": [f"{model.layer_kinds.count(kind)} {kind}" for kind in kinds],
            "parameters": model.parameters,
            "dtype": model.dtype,
            "quantized": model.quantized,
            "not_counted": list(model.not_counted),
        }

    def model_text(self) -> str:
        """The model as it is named, and what was read."""
        found = self.read()
        lines = (f"{self.model}: {found['text']}", *found["notes"])
        return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)

    def _of(self, facts: type[Any]) -> dict[str, Any]:
        """The values of this job that are fields of some facts."""
        names = self.__dataclass_fields__.keys() & {item.name for item in fields(facts)}
        return {name: getattr(self, name) for name in names}

    def memory(self) -> Budget:
        """Return the budget of a rank."""
        if (self.budget is None) == (self.available is None):
            raise InputError("give either budget (the device's total) or available (for waves)")
        if self.budget is not None:
            return Budget(device=self.budget, reserve=self.reserve)
        return Budget(available=self.available, reserve=self.reserve)

    def memory_text(self) -> str:
        """The memory in a few words."""
        return f"{self.budget} device" if self.budget is not None else f"{self.available} available"

    def training_text(self) -> str:
        """The training mode in a few words, with what prices take for granted of the trainer."""
        training = self.facts()[2]
        rank = training.lora_rank
        what = f"LoRA rank {rank}" if rank else "full fine-tuning"
        return f"{training.recompute} recompute, {what}; {training.assumed()}"

    def ranks_text(self) -> str:
        """The ranks that are not 1."""
        return ranks_text(self, " ")

    def rule_set_of(self) -> RuleSet:
        """The rules that price it."""
        from waveplan.pricing import default_rules, reference_rules

        choice("rule_set", self.rule_set, _RULES)
        base = reference_rules() if self.rule_set == "reference" else default_rules()
        return base if self.rules is None else base.with_file(self.rules)

    def planner(self) -> Planner:
        """The planner of this job.

        Raises:
            InputError: the configuration is impossible; the message says why.
        """
        from waveplan.planner import Planner

        for item in fields(self):
            checked(item, item.name, getattr(self, item.name))
        if self.mode == "reference" and self.rules is not None:
            raise InputError("rules are fixed in reference mode: leave out one of the two")
        return Planner(
            *self.facts(),
            self.memory(),
            rules=None if self.mode == "reference" else self.rule_set_of(),
            trust="profile" if self.mode == "reference" else self.trust,
            mode=self.mode,
            objective=self.objective,
            agreement=AllShares(),
            margin=self.margin,
            strict=self.strict,
        )
