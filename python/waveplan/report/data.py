"""Data of a planned pool, for a page, plots or a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waveplan.desk.hints import hints
from waveplan.pricing import Measures, Price, price
from waveplan.report.summary import (
    answer,
    assumed,
    card,
    count,
    least_waves,
    memory,
    pads_text,
    parts,
    reason,
    setting,
    short,
    states,
    unit_of,
    wave_figures,
)

if TYPE_CHECKING:
    from waveplan._core import Tree
    from waveplan.desk.jobs import Job
    from waveplan.plan import Pack, Plan
    from waveplan.planner import Planner, Waves
    from waveplan.sequences.requests import Requests
    from waveplan.wave import Wave

__all__ = ["collect", "collect_tree", "rank_prices"]

BOXES = 1500
"""The most boxes of the prefix tree, largest first."""
RUNS = 2000
"""The most runs of chunks of one owner that are drawn."""
SHOWN_RULES = 7


def collect(
    job: Job,
    planner: Planner,
    waves: Sequence[Wave],
    run: Waves,
    provenance: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the data of a page: JSON types only, bytes and milliseconds.

    ``provenance`` is shown as it is: a file, a command, a date by name.
    """
    found = job.read()
    at = max(range(len(waves)), key=lambda i: waves[i].required) if waves else None
    tightest = None if at is None else waves[at]
    hardest = max(run.refused, key=lambda item: item.required, default=None)
    held = memory(planner, run.doubtful, None if tightest is None else tightest.required)
    return {
        "title": f"waveplan: {job.model} on {job.ranks_text()}",
        "answer": answer(waves, run, run.start >= run.groups),
        "job": [
            setting(job, planner, held, model=False),
            f"{job.model}: {found['text']}",
            *found["notes"],
            assumed(job, planner, waves),
            *pads_text(run.pool, waves),
        ],
        "requests": len(run.pool),
        "gpus": planner.topology.world,
        "available": run.available,
        "dp": job.dp,
        "cp": job.cp,
        "least_waves": least_waves(waves, run),
        "tightest": None if at is None else at + 1,
        "card": _card(held, run, tightest),
        "more": None if at is None else _more(job, planner, waves, run),
        "waves": [wave_figures(wave, i) for i, wave in enumerate(waves)],
        "owners": None if tightest is None else _owners(tightest),
        "tree": {"nodes": [], "hidden": 0} if tightest is None else collect_tree(tightest),
        "explain": "" if tightest is None else tightest.plan.price.explain(),
        "probes": [
            {
                "wave": i + 1,
                "width": probe.width,
                "layout": probe.kind,
                "packed_tokens": probe.packed_tokens,
                "required": probe.required,
                "fits": probe.fits,
            }
            for i, wave in enumerate(waves)
            for probe in wave.probes
        ],
        "doubtful": states(run.doubtful),
        "margin": f"A margin of {planner.margin:.0%} is kept back for them."
        if planner.kept(planner.available, run.doubtful)
        else "",
        "refused": [
            {
                "requests": np.sort(item.plan.requests).tolist(),
                "tokens": item.plan.logical_tokens,
                "required": item.required,
                "why": str(item).rpartition("; ")[2],
            }
            for item in run.refused
        ],
        "refused_changes": []
        if hardest is None
        else _changes(job, planner, run.pool, hardest.plan),
        "provenance": dict(provenance or {}),
    }


