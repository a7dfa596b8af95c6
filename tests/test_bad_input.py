"""Bad input at the border: every public function refuses it in one line that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from slow.gdn import MODEL as GDN

import waveplan
from waveplan import (
    Budget,
    GdnSettings,
    InputError,
    Model,
    OwnershipSettings,
    Packing,
    Planner,
    Requests,
    Sequences,
    StageWork,
    Topology,
    Training,
    WorkloadProfile,
    models,
    pricing,
)
from waveplan.desk import sweep
from waveplan.desk.jobs import Job
from waveplan.pricing import default_rules
from waveplan.profiles import Observation, Profiles, Signature
from waveplan.scoring import from_table

NAN, HUGE = float("nan"), 10**30
TOKENS = np.array([5, 6, 7, 8, 5, 6, 9, 5, 6, 7, 8, 2, 2, 2])
OFFSETS = np.array([0, 4, 7, 11, 14])
SEQUENCES = [TOKENS[a:b] for a, b in pairwise(OFFSETS)]
LENGTHS, PARENTS = np.array([40, 30, 20, 700]), np.array([-1, 0, 0, -1])
MODEL = models.get("qwen3.6-35b-a3b")
DENSE = Model(hidden=64, layers=4, vocab=1000, heads=4, kv_groups=2, head_dim=16, ffn=128)
SCORING = from_table("dense-h2560", layers=4, cp=2)
FFN = {"hidden": 64, "ffn": 128, "topk": 2, "expert_ffn": 32, "shared_ffn": 32}

NOT_INTEGERS = (1.5, NAN, True, "2", b"2", [1], 2**63, -HUGE, HUGE, 1j, np.float64(2))
NOT_NUMBERS = (NAN, float("inf"), -float("inf"), "1", None, True, [0.1], 10**400, 1j)
BAD: dict[str, tuple[Any, ...]] = {
    "integer": NOT_INTEGERS,
    "size": (-1, *NOT_INTEGERS),
    "count": (0, -1, *NOT_INTEGERS),
    "number": NOT_NUMBERS,
    "share": (-0.1, *NOT_NUMBERS),
    "index": (-1, 1.5, NAN, "2", [1], 1j),
    "whole": (1.5, NAN, "2", [1], 2**63, -HUGE, HUGE, 1j),
    "flag": (None, 1, 0.0, "yes", [True], np.array([True, False])),
    "choice": (None, "none of them", "", 3, ["full"], b"full"),
    "method": ("none of them", "", 3, ["full"], b"full"),
    "text": (None, 3, b"x", ["x"]),
    "dtype": (None, "none of them", "", 3),
    "bytes": (-1, NAN, True, "", "70 bananas", "-1GiB", "9" * 9999, 2**63, [1]),
    "object": (None, 3, "x", {}, object()),
    "array": (
        *(np.array(value) for value in ([[0, 1]], 3, [0.5], [NAN], ["a"], [1j])),
        *(np.array(value, object) for value in ([1, None], [HUGE])),
        *(np.array([2**64 - 1], np.uint64), np.array([1], "datetime64[s]")),
        *([[1], [2, 3]], "12", None),
    ),
}
"""Values that no argument of a kind may have."""


class Call(NamedTuple):
    """A good call, and the kind of each argument that the table spoils."""

    name: str
    function: Callable[..., Any]
    good: dict[str, Any]
    kinds: dict[str, str]


def call(name: str, function: Callable[..., Any], good: dict[str, Any], **kinds: str) -> Call:
    """A good call; for each kind the arguments of that kind, separated by spaces."""
    return Call(name, function, good, {a: kind for kind, of in kinds.items() for a in of.split()})


def settings(made: Any, **kinds: str) -> Call:
    """The making of a settings object: its fields, of the kind of their values unless given."""
    by_value = {bool: "flag", int: "integer", float: "number", str: "choice"}
    found = {}
    for name in dir(made):
        kind = by_value.get(type(value := getattr(made, name)))
        if kind and not name.startswith("_"):
            with suppress(TypeError, InputError):  # a property that follows from the fields
                type(made)(**{name: value})
                found[name] = kind
    assert found
    found |= call("", settings, {}, **kinds).kinds
    return Call(type(made).__name__, type(made), {}, found)


def planner(**options: Any) -> Planner:
    facts = {"model": MODEL, "topology": Topology(cp=2), "training": Training(), "budget": "24GiB"}
    return Planner(**(facts | options))


PLANNER = planner()
WAVE = PLANNER.wave(Requests(SEQUENCES))
PACKED = Packing.from_segments(LENGTHS, PARENTS)
OWNED = waveplan.own(PACKED, 2)
COLUMNS = {"lengths": LENGTHS, "parents": PARENTS}
PROFILE = {"query_tile": 16, "key_tile": 16, "workspace_elements": 64, "max_key_tokens": 64}
SIZES = {"hidden": 64, "layers": 4, "vocab": 1000, "heads": 4, "kv_groups": 2, "head_dim": 16}
SIGNATURE = Signature("tp1", ("target:single",), (True,))
SEEN = Observation(100, 200, 10, 1 << 30)


CALLS = [
    call("Sequences", Sequences, {"tokens": TOKENS, "offsets": OFFSETS}, array="tokens offsets"),
    call("Sequences.from_any", Sequences.from_any, {}, object="sequences"),
    call("Sequences.take", Sequences(TOKENS, OFFSETS).take, {}, array="indices"),
    call("Requests", Requests, {"sequences": SEQUENCES}, object="sequences",
         flag="gradient hidden logits",
         index="groups"),
    call("tree", waveplan.tree, {}, object="sequences"),
    call("Tree.restrict", waveplan.tree(SEQUENCES).restrict, {}, array="sequences"),
    call("Tree.packed", waveplan.tree(SEQUENCES).packed, {}, whole="sequences"),
    call("pack", waveplan.pack, {"sequences": SEQUENCES}, index="max_depth min_shared"),
    call("balance", waveplan.balance, {"lengths": LENGTHS, "cap": 1000, "work": LENGTHS},
         array="lengths", count="cap parts multiple_of"),
    call("Packing.from_segments", Packing.from_segments, COLUMNS, array="lengths parents"),
    call("Packing.from_ids", Packing.from_ids, {"group_ids": [1, 1, 2], "parent_ids": [1, 1, 1]},
         array="group_ids parent_ids"),
    call("Packing.path", waveplan.pack(SEQUENCES).path, {}, index="sequence"),
    call("Packing.positions", waveplan.pack(SEQUENCES).positions, {}, index="sequence"),
    call("choose_layout", waveplan.choose_layout,
         {"tree": waveplan.tree(SEQUENCES), "scoring": SCORING},
         object="tree scoring", method="method", whole="budget"),
    call("from_table", from_table, {"table": "dense-h2560", "layers": 4},
         choice="table", count="layers tp cp", size="gdn_layers"),
    call("own", waveplan.own, {"packing": PACKED, "cp": 2},
         object="packing", count="cp", method="method"),
    call("Engine.session", PLANNER.make_engine(Requests(SEQUENCES)).session,
         {"start": 0, "available": 1 << 40, "hint": None, "profiles": []},
         index="start hint", integer="available"),
    call("Ownership.from_owners", waveplan.Ownership.from_owners,
         {"packing": PACKED, "cp": 2, "chunk": OWNED.chunk, "owners": OWNED.owners},
         object="packing", count="cp chunk", array="owners"),
    call("Ownership.ranges", OWNED.ranges, {}, whole="rank"),
    settings(OwnershipSettings(), count="block max_stages"),
    settings(StageWork(), size="query_flops reduce_bytes"),
    call("WorkloadProfile", WorkloadProfile, {"stages": (StageWork(),), **PROFILE},
         object="stages", count=" ".join(PROFILE)),
    call("attention_slices", waveplan.attention_slices, {}, object="packing"),
    call("owned_token_ms", waveplan.owned_token_ms, FFN, size=" ".join(FFN), count="tp ep etp"),
    call("gdn", waveplan.gdn, {"packing": PACKED, "ownership": OWNED},
         object="packing ownership"),
    settings(GdnSettings()),
    call("GdnSettings.from_shape", GdnSettings.from_shape, GDN, whole=" ".join(GDN)),
    call("gdn_schedule", waveplan.gdn_schedule, {}, object="packing"),
    call("Model", Model, SIZES, count=" ".join(SIZES), size="ffn experts"),
    settings(Topology(), count="dp tp cp pp ep etp"),
    call("Topology.check", Topology().check, {}, object="model"),
    settings(Training(), size="lora_rank", dtype="grad_dtype moment_dtype"),
    call("Budget", Budget, {"device": "80GiB"}, bytes="device", share="reserve"),
    call("Budget", Budget, {}, bytes="available"),
    call("parse_bytes", waveplan.parse_bytes, {"name": "value"}, bytes="value"),
    call("Planner", planner, {}, object="model topology training", choice="trust mode"),
    call("Planner.waves", PLANNER.waves, {"requests": SEQUENCES},
         choice="on_refusal", size="start"),
    call("Planner.wave", PLANNER.wave, {"requests": SEQUENCES}, size="start"),
    call("Planner.observe", PLANNER.observe, {"wave": WAVE, "peak_bytes": 1 << 30},
         object="wave", size="peak_bytes", flag="whole"),
    call("Planner.available", lambda available: setattr(PLANNER, "available", available), {},
         integer="available"),
    call("bind", pricing.bind, {"model": MODEL, "topology": Topology(), "training": Training()},
         object="model topology training"),
    call("Profiles", Profiles, {}, flag="reference"),
    call("Profiles.observe", Profiles().observe, {"signature": SIGNATURE, "seen": SEEN},
         object="signature seen"),
    call("RuleSet.redefine", default_rules().redefine, {"name": "retained", "formula": "3 B"},
         text="name"),
    call("RuleSet.without", default_rules().without, {}, text="name"),
    call("Alone", waveplan.Alone, {}, size="dp_rank"),
    call("Job", lambda **given: Job(**given).planner(), {"model": "qwen3-4b", "available": "1GiB"},
         bytes="available", count="tp cp"),
]  # fmt: skip


def refusal(function: Callable[..., Any], **arguments: Any) -> str:
    """The message of the error, which is one short line; what Python itself refuses has a note."""
    with pytest.raises((InputError, TypeError, OverflowError)) as caught:
        function(**arguments)
    message = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert message
    assert "\n" not in message
    assert len(message) < 1000
    return message


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        pytest.param(call, argument, id=f"{call.name}-{argument}")
        for call in CALLS
        for argument in call.kinds
    ],
)
def test_a_value_of_the_wrong_kind(call: Call, argument: str) -> None:
    kind = call.kinds[argument]
    words = kind if kind == "dtype" else argument
    for value in BAD[kind]:
        assert words in refusal(call.function, **(call.good | {argument: value})), value


CONTRADICTIONS: list[tuple[Callable[[], Any], str]] = [
    # Sequences and requests.
    *((lambda offsets=offsets: Sequences(TOKENS, offsets), "offsets") for offsets in (
        [], [0], [1, 14], [0, 13], [0, 9, 4, 14], [0, 2**62, 14], [0, -(2**63), 14],
    )),
    (lambda: Sequences.from_any([[1, 2], [3, 1.5]]), "sequence 1"),
    (lambda: Sequences.from_any([[1], ["a"]]), "sequence 1"),
    (lambda: Sequences.from_any([[1], None]), "sequence 1"),
    (lambda: Sequences.from_any(np.zeros((2, 2, 2), np.int64)), "sequences"),
    (lambda: Sequences(TOKENS, OFFSETS).take([0, 4]), "indices"),
    (lambda: Requests([[1, 2], [-5]]), "token"),
    (lambda: Requests([[2**63]]), "sequence 0"),
    *((lambda targets=targets: Requests(SEQUENCES, targets=targets), "targets") for targets in (
        [1, 2], [1, 2, 3, 4.5], [1, 2, 3, 99], [[1], 1, 1, 1],
    )),
    (lambda: Requests(SEQUENCES, targets=range(10**9)), "targets has 1000000000 entries"),
    (lambda: Requests(SEQUENCES, top_k=range(10**9)), "top_k has 1000000000 entries"),
    (lambda: Requests(SEQUENCES, hidden={}), "hidden has 0 entries"),
    (lambda: Requests(SEQUENCES, top_k=-1), "top_k"),
    (lambda: Requests(SEQUENCES, top_k=[1, 2]), "top_k"),
    (lambda: Requests(SEQUENCES, groups=[3, 3]), "groups"),
    (lambda: Requests(SEQUENCES, groups=[4, 0]), "groups"),
    (lambda: Requests(SEQUENCES, adapter=[1, 2, 3, 4]), "adapter"),
    (lambda: Requests(SEQUENCES, routed=[0, 0, 0, -1]), "routed"),
    (lambda: Requests(SEQUENCES).packs([0, 4]), "4"),
    # Trees, packs, ownership, gdn.
    (lambda: waveplan.tree([]), "sequences is empty"),
    (lambda: waveplan.tree(SEQUENCES).restrict([4]), "4"),
    (lambda: waveplan.tree(SEQUENCES).packed(5), "sequences"),
    (lambda: waveplan.pack(SEQUENCES, shareable=[1, 2]), "shareable"),
    (lambda: waveplan.pack(SEQUENCES).path(4), "sequence"),
    (lambda: Packing.from_segments([0], [-1]), "lengths[0]"),
    (lambda: Packing.from_segments([4, 2], [-1, 1]), "parents[1]"),
    (lambda: Packing.from_segments([4, 2], [-1, -2]), "parents[1]"),
    (lambda: Packing.from_segments([4, 2], [-1]), "parents"),
    (lambda: Packing.from_segments([2**62, 2**62], [-1, -1]), "too large"),
    (lambda: Packing.from_segments([2**63 - 1, 1], [-1, -1]), "too large"),
    (lambda: Packing.from_ids([1, -1, 2], [1, -1, 1]), "padding"),
    (lambda: Packing.from_ids([1, 1, 2], [1, 1, 9]), "parent_ids[2]"),
    (lambda: waveplan.choose_layout(waveplan.tree(SEQUENCES), SCORING, most_tokens=-1),
     "most_tokens"),
    (lambda: waveplan.own(PACKED, 4097), "4096"),
    (lambda: waveplan.own(PACKED, 2, {"block": 1}), "settings"),
    (lambda: waveplan.own(Packing.from_segments([2**33], [-1]), 2), "too large"),
    (lambda: OWNED.ranges(2), "rank"),
    (lambda: OwnershipSettings(profile={"stages": []}), "profile"),
    (lambda: WorkloadProfile(stages=(), **PROFILE), "stages"),
    (lambda: waveplan.gdn(Packing.from_segments([9], [-1]), OWNED), "tokens"),
    (lambda: waveplan.gdn(Packing.from_segments([], []), OWNED), "segments"),
    # Facts.
    (lambda: Topology(tp=3).check(DENSE), "tp"),
    (lambda: Topology(cp=1 << 20), "cp is 1048576"),
    (lambda: Model(**(SIZES | {"heads": 3})), "heads"),
    (lambda: Model.from_hf({}), "config"),
    (lambda: Model.from_megatron(["--num-layers"]), "layers"),
    (lambda: Training(lora_modules=["none"]), "lora_modules"),
    (lambda: Budget(device="80GiB", available="70GiB"), "available"),
    (Budget, "available"),
    # The planner, its profiles and its rules; sweeps.
    (lambda: PLANNER.wave([]), "empty"),
    (lambda: PLANNER.wave([[1], []]), "request 1"),
    (lambda: PLANNER.wave(SEQUENCES, 4), "start"),
    (lambda: PLANNER.observe(WAVE, 1 << 30, -1), "retained"),
    (lambda: planner(margin=NAN), "margin"),
    (lambda: planner(rules={}), "rules"),
    (lambda: planner(agreement=object()), "agreement"),
    (lambda: planner(budget=2**63), "available"),
    (lambda: Profiles.from_dict([]), "profiles"),
    (lambda: Profiles.from_dict({"version": 99}), "profiles"),
    (lambda: Observation(-1, 0, 0, 0), "packed"),
    (lambda: default_rules().redefine("retained", "1 +"), "retained"),
    (lambda: default_rules().redefine("retained", "__import__('os')"), "retained"),
    (lambda: default_rules().without("no.rule"), "no.rule"),
    (lambda: sweep.jobs({"model": ["qwen3-4b"], "cp": [1]}), "available"),
    (lambda: sweep.jobs({"model": ["qwen3-4b"], "available": ["1GiB"], "cats": [1]}), "cats"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), CONTRADICTIONS, ids=[w for _, w in CONTRADICTIONS])
def test_values_that_contradict(call: Callable[[], Any], words: str) -> None:
    assert words in refusal(call)


def _records(clean: np.ndarray) -> np.ndarray:
    made = np.zeros(len(clean), [("a", "<i1"), ("b", "<i8")])
    made["b"] = clean
    return made["b"]


def _read_only(clean: np.ndarray) -> np.ndarray:
    clean = clean.copy()
    clean.flags.writeable = False
    return clean


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda clean: clean.tolist(),
    "int8": lambda clean: clean.astype(np.int8),
    "big-endian": lambda clean: clean.astype(">i4"),
    "every second": lambda clean: np.repeat(clean, 2)[::2],
    "backwards": lambda clean: clean[::-1].copy()[::-1],
    "column": lambda clean: np.stack([clean, clean], 1)[:, 0],
    "misaligned": _records,
    "read-only": _read_only,
}
READ: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "tokens": (lambda given: Sequences(given, OFFSETS).tokens, TOKENS),
    "offsets": (lambda given: Sequences(TOKENS, given).offsets, OFFSETS),
    "sequence": (lambda given: Sequences.from_any([given, [1]]).tokens, TOKENS),
    "indices": (lambda given: Sequences(TOKENS, OFFSETS).take(given).tokens, np.array([2, 0])),
    "targets": (lambda given: Requests(SEQUENCES, targets=given).labelled, np.array([0, 1, 2, 3])),
    "groups": (lambda given: Requests(SEQUENCES, groups=given).group_sizes, np.array([2, 1, 1])),
    "shareable": (lambda given: waveplan.pack(SEQUENCES[:2], shareable=given).lengths,
                  np.array([4, 3])),
    "lengths": (lambda given: Packing.from_segments(given, PARENTS[:3]).lengths, LENGTHS[:3]),
    "parents": (lambda given: Packing.from_segments(LENGTHS, given).parents, PARENTS),
    "group_ids": (lambda given: Packing.from_ids(given, given).lengths, np.array([1, 1, 2, -1])),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", READ)
def test_an_array_in_another_form_is_read_right(name: str, form: str) -> None:
    read, clean = READ[name]
    assert read(FORMS[form](clean)).tolist() == read(clean).tolist()
