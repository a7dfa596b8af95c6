"""One price: every rule and definition changes every number that it should, and no other way.

Each rule and definition is doubled. A readable evaluator predicts from the table alone what a plan
must then say: its price, its cost inside a split, its output bytes, what a profile learns and
keeps apart, and which rank of gdn layers counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from slow.price import Slow

import waveplan
from waveplan import (
    Alone,
    Budget,
    InputError,
    Model,
    Planner,
    Requests,
    Sharding,
    Topology,
    Training,
    models,
)
from waveplan.checks import columns
from waveplan.pricing import (
    BoundRules,
    Measures,
    RuleSet,
    bind,
    default_rules,
    reference_rules,
    resident_rules,
)
from waveplan.pricing.language import FACTOR, NUMBER, ZERO
from waveplan.pricing.resident import resident

# A margin would mix what is charged with what is not.
RULES = replace(default_rules(), margin=False)
NO_LOGITS = default_rules().override("output.logits", where="cp > 4")
MODEL_A = models.get("qwen3.6-35b-a3b")
DENSE = models.get("qwen3.6-27b")
PLENTY = 1 << 50
LOCAL = "gdn_rank_executed_tokens", "gdn_rank_states", "gdn_rank_packed_tokens"


@dataclass(frozen=True)
class Case:
    """A job with a pool, and the options of its requests."""

    model: Model
    ranks: dict[str, Any]
    training: Training
    asks: dict[str, Any]
    sequences: int = 12

    @property
    def topology(self) -> Topology:
        return Topology(**self.ranks)

    def pool(self) -> Requests:
        numbers = np.random.default_rng(7)
        prompt = numbers.integers(0, 900, 300)
        sequences = [
            np.concatenate([prompt[: 40 * (i % 4)], numbers.integers(0, 900, 90 + 61 * i)])
            for i in range(self.sequences)
        ]
        count = len(sequences)
        columns = {key: [value] * count for key, value in self.asks.items()}
        return Requests(sequences, **columns)


SP = {"sequence_parallel": True}
HIDDEN = {"targets": False, "hidden": True}
MIXED = {"top_k": 3, "logits": True, "hidden": True, "routed": 5}
EAGER = {"kernels": "eager"}
TRAINED: dict[str, Any] = {"mtp": True}
DROPOUT: dict[str, Any] = {
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "attention_mask": True,
    "sequence_length": 64,
}
LATENT = Model(
    hidden=256,
    layers=6,
    vocab=4096,
    heads=8,
    kv_groups=8,
    head_dim=32,
    q_lora_rank=96,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=32,
    ffn=1024,
    experts=8,
    topk=2,
    expert_ffn=128,
    shared_ffn=256,
    moe_layers=(False, *[True] * 5),
    mtp_layers=1,
)
CASES = {
    "labels": Case(MODEL_A, {}, Training(), {}),
    "everything": Case(MODEL_A, {}, Training(), MIXED),
    "no head": Case(MODEL_A, {}, Training(output_layer=False, gradients_pending=True), HIDDEN, 40),
    "few": Case(MODEL_A, {}, Training(gradients_pending=True), {}, 2),
    "logits": Case(MODEL_A, {}, Training(), {"targets": False, "logits": True}),
    "slots": Case(
        MODEL_A,
        {"cp": 2, "ep": 2},
        Training(output_layer=False, expert_slots=True, expert_fc1_fused=True, lora_rank=4),
        HIDDEN,
        40,
    ),
    "slots, rank 8": Case(MODEL_A, {}, Training(output_layer=False, expert_slots=True), HIDDEN, 40),
    "no gradients": Case(MODEL_A, {"cp": 2}, Training(), {**HIDDEN, "gradient": False}),
    "dense, TP": Case(
        DENSE, {"tp": 4, **SP}, Training(output_layer=False, gradients_pending=True), HIDDEN, 40
    ),
    "dense, CP": Case(DENSE, {"cp": 2}, Training(output_layer=False), HIDDEN, 40),
    "dense, no gradients": Case(DENSE, {}, Training(), {**HIDDEN, "gradient": False}, 40),
    "dense, two stages": Case(DENSE, {"pp": 2}, Training(), {}),
    "attention, TP": Case(
        models.get("qwen3-8b"), {"tp": 4, **SP}, Training(output_layer=False), HIDDEN, 40
    ),
    "selective": Case(DENSE, {}, Training(recompute="selective"), HIDDEN, 40),
    "selective, some": Case(
        DENSE,
        {"tp": 2, **SP},
        Training(recompute="selective", recompute_modules=("mlp",), compiled=True),
        HIDDEN,
        40,
    ),
    "selective, attention": Case(
        models.get("qwen3-1.7b"), {}, Training(recompute="selective", compiled=True), HIDDEN, 40
    ),
    "selective, experts, CP": Case(
        MODEL_A, {"cp": 2, "ep": 2}, Training(recompute="selective"), HIDDEN
    ),
    "selective, experts": Case(
        MODEL_A,
        {"tp": 4, "ep": 4, **SP},
        Training(recompute="selective", recompute_modules=("moe",)),
        HIDDEN,
        40,
    ),
    "selective, latent": Case(LATENT, {}, Training(recompute="none", **TRAINED, **EAGER), {}),
    "eager, latent experts": Case(LATENT, {}, Training(output_layer=False, **EAGER), HIDDEN),
    "eager, unfused": Case(
        models.get("qwen3-1.7b"),
        {},
        Training(
            **(DROPOUT | {"sequence_length": None}),
            attention="unfused",
            head="full",
            recompute="none",
        ),
        {},
    ),
    "fused": Case(
        models.get("qwen3-8b"),
        {"tp": 2, **SP},
        Training(lora_rank=0, recompute="none", head="vocab_parallel", gpu="ampere", **DROPOUT),
        {},
    ),
    "fused, no head": Case(
        models.get("qwen3-8b"),
        {"tp": 2, **SP},
        Training(lora_rank=0, recompute="none", output_layer=False),
        HIDDEN,
    ),
    "fused, latent": Case(
        LATENT, {}, Training(lora_rank=0, recompute="none", head="fused_loss", **TRAINED), {}
    ),
    "fused, hybrid": Case(
        MODEL_A, {}, Training(kernels="fused", recompute="none", head="fused"), {}
    ),
    "fused, gathered": Case(
        LATENT,
        {"cp": 2, "ep": 2},
        Training(lora_rank=0, recompute="none", dispatcher="allgather", head="vocab_parallel"),
        {},
    ),
    "fused, adapters": Case(DENSE, {}, Training(kernels="fused", recompute="none"), {}),
    "fused, blocks": Case(
        models.get("qwen3-1.7b"),
        {},
        Training(lora_rank=0, recompute_method="block", recompute_num_layers=3, output_layer=False),
        HIDDEN,
    ),
    "fused, full": Case(LATENT, {}, Training(lora_rank=0, output_layer=False), HIDDEN),
    "fused, overlapped": Case(
        LATENT,
        {"cp": 2, "ep": 2},
        Training(lora_rank=0, output_layer=False, dispatcher="alltoall", expert_overlap=True),
        HIDDEN,
    ),
    "local, stages": Case(
        models.get("qwen3-1.7b"),
        {"pp": 2, "virtual": 2},
        Training(
            **(DROPOUT | {"recompute": "none", "kernels": "local", "attention": "auto"}),
            lora_rank=0,
            head="vocab_parallel",
            wgrad_deferral=2,
        ),
        {},
    ),
}


def doubled(rules: RuleSet, name: str, times: int = 2) -> RuleSet:
    """The set with one rule or definition multiplied."""
    if name in rules.rules:
        return rules.override(name, bytes=f"{times} * ({rules.rules[name].formula()})")
    old = rules.definitions[name].formula
    if rules.kinds[name].unit == FACTOR:
        return rules.redefine(name, times * float(old.value))
    if rules.kinds[name].unit == ZERO:
        return rules.redefine(name, "GiB")
    return rules.redefine(name, f"{times} * ({old})")


def flipped(rules: RuleSet, name: str) -> RuleSet:
    """The set with one predicate inverted."""
    return rules.redefine(name, f"not ({rules.definitions[name].formula})")


def bound(case: Case, rules: RuleSet) -> BoundRules:
    return bind(case.model, case.topology, case.training, rules)


def planner_of(case: Case, rules: RuleSet) -> Planner:
    return Planner(case.model, case.topology, case.training, PLENTY, rules, margin=0.0)


def bound_measures(measures: Measures) -> Measures:
    """The measures of a lower bound: of the head only what every layout needs is charged."""
    table = measures.to_dict()
    packs = [{**pack, "head_bound": 1} for pack in table["packs"]]
    return Measures.of(table["plan"], packs)


@cache
def seen(name: str) -> tuple[Measures, Measures]:
    """Measures of a case as the table stands, and those of a bound."""
    case = CASES[name]
    measures = planner_of(case, RULES).plan(case.pool()).measures
    return measures, bound_measures(measures)


def says(name: str, rules: RuleSet) -> dict[str, Any]:
    """Results, weights and states of a case."""
    made = bound(CASES[name], rules)
    exact, least = (made.results(measures) for measures in seen(name))
    found: dict[str, Any] = {**exact, **{f"bound {key}": value for key, value in least.items()}}
    settings = made.program.measure_settings()
    found["settings"] = settings.gdn_weights, settings.head_chunk
    found["states"] = {rule: state.state for rule, state in made.states.items()}
    return found


@cache
def said(name: str) -> dict[str, Any]:
    return says(name, RULES)


def moved(name: str, rules: RuleSet) -> set[str]:
    """The results of a case that other rules change."""
    after = says(name, rules)
    return {key for key, value in said(name).items() if after[key] != value}


def slow(made: BoundRules, measures: Measures) -> Slow:
    charged = {n for n, one in made.states.items() if one.state in ("charged", "unmeasured")}
    return Slow(made.rules, made.facts, charged, measures)


class Stages:
    """The readable evaluator on every pipeline stage; of each total the largest counts."""

    def __init__(self, made: BoundRules, measures: Measures, *, assumed: bool = False) -> None:
        kinds = ("charged", "unmeasured", *(("uncharged",) if assumed else ()))
        self.stages = [
            Slow(
                made.rules,
                one.facts,
                {name for name, state in one.states.items() if state.state in kinds},
                measures,
            )
            for one in made.compilers.values()
        ]

    def total(self, name: str) -> int:
        return max(one.total(name) for one in self.stages)

    def charge(self, rule: str) -> int:
        one = self.stages[0]
        packs = range(len(one.packs)) if RULES.kinds[rule].free else [None]
        return max(one.named(rule, {}, pack) for one in self.stages for pack in packs)


def check(case: Case, rules: RuleSet) -> None:
    """Every consumer of a price says what the table predicts."""
    planner, pool = planner_of(case, rules), case.pool()
    wave = planner.wave(pool)
    (cold,) = wave.plan.forwards
    output = check_forward(planner, cold, None)
    # One reading: the profile learns it without outputs, and gives it back with what is apart.
    peak, kept = output + 7_000_003, output + 5_000_001
    planner.observe(wave, peak, kept)
    (warm,) = planner.wave(pool).plan.forwards
    check_forward(planner, warm, (peak, kept))
    check_ranks(planner, warm)
    least = bound_measures(cold.measures)
    wanted = Stages(planner.bound, least).total("required")
    assert planner.bound.results(least)["required"] == wanted


def check_forward(planner: Planner, plan: Any, profile: tuple[int, int] | None) -> int:
    bound_rules, measures = planner.bound, plan.measures
    value = Stages(bound_rules, measures).total
    factor = slow(bound_rules, measures).factor(
        bound_rules.rules.definitions["safety_factor"].formula
    )
    got = bound_rules.results(measures)
    names = (
        "required",
        "estimate",
        "output",
        "forward_required",
        "cost_required",
        "peak_increment",
    )
    wanted = {name: value(name) for name in names}
    assert {name: got[name] for name in names} == wanted
    output, kept_by_rules = wanted["output"], value("split_kept")
    assert plan.output_bytes == output
    assert plan.required == wanted["required"]
    keeps = wanted["forward_required"]
    if profile is not None:
        peak, kept = profile
        apart = value("apart_bytes")
        assert measures.to_dict()["plan"]["learned_bytes"] == peak - output + apart
        known = int((output + (kept - output) + value("logical_bytes")) * factor)
        keeps = min(keeps, max(known, int(kept_by_rules * factor)))
    assert columns(plan.cost) == {
        "required": wanted["cost_required"],
        "retained": keeps,
        "checkpoint_retained": kept_by_rules,
        "checkpoint_workspace": value("split_workspace"),
        "input_gradient": value("input_gradient"),
        "peak_increment": wanted["peak_increment"],
        "hybridep_growth": value("buffers"),
        "adapter_gradient": value("adapter_gradient"),
    }
    return output


def check_ranks(planner: Planner, plan: Any) -> None:
    """Of each pack the rank counts that the definitions weigh most."""
    names = ("executed_token", "state", "output_token")
    weights = [slow(planner.bound, plan.measures).total(name) for name in names]
    for pack, measures in zip(plan.packs, plan.measures.to_dict()["packs"], strict=True):
        if pack.gdn is None or not pack.gradient:
            continue
        ranks = [
            (rank.executed_tokens, rank.states, rank.packed_tokens)
            for rank in waveplan.gdn_schedule_per_rank(pack.packing, pack.gdn)
        ]
        busiest = max(ranks, key=lambda rank: sum(map(int.__mul__, rank, weights)))
        assert tuple(measures[name] for name in LOCAL) == busiest


# Uncharged wherever they apply: tests/facts/test_families.py sees that they are listed.
NEVER_CHARGED = {"mixer.other", "other_layers"}
READ_BY_CHECK = {"stays", "after_step", "step_copies", "at_step", "step_temporaries"}
NEVER_CHARGED |= {name for name, rule in RULES.rules.items() if str(rule.formula("where")) == "0"}


def names() -> Iterator[str]:
    yield from (name for name in RULES.rules if name not in NEVER_CHARGED)
    yield from (name for name in RULES.definitions if name not in NEVER_CHARGED | READ_BY_CHECK)


# Smaller than what they stand beside in a maximum: only many times themselves count.
HIDDEN_BY_A_MAXIMUM = {"hybridep.combine", "fc2_backward", "hybridep_step", "eager.score_layer"}


@pytest.mark.parametrize("name", list(names()))
def test_every_entry_moves_what_the_table_predicts(name: str) -> None:
    """Doubled, or inverted where it is a predicate, or larger where a maximum hides it."""
    for rules in variants(name):
        for case in CASES:
            if moves := moved(case, rules):
                check(CASES[case], rules)
                assert name not in RULES.rules or moves - {"states"}
                return
    pytest.fail(f"no case in which {name} moves anything")


def variants(name: str) -> Iterator[RuleSet]:
    yield doubled(RULES, name)
    if name in HIDDEN_BY_A_MAXIMUM:
        yield doubled(RULES, name, 1000)
    elif name in RULES.definitions and RULES.kinds[name].unit == NUMBER:
        yield flipped(RULES, name)


@pytest.mark.parametrize("case", CASES)
def test_the_table_predicts_every_case(case: str) -> None:
    check(CASES[case], RULES)


def test_every_rule_charges_somewhere() -> None:
    silent = set(RULES.rules) - NEVER_CHARGED
    for name, case in CASES.items():
        made = Stages(bound(case, RULES), seen(name)[0])
        silent = {rule for rule in silent if made.charge(rule) <= 0}
    assert not silent


def ranked(rules: RuleSet) -> tuple[int, ...]:
    """Executed tokens and states of the rank of gdn layers that counts, of two unequal ones."""
    numbers = np.random.default_rng(30)
    prompt = numbers.integers(0, 900, int(numbers.integers(50, 400)))
    sequences = []
    for _ in range(int(numbers.integers(3, 14))):
        own = prompt[: int(numbers.integers(0, len(prompt)))]
        sequences.append(
            np.concatenate([own, numbers.integers(0, 900, int(numbers.integers(5, 400)))])
        )
    planner = Planner(MODEL_A, Topology(cp=2), Training(), PLENTY, rules)
    (pack,) = planner.plan(Requests(sequences)).measures.to_dict()["packs"]
    return tuple(pack[name] for name in LOCAL[:2])


def test_the_busiest_rank_follows_the_definitions() -> None:
    rules = default_rules()
    assert ranked(rules) == ranked(rules.redefine("executed_token", "0")) == (988, 7)
    assert ranked(rules.redefine("state", "0")) == (1031, 3)
    with pytest.raises(InputError, match=r"state is used before there is a plan"):
        ranked(rules.redefine("state", "packed_tokens * 2 * B"))


@pytest.mark.parametrize("factor", [1.1, 1.2, 2.0])
@pytest.mark.parametrize("reference", [False, True])
def test_the_factor_scales_a_split(factor: float, reference: bool) -> None:
    numbers = np.random.default_rng(3)
    pool = Requests([numbers.integers(0, 900, 9_000) for _ in range(4)], groups=[4])
    rules = (reference_rules() if reference else default_rules()).redefine("safety_factor", factor)
    planner = Planner(
        MODEL_A, Topology(), Training(), PLENTY, rules, mode="reference" if reference else "best"
    )
    whole = planner.plan(pool)
    plan = planner.plan(pool, available=int(whole.required * 0.99))
    assert plan.split
    costs = [columns(forward.cost) for forward in plan.forwards]

    def most(name: str) -> int:
        return max(cost[name] for cost in costs)

    growth = int(most("hybridep_growth") * factor)
    transient = max(cost["required"] - cost["retained"] for cost in costs) - growth
    kept = sum(cost["retained"] for cost in costs)
    live = sum(c["checkpoint_retained"] + c["input_gradient"] for c in costs)
    live += most("checkpoint_workspace") + most("adapter_gradient")
    assert plan.required == max(kept + transient + growth, int(live * factor))


def test_outputs_in_fp32_are_outputs_everywhere() -> None:
    case = CASES["everything"]
    logits = "logits_tokens * vocab * 4 * B"
    plans = [
        planner_of(case, rules).plan(case.pool())
        for rules in (RULES, RULES.override("output.logits", bytes=logits))
    ]
    more = [plan.output_bytes for plan in plans]
    tokens = case.pool().lengths.sum()
    assert more[1] - more[0] == int(tokens) * MODEL_A.vocab * 2
    assert more == [plan.price.results["output"] for plan in plans]


@pytest.mark.parametrize("formula", ["estimate", "scale(output + compute, 1.2) + buffers"])
def test_no_total_has_a_factor_of_its_own(formula: str) -> None:
    with pytest.raises(InputError, match=r"required.*(lacks safety_factor|factor of its own).*"):
        RULES.redefine("required", formula)


@pytest.mark.parametrize("chunk", [512, 65_536])
def test_a_larger_head_chunk_is_one_for_search_and_price(chunk: int) -> None:
    rules = reference_rules().redefine("head_chunk", f"min(head_tokens, {chunk})")
    case = CASES["logits"]
    planner = Planner(case.model, case.topology, case.training, PLENTY, rules, mode="reference")
    wave = planner.wave(case.pool())
    counted = planner.bound.results(wave.plan.forwards[0].measures)
    assert wave.required == counted["required"]


@pytest.mark.parametrize("rules", [default_rules(), NO_LOGITS], ids=["default", "no logits"])
@pytest.mark.parametrize("name", CASES)
def test_a_margin_raises_every_result_alike(name: str, rules: RuleSet) -> None:
    """Each is the larger of what the rules charge and what they would; a difference follows."""
    made, (measures, _) = bound(CASES[name], rules), seen(name)
    plain, assumed = Stages(made, measures), Stages(made, measures, assumed=True)

    def raised(total: str) -> int:
        return max(plain.total(total), assumed.total(total))

    results = made.results(measures)
    assert results.pop("margin") == raised("required") - plain.total("required")
    wanted = {total: raised(total) for total in results}
    wanted |= {total: plain.total(total) for total in ("estimate", "static")}
    wanted["peak_increment"] = raised("split_required") - raised("forward_required")
    assert results == wanted


RESIDENT = {*resident_rules().rules, *resident_rules().definitions} - READ_BY_CHECK


@pytest.mark.parametrize("name", sorted(RESIDENT))
def test_every_resident_entry_moves_what_waves_may_use(name: str) -> None:
    rules = default_rules()
    jobs = [
        (MODEL_A, Topology(dp=2, ep=2), Training(hybridep_buffer=7 << 20)),
        (DENSE, Topology(), Training(lora_rank=0)),
        (MODEL_A, Topology(dp=8, ep=2, sharding=Sharding("optimizer")), Training(lora_rank=0)),
        (LATENT, Topology(pp=2), Training(lora_rank=0, optimizer="adam8bit", **TRAINED)),
        (models.get("qwen3-1.7b"), Topology(), Training(modules_to_save="embedding,head")),
    ]
    for model, topology, training in jobs:
        held = [resident(model, topology, training, one) for one in (rules, doubled_resident(name))]
        available = [
            Planner(
                *(model, topology, training, Budget(device=PLENTY), one),
                margin=0.0,
                **({"agreement": Alone()} if topology.dp > 1 else {}),
            ).available
            for one in (rules, doubled_resident(name))
        ]
        assert available[0] - available[1] == held[1].total - held[0].total
        if held[0].total != held[1].total:
            return
    pytest.fail(f"no job in which {name} moves anything")


def doubled_resident(name: str) -> RuleSet:
    rules, held = default_rules(), resident_rules()
    if name in held.rules:
        return rules.override(name, bytes=f"2 * ({held.rules[name].formula()})")
    return rules.redefine(name, f"2 * ({held.definitions[name].formula})")
