"""Every golden layout case, to the last integer."""

from __future__ import annotations

from functools import cache

from conftest import golden_cases
from golden_waves import rows_of

import waveplan
from waveplan.facts.models import get
from waveplan.scoring import Device, Geometry, Shape, name_of, select_table

COUNTERS = ("mandatory_candidates", "refinement_work", "evaluated_refinements", "stop_reason")


@cache
def model_a() -> Geometry:
    """Geometry of the model that the scoring "h200" speaks of (35B-A3B hybrid)."""
    return Geometry(
        hidden_size=2048,
        ffn_hidden_size=8192,
        num_attention_heads=16,
        num_query_groups=2,
        kv_channels=256,
        gdn_value_heads=32,
        gdn_key_heads=16,
        gdn_key_head_dim=128,
        gdn_value_head_dim=128,
        gdn_conv_kernel=4,
        moe_experts=256,
        moe_topk=8,
        moe_ffn_hidden_size=512,
        moe_shared_expert_ffn=512,
    )


def table_of(given):
    """The coefficient table a case asks for, None for version 1."""
    scoring, cp = given["scoring"], given["cp"]
    if scoring == "v1":
        return None
    if scoring == "cpu":
        return select_table(None, "", model_a(), Shape(cp=cp))
    if scoring == "h200":
        return select_table(Device((9, 0), 140 << 30), "bfloat16", model_a(), Shape(cp=cp))
    capability = scoring["device_capability"]
    device = capability and Device(tuple(capability), scoring["device_memory_bytes"])
    dtype = scoring["param_dtype"].removeprefix("torch.")
    return select_table(device, dtype, Geometry(**scoring["geometry"]), Shape(**scoring["shape"]))


def scoring_of(given):
    """The score of a case."""
    table = table_of(given)
    return waveplan.Scoring(
        version=1 if table is None else 2,
        tp=given.get("tp", 1),
        cp=given["cp"],
        layers=given["layers"],
        gdn_layers=given["gdn_layers"],
        uses_gdn=given["uses_gdn"],
        coefficients=(0,) * 10 if table is None else table.coefficients,
    )


def seen(layout):
    """A layout as the vectors show it."""
    score = layout.score
    return {
        "decisions": layout.decisions.tolist(),
        "score": [score.work, score.tokens, score.segments, score.depth],
        "packed_tokens": layout.packed_tokens,
        "maximum_depth": layout.depth,
        "segment_count": layout.segments,
    }


def segments_of(tree, layout):
    """[rows, start, end, parent] of each packed segment."""
    packing = tree.pack(layout.shared)
    columns = (packing.sequence_starts, packing.lengths, packing.parents)
    return [
        [packing.members[s].tolist(), start, start + length, None if parent < 0 else parent]
        for s, (start, length, parent) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def differences(case):
    """Names of the parts of a case that differ."""
    given, wanted = case["input"], case["output"]
    try:
        tree = waveplan.tree(rows_of(given))
    except ValueError:
        return [] if wanted.get("error") == "ValueError" else ["error"]
    if "error" in wanted:
        return ["error"]
    scoring = scoring_of(given)
    found = {
        "cost_optimal": waveplan.choose_layout(tree, scoring, "reference", budget=given["budget"]),
        "full_sharing": waveplan.choose_layout(tree, scoring, "full"),
        "no_sharing": waveplan.choose_layout(tree, scoring, "none"),
    }
    differ = []
    for name, layout in found.items():
        ours = seen(layout)
        if "segments" in wanted[name]:
            ours["segments"] = segments_of(tree, layout)
        differ += [f"{name}.{key}" for key, value in wanted[name].items() if ours[key] != value]
    reference = found["cost_optimal"]
    differ += [key for key in COUNTERS if getattr(reference, key) != wanted[key]]
    if scoring.version != wanted["coefficient_version"]:
        differ.append("version")
    if scoring.version == 2 and f"{name_of(scoring)}-h200-bf16" != wanted["table"]:
        differ.append("table")
    if "decisions" in wanted and tree.decisions.tolist() != wanted["decisions"]:
        differ.append("decisions")
    return differ


def test_golden_layout():
    differ = {}
    cases = golden_cases("d*_layout.json")
    for case in cases:
        if parts := differences(case):
            differ[case["id"]] = parts
    assert not differ, f"{len(differ)} of {len(cases)} cases differ: {differ}"


def test_model_a_is_bundled():
    assert Geometry.of(get("qwen3.6-35b-a3b")) == model_a()
