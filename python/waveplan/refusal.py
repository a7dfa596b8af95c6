"""A refusal: the plans that were tried, and the smallest changes that would fit."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.budget import Budget, format_bytes
from waveplan.checks import columns
from waveplan.errors import DoubtfulError, InputError, WaveplanError
from waveplan.plan import Plan, plan_of
from waveplan.planning import Planning
from waveplan.pricing import Price
from waveplan.sequences.requests import Requests
from waveplan.sequences.sequences import Sequences
from waveplan.wave import Attempt, Binding, Probe, binding_of

__all__ = ["Change", "WaveRefused", "cheapest", "enough", "refused"]

MOST_RANKS = 64
"""The largest context-parallel size that `changes` tries."""


class Change(NamedTuple):
    """One change that makes a refused wave fit, computed by planning it.

    ``kind`` is "budget" (`value` bytes available), "tokens" (every request cut to `value` tokens)
    or "cp" (`value` context-parallel ranks).
    """

    kind: Literal["budget", "tokens", "cp"]
    value: int

    def __str__(self) -> str:
        if self.kind == "budget":
            return f"{format_bytes(self.value)} available"
        if self.kind == "tokens":
            return f"requests of at most {self.value:,} tokens"
        return f"context parallelism of {self.value}"


class WaveRefused(WaveplanError):  # noqa: N818  (the public name)
    """No plan of the smallest wave fits in memory.

    Other plans than the `attempts` might fit. In another process it keeps its figures and its
    binding, but not the plan.
    """

    def __init__(
        self,
        message: str,
        *,
        required: int,
        available: int,
        width: int,
        indices: NDArray[np.int64],
        attempts: tuple[Attempt, ...],
        probes: tuple[Probe, ...],
        dp_rank: int | None = None,
        search: tuple[Planning, Requests, Plan] | None = None,
    ) -> None:
        super().__init__(message)
        self.required = required
        """Bytes of the plan that requires least; in reference mode of the last attempt."""
        self.available = available
        """Bytes that the wave may use."""
        self.width = width
        """Groups of the wave over all data-parallel ranks; 0 for `Planner.plan`."""
        self.indices = indices
        """The group refused (requests for `Planner.plan`)."""
        self.dp_rank = dp_rank
        """The data-parallel rank that it was dealt to, where there are several."""
        self.attempts = attempts
        """The unsplit plan, the shared one and each split, with bytes."""
        self.probes = probes
        self._search = search

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("required", "available", "width", "indices", "attempts", "probes", "dp_rank")
        figures = {name: getattr(self, name) for name in names}
        return partial(WaveRefused, str(self), **figures), (), {"binding": self.binding}

    def _searched(self) -> tuple[Planning, Requests, Plan]:
        if self._search is None:
            raise InputError("only the process that refused the wave has its plan")
        return self._search

    @property
    def plan(self) -> Plan:
        """The unsplit plan with everything shared."""
        return self._searched()[2]

    @property
    def price(self) -> Price:
        """The price of `plan`."""
        return self.plan.price

    @cached_property
    def binding(self) -> Binding:
        """Rank, phase and term that decide the price of `plan`."""
        return binding_of(self.plan)

    @cached_property
    def oversized(self) -> Plan:
        """The plan or split of these requests that requires least, although it does not fit."""
        planner, pool, plan = self._searched()
        return cheapest(planner, pool, np.sort(plan.requests))

    @cached_property
    def change(self) -> list[Change]:
        """The smallest changes that would fit, computed when first read."""
        planner, pool, plan = self._searched()
        return changes(planner, pool, np.sort(plan.requests), self.available)

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as stable JSON."""
        return {
            "message": str(self),
            "required": self.required,
            "available": self.available,
            "width": self.width,
            "dp_rank": self.dp_rank,
            "indices": self.indices.tolist(),
            "attempts": [columns(tried) for tried in self.attempts],
            "binding": asdict(self.binding),
        }


