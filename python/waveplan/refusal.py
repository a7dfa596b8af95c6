"""A refusal that says what was tried and what would fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.budget import Budget, format_bytes
from waveplan.errors import InputError, WaveRefused
from waveplan.plan import Plan, plan_of
from waveplan.requests import Requests
from waveplan.rows import Rows
from waveplan.wave import Probe, binding_of

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = ["Change", "refused"]

MOST_RANKS = 64
"""The largest context-parallel size that a refusal looks at."""


class Change(NamedTuple):
    """One change that would make a refused wave fit; each was computed by planning it.

    ``kind`` is "budget" (`value` bytes free), "tokens" (every row cut to `value` tokens) or "cp"
    (`value` context-parallel ranks).
    """

    kind: Literal["budget", "tokens", "cp"]
    value: int

    def __str__(self) -> str:
        if self.kind == "budget":
            return f"{format_bytes(self.value)} free for waves"
        if self.kind == "tokens":
            return f"rows of at most {self.value} tokens"
        return f"context parallelism of {self.value}"


def refused(
    planner: Planner,
    pool: Requests,
    found: core.SearchResult,
    probes: tuple[Probe, ...],
    limit: int,
    *,
    indices: NDArray[np.int64] | None = None,
    elsewhere: str = "",
) -> WaveRefused:
    """The error for a wave that cannot run: here, or for a reason `elsewhere`, on another rank."""
    plan = plan_of(found, planner.bound)
    tried = found.tried
    requests = len(plan.requests)
    if elsewhere:
        why = f"but {elsewhere}"
    elif requests == 1:
        why = "a single request cannot be split"
    elif found.unsplittable:
        why = "expert parallelism switches splitting off"
    else:
        why = f"no rung of the bounded ladder fits, up to {tried[-1].parts} forwards"
    message = (
        f"the smallest wave ({requests} request{'s' * (requests != 1)}, {plan.packed_tokens} "
        f"packed of {plan.logical_tokens} tokens) needs {format_bytes(found.required)} of "
        f"{format_bytes(limit)}; {why}"
    )
    wave = np.sort(plan.requests)
    return WaveRefused(
        message,
        plan=plan,
        required=found.required,
        limit=limit,
        width=found.width,
        indices=found.items if indices is None else indices,
        tried=tried,
        probes=probes,
        binding=lambda: binding_of(plan),
        change=lambda: changes(planner, pool, wave, limit),
        best=lambda: cheapest(planner, pool, wave),
    )


def cheapest(planner: Planner, pool: Requests, rows: NDArray[np.int64]) -> Plan:
    """Of everything the ladder tries for these rows, the plan or split that needs least.

    A rung that a lower bound rejected may need less than what was planned, so each answer is
    asked again with one byte less until nothing fits.
    """
    engine = planner.make_engine(pool)
    profiles = planner.profiles.columns(planner.context, pool.mixes)
    found, _ = engine.plan(rows, (1 << 63) - 1, profiles)
    while True:
        best = plan_of(found, planner.bound)
        found, _ = engine.plan(rows, best.required - 1, profiles)
        if found.kind == "refused":
            return best


def changes(planner: Planner, pool: Requests, rows: NDArray[np.int64], limit: int) -> list[Change]:
    """The smallest changes that would make these rows fit as one forward, split or not."""
    best = cheapest(planner, pool, rows).required
    if best <= limit:  # another rank's refusal: nothing here has to change
        return []
    found = [Change("budget", best)]
    longest = int(pool.lengths[rows].max())
    low, high = 0, longest  # high does not fit; low does, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(planner, pool, rows, middle, limit):
            low = middle
        else:
            high = middle
    if low:
        found.append(Change("tokens", low))
    ranks = 2 * planner.topology.cp
    while ranks <= MOST_RANKS:
        try:
            topology = replace(planner.topology, cp=ranks)
            wider = planner.like(topology=topology, budget=Budget(available=max(1, limit)))
        except InputError:
            break
        if _fits(wider, pool, rows, longest, limit):
            found.append(Change("cp", ranks))
            break
        ranks *= 2
    return found


def _fits(planner: Planner, pool: Requests, rows: NDArray[np.int64], most: int, limit: int) -> bool:
    return _needs(planner, cut(pool, rows, most), limit) is not None


def _needs(planner: Planner, pool: Requests, limit: int) -> int | None:
    """Bytes of the first plan or split that fits in `limit`."""
    try:
        return planner.plan(pool, limit=limit).required
    except WaveRefused:
        return None


def cut(pool: Requests, rows: NDArray[np.int64], most: int) -> Requests:
    """Some rows of a pool as one item, each cut to `most` tokens; labels go with them."""
    tokens = [pool.rows[int(i)][:most] for i in rows]
    lengths = np.minimum(pool.lengths[rows], most)
    targets: list[object] = []
    for i, length in zip(rows.tolist(), lengths.tolist(), strict=True):
        if not pool.targets[i]:
            targets.append(False)
        elif pool.first_target is not None:
            targets.append(min(int(pool.first_target[i]), length))
        else:
            assert pool.label_mask is not None
            start = int(pool.rows.offsets[i])
            mask = pool.label_mask[start : start + length]
            width = int(pool.target_width[i])
            targets.append(np.repeat(mask[:, None], width, axis=1) if width > 1 else mask)
    names = (None, *pool.adapters)
    return Requests(
        Rows.from_any(tokens),
        targets=targets,
        top_k=[k or None for k in pool.top_k[rows].tolist()],
        logits=pool.logits[rows].tolist(),
        hidden=pool.hidden[rows].tolist(),
        gradient=pool.gradient[rows].tolist(),
        adapter=[names[slot] for slot in pool.slot[rows].tolist()],
        items=[len(rows)],
        routed=pool.routed[rows],
    )
