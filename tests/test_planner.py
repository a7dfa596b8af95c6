"""The planner: waves of a pool, what stops them, refusals, plans."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import workloads
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from waveplan import (
    AllShares,
    Alone,
    Budget,
    DoubtfulError,
    InputError,
    Planner,
    Requests,
    Sequences,
    Topology,
    Training,
    WaveRefused,
    models,
)
from waveplan._core import Attempt, OwnershipSettings
from waveplan.pricing import bind, default_rules, price, reference_rules
from waveplan.profiles import Observed, Profiles, Rates
from waveplan.scoring import Scoring, from_table

MODEL = models.get("Qwen3.6-35B-A3B")
GIB = 1 << 30


def planner(free: int | str = "24GiB", cp: int = 1, dp: int = 1, **options: Any) -> Planner:
    return Planner(MODEL, Topology(dp=dp, cp=cp), Training(), free, **options)


def grpo(groups: int = 4, k: int = 4, seed: int = 5) -> list[np.ndarray]:
    return workloads.grpo(seed, groups=groups, k=k, prompt=(200, 900), completion=(50, 700))


def test_a_first_wave_grows_under_measured_rules_and_not_under_profiles() -> None:
    sequences = grpo()
    wave = planner().wave(sequences)
    assert wave.width == len(sequences)
    assert wave.stopped.kind == "end"
    assert wave.cold
    careful = planner(trust="profile").wave(sequences)
    assert careful.width == 1
    assert careful.stopped.kind == "trust"
    assert "first of its kind" in str(careful.stopped)


def test_every_doubt_counts_once() -> None:
    """Uncharged rules are in the price, unmeasured ones and those of what stays are kept back."""
    pool = Requests(Sequences.load(ROOT / "examples" / "rollouts.jsonl"))
    held = Budget(device=80 * GIB)

    def made(budget: Budget | int = 24 * GIB, **facts: Any) -> tuple[list[str], int]:
        model, training = models.get("qwen3-0.6b"), Training(**{"lora_rank": 0, **facts})
        plans = Planner(model, Topology(), training, budget)
        doubtful = plans.doubtful(pool)
        return [one.name for one in doubtful], plans.kept(1000, doubtful)

    assert made() == ([], 0)
    assert made(fp8=True) == (["trainer.fp8"], 0)
    assert made(offload="activations") == (["trainer.offloaded_activations"], 0)
    assert made(head="fused") == (["head.fused"], 100)
    assert made(optimizer="muon") == ([], 0)  # nothing of what stays is taken off
    assert made(held, optimizer="muon") == (["resident.optimizer"], 100)


def test_offload_does_not_raise_a_price() -> None:
    for recompute in ("none", "full"):
        facts = {"lora_rank": 0, "recompute": recompute, "head": "vocab_parallel"}
        found = {
            off: bind(models.get("qwen3-0.6b"), Topology(), Training(**facts, offload=off))
            for off in ("", "activations")
        }
        measures = (
            Planner(models.get("qwen3-0.6b"), Topology(), Training(**facts), 24 * GIB)
            .wave([np.arange(900)])
            .plan.measures
        )
        prices = [price(measures, bound) for bound in found.values()]
        assert prices[0].required == prices[1].required
        assert prices[1].uncharged


def test_a_rule_that_is_off_needs_a_profile_or_a_margin() -> None:
    """The reference rules charge no pending saves of gdn layers under CP, which matter where the
    layers of a wave need more than its head."""
    sequences = workloads.grpo(5, groups=2, k=2, prompt=(20_000, 21_000), completion=(50, 700))
    wave = planner(cp=2, rules=reference_rules(), margin=None).wave(sequences)
    assert wave.width == 1
    assert wave.stopped.kind == "trust"
    assert "gdn.pending" in str(wave.stopped)
    assert any(rule.startswith("gdn.pending") for rule in wave.doubtful)
    assert planner(cp=1, rules=reference_rules()).wave(sequences).available == 24 * GIB
    kept = planner(cp=2, rules=reference_rules()).wave(sequences)
    assert (kept.width, kept.available) == (len(sequences), 24 * GIB - 24 * GIB // 10)
    assert planner(cp=2, rules=reference_rules(), margin=0.25).wave(sequences).available == 18 * GIB
    with pytest.raises(DoubtfulError, match=r"gdn\.pending"):
        planner(cp=2, rules=reference_rules(), strict=True).wave(sequences)
    nothing = Requests(sequences, targets=False)
    assert planner(cp=2, rules=reference_rules(), strict=True).wave(nothing).required == 0
    assert planner(cp=2).wave(sequences).width == len(sequences), "our rules charge them"


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("reference", [False, True])
def test_waves_run_every_item_once_and_fit(cp: int, reference: bool) -> None:
    sequences = grpo(groups=8, k=5)
    plans = planner("8GiB", cp=cp, mode="reference" if reference else "best")
    waves = list(plans.waves(sequences))
    assert np.concatenate([wave.indices for wave in waves]).tolist() == list(range(len(sequences)))
    assert all(wave.required <= wave.available == 8 * GIB for wave in waves)
    for wave in waves:
        seen = np.sort(np.concatenate([pack.requests for pack in wave.packs]))
        assert seen.tolist() == np.sort(wave.requests).tolist() == wave.indices.tolist()


def test_ranks_take_strided_shares() -> None:
    sequences = grpo(groups=8, k=5)
    taken = []
    for rank in range(3):
        plans = planner("4GiB", dp=3, agreement=Alone(dp_rank=rank))
        wave = plans.waves(sequences, start=4, order="keep").plan_next()
        assert wave.indices.tolist() == list(range(4 + rank, 4 + wave.width, 3))
        taken.append(wave.width)
    assert max(taken) > 3


@pytest.mark.parametrize("dp", [2, 3, 5])
def test_ranks_take_blocks_where_these_are_faster(dp: int) -> None:
    plans = planner("4GiB", dp=dp, agreement=AllShares())
    sequences = grpo(groups=8, k=5)
    for start in (0, 4):
        blocks = next(plans.waves(sequences, start=start))
        kept = next(plans.waves(sequences, start=start, order="keep"))
        shares = [share.indices.tolist() for share in blocks.shares]
        assert [i for share in shares for i in share] == list(range(start, start + blocks.width))
        assert blocks.width >= kept.width
        tokens = [sum(s.plan.packed_tokens for s in wave.shares) for wave in (blocks, kept)]
        assert tokens[0] / blocks.width < tokens[1] / kept.width
    apart = [np.arange(i * 10_000, i * 10_000 + (5_000 if i < 4 else 3_000)) for i in range(8)]
    wave = next(planner("8GiB", dp=4, agreement=AllShares()).waves(apart))
    times = [share.plan.time_ms for share in wave.shares]
    assert max(times) == min(times)  # in turn, as blocks of neighbours are no faster
    with pytest.raises(InputError, match="reference mode keeps"):
        planner("4GiB", mode="reference").waves(sequences, order="blocks")


def test_memory_stops_a_wave_and_says_where() -> None:
    wave = planner("6GiB", cp=2, objective="widest").wave(grpo(groups=8, k=5))
    stopped = wave.stopped
    assert stopped.kind == "memory"
    assert stopped.width > wave.width
    assert stopped.plan is not None
    assert stopped.required is not None
    assert stopped.required > 6 * GIB
    binding = stopped.binding
    assert binding is not None
    sequences = max(stopped.plan.packs, key=lambda pack: pack.local_tokens).rank_tokens
    assert sequences[binding.rank] == sequences.max()
    assert binding.phase in ("forward", "backward")
    assert binding.term in stopped.plan.price.terms
    assert str(stopped.width) in str(stopped)


def test_probes_tell_every_price() -> None:
    plans = planner("6GiB", cp=2)
    wave = plans.wave(grpo(groups=8, k=5))
    widths = {probe.width for probe in wave.probes}
    assert {1, 2, 4, wave.width, wave.stopped.width} <= widths
    rejected = {probe.width for probe in wave.probes if not probe.fits}
    usable = {probe.width for probe in wave.probes if probe.fits}
    assert wave.rejected == len(rejected - usable)
    chosen = [p for p in wave.probes if p.width == wave.width and p.fits]
    assert wave.required in {p.required for p in chosen}


def test_refused_items_are_raised_or_skipped_and_listed() -> None:
    sequences = grpo()
    sequences.insert(3, np.arange(60_000))
    plans = planner("8GiB")
    waves = plans.waves(sequences)
    assert next(waves).indices.tolist() == [0, 1, 2]
    with pytest.raises(WaveRefused, match="a single request cannot be split"):
        next(waves)
    skipping = plans.waves(sequences, on_refusal="skip")
    done = np.concatenate([wave.indices for wave in skipping]).tolist()
    assert done == [0, 1, 2, *range(4, len(sequences))]
    assert [refusal.indices.tolist() for refusal in skipping.refused] == [[3]]


def test_a_refusal_tells_what_was_tried_and_what_would_fit() -> None:
    plans = planner("8GiB")
    sequences = [np.arange(30_000), np.arange(30_000) + 7]
    with pytest.raises(WaveRefused) as caught:
        plans.plan(sequences)
    refusal = caught.value
    assert refusal.available == 8 * GIB
    assert refusal.required > refusal.available
    assert refusal.attempts[0].parts == 1
    assert max(tried.parts for tried in refusal.attempts) == 2
    assert refusal.binding.term in refusal.price.terms
    changes = {change.kind: change.value for change in refusal.change}
    planner(changes["budget"]).plan(sequences)
    with pytest.raises(WaveRefused):
        planner(changes["budget"] - 1).plan(sequences)
    longest = changes["tokens"]
    plans.plan([sequence[:longest] for sequence in sequences])
    with pytest.raises(WaveRefused):
        plans.plan([sequence[: longest + 1] for sequence in sequences])
    planner("8GiB", cp=changes["cp"]).plan(sequences)
    with pytest.raises(WaveRefused):
        planner("8GiB", cp=changes["cp"] // 2).plan(sequences)


def test_the_best_oversized_plan_may_be_asked_for() -> None:
    sequences = [*grpo(groups=1), np.arange(60_000)]
    waves = list(planner("8GiB").waves(sequences, on_refusal="oversized"))
    assert [wave.required <= wave.available for wave in waves] == [True, False]
    assert waves[1].indices.tolist() == [4]
    with pytest.raises(WaveRefused) as caught:
        planner("8GiB").wave(sequences, start=4)
    assert caught.value.oversized.required == waves[1].required
    planner(waves[1].required).wave(sequences, start=4)


@pytest.mark.parametrize("dp", [1, 3])
def test_one_more_item_a_rank_would_not_fit(dp: int) -> None:
    """However many items are left: the reference search steps by 8 or 32 of them."""
    sequences = [ids % 99_991 for ids in workloads.unique(6, count=400, total=400_000)]
    plans = Planner(MODEL, Topology(dp=dp), Training(), "34GiB", agreement=AllShares())
    waves = list(plans.waves(sequences))
    assert waves[0].width > 40
    for wave in waves[:-1]:
        assert (wave.stopped.kind, wave.stopped.width) == ("memory", wave.width + dp)
        assert wave.stopped.plan is None or wave.stopped.plan.required > 34 << 30


def test_a_call_that_does_not_fit_is_split() -> None:
    pool = Requests(workloads.unique(3, count=6, total=40_000))
    sequences = pool.sequences
    plans = planner("1TiB")
    tokens = int(pool.lengths.sum())
    # What a forward retains must be known, or each part counts as retaining all it needs.
    seen = Observed(later=((tokens, 0),), retained=((tokens, GIB // 20),), here=True)
    plans.profiles[plans.signature_of(pool)] = seen
    whole = plans.plan(pool)
    plan = plans.plan(pool, available=int(whole.required * 0.85))
    assert plan.split
    assert sorted(plan.requests.tolist()) == list(range(len(sequences)))
    assert plan.required < whole.required
    parts = np.concatenate(plan.part_requests)
    assert sorted(parts.tolist()) == list(range(len(sequences)))


def test_expert_parallelism_switches_splitting_off() -> None:
    plans = Planner(MODEL, Topology(cp=2, ep=2), Training(), "8GiB")
    with pytest.raises(WaveRefused, match="expert parallelism") as caught:
        plans.plan([np.arange(90_000), np.arange(90_000) + 5])
    assert {tried.parts for tried in caught.value.attempts} == {1}


def test_a_bound_of_the_reference_has_no_growth_of_buffers() -> None:
    options: dict[str, Any] = {"mode": "reference", "margin": None, "agreement": Alone(dp_rank=0)}
    rules, pool = reference_rules(), Requests(grpo(), gradient=False)
    bounds, plans = [], []
    for one in (rules, rules.without("hybridep.buffer")):
        made = Planner(MODEL, Topology(dp=2, ep=2), Training(), "24GiB", rules=one, **options)
        (bound,) = made.wave(pool).probes
        assert bound.kind == "bound:unshared"
        bounds.append(bound.required)
        plans.append(made.plan(pool).required)
    assert bounds[0] == bounds[1]
    assert plans[0] > plans[1]


def test_a_plan_owns_its_stages() -> None:
    sequences = grpo()
    plan = planner(cp=2).plan(
        Requests(sequences, gradient=[i % 3 > 0 for i in range(len(sequences))])
    )
    assert [pack.gradient for pack in plan.packs] == [False, True]
    for pack in plan.packs:
        assert pack.packing.packed_tokens == pack.packed_tokens
        assert pack.ownership is not None
        assert pack.ownership.rank_tokens.sum() == pack.packed_tokens
        assert pack.rank_tokens.max() == pack.local_tokens
        assert pack.work >= pack.work_bound
        assert pack.tree.sequence_count == len(pack.requests)
    assert plan.packed_tokens == sum(pack.packed_tokens for pack in plan.packs)


def test_plans_are_stable_json_with_a_fingerprint() -> None:
    sequences = grpo()
    first, again = planner(cp=2).plan(sequences), planner(cp=2).plan(sequences)
    assert first.fingerprint == again.fingerprint
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert first.to_dict()["version"] == 1
    assert planner(cp=4).plan(sequences).fingerprint != first.fingerprint
    assert planner(cp=2).plan(sequences[:-1]).fingerprint != first.fingerprint
    json.dumps(planner().wave(sequences).to_dict())


def test_a_pool_with_nothing_to_do_costs_nothing() -> None:
    wave = planner().wave(Requests(grpo(), targets=False))
    assert wave.width == 16
    assert wave.plan.packed_tokens == 0
    assert wave.required == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: planner("12 bananas"), "bananas"),
        (lambda: planner(0), "positive"),
        (lambda: planner(trust="hope"), "trust"),
        (lambda: planner(agreement=object()), "agreement"),
        (lambda: planner(agreement=Alone(dp_rank=1)), "dp_rank"),
        (lambda: planner(dp=2), r"TorchDistributed\(\) or Mpi4py\(\) .* AllShares\(\) .* Alone\("),
        (lambda: planner(margin=-1), "margin"),
        (lambda: planner().waves([]), "empty"),
        (lambda: planner().waves(grpo(), start=16), "start"),
        (lambda: planner().waves(grpo(), start=-1), "start"),
        (lambda: planner().waves(grpo(), on_refusal="maybe"), "on_refusal"),  # type: ignore
        (lambda: planner().waves([[1, 2], []]), "request 1 is empty"),
        (lambda: Planner(MODEL, Topology(tp=3), Training(), 1), "tp"),
        (lambda: setattr(planner(), "available", "x"), "available"),
        (lambda: setattr(planner(), "available", -1), "available"),
    ],
)
def test_wrong_values_are_one_line_errors(call: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)


sequence_lists = st.builds(
    lambda kind, seed, size: {
        "grpo": lambda: workloads.grpo(
            seed, groups=1 + size // 4, k=3, prompt=(20, 400), completion=(5, 300)
        ),
        "blocks": lambda: workloads.blocks(seed, count=3 + size, block=(16, 400)),
        "one_token": lambda: workloads.one_token(seed, count=2 + size, length=300, step=11),
        "short": lambda: workloads.short(seed, count=10 + 4 * size, tokens=(8, 90)),
    }[kind](),
    st.sampled_from(["grpo", "blocks", "one_token", "short"]),
    st.integers(0, 10_000),
    st.integers(0, 20),
)


@given(
    sequences=sequence_lists,
    cp=st.sampled_from([1, 2, 4]),
    point=st.floats(0.05, 1.1),
    trust=st.sampled_from([0.02, 0.1, 1.0]),
    scoring=st.sampled_from(["gdn-moe-h2048", "dense-h2560", None]),
    gradient=st.sampled_from([True, False]),
    hint=st.one_of(st.none(), st.integers(1, 60)),
)
def test_never_narrower_than_the_reference_planner(
    sequences: list[np.ndarray],
    cp: int,
    point: float,
    trust: float,
    scoring: str | None,
    gradient: bool,
    hint: int | None,
) -> None:
    facts = {"layers": MODEL.layers, "gdn_layers": MODEL.gdn_layers, "cp": cp}
    score = Scoring(version=1, **facts) if scoring is None else from_table(scoring, **facts)
    pool = Requests(sequences, gradient=gradient)
    tokens = sum(map(len, sequences))
    widths = []
    for reference in (True, False):
        plans = planner(
            1 << 50,
            cp=cp,
            rules=reference_rules(),
            trust="profile",
            mode="reference" if reference else "best",
            objective="widest",
            scoring=score,
            margin=None,
        )
        seen = max(1, int(tokens * trust))
        plans.profiles[plans.signature_of(pool)] = (
            Rates(0.0, seen) if reference else Observed(later=((seen, 0),), here=True)
        )
        if not widths:
            least = plans.wave(pool).required * 0.05
            limit = int(least + point * plans.plan(pool).required)
        plans.width_hint, plans.available = hint, limit
        try:
            widths.append(plans.wave(pool).width)
        except WaveRefused:
            widths.append(0)
    assert widths[1] >= widths[0]


@given(
    sequences=sequence_lists,
    cp=st.sampled_from([2, 3, 4]),
    retained=st.sampled_from([None, 900.0, 9e4]),
)
def test_the_bound_of_a_split_is_at_most_the_exact_price(
    sequences: list[np.ndarray], cp: int, retained: float | None
) -> None:
    plans = planner(1 << 50, cp=cp, mode="reference")
    pool = Requests(sequences)
    if retained is not None:
        tokens = sum(map(len, sequences))
        plans.profiles[plans.signature_of(pool)] = Rates(0.0, tokens, 1.5, retained)

    def attempts(available: int) -> tuple[Attempt, ...]:
        try:
            plans.plan(pool, available=available)
        except WaveRefused as refusal:
            return refusal.attempts
        return ()

    bounds = {one.parts: one.required for one in attempts(1) if one.kind == "bound"}
    for parts, bound in bounds.items():
        for one in attempts(bound):
            assert one.parts != parts or one.required >= bound


def test_under_context_parallelism_whole_plans_decide() -> None:
    """No bound over all tokens rejects a width there; the busiest rank's tokens are priced."""
    even = [np.arange(4096), np.arange(4096) + 5000]
    uneven = [np.arange(7000), np.arange(300) + 9000]
    for sequences in (even, uneven):
        wave = planner("100GiB", cp=2, mode="reference").wave(Requests(sequences, groups=[2]))
        assert {probe.kind for probe in wave.probes} <= {"optimal", "full"}
        pack = wave.packs[0]
        assert pack.local_tokens == pack.rank_tokens.max()
        assert pack.local_tokens * 2 >= pack.packed_tokens


