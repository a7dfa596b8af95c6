"""Text about a job and its waves, around their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.composition import ComposedWaves
from waveplan.report.table import Table, Tree, integer, seconds

if TYPE_CHECKING:
    from waveplan.desk.jobs import Job
    from waveplan.plan import Pack
    from waveplan.planner import Planner, Waves
    from waveplan.pricing import Price, Status
    from waveplan.refusal import WaveRefused
    from waveplan.sequences.requests import Requests
    from waveplan.wave import Wave

__all__ = [
    "charges",
    "count",
    "explanation",
    "figures",
    "heading",
    "memory",
    "memory_text",
    "parts",
    "reason",
    "short",
    "states",
    "summary",
    "unit_of",
]

SHOWN = 10


def memory(planner: Planner, doubtful: Sequence[Status]) -> dict[str, Any]:
    """Return the bytes of a rank: device, resident, reserve, margin, available to waves."""
    budget, used = planner.budget, None
    terms: list[dict[str, Any]] = []
    if isinstance(budget.device, int):
        used = budget.resident
        if budget.needs_resident:
            found = planner.resident()
            used, terms = found.total, found.to_dict()["terms"]
    assert used is None or isinstance(used, int)
    left = budget.resolve(used)
    margin = planner.kept(left, doubtful)
    return {
        "device": budget.device,
        "resident": used,
        "resident_terms": terms,
        "reserve": budget.reserved if budget.device is not None else None,
        "before_margin": left,
        "margin": margin,
        "available": left - margin,
    }


def memory_text(planner: Planner, doubtful: Sequence[Status]) -> str:
    """Return the memory of a rank as text."""
    parts = memory(planner, doubtful)
    sizes = {name: format_bytes(part) for name, part in parts.items() if isinstance(part, int)}
    text = f"{sizes['before_margin']} available"
    if parts["device"] is not None:
        text = (
            f"{sizes['device']} device - {sizes['resident']} resident - {sizes['reserve']} reserve "
            f"= {text}"
        )
    if parts["margin"]:
        text += (
            f"\nfor waves: {sizes['available']}, after a margin of {planner.margin:.0%} "
            f"for {count(len(doubtful), 'rule')} unmeasured or uncharged for these requests"
        )
    return text


def heading(job: Job, planner: Planner, run: Waves) -> str:
    """Sequences, job and memory."""
    tokens, labelled = int(run.pool.lengths.sum()), int(run.pool.labelled.sum())
    some = f", {integer(labelled)} labelled" if labelled < tokens else ""
    lines = [
        f"{count(len(run.pool), 'request')}, {count(tokens, 'token')}{some}",
        job.model_text(),
        f"on {job.ranks_text()}, {job.training_text()}",
        f"memory of a rank: {memory_text(planner, run.doubtful)}",
    ]
    if job.dp > 1:
        lines.append(
            f"requests, tokens: over all {job.dp} DP ranks; the rest is of the one that requires "
            "most\nDP tokens, DP time: packed tokens and modelled time of the busiest DP rank, "
            "over the mean"
        )
    if job.cp > 1:
        lines.append(
            "busiest: local tokens of the busiest CP rank; balance: that over the mean of CP ranks"
        )
    return "\n".join(lines)


def figures(wave: Wave) -> dict[str, Any]:
    """Return the numbers of a wave that text, JSON, page and plots show, by the same words.

    Requests and tokens are over all shares. The rest is of the share that requires most, but
    for the balance over shares.
    """
    plans = [share.plan for share in wave.shares or (wave,)]
    tokens = [plan.packed_tokens for plan in plans]
    local = wave.plan.rank_tokens
    return {
        "requests": sum(len(plan.requests) for plan in plans),
        "logical_tokens": sum(plan.logical_tokens for plan in plans),
        "packed_tokens": sum(tokens),
        "required": wave.required,
        "dp_rank": wave.dp_rank,
        "rank_tokens": local.tolist(),
        "busiest": int(local.max(initial=0)),
        "balance": _balance(local.tolist()),
        "dp_tokens": _balance(tokens),
        "dp_time": _balance([plan.time_ms for plan in plans]),
    }


def pads(pool: Requests, waves: Iterable[Wave]) -> tuple[int, int] | None:
    """Return the pads of waves that run padded, and all their tokens; None without padding."""
    if not pool.padding:
        return None
    plans = [share.plan for wave in waves for share in wave.shares or (wave,)]
    run = sum(plan.logical_tokens for plan in plans)
    lengths = pool.lengths
    return run - sum(int(lengths[plan.requests].sum()) for plan in plans), run


def pads_text(pool: Requests, waves: Iterable[Wave]) -> list[str]:
    """Return a line on the pads of waves that run padded."""
    if (found := pads(pool, waves)) is None:
        return []
    share = f"{found[0] / max(1, found[1]):.0%}"
    return [f"padding: {integer(found[0])} of {integer(found[1])} tokens are pads ({share})"]


def _balance(amounts: Sequence[float]) -> float:
    """Return the largest over the mean; 1 is even."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0