def refused(
    planner: Planning,
    pool: Requests,
    found: core.SearchResult,
    available: int,
    *,
    indices: NDArray[np.int64],
    width: int = 0,
    dp_rank: int | None = None,
    required: int | None = None,
    why: str = "",
    oversized: Plan | None = None,
) -> WaveRefused:
    """Return the error for requests that do not fit, or are dropped (``why``).

    Args:
        required: what they require, agreed by all ranks.
        oversized: their plan that requires least, if it is known.
    """
    plan = plan_of(found, planner.bound, pool)
    tried = found.attempts
    requests = len(plan.requests)
    if required is None:
        required = found.required
        if not (planner.reference or why):
            oversized = cheapest(planner, pool, np.sort(plan.requests))
            required = oversized.required
    if not why:
        if requests == 1:
            why = "a single request cannot be split"
        elif found.unsplittable:
            why = "expert parallelism switches splitting off"
        else:
            why = f"no split fits, up to {requests} forwards"
        even = " at the even share" if planner.topology.cp > 1 and not planner.reference else ""
        why = f"requires {format_bytes(required)} of {format_bytes(available)}{even}; {why}"
    what = "the smallest wave" if dp_rank is None else f"the share of DP rank {dp_rank}"
    made = WaveRefused(
        f"{what} ({requests} request{'s' * (requests != 1)}, {plan.packed_tokens:,} packed of "
        f"{plan.logical_tokens:,} tokens) {why}",
        required=required,
        available=available,
        width=width,
        indices=indices,
        attempts=tried,
        probes=found.probes,
        dp_rank=dp_rank,
        search=(planner, pool, plan),
    )
    if oversized is not None:
        made.oversized = oversized
    return made


def cheapest(planner: Planning, pool: Requests, indices: NDArray[np.int64]) -> Plan:
    """Return the plan or split of these requests that requires least, of all attempts.

    An attempt that a lower bound rejected may require less than the one found, so the search is
    repeated with one byte less than an even share of it until nothing fits.
    """
    engine = planner.make_engine(pool)
    profiles = planner.known(pool)
    least = (1 << 63) - 1
    while True:
        found = engine.plan(indices, least - 1, profiles)
        if found.kind == "refused":
            return plan_of(engine.plan(indices, least, profiles), planner.bound, pool)
        least = found.least


def enough(planner: Planning, pool: Requests, required: int) -> int:
    """Return the least available bytes that leave so many when the margin is kept back."""
    least, doubtful = required, planner.doubtful(pool)
    while (missing := required + planner.kept(least, doubtful) - least) > 0:
        least += missing
    return least


def changes(
    planner: Planning, pool: Requests, indices: NDArray[np.int64], available: int
) -> list[Change]:
    """Return the smallest changes that make these requests fit as one forward, split or not."""
    best = cheapest(planner, pool, indices).required
    if best <= available:  # another rank's refusal: nothing here has to change
        return []
    found = [Change("budget", enough(planner, pool, best))]
    longest = int(pool.lengths[indices].max())
    low, high = 0, longest  # high does not fit; low does, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(planner, pool, indices, middle, available):
            low = middle
        else:
            high = middle
    if low:
        found.append(Change("tokens", low))
    ranks = 2 * planner.topology.cp
    while ranks <= MOST_RANKS:
        try:
            topology = replace(planner.topology, cp=ranks)
            wider = planner.like(topology=topology, budget=Budget(available=max(1, available)))
            kept = wider.kept(planner.available, wider.doubtful(pool))
        except (InputError, DoubtfulError):
            break
        if _fits(wider, pool, indices, longest, min(available, planner.available - kept)):
            found.append(Change("cp", ranks))
            break
        ranks *= 2
    return found


def _fits(
    planner: Planning, pool: Requests, indices: NDArray[np.int64], most: int, available: int
) -> bool:
    """Return whether the requests, each cut to `most` tokens, fit."""
    requests = cut(pool, indices, most)
    engine, known = planner.make_engine(requests), planner.known(requests)
    return engine.plan(np.arange(len(requests)), available, known).kind != "refused"


def cut(pool: Requests, indices: NDArray[np.int64], most: int) -> Requests:
    """Return some requests of a pool as one group, each cut to `most` tokens, and its labels."""
    tokens = [pool.sequences[int(i)][:most] for i in indices]
    lengths = np.minimum(pool.lengths[indices], most)
    labelled, widths = pool.targets, pool.target_width
    first, masks = pool.first_target, pool.label_mask
    targets: list[object] = []
    for i, length in zip(indices.tolist(), lengths.tolist(), strict=True):
        if not labelled[i]:
            targets.append(False)
        elif first is not None:
            targets.append(min(int(first[i]), length))
        else:
            assert masks is not None
            start = int(pool.sequences.offsets[i])
            mask, width = masks[start : start + length], int(widths[i])
            targets.append(np.repeat(mask[:, None], width, axis=1) if width > 1 else mask)
    names = (None, *pool.adapters)
    return Requests(
        Sequences.from_any(tokens),
        targets=targets,
        top_k=[k or None for k in pool.top_k[indices].tolist()],
        logits=pool.logits[indices].tolist(),
        hidden=pool.hidden[indices].tolist(),
        gradient=pool.gradient[indices].tolist(),
        adapter=[names[slot] for slot in pool.slot[indices].tolist()],
        groups=[len(indices)],
        routed=pool.routed[indices],
    )
