"""Read measured peaks as jobs: model, ranks, training mode and measures of each record.

The format is that of public peak collections: one JSON object per measurement with ``geometry``,
``topology``, ``recompute``, ``tokens``, ``observed`` and ``predicted``. A record that cannot be
made into a job raises `Unusable` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from waveplan import _core, models
from waveplan._core import choose_layout, gdn, own
from waveplan.accuracy.trainers import FIGURES, facts_of
from waveplan.checks import integer
from waveplan.errors import InputError, WaveplanError
from waveplan.facts.model import Model
from waveplan.facts.topology import Sharding, Topology
from waveplan.facts.training import Training
from waveplan.pricing import Measures, RuleSet, bind
from waveplan.scoring import Scoring
from waveplan.sequences.requests import Requests
from waveplan.sequences.sequences import Sequences
from waveplan.stages import gdn_settings, ownership_settings, tree

__all__ = ["Job", "Unusable", "job", "model_of", "topology_of"]

_SAME = "hidden ffn experts topk heads kv_groups head_dim gdn_key_heads gdn_value_heads vocab"
_GEOMETRY = {name: name for name in _SAME.split()} | {
    "moe_ffn": "expert_ffn",
    "shared_expert_ffn": "shared_ffn",
    "attention_output_gate": "attention_gate",
    "gdn_conv_kernel": "gdn_conv",
}
"""Keys of a record's geometry, and the fields of `Model` that they state."""
_NEEDED = ("hidden", "layers", "heads", "kv_groups", "head_dim", "vocab")
_MOST_TOKENS, _MOST_REQUESTS = 1 << 22, 1 << 12
"""Largest record: its sequences are made up and planned."""
_UNSTATED_RANK = 8
"""LoRA rank of records that state none; what they price hardly depends on it."""


