"""A job in plain values, as a command line or a sweep gives it, and its planner."""

from __future__ import annotations

from dataclasses import MISSING, Field, field, fields, make_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from waveplan._core import OwnershipSettings
from waveplan.agreement.adapters import AllShares
from waveplan.budget import MARGIN, Budget
from waveplan.checks import choice, integer, shown, text
from waveplan.desk.source import Source
from waveplan.errors import InputError
from waveplan.facts.fields import checked, count, given, switch, word
from waveplan.facts.gpus import ARCHITECTURES, Gpu, gpu_named
from waveplan.facts.topology import Sharding, Topology, ranks_text
from waveplan.facts.training import Training
from waveplan.files import kind
from waveplan.profiles import Profiles
from waveplan.report.table import width, wrapped
from waveplan.waves import Order

if TYPE_CHECKING:
    from waveplan.facts.megatron import MegatronJob
    from waveplan.facts.model import Model
    from waveplan.planner import Planner, Waves
    from waveplan.pricing import RuleSet
    from waveplan.sequences.requests import Requests

__all__ = ["Job", "Source", "megatron_values", "model_named"]


def model_named(name: str, like: str | None = None) -> Model:
    """A bundled model by name or by its address on a hub, or one read from a config.json or the
    folder of a checkpoint; ``like`` is the family of one whose own is unknown."""
    from waveplan.facts import models
    from waveplan.facts.model import Model

    path = Path(text("model", name))
    if models.find(name) is None and (
        path.suffix == ".json" or kind(path) is not None or name.startswith(("http:", "https:"))
    ):
        return Model.from_hf(name if "://" in name else path, like)
    try:
        return models.get(name)
    except InputError as error:
        raise InputError(
            f"{error} Or give its config.json, the folder of its checkpoint, or --megatron FILE"
        ) from None


@lru_cache(maxsize=64)
def _megatron(path: str, world: int | None, padded_vocab: int | None) -> MegatronJob:
    from waveplan.facts.megatron import read_megatron

    return read_megatron(path, world, padded_vocab)


def _options(facts: type[Any]) -> dict[str, Field[Any]]:
    return {item.name: item for item in fields(facts)}


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
    "gpus": count(
        None,
        "GPUs of the whole job: data parallelism takes what tp, cp and pp leave",
        1,
        1 << 24,
        option="facts",
    ),
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
        'the device\'s total, such as "141GB" or "80GiB": what stays resident comes off, and a '
        "reserve",
        option="memory",
        metavar="BYTES",
    ),
    **{name: _BUDGET[name] for name in ("available", "reserve", "resident", "colocated")},
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
        "of what is available, kept back where a rule that matters is unmeasured "
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
    "order": word(
        "blocks",
        get_args(Order),
        "requests next to one another, dealt to ranks in turn (keep) or in blocks where these are "
        "faster (blocks, the default; keep in reference mode); or any requests together (free)",
        option="plan",
    ),
    "window": count(
        None,
        "with --order free: a wave takes from the N groups behind the oldest one left",
        option="plan",
    ),
    "ownership": given(
        "",
        "settings of ownership, such as max_ranges=2 (see OwnershipSettings)",
        option="plan",
        metavar="NAME=N",
    ),
    "profiles": given(None, "peaks observed before (Profiles.save)", option="plan", metavar="FILE"),
}
"""Fields of a job, in the order of its documents: its own, and those of facts with an option."""


