"""The width search: ours proposes, the other package's own functions decide.

Our search prices every probe of this rank. The package's own plan and check then price the width
that it proposes and the next wider one. Where both agree, the package's own search runs on our
prices, with every reduction over the ranks in its place; else it runs on its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from art.trainer_rank import _impl as impl
from art.trainer_rank import _planner_evidence as evidence

from waveplan import _core

from ._alone import alone
from ._packs import make
from ._reader import forget, read
from ._seams import Declined, Disagreed, Function, Passed, Seam
from ._shadow import difference
from ._trees import chosen, own
from ._values import filled, late, planning, searching

_KEPT = frozenset(
    (
        *("_plan_flat_forward", "_memory_check", "_memory_check_required", "_plan_cost"),
        *("_estimate_flat_forward", "_estimate_required_memory_bytes_from_values"),
        *("_plan_group_rows", "_select_group_layout", "_compute_group_layout"),
        *("_estimate_group_request_output_bytes", "_memory_signature_from_requests"),
        *("_forward_item", "_planning_status", "_ensure_checkpoint_slots_for"),
        *("_all_ranks_true", "_all_ranks_have_memory_profile", "_group_active_request_indices"),
    )
)
"""Methods that price: a rank, or a class of ranks, with one of its own is left to it."""
_ESTIMATES = {
    "bound:unshared": (False, False),
    "bound:shared": (False, True),
    "estimate:optimal": (True, False),
    "estimate:full": (True, True),
}
"""Probes without a plan: (exact, memory minimal)."""
_WIDE = 256
"""From so many groups on, the steps of a search are the widest."""
_KINDS = {key: kind for kind, key in _ESTIMATES.items()}


def seams() -> list[Seam]:
    """Return the seam of the search for one wave."""
    method = "TrainerRank._search_next_micro_batch"
    options: dict[str, Any] = {"shadow": propose, "differ": _differ}
    return [Seam("width search", impl, method, search, needs_original=True, **options)]


def search(
    original: Function,
    rank: Any,
    items: Sequence[Any],
    start: int,
    *,
    checkpoint: Any = impl.Unset,
) -> Any:
    """Find the next wave: the package's own search on our prices, once two of them are checked."""
    with searching():
        began = time.perf_counter()
        proposal = Proposal(rank, items, start, checkpoint)
        rank._planning_seconds_accum += time.perf_counter() - began
        proposal.check()
        found = proposal.candidate(items, start)
        if found is not None:
            return found
        try:
            found = original(_Probed(rank, proposal), items, start, checkpoint=checkpoint)
        except Exception as error:
            if _together():
                raise Passed from error  # the other ranks made their reductions already
            raise
        return proposal.finished(found)


def propose(
    rank: Any, items: Sequence[Any], start: int, *, checkpoint: Any = impl.Unset
) -> Proposal:
    """Search for the next wave of this rank; change nothing."""
    with searching():
        return Proposal(rank, items, start, checkpoint)


def _together() -> bool:
    return bool(impl.dist.is_available() and impl.dist.is_initialized())


def _differ(proposal: Proposal, theirs: Any) -> str | None:
    """Return how the package's wave differs from ours; other ranks may have made it narrower."""
    width = proposal.width
    if type(theirs) is not impl._CandidateMicroBatch:
        return f"a wave of {width}, not a refusal"
    ours = (width, proposal.last[width].required)
    found = (theirs.stats_global_count, theirs.check.local_required_bytes)
    if found[0] != width and _together():
        return None
    if found != ours:
        return f"width and bytes are {ours}, not {found}"
    return proposal.differs(theirs.plan)


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """A probe in the place of a plan, and of the signature of one."""

    probe: _core.Probe

    @property
    def signature(self) -> _Priced:
        return self

    @property
    def packed_tokens(self) -> int:
        return self.probe.packed_tokens