def _card(found: dict[str, Any], run: Waves, wave: Wave | None) -> dict[str, Any]:
    """The memory of one GPU while a wave runs: parts that add up to the whole."""
    rows = list[tuple[str, int, str]]()
    if wave is not None:
        shown, rest, margin, factor = parts(wave.plan.price, SHOWN_RULES)
        smaller = sum(size > 0 for size in wave.plan.price.terms.values()) - len(shown)
        rules = wave.plan.price.bound.rules.rules
        rows = [
            (name, size, short(rules[name].why) if name in rules else "") for name, size in shown
        ]
        rows += [
            ("smaller charges", rest, f"of {count(smaller, 'rule')} together"),
            ("other forwards", wave.required - wave.plan.price.required, "of the split"),
            ("safety factor", factor, "added to all that the rules charge"),
            ("allowance", margin, "stands in for uncharged rules"),
        ]
    return {
        "whole": found["device"] or found["resident"] + found["before_margin"],
        "device": found["device"] is not None,
        "wave": found["wave"] or 0,
        "resident": found["resident"],
        "available": found["available"],
        "dp_rank": 0 if wave is None else wave.dp_rank,
        "parts": [
            {"kind": kind, "name": name, "bytes": size, "why": why}
            for kind, name, size, why in card(found, run.doubtful, rows)
        ],
    }


def _more(job: Job, planner: Planner, waves: Sequence[Wave], run: Waves) -> dict[str, Any]:
    """Why a wave is not wider, and what would let it be; the tightest that memory stopped."""
    at = max(
        range(len(waves)),
        key=lambda i: (waves[i].stopped.binding is not None, waves[i].required),
    )
    wave, stop = waves[at], waves[at].stopped
    made: dict[str, Any] = {
        "wave": at + 1,
        "kind": stop.kind,
        "width": stop.width,
        "current": wave.width,
        "unit": unit_of(run.pool),
        "text": reason(wave),
        "composed": stop.reason,
        "available": wave.available,
        "now": wave.required,
        "required": stop.required,
        "dp_rank": stop.dp_rank,
        "now_dp_rank": wave.dp_rank,
        "binding": None,
        "grown": [],
        "changes": [],
    }
    if stop.kind == "memory" and stop.plan is not None and stop.plan.required > stop.available:
        binding = stop.binding
        assert binding is not None
        made["binding"] = {"rank": binding.rank, "phase": binding.phase}
        shares = wave.shares or (wave,)
        made["grown"] = _grown(shares[stop.dp_rank or 0].plan.price, stop.plan.price)
        made["changes"] = _changes(job, planner, run.pool, stop.plan)
    return made


def _grown(now: Price, wider: Price) -> list[dict[str, Any]]:
    """What each rule charges at a wave's width and at the next, those that grow most first."""
    charged: list[tuple[str, int, int]] = [
        (name, now.terms.get(name, 0), wider.terms.get(name, 0))
        for name in dict.fromkeys((*wider.terms, *now.terms))
    ]
    charged.sort(key=lambda item: (item[1] - item[2], item[0]))
    shown = [item for item in charged if item[2] != item[1]][:SHOWN_RULES]
    before = now.required - sum(item[1] for item in shown)
    after = wider.required - sum(item[2] for item in shown)
    lines = [*shown, ("all else, safety factor included", before, after)]
    return [{"rule": name, "now": before, "then": after} for name, before, after in lines]


def _changes(job: Job, planner: Planner, pool: Requests, plan: Plan) -> list[dict[str, Any]]:
    """What would let the requests of a plan fit, see `waveplan.desk.hints`."""
    found = hints(job, planner, pool, np.sort(plan.requests))
    return [{**asdict(hint), "fits": hint.fits} for hint in found]


def rank_prices(plan: Plan) -> list[Price]:
    """Return the price of a forward with each context-parallel rank's local tokens.

    Terms that do not follow local tokens (outputs, head, the worst rank's pending saves) are
    the same on every rank. The busiest rank's is the price of the forward.
    """
    forward, measures = plan.largest, plan.measures.to_dict()
    ranks = max((len(pack.rank_tokens) for pack in forward.packs), default=1)
    if ranks == 1:
        return [plan.price]
    made = []
    for rank in range(ranks):
        for line, pack in zip(measures["packs"], forward.packs, strict=True):
            line["local_tokens"] = max(1, int(pack.rank_tokens[rank]))
        made.append(price(Measures.of(**measures), plan.price.bound))
    return made