def test_adapter_gradients_are_charged_while_they_are_pending() -> None:
    sequences = [np.arange(40 * i, 40 * i + 40) for i in range(3)]
    allocated = Planner(MODEL, Topology(), Training(), 1 << 40).wave(sequences)
    pending = Planner(MODEL, Topology(), Training(gradients_pending=True), 1 << 40).wave(sequences)
    assert "adapter.gradient" not in allocated.price.terms
    assert pending.price.terms["adapter.gradient"] > 0
    assert pending.required > allocated.required


def test_a_group_tells_what_is_shared_and_how_even_it_is() -> None:
    prefix = np.arange(3_000)
    sequences = [
        np.concatenate([prefix, np.arange(9_000 * i, 9_000 * i + 400)]) for i in range(1, 5)
    ]
    plan = Planner(MODEL, Topology(cp=2), Training(), 1 << 40).plan(sequences)
    (pack,) = plan.packs
    assert (pack.decisions, pack.shared_decisions, pack.depth) == (1, 1, 2)
    assert pack.logical_tokens == sum(map(len, sequences))
    assert pack.saved_tokens == 3 * 3_000 == pack.logical_tokens - pack.packed_tokens
    assert pack.balance == pack.rank_tokens.max() / pack.rank_tokens.mean() >= 1
    assert plan.to_dict()["forwards"][0]["packs"][0]["saved_tokens"] == 9_000