def summary(waves: list[Wave], run: Waves, elapsed: float) -> list[str]:
    """Return the number of waves, the tightest, the doubtful rules and the refusals, as text."""
    parts, groups = [], run.pool.group_sizes
    unit = unit_of(run.pool)
    if waves:
        widest = max(wave.width for wave in waves)
        tightest = max(waves, key=lambda wave: wave.required)
        composed = run.composition if isinstance(run, ComposedWaves) else None
        done = len(waves) > 1 and run.start >= run.groups
        least = count(run.bound().waves, "wave") if done and composed is None else ""
        lines = [
            f"{count(len(waves), 'wave')}, the widest {count(widest, unit)}, planned in "
            f"{seconds(elapsed)}",
            f"tightest: wave {waves.index(tightest) + 1} requires "
            f"{format_bytes(tightest.required)} of {format_bytes(tightest.available)}"
            f"{_why_not_wider(tightest, unit)}",
        ]
        if composed is not None:
            lines.insert(1, f"composed: {composed}")
        elif least:
            lines.insert(1, f"no order needs fewer than {least}")
        trust = sum(wave.stopped.kind == "trust" for wave in waves)
        if trust:
            reason = next(wave.stopped.reason for wave in waves if wave.stopped.kind == "trust")
            lines.append(f"{count(trust, 'wave')} stopped by trust, not by memory: {reason}")
        lines += pads_text(run.pool, waves)
        parts.append("\n".join(lines))
    if run.doubtful and waves:
        rules = count(len(run.doubtful), "rule")
        lines = [f"unmeasured or uncharged for these requests: {rules}", *_states(run.doubtful)]
        parts.append("\n".join(lines))
    if run.refused:
        parts.append(_refused(run.refused, len(groups), unit))
    return parts


def reason(wave: Wave) -> str:
    """Return why the wave is not wider, in a few words."""
    stopped = wave.stopped
    if stopped.kind == "end":
        text = "the pool ends"
    elif stopped.kind == "trust":
        text = (
            "trust: no profile yet" if stopped.width == wave.width else "trust: profile too small"
        )
    elif stopped.kind == "composed":
        text = "composed with the others"
    elif stopped.kind == "time":
        text = f"width {integer(stopped.width)} is slower for its work"
    elif stopped.plan is None:
        text = f"width {integer(stopped.width)} does not fit"
    elif stopped.plan.required <= stopped.available:
        text = f"width {integer(stopped.width)} does not fit on another DP rank"
    else:
        text = f"width {integer(stopped.width)} requires {format_bytes(stopped.plan.required)}"
    parts = len(wave.plan.forwards)
    return f"{text}; runs as {parts} forwards" if parts > 1 else text


def unit_of(pool: Requests) -> str:
    """Return the name of what a width counts: requests, or groups of them."""
    return "request" if len(pool.group_sizes) == len(pool) else "group"


def count(number: int, what: str) -> str:
    """3 waves, 1 wave."""
    return f"{integer(number)} {what}{'' if number == 1 else 's'}"


def _why_not_wider(wave: Wave, unit: str) -> str:
    stopped, binding = wave.stopped, wave.stopped.binding
    if stopped.kind != "memory" or stopped.plan is None:
        return ""
    wider = f"; {count(stopped.width, unit)}"
    if stopped.plan.required <= stopped.available:
        return f"{wider} do not fit on another DP rank"
    text = f"{wider} would require {format_bytes(stopped.plan.required)}"
    if binding is None:
        return text
    term = f"{binding.term or 'outputs'}, {format_bytes(binding.bytes)}"
    place = f"{stopped.where}CP rank {binding.rank}, {binding.phase}"
    return f"{text} ({place}; most of it {term})"