def _plain(value: Any) -> Any:
    """A value of a fact as a command line writes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Sharding) else value


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
        name: _plain(getattr(facts, name))
        for facts in (found.topology, found.training)
        for name in _options(type(facts))
        if name != "lora_rank"
    }
    given = {"model": path, "megatron": path, "padded_vocab": padded_vocab}
    return {**given, **values, "full_finetuning": True}


class Job(_Values):
    """One configuration in plain values: model, ranks, training mode, memory, prices.

    It has the fields of `Topology`, `Training` and `Budget`, and ``model`` (a name or a file),
    ``megatron`` (a file of arguments, instead of it and as the defaults of the others: see
    `megatron_values`), ``gpus``, ``padded_vocab``, ``like``, ``dtype``, ``full_finetuning``,
    ``budget`` (`Budget.device`; not given: that of ``gpu``), ``rule_set`` ("default" or
    "reference"), ``rules`` (a TOML file), ``strict``, ``margin``, ``mode``, ``objective``,
    ``trust``, ``order``, ``window``, ``ownership`` and ``profiles`` (a file). Lists are text with
    commas between.
    """

    def facts(self) -> tuple[Model, Topology, Training]:
        """Model, ranks and training mode, checked against each other."""
        model = self.read_model()
        ranks, training = self._of(Topology), self._of(Training)
        if self.megatron is not None:  # how the file's recompute goes says nothing of another
            stated = megatron_values(self.megatron, self.gpus, self.padded_vocab)
            if stated["recompute"] != self.recompute:
                for name in training.keys() & _TRAINING.keys():
                    if name.startswith("recompute_") and training[name] == stated[name]:
                        training[name] = _plain(_TRAINING[name].default)
        if self.full_finetuning:
            training["lora_rank"] = 0
        elif integer("lora_rank", self.lora_rank) == 0:
            raise InputError("lora_rank is 0: say full_finetuning to train every parameter")
        topology, mode = Topology(**ranks), Training(**training)
        if self.gpus is not None and topology.world != integer("gpus", self.gpus):
            raise InputError(
                f"gpus is {self.gpus}, but dp {topology.dp}, tp {topology.tp}, cp {topology.cp}, "
                f"pp {topology.pp} take {topology.world}: leave out dp"
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
        return "\n".join(part for line in lines for part in wrapped(line, width()))

    def _of(self, facts: type[Any]) -> dict[str, Any]:
        """The values of this job that are fields of some facts."""
        names = self.__dataclass_fields__.keys() & {item.name for item in fields(facts)}
        return {name: getattr(self, name) for name in names}

    def memory(self) -> Budget:
        """Return the budget of a rank."""
        device, named = self.budget, self.device
        if device is None and self.available is None and named is not None:
            device = named.bytes
        if (device is None) == (self.available is None):
            raise InputError(
                "a job has gpu, budget or available: give --gpu H100, --budget 80GB (the device's "
                "total) or --available 70GiB (for waves)"
            )
        names = ("available", "reserve", "resident", "colocated")
        return Budget(device=device, **{name: getattr(self, name) for name in names})

    @property
    def device(self) -> Gpu | None:
        """The device, where ``gpu`` names one and not just an architecture."""
        known = isinstance(self.gpu, str) and self.gpu.lower() in ARCHITECTURES
        return None if known else gpu_named("gpu", self.gpu)

    def memory_text(self) -> str:
        """The memory in a few words."""
        if self.available is not None:
            return f"{self.available} available"
        return f"{self.budget} device" if self.budget is not None else str(self.device)

    def training_text(self) -> str:
        """The training mode in a few words, with what prices take for granted of the trainer."""
        training = self.facts()[2]
        return f"{training}; {training.assumed()}"

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
        planner = Planner(
            *self.facts(),
            self.memory(),
            rules=None if self.mode == "reference" else self.rule_set_of(),
            trust="profile" if self.mode == "reference" else self.trust,
            mode=self.mode,
            objective=self.objective,
            agreement=AllShares(),
            margin=self.margin,
            strict=self.strict,
            ownership=_ownership(self.ownership),
        )
        if self.profiles is not None:
            planner.profiles = Profiles.load(self.profiles)
        return planner

    def waves(self, planner: Planner, requests: Requests) -> Waves:
        """The waves of a pool in this job's order; what never fits is listed, not raised."""
        order = None if self.order == "blocks" else self.order
        return planner.waves(requests, on_refusal="skip", order=order, window=self.window)


def _ownership(given: str) -> OwnershipSettings | None:
    """The settings that a text such as "max_ranges=2,chunk=64" names."""
    values, defaults = dict[str, Any](), OwnershipSettings()
    for part in filter(None, given.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        kind = type(getattr(defaults, name, None)) if name.isidentifier() else None
        if kind not in (int, float):
            raise InputError(f"ownership has no {shown(name)}: see OwnershipSettings")
        try:
            values[name] = kind(value)
        except ValueError:
            raise InputError(f"ownership {name} is {shown(value)}: it must be a number") from None
    return defaults.replace(**values) if values else None
