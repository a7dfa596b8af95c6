"""Text about a job and its waves, around their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from waveplan.budget import format_bytes
from waveplan.composition import ComposedWaves
from waveplan.report.table import Table, integer, seconds

if TYPE_CHECKING:
    from waveplan.desk.jobs import Job
    from waveplan.plan import Pack
    from waveplan.planner import Planner, Waves
    from waveplan.pricing import Price, Status
    from waveplan.refusal import WaveRefused
    from waveplan.sequences.requests import Requests
    from waveplan.wave import Wave

__all__ = [
    "answer",
    "assumed",
    "card",
    "charges",
    "count",
    "doubts",
    "explanation",
    "figures",
    "least_waves",
    "memory",
    "memory_table",
    "milliseconds",
    "parts",
    "reason",
    "setting",
    "share",
    "short",
    "states",
    "summary",
    "unit_of",
    "wave_figures",
    "wave_table",
]

SHOWN = 10


def memory(
    planner: Planner, doubtful: Sequence[Status], required: int | None = None
) -> dict[str, Any]:
    """Return the bytes of a rank: resident by kind, reserve, colocated, margin, and available to
    waves, of which one requires `required`. What is resident comes by the rules where the budget
    does not state it; only a budget of the device takes it off."""
    budget, found = planner.budget, planner.resident()
    stated = budget.resident if isinstance(budget.resident, int) else None
    used = found.total if stated is None else stated
    left = budget.resolve(used)
    margin = planner.kept(left, doubtful)
    return {
        "device": budget.device,
        "resident": used,
        "resident_kinds": found.kinds if stated is None else {"stated": stated},
        "resident_terms": found.to_dict()["terms"] if stated is None else [],
        "reserve": budget.reserved if budget.device is not None else None,
        "colocated": budget.colocated,
        "before_margin": left,
        "margin": margin,
        "available": left - margin,
        "wave": required,
        "free": None if required is None else left - margin - required,
    }


Part: TypeAlias = tuple[str, str, int, str]
"""Of the memory of a rank: kind, name, bytes and what they are for."""


def card(
    found: dict[str, Any], doubtful: Sequence[Status], wave: Iterable[tuple[str, int, str]]
) -> list[Part]:
    """Return the parts that the memory of a rank is made of, those of a wave among them.

    Args:
        found: of `memory`; without a budget, ``available`` is None.
    """
    rules = f"kept back for {count(len(doubtful), 'rule')} in doubt"
    rows: list[Part] = [
        *(
            ("resident", kind, size, RESIDENT.get(kind, "your own rules"))
            for kind, size in found["resident_kinds"].items()
        ),
        ("colocated", "colocated", found["colocated"], "held by other processes"),
        ("reserve", "reserve", found["reserve"] or 0, "never used"),
        ("margin", "margin", found["margin"] or 0, rules),
        *(("wave", *one) for one in wave),
        ("free", "free", (found["available"] or 0) - (found["wave"] or 0), ""),
    ]
    return [row for row in rows if row[2] > 0]


def memory_table(found: dict[str, Any], what: str, doubtful: Sequence[Status] = ()) -> Table:
    """Return the memory of a rank as a table: what it holds, and what is free.

    Args:
        found: of `memory`.
        what: the wave or forward whose bytes `found` has.
    """
    device, wave = found["device"], found["wave"] or 0
    total = device or found["resident"] + (found["before_margin"] or wave)
    rows: list[tuple[str, int, str]] = []
    for kind, name, size, text in card(found, doubtful, [("wave", wave, what)]):
        if kind == "resident" and not rows:
            how = "as stated" if name == "stated" else "by the rules"
            rows.append((kind, found["resident"], f"between waves, {how}"))
        if name != "stated":
            rows.append((f"  {name}" if kind == "resident" else name, size, text))
    if (found["free"] or 0) < 0:
        rows.append(("missing", -found["free"], "what the wave lacks"))
    cells = [(name, format_bytes(size), share(size, total), text) for name, size, text in rows]
    whole = ("device", "") if device else ("in all", "what the device must have, at least")
    cells.append((whole[0], format_bytes(total), "100%", whole[1]))
    head = ("memory of a rank", "bytes", "share", "what")
    return Table("", head, cells, right={"bytes", "share"})


RESIDENT = {
    "weights": "parameters, as a rank holds them",
    "adapters": "LoRA weights",
    "gradients": "of what is trained",
    "optimizer": "moments and fp32 copies",
    "libraries": "workspaces inside the allocator",
    "context": "CUDA and NCCL, outside the allocator",
}


def share(size: int, whole: int) -> str:
    """12%, and <1% where rounding would leave nothing."""
    return "<1%" if 0 < size * 200 < whole else f"{size / max(1, whole):.0%}"


def setting(job: Job, planner: Planner, parts: dict[str, Any], *, model: bool = True) -> str:
    """Return what an answer assumes, in one line: devices, ranks, memory, training mode, and the
    model where asked."""
    topology, training, of = planner.topology, planner.training, planner.model
    ranks = f" ({topology})" if str(topology) != "one rank" else ""
    devices = f"{topology.world:,} x {job.device}" if job.device else count(topology.world, "GPU")
    if parts["device"] is not None:
        held = f"{_gib(parts['resident'])} of {_gib(parts['device'])} GiB resident"
    elif parts["before_margin"] is not None:
        held = f"{_gib(parts['before_margin'])} GiB available"
    else:
        held = f"{_gib(parts['resident'])} GiB resident"
    if parts["colocated"]:
        held += f", {_gib(parts['colocated'])} colocated"
    if parts["margin"]:
        held += f", margin {planner.margin:.0%}"
    mode = f"LoRA {training.lora_rank}" if training.lora_rank else "full fine-tuning"
    text = f"on {devices}{ranks}; {held}, {mode}, {training.recompute} recompute"
    if not model:
        return text
    experts = f", {of.experts:,} experts" if of.experts else ""
    size = f"{of.parameters / 1e9:.1f} B parameters"
    return f"{text}; {job.model}: {of.layers:,} layers{experts}, {size}"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f}"


def answer(waves: Sequence[Wave], run: Waves, whole: bool = True) -> str:
    """Return how many waves of how many requests there are, and how many were refused."""
    unit, widths = unit_of(run.pool), [wave.width for wave in waves]
    text = count(len(waves), "wave") + ("" if whole else " so far")
    if widths:
        least, most = min(widths), max(widths)
        text += (
            f" of {count(most, unit)}"
            if least == most
            else (f" of {integer(least)} to {count(most, unit)}")
        )
    if run.refused:
        text += f", {integer(len(run.refused))} of {count(len(run.pool.group_sizes), unit)} refused"
    return text


def figures(wave: Wave) -> dict[str, Any]:
    """Return the numbers of a wave that text, JSON, page and plots show, by the same words.

    Requests and tokens are over all shares, the modelled time is of the slowest. The rest is of
    the share that requires most, but for the balance over shares.
    """
    plans = [share.plan for share in wave.shares or (wave,)]
    tokens = [plan.packed_tokens for plan in plans]
    times = [plan.time_ms for plan in plans]
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
        "time_ms": max(times),
        "dp_time": _balance(times),
    }


WAVE: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "wave": lambda one: integer(one["number"]),
    "requests": lambda one: integer(one["requests"]),
    "tokens": lambda one: integer(one["logical_tokens"]),
    "packed": lambda one: integer(one["packed_tokens"]),
    "saved": lambda one: f"{1 - one['packed_tokens'] / max(1, one['logical_tokens']):.0%}",
    "required": lambda one: format_bytes(one["required"]),
    "time": lambda one: milliseconds(one["time_ms"], one["slowest"]),
    "busiest": lambda one: integer(one["busiest"]),
    "balance": lambda one: f"{one['balance']:.2f}",
    "DP rank": lambda one: integer(one["dp_rank"]),
    "DP tokens": lambda one: f"{one['dp_tokens']:.2f}",
    "DP time": lambda one: f"{one['dp_time']:.2f}",
    "not wider because": lambda one: one["stopped"],
}
"""Columns of waves, of what `wave_figures` returns."""
OF_CP, OF_DP = ("busiest", "balance"), ("DP rank", "DP tokens", "DP time")
DROPPED = ("balance", "saved", "DP tokens", "time", "busiest", "DP rank", "tokens", "DP time")
"""Columns that go where the terminal is narrow, the first first."""
ABOUT = {
    "required": "of the DP rank that requires most; requests, tokens and packed are over all",
    "time": "modelled at the speed of an H200: forward and backward of all layers",
    "DP rank": "that rank",
    "DP tokens": "packed tokens of the busiest DP rank, over the mean",
    "DP time": "modelled time of the slowest DP rank, over the mean",
    "busiest": "local tokens of the busiest CP rank",
    "balance": "that over the mean of CP ranks",
}
"""What columns mean."""


def wave_figures(wave: Wave, at: int) -> dict[str, Any]:
    """Return the figures of the wave at a position, and why it is not wider."""
    return {"number": at + 1, **figures(wave), "stopped": reason(wave), "shares": shares(wave)}


def wave_table(waves: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of some waves, of their `wave_figures`."""
    cp, dp = len(waves[0]["rank_tokens"]), len(waves[0]["shares"])
    left_out = (*(OF_CP if cp == 1 else ()), *(OF_DP if dp == 1 else ()))
    names = [name for name in WAVE if name not in left_out]
    right = {*names[:-1]}
    about = {name: text for name, text in ABOUT.items() if dp > 1 or name != "required"}
    slowest = max(one["time_ms"] for one in waves)
    rows = [[WAVE[name]({**one, "slowest": slowest}) for name in names] for one in waves]
    optional = [name for name in DROPPED if name in names]
    return Table("", names, rows, right=right, optional=optional, about=about)


