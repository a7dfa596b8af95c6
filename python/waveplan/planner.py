"""The planner: plans the waves of a pool of requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan import scoring as scores
from waveplan._core import Composition, OwnershipSettings
from waveplan.agreement.adapters import Agreement, AllShares, Alone, check_agreement
from waveplan.agreement.protocol import Ranks, Step, digest
from waveplan.budget import MARGIN, Budget, format_bytes
from waveplan.checks import choice, flag, instance, integer, integers, real
from waveplan.composition import ComposedWaves, OnRefusal, compose
from waveplan.errors import DoubtfulError, InputError
from waveplan.facts.topology import Topology, ranks_text
from waveplan.facts.training import Training
from waveplan.plan import Plan, plan_of
from waveplan.pricing import (
    BoundRules,
    RuleSet,
    Status,
    bind,
    default_rules,
    reference_rules,
)
from waveplan.profiles import MOST, Observation, Profile, Profiles, Signature
from waveplan.refusal import refused
from waveplan.scoring import Device, Scoring
from waveplan.sequences.fit import check_requests
from waveplan.sequences.requests import Requests
from waveplan.stages import gdn_settings, mlp_token_ms, ownership_settings
from waveplan.wave import Wave
from waveplan.waves import Order, Refusals, Waves

if TYPE_CHECKING:
    from waveplan.facts.model import Model
    from waveplan.pricing.resident import Resident

__all__ = ["Planner", "Waves"]


class Planner:
    """Plans waves of requests for one job.

    Args:
        budget: bytes that a rank may use: a `Budget`, or bytes or text available for waves.
        rules: the pricing rules; the default rules, or in reference mode the reference ones.
        agreement: connects the processes of a job, or says which shares are planned in this one
            alone; needed with more than one data-parallel rank.
        trust: "rules" trusts prices made only of measured rules, so a first wave can be as wide
            as memory allows; "profile" trusts prices only up to eight times the tokens that a
            profile has seen.
        mode: "reference" makes exactly the decisions of the reference planner, with its rules,
            trust, layouts and order of probes; "best" is never narrower where it takes the widest.
        device: the GPU, which selects the layout score; None at a desk.
        scoring: the layout score itself, instead of `device`.
        ownership: chunks, costs and methods of context-parallel ranks; in best mode an
            `owned_token_ms` of 0 is the model's, and `max_ranges=2` lets a rank own two ranges.
        objective: "time" takes the wave that does the most work in its modelled time, of the
            widths priced; "widest" the widest that fits. Without context parallelism, and in
            reference mode, both are the widest.
        margin: share of the available bytes that is kept back for requests to which a rule matters
            that is unmeasured, or uncharged in a set without a margin of its own. Without (None;
            always in reference mode) prices with such a rule are trusted only as far as the rule
            set has a margin of its own, or within what a profile has seen.
        strict: refuse such requests instead, with `DoubtfulError`.
    """

    def __init__(
        self,
        model: Model,
        topology: Topology,
        training: Training,
        budget: Budget | int | str,
        rules: RuleSet | None = None,
        agreement: Agreement | None = None,
        trust: Literal["rules", "profile"] = "rules",
        mode: Literal["best", "reference"] = "best",
        *,
        device: Device | None = None,
        scoring: Scoring | None = None,
        ownership: OwnershipSettings | None = None,
        objective: Literal["time", "widest"] = "time",
        margin: float | None = MARGIN,
        strict: bool = False,
    ) -> None:
        choice("trust", trust, ("rules", "profile"))
        choice("mode", mode, ("best", "reference"))
        choice("objective", objective, ("time", "widest"))
        instance("topology", topology, Topology).check(model)
        instance("training", training, Training)
        self.model, self.topology, self.training = model, topology, training
        self.budget = budget if isinstance(budget, Budget) else Budget(available=budget)
        self.mode: Literal["best", "reference"] = mode
        self.trust: str = "profile" if self.reference else trust
        self.agreement = check_agreement(agreement, topology.dp)
        self.ranks = Ranks(self.agreement)
        if rules is None:
            rules = reference_rules() if self.reference else default_rules()
        self.bound = _bound(model, topology, training, instance("rules", rules, RuleSet))
        self.margin = None if margin is None or self.reference else _margin(margin)
        self.strict = flag("strict", strict)
        self.profiles = Profiles(reference=self.reference)
        self.device, self._ownership, self.objective = device, ownership, objective
        if scoring is None:
            scoring = scores.select(model, topology, device=device)
        self.scoring = instance("scoring", scoring, Scoring)
        if ownership is not None:
            instance("ownership", ownership, OwnershipSettings)
        if device is not None:
            instance("device", device, Device)
        self._uncharged: tuple[Status, ...] = ()
        """Rules of what is resident that the budget lacks."""
        self._available = self._available_now()
        self._settings = _settings(self, ownership)
        # The first reading of each setting takes a lock, which a fork would leave taken forever
        # if another thread read them then.
        self.make_engine(_NOTHING)
        self._width_hint: int | None = None

    @property
    def reference(self) -> bool:
        """Whether the mode is "reference"."""
        return self.mode == "reference"

    @property
    def shares(self) -> Sequence[int]:
        """Data-parallel ranks whose shares are planned in this process."""
        if isinstance(self.agreement, AllShares):
            return range(self.topology.dp)
        return (self.agreement.dp_rank,)

    @property
    def width_hint(self) -> int | None:
        """Width where the first search of a pool starts. Yours to set; in reference mode it becomes
        the largest width so far, in best mode pools planned before change nothing."""
        return self._width_hint

    @width_hint.setter
    def width_hint(self, width: int | None) -> None:
        self._width_hint = None if width is None else integer("width_hint", width)

    @property
    def profiles(self) -> Profiles:
        """The peaks observed; reference mode takes profiles of the reference kind alone."""
        return self._profiles

    @profiles.setter
    def profiles(self, profiles: Profiles) -> None:
        instance("profiles", profiles, Profiles)
        if profiles.reference != self.reference:
            kind = "reference" if self.reference else "observed"
            raise InputError(f"profiles are of the other kind: this planner takes {kind} ones")
        self._profiles = profiles

    def __repr__(self) -> str:
        score = scores.name_of(self.scoring)
        dp = self.topology.dp
        told = [
            f"{self.model.name or 'a model'} on {ranks_text(self.topology, ' ')}",
            str(self.training),
            f"mode {self.mode}, rules {self.bound.rules.name}, trust {self.trust}, "
            f"objective {self.objective}",
            f"layout score {score}",
            f"{format_bytes(self.available)} available",
        ]
        if doubtful := self.bound.doubtful:
            names = ", ".join(one.name for one in doubtful)
            kept = "refused where they matter (strict)" if self.strict else "no margin"
            if self.margin and not self.strict:
                kept = f"a margin of {self.margin:.0%} where they matter"
            told.append(f"unmeasured or uncharged here: {names}; {kept}")
        shares = "all DP ranks" if len(self.shares) == dp else f"DP rank {self.shares[0]}"
        told.append(f"{type(self.agreement).__name__}: shares of {shares} are planned here")
        told.append(f"{len(self.profiles)} profiles")
        return f"Planner({'; '.join(told)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the job, `available`, `width_hint` and profiles."""
        given = (
            *(self.model, self.topology, self.training, self.budget, self.bound.rules),
            *(self.agreement, self.trust, self.mode),
        )
        kept = (self._ownership, self.objective, self.margin, self.strict)
        options = (self.device, self.scoring, *kept)
        return _again, (given, options), (self._available, self.width_hint, self.profiles)

    def __setstate__(self, state: tuple[int, int | None, Profiles]) -> None:
        self._available, self.width_hint, self.profiles = state

    @property
    def available(self) -> int:
        """Bytes that a wave may use, the margin included; set it when that changes."""
        return self._available

    @available.setter
    def available(self, available: int) -> None:
        self._available = integer("available", available)

    def resident(self) -> Resident:
        """Return what stays allocated between waves by the rules, whatever the budget states."""
        from waveplan.pricing.resident import resident_of

        bound = self.bound
        stages = {stage: one.facts for stage, one in bound.compilers.items()}
        return resident_of(stages, bound.rules.resident or bound.rules)

    def _available_now(self) -> int:
        if not self.budget.needs_resident:  # what a step needs beside it is not known then
            return self.budget.resolve()
        held = self.resident()
        self._uncharged = held.uncharged
        return self.budget.resolve(held.total, held.total - held.allocated + held.at_step)

    def doubtful(self, pool: Requests) -> tuple[Status, ...]:
        """Return the rules that matter for these requests and are uncharged or unmeasured.

        Raises:
            DoubtfulError: there are some, and `strict`.
        """
        found = self.bound.doubtful
        if found:
            with suppress(InputError):  # a price past 64 bits: then every rule counts
                found = self.bound.matter(self.make_engine(pool).unshared(), smaller=True)
        found = (*found, *self._uncharged)
        if self.strict and found:
            raise DoubtfulError("; ".join(map(str, found)))
        return found

    def kept(self, available: int, doubtful: Iterable[Status]) -> int:
        """Return the margin: bytes of these kept back, if rules are in doubt that no price has
        charged; those that were uncharged are in the price, as a margin of its own."""
        rules = self.bound.rules
        covered = rules.rules if rules.margin else {}
        doubt = any(one.state == "unmeasured" or one.name not in covered for one in doubtful)
        return int(available * self.margin) if doubt and self.margin else 0

    def like(
        self, *, topology: Topology, budget: Budget, agreement: Agreement | None = None
    ) -> Planner:
        """Return this planner for another topology and budget, by default alone."""
        dp = instance("topology", topology, Topology).dp
        if agreement is None:
            agreement = Alone(min(self.agreement.dp_rank, dp - 1))
        given = (self.model, topology, self.training, budget, self.bound.rules, agreement)
        kept = (self._ownership, self.objective, self.margin, self.strict)
        options = (self.device, None, *kept)
        planner = _again((*given, self.trust, self.mode), options)
        planner.profiles = self.profiles
        return planner

    @property
    def context(self) -> str:
        """Topology and layout score, which all profiles of this job share."""
        t = self.topology
        score = scores.name_of(self.scoring)
        return f"tp{t.tp} cp{t.cp} pp{t.pp} ep{t.ep} etp{t.etp} {score}"

    def known(self, pool: Requests) -> list[tuple[Signature, Profile]]:
        """Return the profiles of a pool's output mixes."""
        return self.profiles.known(self.context, pool.mixes)

    def waves(
        self,
        requests: Any,
        on_refusal: Refusals = "raise",
        start: int = 0,
        *,
        order: Order | None = None,
        window: int | None = None,
    ) -> Waves:
        """Plan a pool wave by wave, from group `start` on.

        Every wave is planned when the iterator reaches it, with all that was observed before.

        Args:
            requests: `Requests`, or sequences (all labelled, each a group of its own); or a
                `Composition`, whose waves are planned as they stand.
            on_refusal: where not even the smallest wave fits, "raise" `WaveRefused`; "skip" the
                groups that do not fit, list them in `Waves.refused` and deal the rest again (in
                reference mode all groups of that wave); or return the "oversized" wave that
                requires least.
            order: with several data-parallel ranks "blocks" gives each a run of a wave's groups,
                cut by modelled time, wherever that is faster than "keep", which deals them in turn.
                None: "blocks", in reference mode "keep". "free" composes the pool first, in any
                order, as `compose` does.
            window: with "free", see `compose`.
        """
        if isinstance(requests, Composition):
            own = on_refusal in ("raise", requests.given["on_refusal"])
            if start or window is not None or order is not None or not own:
                raise InputError(
                    "requests is a composition, whose waves stand: give on_refusal, order and "
                    "window to compose(), and leave out start"
                )
            return ComposedWaves(self, requests)
        if order == "free":
            if start or on_refusal == "oversized":
                raise InputError('order is "free": all groups are composed, so that start is 0')
            return ComposedWaves(self, self.compose(requests, on_refusal, window=window))
        if window is not None:
            raise InputError('window is given: it needs order="free"')
        return Waves(self, requests, on_refusal, start, order)

    def compose(
        self,
        requests: Any,
        on_refusal: OnRefusal = "raise",
        *,
        order: Order = "free",
        fixed_ms: float = 0.0,
        multiple: int = 1,
        window: int | None = None,
    ) -> Composition:
        """Put all requests into waves, in whatever order is fastest; `waves` then plans them.

        Every wave fits, every rank gets as many; groups stay whole, on one rank of one wave. The
        modelled time is at most that of the pool's own order where that needs no split.

        Args:
            requests: `Requests`, or sequences (all labelled, each a group of its own).
            on_refusal: "raise" the refusal of a group that fits in no wave, or "skip" it: it is
                listed in `Composition.refused`.
            order: "free", or the waves of the pool in order "keep" or "blocks", see `waves`.
            fixed_ms: milliseconds that a wave takes beside its slowest rank.
            multiple: the number of waves is a multiple of it, as virtual pipelines need.
            window: each wave holds the oldest group not yet run, and takes from the run that begins
                there and so many groups behind it: no group waits for ever. None: any order.

        With other ranks it is one gather: every process has the pool and composes all of it.
        """
        return compose(self, requests, on_refusal, order, fixed_ms, multiple, window)

    def wave(self, requests: Any, start: int = 0) -> Wave:
        """Plan the next wave from group `start` on.

        Raises:
            WaveRefused: not even the smallest wave fits.
        """
        return self.waves(requests, start=start).plan_next()

    def plan(self, requests: Any, *, available: int | None = None) -> Plan:
        """Plan all requests as one forward, split if it must be.

        Args:
            available: bytes to use instead of the planner's own, the margin included.

        Raises:
            WaveRefused: no plan or split that was tried fits.
        """
        pool = Requests.from_any(requests)
        return self._plan(pool, np.arange(len(pool), dtype=np.int64), available)

    def plan_shares(self, requests: Any, *, available: int | None = None) -> list[Plan]:
        """Deal all requests to the data-parallel ranks and plan the share of each as one forward.

        Returns:
            The plan of each share that is planned in this process, by rank. An empty share's has
            no forward.

        Raises:
            WaveRefused: no plan or split of a share fits.
        """
        pool = Requests.from_any(requests)
        engines = (self.make_engine(pool, dp_rank) for dp_rank in self.shares)
        shares = [engine.share(0, len(pool.group_sizes)) for engine in engines]
        return [self._plan(pool, share, available) for share in shares]

    def _plan(self, pool: Requests, indices: NDArray[np.int64], available: int | None) -> Plan:
        bytes_now = self.available if available is None else integer("available", available)
        bytes_now -= self.kept(bytes_now, self.doubtful(pool))
        if not len(indices):
            return Plan((), 0, self.bound, pool=pool)
        found = self.make_engine(pool).plan(indices, bytes_now, self.known(pool))
        if found.kind == "refused":
            raise refused(self, pool, found, bytes_now, indices=indices)
        return plan_of(found, self.bound, pool)

    def observe(
        self,
        wave: Wave,
        peak_bytes: int,
        retained_bytes: int | None = None,
        whole: bool = True,
    ) -> None:
        """Update the profiles with a wave that ran.

        Args:
            peak_bytes: most bytes allocated above the level before the wave, on this rank.
            retained_bytes: bytes above that level after the forward, if read.
            whole: the peak covers forward, loss and backward of the whole wave; a split wave's
                never counts as whole.

        With other ranks it is one reduction: every process calls it for the same waves, those
        with an empty share too; the largest reading of a data-parallel rank's processes counts.
        """
        with self.ranks.broadcasting():
            plan = instance("wave", wave, Wave).plan
            whole = flag("whole", whole)
            if wave.parts and self.ranks.size > 1:
                self._observe_all(wave, peak_bytes, retained_bytes, whole)
                return
            peak, retained = self._agreed_peaks(peak_bytes, retained_bytes)
            if plan.packed_tokens <= 0:
                return
            seen = Observation(
                plan.packed_tokens,
                plan.active_tokens,
                plan.output_bytes,
                peak,
                retained,
                whole and not plan.split,
            )
            self.profiles.observe(wave.signature, seen)

    def record(
        self,
        wave: Wave | Plan,
        peak_bytes: int,
        resident_bytes: int | None = None,
        *,
        cold: bool | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        """Return a record of a wave that ran, for `waveplan check`: one JSON object to keep.

        It holds the facts of the job, the measures of the plan and the observed peak, so that the
        rules price it later to the byte as now. Not of a split wave.

        Args:
            peak_bytes: most bytes allocated above the level before the wave, on any rank that runs
                the plan; see docs/own-peaks.md.
            resident_bytes: that level, with gradients and optimizer states there.
            cold: it was the first of its kind in the process, which allocates more; by default as
                the wave was priced.
            id: its name in the report; by default the beginning of the plan's fingerprint.
        """
        from waveplan.accuracy.waves import record_of

        plan = wave.plan if isinstance(wave, Wave) else instance("wave", wave, Plan)
        facts = self.model, self.topology, self.training
        return record_of(facts, plan, peak_bytes, resident_bytes, cold, id)

    def _observe_all(self, wave: Wave, peak: int, retained: int | None, whole: bool) -> None:
        """Update the profiles of every process alike, with the largest peak over all of them."""
        plan = wave.plan
        peak = integer("peak_bytes", peak, 0, MOST)
        kept = -1 if retained is None else integer("retained_bytes", retained, 0, MOST)
        sizes = plan.packed_tokens, plan.active_tokens, plan.output_bytes
        whole = whole and not plan.split
        shown = self.ranks.gather(Step.OBSERVE, [wave.dp_rank, peak, kept, *sizes, int(whole)])
        row = shown[int(shown[:, 1].argmax())].tolist()
        if row[3] > 0 and wave._sign_part is not None:
            retained = None if row[2] < 0 else row[2]
            seen = Observation(row[3], row[4], row[5], row[1], retained, bool(row[6]))
            self.profiles.observe(wave._sign_part(row[0]), seen)

    def _agreed_peaks(self, peak: int, retained: int | None) -> tuple[int, int | None]:
        """Return the largest readings of this data-parallel rank's processes."""
        rank = self.agreement.dp_rank
        peak = integer("peak_bytes", peak, 0, MOST)
        kept = None if retained is None else integer("retained_bytes", retained, 0, MOST)
        if self.ranks.size == 1:
            return peak, kept
        shown = self.ranks.gather(Step.OBSERVE, [rank, peak, -1 if kept is None else kept])
        most, kept = shown[shown[:, 0] == rank, 1:3].max(axis=0).tolist()
        return most, None if kept < 0 else kept

    def signature_of(self, pool: Requests, indices: Any = None) -> Signature:
        """Return the key of the profile of a plan of these requests (all by default)."""
        picked = np.arange(len(pool)) if indices is None else integers("indices", indices)
        return self.make_engine(pool).signature(picked)

    def make_engine(
        self,
        pool: Requests,
        dp_rank: int | None = None,
        order: Any = None,
        blocks: bool | None = None,
    ) -> core.Engine:
        """Return the core's planner of this pool for a data-parallel rank, by default this one's.

        Args:
            order: the groups in the order in which waves take them, by default the pool's.
            blocks: ranks may take consecutive blocks; by default in best mode.

        Raises:
            InputError: a token id that the model does not have; names the sequence's place.
        """
        check_requests(pool, self.model.vocab)
        settings = self._settings
        if dp_rank not in (None, settings.dp_rank):
            settings = settings.replace(dp_rank=dp_rank)
        if blocks not in (None, settings.blocks):
            settings = settings.replace(blocks=blocks)
        return core.Engine(pool, settings, self.bound.program, order)

    @cached_property
    def digests(self) -> dict[str, int]:
        """Hashes of what decides plans besides the requests, which must be equal on all ranks."""
        settings = self._settings.replace(dp_rank=0)
        decided = settings, self.mode, self.trust, self.margin, self.strict
        rules = self.bound.rules.read()
        return {
            "model facts": digest(replace(self.model, name="", family="")),
            "topology": digest(self.topology),
            "training": digest(self.training),
            "settings": digest(decided),
            "pricing rules": digest((rules, rules.resident)),
        }


_NOTHING = Requests([])


def _again(given: tuple[Any, ...], options: tuple[Any, ...]) -> Planner:
    names = ("device", "scoring", "ownership", "objective", "margin", "strict")
    return Planner(*given, **dict(zip(names, options, strict=True)))


def _margin(margin: object) -> float:
    share = real("margin", margin)
    if share >= 1:
        raise InputError(f"margin is {share:g}: give a share below 1, such as 0.1 for a tenth")
    return share


@lru_cache(maxsize=32)
def _bound(model: Model, topology: Topology, training: Training, rules: RuleSet) -> BoundRules:
    """Bind once per job: it takes longer than many a search."""
    return bind(model, topology, training, rules)


def _settings(planner: Planner, ownership: OwnershipSettings | None) -> core.PlannerSettings:
    """Return the core's settings of a planner."""
    model, topology, training = planner.model, planner.topology, planner.training
    model_own = ownership_settings(model, topology)
    if ownership is None:
        ownership = model_own
    elif ownership.owned_token_ms == 0 and not planner.reference:
        ownership = ownership.replace(owned_token_ms=model_own.owned_token_ms)
    return core.PlannerSettings(
        context=planner.context,
        reference=planner.reference,
        trust_rules=planner.trust == "rules",
        margin=planner.bound.rules.margin or planner.margin is not None,
        dp=topology.dp,
        blocks=not planner.reference,
        dp_rank=planner.agreement.dp_rank,
        tp=topology.tp,
        cp=topology.cp,
        split=topology.ep == 1,
        moe=model.experts > 0,
        gdn_pending=model.gdn_layers > 0 and bool(planner.bound.facts["recompute_full"]),
        adapter_pending=training.gradients_pending,
        adapter_rank=training.lora_rank,
        scoring=planner.scoring,
        attention_layers=model.attention_layers,
        gdn_layers=model.gdn_layers,
        mlp_token_ms=mlp_token_ms(model, topology),
        widest=planner.objective == "widest",
        ownership=ownership,
        gdn=gdn_settings(model, topology.tp) if model.gdn_layers else None,
    )