class Unusable(WaveplanError):  # noqa: N818  (a state of a record, not a fault)
    """A record cannot be priced; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """A record as a job that can be priced."""

    model: Model
    topology: Topology
    training: Training
    measures: Measures
    gradient: bool
    cold: bool
    local_tokens: int
    """Of the busiest rank."""
    assumed: tuple[str, ...]
    """Facts that the record does not state."""


def model_of(record: Mapping[str, Any]) -> Model:
    """Return the bundled model that a record names, cut to its layers and compared with its
    geometry; else one of the geometry alone."""
    geometry = record["geometry"]
    name = str(record.get("model") or "").lower().partition(" / ")[0]  # of alike ones the first
    needed = ("layers",) if name in models.names() else _NEEDED
    if missing := [name for name in needed if geometry.get(name) is None]:
        raise Unusable(f"the geometry lacks {', '.join(missing)}")
    stated: dict[str, Any] = {
        ours: bool(value) if ours == "attention_gate" else value
        for theirs, ours in _GEOMETRY.items()
        if (value := geometry.get(theirs)) is not None
    }
    if name in models.names():
        model = _cut(models.get(name), geometry["layers"])
        for key, value in stated.items():
            if getattr(model, key) != value:
                raise Unusable(
                    f"{key} is {value} in the record and {getattr(model, key)} in {name}"
                )
        return model
    if geometry.get("gdn_layers"):
        head = geometry.get("gdn_head_dim") or 0
        stated.update(gdn_layers=geometry["gdn_layers"], gdn_key_dim=head, gdn_value_dim=head)
    try:
        return Model(layers=geometry["layers"], name=name, **stated)
    except InputError as error:
        raise Unusable(f"the geometry is incomplete: {error}") from None


def _cut(model: Model, layers: int) -> Model:
    """The first layers of a model."""
    if layers > model.layers:
        raise Unusable(f"the record has {layers} layers, {model.name} has {model.layers}")
    kinds = model.layer_kinds[:layers]
    return replace(
        model,
        layers=layers,
        layer_kinds=kinds,
        gdn_layers=kinds.count("gdn"),
        moe_layers=model.moe_layers[:layers],
    )


def topology_of(record: Mapping[str, Any]) -> Topology:
    """The record's ranks; unstated sizes are 1, and dp follows from the expert ranks."""
    stated = record["topology"]
    sizes: dict[str, Any] = {
        name: integer(name, stated.get(name) or 1, 1, 1 << 20)
        for name in ("tp", "cp", "pp", "ep", "etp")
    }
    dense = sizes["tp"] * sizes["cp"]
    experts = sizes["ep"] * sizes["etp"]
    dp = stated.get("dp") or max(1, experts // dense)
    sizes["stage_layers"] = _stage_layers(record["geometry"].get("layers"), sizes["pp"])
    return Topology(dp=dp, sequence_parallel=bool(stated.get("sequence_parallel")), **sizes)


def _stage_layers(layers: object, pp: int) -> tuple[int, ...]:
    """Layers of each stage where stages do not divide them: those in the middle have one more."""
    if not isinstance(layers, int) or layers % pp == 0 or layers < pp:
        return ()
    least, more = divmod(layers, pp)
    first = (pp - more) // 2
    return tuple(least + (first <= at < first + more) for at in range(pp))


def training_of(
    record: Mapping[str, Any],
    gradient: bool,
    assumed: list[str],
    stated: Mapping[str, Any] | None = None,
) -> Training:
    """The record's training mode; ``stated`` are facts of its trainer."""
    recompute, trainer = record["recompute"], str(record.get("trainer") or "")
    granularity = recompute.get("granularity") or "none"
    if granularity not in ("full", "selective", "none"):
        raise Unusable(f"recompute {granularity!r} is none that the rules describe")
    method = recompute.get("method") or "uniform"
    method = "uniform" if method == "per layer" else method
    if method not in ("uniform", "block"):
        raise Unusable(f"recompute method {method!r} is none that the rules describe")
    rank = record.get("lora_rank")
    if rank is None:
        rank = _UNSTATED_RANK
        assumed.append(f"LoRA rank {rank}")
    return Training(
        recompute=granularity,
        recompute_method=method if granularity == "full" else "uniform",
        recompute_num_layers=(granularity == "full" and recompute.get("num_layers")) or 1,
        recompute_modules=(recompute.get("modules") or ()) if granularity == "selective" else (),
        lora_rank=rank,
        phase="forward+backward" if gradient else "forward",
        **{"compiled": " compiled" in trainer, **_modules(record, rank), **(stated or {})},
    )


def _modules(record: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Modules with adapters, where the notes of a record name them."""
    notes = str(record.get("notes") or "")
    for pattern, modules in (
        (r"LoRA on q and v\b", ("attention.q", "attention.v")),
        (r"LoRA targets \(q, k, v\)", ("attention.q", "attention.k", "attention.v")),
    ):
        if rank and re.search(pattern, notes):
            return {"lora_modules": modules}
    return {}


def job(record: Mapping[str, Any], rules: RuleSet | None = None) -> Job:
    """The record as a job; the rules (by default the default ones) weigh its ranks.

    Raises:
        Unusable: it has no peak of a whole wave, or facts are missing.
    """
    _check_kind(record)
    phase = str(record.get("phase") or "")
    gradient = not phase.startswith("no-grad")
    known = (
        "forward+backward",
        "no-grad",
        "hidden-state output",
        "SFT",
        "pretrain",
        "train",
        "LoRA",
    )
    if not phase.startswith(known):
        raise Unusable(f"phase {phase!r}: not a whole forward or forward and backward of a wave")
    if phase.startswith("train") and record.get("lora_rank") is None:
        raise Unusable("what is trained is not stated")
    assumed: list[str] = []
    model, topology = model_of(record), topology_of(record)
    if topology.tp > 1 and record["topology"].get("sequence_parallel") is None:
        assumed.append("no sequence parallelism")
    absolute = figure_of(record) != "increment"
    stated, unknown = facts_of(record) if absolute else ({}, [])
    if unknown:
        raise Unusable(f"no fact stands for {', '.join(unknown)}")
    if sharding := stated.pop("sharding", None):
        topology = replace(topology, sharding=Sharding(sharding))
    training = training_of(record, gradient, assumed, stated)
    try:
        topology.check(model)
        program = bind(model, topology, training, rules).program
        settings = program.measure_settings().replace(
            tp=topology.tp, cp=topology.cp, gdn=model.is_hybrid
        )
        measures, local_tokens = _measures(record, model, topology, settings, gradient, assumed)
    except InputError as error:
        raise Unusable(str(error)) from None
    cold = record.get("state") is None or not str(record["state"]).startswith("warm")
    return Job(model, topology, training, measures, gradient, cold, local_tokens, tuple(assumed))


def _check_kind(record: Mapping[str, Any]) -> None:
    observed = record["observed"]
    if observed.get("peak_bytes"):
        integer("malformed: observed.peak_bytes", observed["peak_bytes"], 1)
    else:
        low = observed.get("peak_bytes_low")
        raise Unusable(f"no peak ({record.get('outcome')}): at least {low} bytes were needed")
    if record.get("tag") == "bound":
        raise Unusable("a bound of the tokens that fit, no peak")
    figure_of(record)
    if str(record.get("phase") or "").startswith("forward only"):
        raise Unusable("forward only under full recompute: no rule prices a forward by itself")


def figure_of(record: Mapping[str, Any]) -> str:
    """What the measured figure holds: "increment", "allocated" or "slack" (see `trainers`)."""
    kind = str(record.get("memory_kind"))
    for begins, figure in FIGURES:
        if kind.startswith(begins):
            return figure
    raise Unusable(f"{kind!r} is no figure that a price can be held against")


def _lengths(tokens: Mapping[str, Any], assumed: list[str]) -> tuple[list[int], int]:
    """Lengths of the requests, and the tokens that they all share in the pack."""
    for name in ("global_packed", "global_logical", "segments", "requests"):
        if tokens.get(name) is not None:
            most = _MOST_TOKENS if name.startswith("global") else _MOST_REQUESTS
            integer(f"malformed: tokens.{name}", tokens[name], 0, most)
    packed, logical = tokens["global_packed"], tokens.get("global_logical")
    text, segments = tokens.get("lengths"), tokens.get("segments")
    if text:
        if re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,4}|(\+[0-9]{1,9})*)", text) is None:
            raise InputError("malformed: tokens.lengths: write 300x8 or 300+200")
        length, times, count = text.partition("x")
        lengths = [int(length)] * int(count) if times else [int(n) for n in text.split("+")]
        integer("malformed: requests of tokens.lengths", len(lengths), 1, _MOST_REQUESTS)
        if sum(lengths) > _MOST_TOKENS:
            raise InputError(f"malformed: tokens.lengths: at most {_MOST_TOKENS} tokens")
        # Two segments of two requests: the prefix was not shared in packing.
        shared = (sum(lengths) - packed) // max(1, len(lengths) - 1)
        return lengths, max(0, shared)
    if segments and logical and logical > packed and (logical - packed) % (segments - 2 or 1) == 0:
        count = segments - 1
        assumed.append(f"{count} requests of equal length with one prefix")
        return _even(logical, count), (logical - packed) // (count - 1)
    count = segments or tokens.get("requests") or 1
    if count > 1:
        assumed.append(f"{count} requests of equal length without sharing")
    return _even(min(packed, logical) if logical else packed, count), 0


def _even(total: int, count: int) -> list[int]:
    return [total // count + (1 if i < total % count else 0) for i in range(count)]


def _sequences(lengths: list[int], shared: int) -> Sequences:
    """Sequences with these lengths whose first ``shared`` tokens agree and nothing else does."""
    tokens = np.zeros(sum(lengths), np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    longer = np.flatnonzero(np.diff(offsets) > shared)
    tokens[offsets[longer] + shared] = longer
    return Sequences(tokens, offsets)


def _measures(
    record: Mapping[str, Any],
    model: Model,
    topology: Topology,
    settings: _core.MeasureSettings,
    gradient: bool,
    assumed: list[str],
) -> tuple[Measures, int]:
    tokens = record["tokens"]
    if tokens.get("global_packed") is None:
        if tokens.get("per_rank_busiest") is None:
            raise Unusable("packed tokens are not stated")
        if topology.cp > 1:
            assumed.append("equal shares of a sequence")
        tokens = {**tokens, "global_packed": tokens["per_rank_busiest"] * topology.cp}
    lengths, shared = _lengths(tokens, assumed)
    phase = str(record.get("phase"))
    hidden = "hidden-state" in phase
    requests = Requests(
        _sequences(lengths, shared), targets=not hidden, hidden=hidden, gradient=gradient
    )
    made = _pipeline(requests, model, topology, settings).to_dict()
    plan, (pack,) = made["plan"], made["packs"]
    stated = tokens.get("per_rank_busiest")
    if stated and topology.cp > 1 and stated != pack["local_tokens"]:
        assumed.append(f"{stated} tokens on the busiest rank as stated, not {pack['local_tokens']}")
        pack["local_tokens"] = plan["retained_tokens"] = stated
    logical = tokens.get("global_logical")
    if logical and logical > plan["logical_tokens"]:
        # Deeper sharing than one prefix: only sums over requests matter for what is returned.
        more = logical - plan["logical_tokens"]
        plan["logical_tokens"] += more
        plan["hidden_tokens" if hidden else "target_entries"] += more
        assumed.append("a pack without branches for the shared requests")
    state = str(record.get("state") or "")
    plan["cold"] = 0 if state.startswith("warm") else 1
    plan["adapter_pending"] = int(gradient)
    return Measures.of(plan, [pack]), pack["local_tokens"]


def _pipeline(
    requests: Requests, model: Model, topology: Topology, settings: _core.MeasureSettings
) -> Measures:
    """Measures of one wave with full sharing, through the stages of a plan."""
    made = tree(requests.sequences)
    layout = choose_layout(made, Scoring(version=1, layers=model.layers), "full")
    measured = _core.PlanMeasures(requests, np.arange(len(requests)), settings)
    ownership = placed = None
    if topology.cp > 1:
        packing = made.pack(layout.shared)
        ownership = own(packing, topology.cp, ownership_settings(model, topology))
        if model.is_hybrid:
            placed = gdn(packing, ownership, gdn_settings(model, topology.tp))
    measured.exact(0, made, layout.shared, ownership=ownership, gdn=placed)
    return measured.finish()