def shares(wave: Wave) -> list[dict[str, Any]]:
    """Return what every data-parallel rank runs of a wave."""
    return [
        {
            "dp_rank": share.dp_rank,
            "requests": len(share.plan.requests),
            "packed_tokens": share.plan.packed_tokens,
            "required": share.required,
            "time_ms": share.plan.time_ms,
        }
        for share in wave.shares or (wave,)
    ]


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
    """Return the requests, the tightest wave, the doubtful rules and the refusals, as text."""
    parts, groups = [], run.pool.group_sizes
    unit = unit_of(run.pool)
    if waves:
        tokens, labelled = int(run.pool.lengths.sum()), int(run.pool.labelled.sum())
        some = f", {integer(labelled)} labelled" if labelled < tokens else ""
        requests = count(len(run.pool), "request")
        tightest = max(waves, key=lambda wave: wave.required)
        composed = run.composition if isinstance(run, ComposedWaves) else None
        least = least_waves(waves, run)
        lines = [
            f"{requests}, {count(tokens, 'token')}{some}, planned in {seconds(elapsed)}",
            f"tightest: wave {waves.index(tightest) + 1} requires "
            f"{format_bytes(tightest.required)} of {format_bytes(tightest.available)}"
            f"{_why_not_wider(tightest, unit)}",
        ]
        if composed is not None:
            lines.insert(1, f"composed: {composed}")
        elif least is not None:
            lines.insert(1, f"no order needs fewer than {count(least, 'wave')}")
        trust = sum(wave.stopped.kind == "trust" for wave in waves)
        if trust:
            reason = next(wave.stopped.reason for wave in waves if wave.stopped.kind == "trust")
            lines.append(f"{count(trust, 'wave')} stopped by trust, not by memory: {reason}")
        lines += pads_text(run.pool, waves)
        parts.append("\n".join(lines))
    parts += doubts(run.doubtful) if waves else ()
    if run.refused:
        parts.append(_refused(run.refused, len(groups), unit))
    return parts