def _largest_pack(wave: Wave) -> Pack | None:
    packs = wave.plan.largest.packs
    return max(packs, key=lambda pack: pack.packed_tokens, default=None)


def _owners(wave: Wave) -> dict[str, Any] | None:
    """Who owns the chunks of a wave's largest pack, and what that comes to on every rank.

    Milliseconds are modelled, of one attention layer, with communication.
    """
    pack = _largest_pack(wave)
    if pack is None or pack.ownership is None:
        return None
    made, runs = pack.ownership, list[list[int]]()
    for i, owner in enumerate(made.owners.tolist()):
        size = min(made.chunk, made.tokens - i * made.chunk)
        if runs and runs[-1][0] == owner:
            runs[-1][1] += size
        else:
            runs.append([owner, size])
    forward, backward = made.forward_ms, made.backward_ms
    timed = len(forward) == made.ranks
    prices = [one.required for one in rank_prices(wave.plan)]
    return {
        "tokens": made.tokens,
        "chunk": made.chunk,
        "runs": runs[:RUNS],
        "ranks": [
            {
                "rank": rank,
                "tokens": int(pack.rank_tokens[rank]),
                "required": prices[rank],
                "forward_ms": float(forward[rank]) if timed else None,
                "backward_ms": float(backward[rank]) if timed else None,
            }
            for rank in range(made.ranks)
        ],
    }


def _copies(tree: Tree, once: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How often a pack stores each segment: one that is not stored once goes into every stored
    segment that continues it, and into every sequence that ends there."""
    count = tree.count
    copies = np.where(once, 1, count)
    for i, parent in reversed(list(enumerate(tree.parent.tolist()))):
        if parent >= 0 and not once[parent]:
            copies[parent] += copies[i] - count[i]
    return copies


def collect_tree(wave: Wave) -> dict[str, Any]:
    """Boxes of the prefix tree of a wave's largest pack.

    A box is a run of tokens: ``left`` and ``width`` by its tokens, as shares of the longest
    sequence; ``top`` and ``height`` by the sequences through it, as shares of all. So its area is
    the tokens that it has in all sequences. ``kind`` is "shared" (stored once), "own" (of one
    sequence) or "again" (repeated). The largest `BOXES` are kept.
    """
    pack = _largest_pack(wave)
    if pack is None:
        return {"nodes": [], "hidden": 0}
    tree = pack.tree
    counts, sizes = tree.count, tree.end - tree.start
    total, longest = int(counts[tree.parent < 0].sum()), int(tree.end.max())
    top, used = np.zeros(len(counts), np.int64), dict[int, int]()
    for i, parent in enumerate(tree.parent.tolist()):
        top[i] = used.get(parent, 0 if parent < 0 else int(top[parent]))
        used[parent] = int(top[i] + counts[i])
    copies = _copies(tree, pack.shared | (counts == 1))
    kinds = np.where(counts == 1, "own", np.where(pack.shared, "shared", "again"))
    largest = np.sort(np.argsort(-counts * sizes, kind="stable")[:BOXES])
    return {
        "sequences": total,
        "longest": longest,
        "tokens": {
            kind: int((sizes * copies)[kinds == kind].sum()) for kind in ("shared", "own", "again")
        },
        "saved": int((sizes * (counts - copies)).sum()),
        "nodes": [
            {
                "left": int(tree.start[i]) / longest,
                "width": int(sizes[i]) / longest,
                "top": int(top[i]) / total,
                "height": int(counts[i]) / total,
                "kind": str(kinds[i]),
                "label": count(int(sizes[i]), "token")
                + (f" x {count(int(counts[i]), 'sequence')}" if counts[i] > 1 else ""),
            }
            for i in largest.tolist()
        ],
        "hidden": len(counts) - len(largest),
    }