def test_what_is_set_later_is_checked_as_well() -> None:
    plans = planner()
    for width in (-5, 1.5, "x"):
        with pytest.raises(InputError, match="width_hint"):
            plans.width_hint = width  # type: ignore[assignment]
    with pytest.raises(InputError, match="profiles"):
        plans.profiles = {}  # type: ignore[assignment]
    with pytest.raises(InputError, match="other kind"):
        plans.profiles = Profiles(reference=True)
    waves = plans.waves(grpo())
    waves.start = -1
    with pytest.raises(InputError, match="start"):
        next(waves)


def test_numpys_own_bools_are_flags() -> None:
    plans = planner(mode="reference")
    assert plans.mode == "reference"
    wave = plans.wave(grpo())
    plans.observe(wave, 1 << 30, whole=np.bool_(True))
    (rates,) = (plans.profiles[signature] for signature in plans.profiles)
    assert isinstance(rates, Rates)
    assert rates.whole_waves == 1


def test_a_part_without_packs_costs_its_outputs_alone_in_a_split() -> None:
    pool = Requests(
        [[1, 2, 3, 4], [6, 7, 8, 9]], targets=[True, False], routed=[0, 800_000], groups=2
    )
    plans = Planner(models.get("qwen3-4b"), Topology(cp=2), Training(lora_rank=8), "70GiB")
    whole = plans.plan(pool)
    split = plans.plan(pool, available=whole.required - 1)
    assert split.split
    assert split.required < whole.required
    routes = max(split.forwards, key=lambda part: part.output_bytes)
    assert routes.cost.checkpoint_retained == routes.output_bytes == 16 * 800_000