def least_waves(waves: Sequence[Wave], run: Waves) -> int | None:
    """Return the waves below which no order comes; None of one wave, or of a pool half planned."""
    if len(waves) < 2 or run.start < run.groups:
        return None
    return run.composition.bound if isinstance(run, ComposedWaves) else run.bound().waves


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
        text = f"width {integer(stopped.width)} fits, but is slower for its work"
    elif stopped.required is None:
        text = f"width {integer(stopped.width)} does not fit"
    elif stopped.required <= stopped.available:
        text = f"width {integer(stopped.width)} does not fit on another DP rank"
    else:
        text = f"width {integer(stopped.width)} requires {format_bytes(stopped.required)}"
    parts = len(wave.plan.forwards)
    return f"{text}; runs as {parts} forwards" if parts > 1 else text


def assumed(job: Job, planner: Planner, waves: Sequence[Wave] = ()) -> str:
    """Return what prices and plans take for granted unless they are told."""
    parts = [planner.training.assumed(gpu=job.device is None)]
    if any(wave.plan.packed_tokens < wave.plan.logical_tokens for wave in waves):
        parts.append("shared prefixes stored once (--no-sharing for a trainer that repeats them)")
    if planner.topology.pp > 1:
        held = max(planner.topology.in_flight(0, planner.training.microbatches))
        parts.append(f"activations of {held} micro-batches on the first stage (--microbatches)")
    return f"assumed: {', '.join(parts)}"