def _states(states: Sequence[Any]) -> list[str]:
    """Rules by reason, so that one reason is said once."""
    by_reason: dict[str, list[str]] = {}
    for state in states:
        by_reason.setdefault(state.reason, []).append(state.name)
    return [f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _refused(refused: Sequence[WaveRefused], groups: int, unit: str) -> str:
    amounts = [item.required for item in refused if item.required > item.available]
    dropped = len(refused) - len(amounts)
    lines = [
        f"refused: {integer(len(amounts))} of {count(groups, unit)}, which can never fit in "
        f"{format_bytes(refused[0].available)}; they require {format_bytes(min(amounts))} to "
        f"{format_bytes(max(amounts))}"
        + (f"; {integer(dropped)} more dropped with them" if dropped else "")
    ]
    for item in refused[:SHOWN]:
        why = f"requires {format_bytes(item.required)}"
        if item.required <= item.available:
            why = "dropped with its wave, as the reference planner does"
        tokens = count(item.plan.logical_tokens, "token")
        lines.append(f"  {unit} {item.indices[0]}: {tokens}, {why}")
    if len(refused) > SHOWN:
        lines.append(f"  and {integer(len(refused) - SHOWN)} more; --json has them all")
    hardest = max(refused, key=lambda item: item.required)
    changes = " or ".join(str(change) for change in hardest.change)
    if changes:
        lines.append(f"  {unit} {hardest.indices[0]}, the hardest, would fit with {changes}")
    return "\n".join(lines)


def parts(price: Price, most: int) -> tuple[list[tuple[str, int]], int, int, int]:
    """Split what is required: the largest terms, the other terms, the margin, the safety factor."""
    terms = sorted(price.terms.items(), key=lambda term: (-term[1], term[0]))
    rest = sum(value for _, value in terms[most:])
    margin = int(price.results.get("margin", 0))
    factor = price.required - margin - sum(price.terms.values())
    return terms[:most], rest, margin, factor


def states(doubtful: Sequence[Status]) -> list[dict[str, str]]:
    """Rules that charge nothing, or are not measured, as JSON."""
    return [
        {"rule": state.name, "state": state.state, "reason": state.reason} for state in doubtful
    ]


def charges(price: Price) -> Table:
    """Return the charges of a price, largest first; they add up to what is required."""
    right = frozenset({"bytes", "share"})
    table = Table("", ("bytes", "share", "rule", "for"), right=right)
    shown, rest, margin, factor = parts(price, SHOWN)
    rules = price.bound.rules.rules
    rows = [(value, name, short(rules[name].why) if name in rules else "") for name, value in shown]
    rows += [
        (rest, "smaller charges", ""),
        (margin, "margin", "stands in for uncharged rules"),
        (factor, "safety factor", ""),
    ]
    for value, name, why in rows:
        if value > 0:
            table.add(format_bytes(value), f"{value / max(1, price.required):.0%}", name, why)
    peak = f"in {price.explanation.phase}"
    table.add(format_bytes(price.required), "100%", "required", f"the peak is {peak}")
    return table


def short(text: str, most: int = 72) -> str:
    """The first clause of a sentence, cut at a word."""
    first = text.split(";")[0]
    return first if len(first) <= most else f"{first[: most - 4].rsplit(' ', 1)[0]} ..."


def explanation(wave: Wave, number: int) -> list[Table | Tree | str]:
    """Price tree of a wave and the segments that its packs share, largest savings first."""
    plan = wave.plan
    return [
        f"wave {number}: {count(len(wave.requests), 'request')}, {integer(plan.packed_tokens)} "
        f"packed of {integer(plan.logical_tokens)} tokens, {format_bytes(wave.required)}",
        charges(plan.price),
        plan.price.explain(),
        *(_shared(pack, number + 1) for number, pack in enumerate(plan.largest.packs)),
    ]


def _shared(pack: Pack, number: int) -> Tree:
    """The shared prefixes of a pack that save most, and the largest that are not shared."""
    tree, stored = pack.tree, pack.shared
    decisions = tree.count > 1
    saved = (tree.end - tree.start) * (tree.count - 1)
    proof = "proven best" if pack.optimal else f"work within {_gap(pack):.2%} of best"
    made = Tree(
        f"pack {number}: {int((stored & decisions).sum()):,} of "
        f"{count(int(decisions.sum()), 'shared prefix').replace('prefixs', 'prefixes')} stored "
        f"once; layout {proof}"
    )
    order = [int(i) for i in (-saved).argsort(kind="stable") if decisions[i]]
    for i in order[:SHOWN]:
        run = f"tokens {int(tree.start[i]):,} to {int(tree.end[i]):,}"
        what = f"{run} of {int(tree.count[i]):,} sequences"
        tokens = f"{int(saved[i]):,}"
        again = f"repeated in each; {tokens} more tokens cost less than one more level of segments"
        made.add(f"{what}: {f'{tokens} tokens saved' if stored[i] else again}")
    if len(order) > SHOWN:
        made.add(f"and {len(order) - SHOWN:,} smaller ones")
    return made


def _gap(pack: Pack) -> float:
    return pack.work / pack.work_bound - 1 if pack.work_bound else 0.0