def test_ranks_see_other_resident_rules() -> None:
    given = models.get("qwen3-4b"), Topology(), Training(), "70GiB"
    one, other = (
        Planner(*given, default_rules().override("resident.context", bytes=f"{n} * MiB"))
        for n in (5, 6)
    )
    assert [name for name in one.digests if one.digests[name] != other.digests[name]] == [
        "pricing rules"
    ]


LONG = np.arange(131_072)


@pytest.mark.parametrize(("available", "most"), [("30GiB", None), ("10.4GiB", 17_500)])
def test_a_long_sequence_runs_at_its_even_share(available: str, most: int | None) -> None:
    """0.1 refused it below 22 GiB, for the busiest rank of the fastest ownership."""
    job = (models.get("qwen3-8b"), Topology(cp=8), Training(lora_rank=8), available)
    plans = Planner(*job, margin=0.0)
    (pack,) = plans.plan(Requests([LONG])).packs
    made = pack.ownership
    assert made is not None
    assert made.bound is not None
    assert made.bound <= made.score < 1.01 * made.bound
    assert (made.most_ranges, made.most_tokens <= (most or made.tokens)) == (1, True)
    two = Planner(*job, ownership=OwnershipSettings(max_ranges=2), margin=0.0)
    (folded,) = two.plan(Requests([LONG])).packs
    assert folded.ownership is not None
    assert folded.time_ms is not None
    assert pack.time_ms is not None
    assert folded.time_ms <= pack.time_ms
    if most:
        assert (folded.ownership.method, folded.ownership.most_ranges) == ("even_fold", 2)
        assert folded.time_ms < 0.7 * pack.time_ms