def unit_of(pool: Requests) -> str:
    """Return the name of what a width counts: requests, or groups of them."""
    return "request" if len(pool.group_sizes) == len(pool) else "group"


def count(number: int, what: str) -> str:
    """3 waves, 1 wave."""
    return f"{integer(number)} {what}{'' if number == 1 else 's'}"


def milliseconds(value: float, slowest: float = 0) -> str:
    """A modelled time, in the unit of the slowest of its column."""
    return f"{value / 1000:,.2f} s" if max(value, slowest) >= 10_000 else f"{value:,.1f} ms"


def _why_not_wider(wave: Wave, unit: str) -> str:
    stopped, binding = wave.stopped, wave.stopped.binding
    if stopped.kind != "memory" or stopped.required is None:
        return ""
    wider = f"; {count(stopped.width, unit)}"
    if stopped.required <= stopped.available:
        return f"{wider} do not fit on another DP rank"
    text = f"{wider} would require {format_bytes(stopped.required)}"
    if binding is None:
        return text
    term = f"{binding.term or 'outputs'}, {format_bytes(binding.bytes)}"
    place = f"{stopped.where}CP rank {binding.rank}, {binding.phase}"
    return f"{text} ({place}; most of it {term})"


def doubts(doubtful: Sequence[Status], where: str = "for these requests") -> list[str]:
    """Return a text on rules in doubt, by reason, so that each is given once; [] without any."""
    by_reason: dict[str, list[str]] = {}
    for state in doubtful:
        by_reason.setdefault(state.reason, []).append(state.name)
    lines = [f"unmeasured or uncharged {where}: {count(len(doubtful), 'rule')}"]
    lines += [f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return ["\n".join(lines)] if by_reason else []


def _refused(refused: Sequence[WaveRefused], groups: int, unit: str) -> str:
    amounts = [item.required for item in refused if item.required > item.available]
    dropped = len(refused) - len(amounts)
    lines = [
        f"refused: {integer(len(amounts))} of {count(groups, unit)}, which can never fit in "
        f"{format_bytes(refused[0].available)}; they require "
        + " to ".join(dict.fromkeys(format_bytes(pick(amounts)) for pick in (min, max)))
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
            table.add(format_bytes(value), share(value, price.required), name, why)
    peak = f"in {price.explanation.phase}"
    table.add(format_bytes(price.required), "100%", "required", f"the peak is {peak}")
    return table


def short(text: str) -> str:
    """The first clause of a sentence."""
    return text.split(";")[0].removesuffix(".")


def explanation(wave: Wave, number: int) -> list[Table | str]:
    """Price tree of a wave and the segments that its packs share, largest savings first."""
    plan = wave.plan
    return [
        f"wave {number}: {count(len(wave.requests), 'request')}, {integer(plan.packed_tokens)} "
        f"packed of {integer(plan.logical_tokens)} tokens, {format_bytes(wave.required)}",
        charges(plan.price),
        plan.price.explain(),
        *(_shared(pack, number + 1) for number, pack in enumerate(plan.largest.packs)),
    ]


def _shared(pack: Pack, number: int) -> str:
    """The shared prefixes of a pack that save most, and the largest that are not shared."""
    tree, stored = pack.tree, pack.shared
    decisions = tree.count > 1
    saved = (tree.end - tree.start) * (tree.count - 1)
    proof = "proven best" if pack.optimal else f"work within {_gap(pack):.2%} of best"
    lines = [
        f"pack {number}: {int((stored & decisions).sum()):,} of "
        f"{count(int(decisions.sum()), 'shared prefix').replace('prefixs', 'prefixes')} stored "
        f"once; layout {proof}"
    ]
    order = [int(i) for i in (-saved).argsort(kind="stable") if decisions[i]]
    for i in order[:SHOWN]:
        run = f"tokens {int(tree.start[i]):,} to {int(tree.end[i]):,}"
        what = f"{run} of {int(tree.count[i]):,} sequences"
        tokens = f"{int(saved[i]):,}"
        again = f"repeated in each; {tokens} more tokens cost less than one more level of segments"
        lines.append(f"  {what}: {f'{tokens} tokens saved' if stored[i] else again}")
    lines += [f"  and {len(order) - SHOWN:,} smaller ones"] * (len(order) > SHOWN)
    return "\n".join(lines)


def _gap(pack: Pack) -> float:
    return pack.work / pack.work_bound - 1 if pack.work_bound else 0.0
