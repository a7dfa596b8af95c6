"""Data of a planned pool, for a page, plots or a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from waveplan._core import stage_times
from waveplan.pricing import Measures, Price, price
from waveplan.report.summary import (
    count,
    figures,
    memory_text,
    pads_text,
    parts,
    reason,
    states,
    unit_of,
)

if TYPE_CHECKING:
    from waveplan.desk.jobs import Job
    from waveplan.plan import Pack, Plan
    from waveplan.planner import Planner, Waves
    from waveplan.wave import Wave

__all__ = ["collect", "collect_tree", "rank_prices"]

# Boxes of the prefix tree that would be narrower than this share of the page are not drawn.
HAIR = 1 / 1500
SHOWN_TERMS = 8


def collect(job: Job, planner: Planner, waves: Sequence[Wave], run: Waves) -> dict[str, Any]:
    """Return the data of a page: JSON types only, bytes and milliseconds."""
    memory, found = memory_text(planner, run.doubtful), job.read()
    tightest = max(range(len(waves)), key=lambda i: waves[i].required) if waves else None
    unit = unit_of(run.pool)
    widest = max((wave.width for wave in waves), default=0)
    return {
        "title": f"waveplan: {job.model} on {job.ranks_text()}",
        "job": [
            found["text"],
            *found["notes"],
            job.training_text(),
            *f"memory of a rank: {memory}".split("\n"),
            *pads_text(run.pool, waves),
        ],
        "summary": f"{count(len(waves), 'wave')}, the widest {count(widest, unit)}; "
        f"{count(len(run.refused), unit)} refused",
        "available": run.available,
        "dp": job.dp,
        "waves": [
            {"number": i + 1, **figures(wave), "stopped": reason(wave)}
            for i, wave in enumerate(waves)
        ],
        "tightest": None if tightest is None else _memory(tightest + 1, waves[tightest]),
        "tree": {"nodes": [], "hidden": 0} if tightest is None else collect_tree(waves[tightest]),
        "attention": None if tightest is None else _attention(planner, waves[tightest]),
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
        if planner.margin and run.doubtful
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
    }


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


def _memory(number: int, wave: Wave) -> dict[str, Any]:
    ranks = []
    for rank, made in enumerate(rank_prices(wave.plan)):
        terms, rest, margin, factor = parts(made, SHOWN_TERMS)
        shown = [[name, value] for name, value in terms]
        if rest:
            shown.append(["smaller terms", rest])
        if factor > 0:
            shown.append(["safety factor", factor])
        if margin:
            shown.append(["margin", margin])
        ranks.append({"rank": rank, "terms": shown, "required": made.required})
    explained = wave.plan.price.explain()
    return {"number": number, "dp_rank": wave.dp_rank, "ranks": ranks, "explain": explained}


def _largest_pack(wave: Wave) -> Pack | None:
    packs = wave.plan.largest.packs
    return max(packs, key=lambda pack: pack.packed_tokens, default=None)


def collect_tree(wave: Wave) -> dict[str, Any]:
    """Boxes of the icicle: left edge and width as shares of the page, by sequences through them."""
    pack = _largest_pack(wave)
    if pack is None:
        return {"nodes": [], "hidden": 0}
    tree, shared = pack.tree, pack.shared
    counts = tree.count
    total = int(counts[tree.parent < 0].sum())
    left = np.zeros(len(counts))
    used: dict[int, float] = {}
    nodes, hidden = [], 0
    for i, (parent, through) in enumerate(zip(tree.parent.tolist(), counts.tolist(), strict=True)):
        base = used.get(parent, left[parent] if parent >= 0 else 0.0)
        left[i] = base
        width = through / total
        used[parent] = base + width
        if width < HAIR:
            hidden += 1
            continue
        tokens = int(tree.end[i] - tree.start[i])
        stored = bool(shared[i]) or through == 1
        run = f"{tokens:,} token{'' if tokens == 1 else 's'}"
        label = f"{run} x {through:,} sequences" if through > 1 else run
        nodes.append(
            {
                "left": float(base),
                "width": width,
                "depth": int(tree.depth[i]) - 1,
                "shared": stored,
                "label": label,
            }
        )
    return {"nodes": nodes, "hidden": hidden}


def _attention(planner: Planner, wave: Wave) -> dict[str, Any] | None:
    """Modelled forward milliseconds of one layer's attention, per rank and part."""
    pack = _largest_pack(wave)
    if pack is None or pack.ownership is None or not len(pack.ownership.forward_ms):
        return None
    made = pack.ownership
    parts = stage_times(pack.packing, made, planner._settings.ownership)
    times, fetched = np.column_stack([parts.local, parts.compute]), parts.exchange
    return {
        "stages": ["own keys", *(f"keys of fetch {i + 1}" for i in range(fetched.shape[1]))],
        "ranks": [
            {
                "rank": rank,
                "stage_ms": times[rank].tolist(),
                "fetch_ms": fetched[rank].tolist(),
                "forward_ms": float(made.forward_ms[rank]),
                "backward_ms": float(made.backward_ms[rank]),
            }
            for rank in range(made.ranks)
        ],
    }