def test_a_refusal_and_its_changes_speak_of_the_even_share() -> None:
    job = (models.get("qwen3-8b"), Topology(cp=8), Training(lora_rank=8), "7GiB")
    plans = Planner(*job, margin=0.0)
    with pytest.raises(WaveRefused) as refusal:
        plans.wave(Requests([LONG]))
    even = refusal.value.required
    assert max(refusal.value.plan.packs[0].rank_tokens) == 16_384
    budget = next(change.value for change in refusal.value.change if change.kind == "budget")
    assert budget == even
    plans.available = even
    assert plans.wave(Requests([LONG])).required <= even
    plans.available = even - 1
    with pytest.raises(WaveRefused):
        plans.wave(Requests([LONG]))


@pytest.mark.parametrize("cp", [2, 8])
@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3.6-35b-a3b"])
def test_what_runs_is_never_slower_than_full_sharing(
    corpora: dict[str, list[np.ndarray]], model: str, cp: int
) -> None:
    facts = models.get(model)
    layers = {"layers": facts.layers, "gdn_layers": facts.gdn_layers, "uses_gdn": True}
    tokens = Scoring(version=2, coefficients=(1, *[0] * 9), cp=cp, **layers)
    shares_less = 0
    for name, sequences in corpora.items():
        for count, available in ((12, "70GiB"), (40, "200GiB")):
            job = (facts, Topology(cp=cp), Training(lora_rank=8), available)
            pool = Requests(sequences[:count])
            wave = Planner(*job, margin=0.0).wave(pool)
            full = Planner(*job, margin=0.0, scoring=tokens).plan(Requests(sequences[: wave.width]))
            assert wave.plan.packed_tokens >= full.packed_tokens
            shares_less += wave.plan.packed_tokens > full.packed_tokens
            assert wave.plan.time_ms is not None
            assert full.time_ms is not None
            assert wave.plan.time_ms <= full.time_ms, (name, count)
    assert shares_less