def _window(rank: Any, available: int) -> int:
    """Guess the tokens of all requests that fit into a wave, and a half more.

    A smaller guess costs one more search. Bytes a token: an expert layer, and what full recompute
    keeps and its gradient; else the package's generic price.
    """
    size: int = rank._num_layers * rank._hidden_size * rank._param_dtype_size
    per_token: int = rank._moe_output_bytes_per_token + 2 * size
    ranks: int = rank._topology_key()[2]
    return max(1 << 16, 3 * available // (2 * per_token) * ranks)


def _doubled(width: int, first: int) -> bool:
    """Return whether a search that doubles its first width comes to this one."""
    times = width // first
    return times > 1 and times * first == width and not times & (times - 1)


class Proposal:
    """Our search of one wave on this rank, and what the package says of its prices."""

    def __init__(self, rank: Any, items: Sequence[Any], start: int, checkpoint: Any) -> None:
        own, base = type(rank), impl.TrainerRank
        if (
            getattr(rank, "_allow_oversized_batches", False)
            or _KEPT & vars(rank).keys()
            or any(getattr(own, name) is not getattr(base, name) for name in _KEPT)
        ):
            raise Declined
        if rank._forced_test_anchor() is not None:
            raise Declined
        self.rank, self.alone, self.checkpoint = rank, alone(rank), checkpoint
        self.turn = rank._dp_rank_and_size()
        available = rank._available_memory_bytes()
        hint = rank._last_global_micro_batch_size or None
        self.groups: list[list[Any]] = []
        first = hint or self.turn[1]
        unread, tokens = len(items) - start, _window(self.alone, available)
        while True:
            while unread and (tokens > 0 or not _doubled(len(self.groups), first)):
                item = items[len(items) - unread]
                group = [item] if type(item) is impl.ForwardInput else list(impl._flatten(item))
                self.groups.append(group)
                for request in group:
                    tokens -= request.input_tokens.numel()
                unread -= 1
            # no more than widths up to those read, and their steps, depend on
            few = min(unread, max(1, _WIDE - len(self.groups), self.turn[1] - len(self.groups)))
            self.reading = reading = read(self.alone, self.groups, few, checkpoint)
            found = reading.engine.session(0, available, hint, reading.profiles).alone()
            if all(probe.width <= len(self.groups) for probe in found.probes):
                break
            tokens = 3 * int(reading.pool.lengths.sum())
        if found.kind != "wave":
            raise Declined  # splits are the package's own
        self._deal()
        self.width, self.stop, self.wave = found.width, found.stop_width, found.plans
        self.rejected, self.cold = found.rejected, found.cold
        self.priced: dict[tuple[int, str], _Priced] = {}
        self.first: dict[int, str] = {}
        self.last: dict[int, _core.Probe] = {}
        for probe in found.probes:
            key = (probe.requests, probe.kind)
            if key not in self.priced:
                self.priced[key] = _Priced(probe)
            self.first.setdefault(probe.requests, probe.kind)
            self.last[probe.width] = probe
        self.chosen = {
            (len(plan.requests), plan.mode): plan for plan in (*found.plans, found.stopped) if plan
        }
        self.plans: dict[tuple[int, str], Any] = {}
        self.required: dict[int, int] = {}

    def _deal(self) -> None:
        """Say of each request of this rank what plans ask for."""
        reading, share = self.reading, self.alone._share
        mine = self._mine(len(self.groups))
        share.tokens, share.keys = reading.tokens, [reading.keys[i] for i in mine]
        mix, lengths = reading.pool.mix.tolist(), map(len, reading.tokens)
        short = [length < impl._PACKED_PRICED_MIN_REQUEST_TOKENS for length in lengths]
        kinds = {(mix[i], short[i]): at for at, i in reversed([*enumerate(mine)])}
        share.firsts = sorted(kinds.values())

    def _mine(self, width: int) -> list[int]:
        """Return the places of this rank's requests of a width."""
        ends = [0, *accumulate(map(len, self.groups))]
        mine = range(self.turn[0], width, self.turn[1])
        return [i for group in mine for i in range(ends[group], ends[group + 1])]

    def profiled(self, probe: _core.Probe) -> bool:
        """Return whether a probe's signature has a profile."""
        if probe.trusted and probe.packed_tokens > 0:
            return True
        signature = self.reading.engine.signature(np.array(self._mine(probe.width), np.int64))
        return any(signature == known for known, _ in self.reading.profiles)

    def share(self, width: int) -> list[Any]:
        """Return this rank's requests of a width."""
        mine = self.groups[self.turn[0] : width : self.turn[1]]
        return [request for group in mine for request in group]

    def check(self) -> None:
        """Compare our prices of the proposed width and of the next wider one with the package's."""
        for width in sorted({self.width, self.stop} - {0}):
            ours = self.last[width]
            theirs = self._theirs(width, ours.kind)
            if theirs != (ours.packed_tokens, ours.required):
                forget(self.rank)
                raise Disagreed(
                    f"width {width}, {ours.kind}: {ours.required} bytes and {ours.packed_tokens} "
                    f"tokens, not {theirs[1]} and {theirs[0]}"
                )

    def candidate(self, items: Sequence[Any], start: int) -> Any:
        """Return the wave of a process by itself, where its plan was made and fits still.

        With other ranks, or where its decisions are recorded, the package's search has to run.
        """
        rank, turn, width = self.rank, self.turn, self.width
        plan = self.plans.get((len(self.share(width)), self.last[width].kind))
        if plan is None or _together() or evidence.current(rank) is not None:
            return None
        check = rank._memory_check_required(self.required[id(plan)], sync_across_dp=True)
        if not check.fits:
            return None
        indices = tuple(range(start + turn[0], start + width, turn[1]))
        return impl._CandidateMicroBatch(
            inputs=[items[index] for index in indices],
            indices=indices,
            plan=_owned(plan),
            check=check,
            stats_global_count=width,
            rejected_candidates=self.rejected,
            cold_start=self.cold,
        )

    def _theirs(self, width: int, kind: str) -> tuple[int, int]:
        """Return tokens and bytes of a price as the package computes it, without a reduction."""
        rank, requests = self.rank, self.share(width)
        if kind not in _ESTIMATES:
            plan = self.plans[len(requests), kind] = self.plan(requests, kind == "full")
            return plan.packed_tokens, self.required[id(plan)]
        exact, minimal = _ESTIMATES[kind]
        segments: list[int] = []
        values = self.alone._estimate_flat_forward(
            requests,
            checkpoint=self.checkpoint,
            exact=exact,
            memory_minimal=minimal,
            sync_planning_errors=True,
            gdn_segments=segments,
        )
        if values is None:
            return -1, -1
        tokens, output, signature, rows, head = values
        return tokens, rank._estimate_required_memory_bytes_from_values(
            packed_tokens=tokens,
            output_bytes=output,
            signature=signature,
            logical_tokens=impl._active_logical_tokens(requests),
            gdn_segments=sum(segments),
            group_rows=rows,
            head_workspace_bytes=head,
        )

    def plan(self, requests: list[Any], minimal: bool) -> Any:
        """Return the package's plan, its check done, its tensors and fingerprints made late."""
        share = self.alone._share
        known = self.chosen.get((len(requests), "full" if minimal else "optimal"))
        with planning():
            share.packs = [] if known is None else list(known.packs)
            plan = self.alone._plan_flat_forward(
                requests,
                checkpoint=self.checkpoint,
                memory_minimal=minimal,
                ensure_slots=False,
            )
            if share.packs:
                raise Declined
            required = self.bytes_of(plan)
        plan = replace(plan, groups=tuple(map(_group, plan.groups)))
        self.required[id(plan)] = required
        return plan

    def differs(self, plan: Any) -> str | None:
        """Return where a plan of the package differs from the wave that our search has chosen:
        fingerprints, packed tensors and segments, head tokens, tokens of the busiest rank."""
        rank, packs = self.rank, [pack for part in self.wave for pack in part.packs]
        groups = getattr(plan, "groups", ())
        if len(packs) != len(groups):
            return f"{len(packs)} packs, not {len(groups)}"
        limit = impl._HEAD_CHUNK_TOKENS if rank._head_workspace_bytes(1) else 0
        topology = rank._topology()
        for number, (pack, group) in enumerate(zip(packs, groups, strict=True)):
            tokens = [self.reading.tokens[i] for i in pack.requests]
            tree, layout = chosen(pack, tokens)
            made, requests = group.packed, [item.request for item in group.items]
            theirs = {
                "pack": made,
                "fingerprints": group.input_row_fingerprints,
                "head tokens": rank._head_projection_rows(
                    requests, positions=made.positions_by_sequence
                ),
                "busiest rank": rank._max_rank_model_tokens(made, topology=topology),
            }
            ours = {
                "fingerprints": tuple(
                    zip(tree.sequence_lengths, tree.row_fingerprints, strict=True)
                ),
                "pack": make(layout._planned[1], tree._tokens),
                "head tokens": min(limit, pack.head_tokens),
                "busiest rank": pack.local_tokens,
            }
            if int(topology.tp) > 1:  # the package pads a pack before it counts
                del ours["busiest rank"], theirs["busiest rank"]
            what = difference(ours, theirs, f"pack {number}")
            if what is not None:
                return what
        return None

    def bytes_of(self, plan: Any) -> int:
        """Return the bytes that the package's check asks for a plan of its own."""
        known = self.required.get(id(plan))
        return self.alone._memory_check(plan) if known is None else known

    def finished(self, found: Any) -> Any:
        """Return what the package's search found, with the package's own plan in it."""
        plan = getattr(found, "plan", None)
        if type(plan) is not _Priced:
            if id(plan) in self.required:
                _owned(plan)
            return found
        # Other ranks chose a width that this one has not proposed.
        requests, kind = self.share(found.stats_global_count), plan.probe.kind
        made = self.plan(requests, kind == "full")
        required = self.required[id(made)]
        check = found.check
        if required != plan.probe.required:
            # The wave goes on to the refreshed check of all ranks with its true bytes.
            most = max(required, check.estimated_required_bytes)
            check = replace(check, local_required_bytes=required, estimated_required_bytes=most)
        return replace(found, plan=_owned(made), check=check)


def _owned(plan: Any) -> Any:
    """Return a plan that goes on, with tokens of its own."""
    for group in plan.groups:
        own(vars(group.packed).get("_tokens", []))
    return plan


def _group(group: Any) -> Any:
    """Return a group of a plan with the fingerprints of its tree still to be made."""
    given = {**vars(group)}
    (_, tree), *_ = given.pop("input_row_fingerprints")
    return group if type(tree) is str else filled(group_class, **given, _tree=tree)


def _group_part(group: Any, _: str) -> Any:
    tree = group._tree
    return tuple(zip(tree.sequence_lengths, tree.row_fingerprints, strict=True))


group_class = late(impl._ForwardGroupPlan, _group_part)


class _Profiles:
    """The rank's profiles, and the signatures of probes that have one."""

    def __init__(self, rank: Any, proposal: Proposal) -> None:
        self.rank, self.proposal = rank, proposal

    def __contains__(self, signature: Any) -> bool:
        if type(signature) is _Priced:
            return self.proposal.profiled(signature.probe)
        return signature in self.rank._memory_profiles


class _Probed:
    """Stands for a rank whose probes are priced already, in the package's search; it makes every
    reduction that the rank makes. What is not defined here is the rank's."""

    __slots__ = ("_proposal", "_rank")

    def __init__(self, rank: Any, proposal: Proposal) -> None:
        object.__setattr__(self, "_rank", rank)
        object.__setattr__(self, "_proposal", proposal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._rank, name, value)

    @property
    def _memory_profiles(self) -> _Profiles:
        return _Profiles(self._rank, self._proposal)

    def _estimate_flat_forward(self, requests: Sequence[Any], **options: Any) -> Any:
        proposal, rank = self._proposal, self._rank
        first = proposal.first.get(len(requests))
        kind = _KINDS[options.get("exact", False), options.get("memory_minimal", False)]
        known = proposal.priced.get((len(requests), kind))
        if first is None or (known is None and first in _ESTIMATES):
            return rank._estimate_flat_forward(requests, **options)
        with self._ensured(requests, **options):
            return None if known is None else (known.packed_tokens, 0, known, (), 0)

    def _ensured(
        self,
        requests: Sequence[Any],
        *,
        checkpoint: Any,
        sync_planning_errors: bool = False,
        **_: Any,
    ) -> Any:
        """Make the reductions that come before a price."""
        if sync_planning_errors:
            self._rank._ensure_checkpoint_slots_for(requests, checkpoint=checkpoint)
        return self._rank._planning_status(sync_planning_errors)

    def _estimate_required_memory_bytes_from_values(self, *, signature: Any, **values: Any) -> Any:
        if type(signature) is _Priced:
            return signature.probe.required
        return self._rank._estimate_required_memory_bytes_from_values(signature=signature, **values)

    def _all_ranks_have_memory_profile(self, *, signature: Any, **values: Any) -> Any:
        if type(signature) is _Priced:
            return self._rank._all_ranks_true(signature.probe.trusted)
        return self._rank._all_ranks_have_memory_profile(signature=signature, **values)

    def _plan_flat_forward(self, requests: Sequence[Any], **options: Any) -> Any:
        proposal, rank = self._proposal, self._rank
        key = (len(requests), "full" if options.get("memory_minimal", False) else "optimal")
        plan = proposal.plans.get(key) or proposal.priced.get(key)
        if plan is None:
            return rank._plan_flat_forward(requests, **options)
        with rank._planning_status(options.get("sync_planning_errors", False)):
            pass
        with self._ensured(requests, **options):
            return plan

    def _memory_check(
        self, plan: Any, *, sync_across_dp: bool = False, sync_planning_errors: bool = False
    ) -> Any:
        rank = self._rank
        with rank._planning_status(sync_planning_errors):
            priced = type(plan) is _Priced
            required = plan.probe.required if priced else self._proposal.bytes_of(plan)
        return rank._memory_check_required(required, sync_across_dp=sync_across_dp)