def test_the_objective_decides_between_widths_that_fit() -> None:
    sequences = [np.arange(n) + n for n in (60_000, 1000, 40_000, 900, 30_000, 50_000)]
    taken = {}
    for objective in ("time", "widest"):
        plans = Planner(
            *(models.get("qwen3-8b"), Topology(cp=8), Training(lora_rank=8), "14GiB"),
            objective=objective,  # type: ignore[arg-type]
        )
        waves = list(plans.waves(Requests(sequences)))
        taken[objective] = [wave.width for wave in waves]
        assert sum(taken[objective]) == len(sequences)
        for wave in waves:
            if wave.stopped.kind == "time":
                assert "does less work in its modelled time" in str(wave.stopped)
                assert wave.stopped.width > wave.width
    assert taken["widest"][0] >= taken["time"][0]
    with pytest.raises(InputError, match="objective"):
        planner(objective="narrow")


def test_fetched_keys_and_values_are_priced() -> None:
    plans = Planner(models.get("qwen3-8b"), Topology(cp=8), Training(lora_rank=8), "30GiB")
    plan = plans.plan(Requests([LONG]))
    fetched = plan.packs[0].ownership.fetched_tokens  # type: ignore[union-attr]
    assert 0 < fetched < 131_072
    assert plan.price.terms["attention.fetched"] == fetched * 2 * 8 * 128 * 2
