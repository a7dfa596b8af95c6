"""The planner: from a pool of requests to the waves that run it."""

from __future__ import annotations

import threading
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from waveplan import _core as core
from waveplan import scoring as scores
from waveplan.agreement.adapters import Agreement, Alone, check_agreement
from waveplan.agreement.protocol import Ranks, Step, digest
from waveplan.ahead import Ahead, Made
from waveplan.budget import Budget
from waveplan.checks import choice, flag, instance, integer, real
from waveplan.errors import InputError
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training
from waveplan.plan import Plan, plan_of
from waveplan.planning import Searching
from waveplan.pricing import BoundRules, RuleSet, bind, default_rules, reference_rules
from waveplan.profiles import MOST, Observation, Profiles, Signature
from waveplan.refusal import refused
from waveplan.scoring import Device, Scoring
from waveplan.sequences.requests import Requests
from waveplan.sequences.sequences import integers
from waveplan.stages import OwnershipSettings, gdn_settings, ownership_settings
from waveplan.wave import Wave
from waveplan.waves import Refusals, Waves

if TYPE_CHECKING:
    from waveplan.facts.model import Model

__all__ = ["Planner", "Waves"]


class Planner:
    """Plans waves of requests for one job.

    Args:
        model: what is trained. topology: how ranks are arranged. training: how it is trained.
        budget: what a rank may use: a `Budget`, bytes or text ("139 GiB" means free for waves).
        rules: the pricing rules; the default rules, or in reference mode the reference ones.
        agreement: connects the ranks of a job; `Alone` plans in one process.
        trust: "rules" believes prices made only of measured rules, so a first wave can be as
            wide as memory allows; "profile" believes prices only up to eight times what a
            profile has seen.
        mode: "reference" makes exactly the reference planner's decisions: its rules, trust, layouts and
            order of probes. Otherwise ours, never narrower.
        device: the GPU, which selects the layout score; None at a desk.
        scoring: the layout score itself, instead of `device`.
        margin: a fraction of the budget kept back when a rule is off or unmeasured, so that
            prices may be believed; None: what the rule set states, and with a set that states
            none such prices need a profile.
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
        margin: float | None = None,
    ) -> None:
        choice("trust", trust, ("rules", "profile"))
        instance("topology", topology, Topology).check(model)
        instance("training", training, Training)
        self.model, self.topology, self.training = model, topology, training
        self.budget = budget if isinstance(budget, Budget) else Budget(available=budget)
        choice("mode", mode, MODES)
        self.mode: Literal["best", "reference"] = mode
        self.trust: str = "profile" if self.reference else trust
        self.agreement = check_agreement(Alone() if agreement is None else agreement, topology.dp)
        self.ranks = Ranks(self.agreement)
        self.bound = _bound(model, topology, training, _rules(rules, self.reference))
        self.facts = dict(self.bound.facts)
        self.margin = _margin(margin)
        self.profiles = Profiles(reference=self.reference)
        self.device, self._ownership = device, ownership
        if scoring is None:
            scoring = scores.select(model, topology, device=device)
        self.scoring = instance("scoring", scoring, Scoring)
        if ownership is not None:
            instance("ownership", ownership, OwnershipSettings)
        if device is not None:
            instance("device", device, Device)
        self._available = self._available_now()
        self._settings = _settings(self, ownership)
        # The first reading of each setting takes a lock, which a fork would leave taken forever
        # if another thread (such as `prefetch`'s) read them then.
        self.make_engine(_NOTHING)
        self._width_hint: int | None = None
        self._guard = threading.RLock()
        self._ahead: Ahead | None = None

    @property
    def reference(self) -> bool:
        """Whether it makes the reference planner's decisions."""
        return self.mode == "reference"

    @property
    def width_hint(self) -> int | None:
        """Where the first search of a pool looks first. Yours to set; in reference mode it is
        the largest width so far, as there. Otherwise pools planned before change nothing."""
        return self._width_hint

    @width_hint.setter
    def width_hint(self, width: int | None) -> None:
        self._width_hint = None if width is None else integer("width_hint", width)

    @property
    def profiles(self) -> Profiles:
        """What was observed; reference mode takes profiles of the reference kind alone."""
        return self._profiles

    @profiles.setter
    def profiles(self, profiles: Profiles) -> None:
        instance("profiles", profiles, Profiles)
        if profiles.reference != self.reference:
            kind = "reference" if self.reference else "observed"
            raise InputError(f"profiles are of the other kind: this planner takes {kind} ones")
        self._profiles = profiles

    def __reduce__(self) -> tuple[Any, ...]:
        """A planner in another process: the same job, available and profiles, nothing made ahead."""
        given = (
            *(self.model, self.topology, self.training, self.budget, self.bound.rules),
            *(self.agreement, self.trust, self.mode),
        )
        options = (self.device, self.scoring, self._ownership, self.margin)
        return _again, (given, options), (self._available, self.width_hint, self.profiles)

    def __setstate__(self, state: tuple[int, int | None, Profiles]) -> None:
        self._available, self.width_hint, self.profiles = state

    @property
    def available(self) -> int:
        """Bytes free for waves; set it when more or less is free now."""
        return self._available

    @available.setter
    def available(self, available: int) -> None:
        self._available = integer("available", available)

    def _available_now(self) -> int:
        used = None
        if self.budget.needs_resident:
            from waveplan.pricing.resident import resident

            used = resident(self.model, self.topology, self.training).total
        free = self.budget.resolve(used)
        extra = 0.0 if self.bound.measured or self.margin is None else self.margin
        return min(free, int(free / (1 + extra)))  # a float may round up past 63 bits

    def like(self, *, topology: Topology, budget: Budget) -> Planner:
        """This planner for another arrangement of ranks and another budget."""
        instance("topology", topology, Topology)
        agreement = Alone(min(self.agreement.dp_rank, topology.dp - 1))
        made = Planner(
            self.model,
            topology,
            self.training,
            budget,
            self.bound.rules,
            agreement,
            "rules" if self.trust == "rules" else "profile",
            self.mode,
            device=self.device,
            ownership=self._ownership,
            margin=self.margin,
        )
        made.profiles = self.profiles
        return made

    @property
    def context(self) -> str:
        """What profiles of this job have in common: topology and layout score."""
        t = self.topology
        score = scores.name_of(self.scoring)
        return f"tp{t.tp} cp{t.cp} pp{t.pp} ep{t.ep} etp{t.etp} {score}"

    def known(self, pool: Requests) -> list[tuple[Any, Any]]:
        """Return the profiles of a pool's output mixes, as the core takes them."""
        return self.profiles.columns(self.context, pool.mixes)

    @property
    def has_margin(self) -> bool:
        """A margin stands in for rules that are off or unmeasured, so prices may be believed."""
        return self.bound.rules.margin or self.margin is not None

    def waves(self, requests: Any, on_refusal: Refusals = "raise", start: int = 0) -> Waves:
        """Plans the pool wave by wave, from group `start` on.

        Every wave is planned when it is asked for, so what `observe` learned from the waves
        before counts.

        Args:
            requests: `Requests`, or rows (all labelled, one group a row).
            on_refusal: what happens when not even the smallest wave fits: "raise"
                `WaveRefused`, "skip" its groups and list them in `Waves.refused`, or give the
                "oversized" wave that needs least.
        """
        return Waves(self, requests, on_refusal, start)

    def wave(self, requests: Any, start: int = 0) -> Wave:
        """The next wave from group `start` on.

        Raises:
            WaveRefused: not even the smallest wave fits.
        """
        return self.waves(requests, start=start).plan_next()

    def plan(self, requests: Any, *, available: int | None = None) -> Plan:
        """Plans all requests as one forward, split if it must be.

        Args:
            available: bytes free instead of the planner's own.

        Raises:
            WaveRefused: no plan or split that was tried fits.
        """
        pool = Requests.from_any(requests)
        engine = self.make_engine(pool)
        everything = np.arange(len(pool), dtype=np.int64)
        free = self.available if available is None else integer("available", available)
        found, probes = engine.plan(everything, free, self.known(pool))
        if found.kind == "refused":
            raise refused(self, pool, found, tuple(probes), free, indices=everything)
        return plan_of(found, self.bound)

    def observe(
        self,
        wave: Wave,
        peak_bytes: int,
        retained_bytes: int | None = None,
        whole: bool = True,
    ) -> None:
        """Learns from a wave that ran.

        Args:
            peak_bytes: most bytes allocated above the level before the wave, on this rank.
            retained_bytes: bytes above that level after the forward, if read.
            whole: the peak covers forward, loss and backward of the whole wave; a split wave's
                never counts as whole.

        With other ranks it is one reduction: every process calls it for the same waves, those
        with an empty share too; the largest reading of a data-parallel rank's processes counts.
        """
        with self.ranks.telling():
            plan = instance("wave", wave, Wave).plan
            whole = flag("whole", whole)
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

    def _agreed_peaks(self, peak: int, retained: int | None) -> tuple[int, int | None]:
        """The largest readings of this data-parallel rank's processes, so that they go on
        pricing alike."""
        rank = self.agreement.dp_rank
        peak = integer("peak_bytes", peak, 0, MOST)
        kept = None if retained is None else integer("retained_bytes", retained, 0, MOST)
        if self.ranks.size == 1:
            return peak, kept
        shown = self.ranks.meet(Step.OBSERVE, [rank, peak, -1 if kept is None else kept])
        most, kept = shown[shown[:, 0] == rank, 1:3].max(axis=0).tolist()
        return most, None if kept < 0 else kept

    def signature_of(self, pool: Requests, rows: Any = None) -> Signature:
        """What the profile of a plan of these rows (all by default) is kept by."""
        everything = np.arange(len(instance("pool", pool, Requests)))
        rows = everything if rows is None else integers("rows", rows)
        mixes, gradients, adapters = self.make_engine(pool).signature(rows)
        names = sorted(pool.mixes[i] for i in mixes)
        return Signature(self.context, tuple(names), tuple(gradients), tuple(adapters))

    def prefetch(self, requests: Requests, start: int = 0, width_hint: int | None = None) -> None:
        """Plans the wave that will start at group `start` in a thread, while the caller works.

        It can never change a result: `Waves` takes it only if pool, start, `available`, `width_hint` and
        profiles are then what they are now, and plans again otherwise. With other ranks it
        prices this rank's own share and calls no reduction. A program that leaves does not
        wait for it.

            waves = planner.waves(requests)
            for wave in waves:
                waves.prefetch()  # planner.prefetch(waves.pool, waves.start)
                train(wave)

        Args:
            requests: the pool, the very `Requests` whose waves are asked for later. At its end
                there is nothing to do.
        """
        if not isinstance(requests, Requests):
            raise InputError(
                f"requests is {type(requests).__name__}: prefetch takes the Requests object that "
                "waves() gets later, or waves.pool"
            )
        if integer("start", start) >= len(requests.group_sizes):
            return
        width_hint = self.width_hint if width_hint is None else width_hint
        search = (start, self.available, width_hint, self.known(requests))

        def work() -> Made:
            session = self.make_engine(requests).session(*search)
            if self.ranks.size == 1:
                return Made(session, session.alone(), None)
            return Made(session, None, session.growth())

        with self._guard:
            if self._ahead is not None:
                self._ahead.stop()
            self._ahead = Ahead(work, (requests, *search))

    def take_ahead(self, waves: Searching) -> Made | None:
        """Return what `prefetch` planned, if it is the search that `waves` needs now."""
        with self._guard:
            ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        search = (waves.start, waves.available, waves.width_hint, self.known(waves.pool))
        return ahead.take((waves.pool, *search))

    def make_engine(self, pool: Requests) -> core.Engine:
        """Everything that planning this pool needs."""
        instance("pool", pool, Requests)
        adapters = [(name, self.training.lora_rank) for name in pool.adapters]
        return core.Engine(pool._core, self._settings, self.bound.program, adapters)

    @cached_property
    def digests(self) -> tuple[int, int]:
        """Hashes of the settings and of the rules, which all ranks must share."""
        settings = self._settings.replace(dp_rank=0)
        facts = sorted(self.facts.items())
        return digest((core.__version__, settings, facts, self.trust, self.margin)), digest(
            self.bound.rules
        )


_NOTHING = Requests([])
MODES = ("best", "reference")


def _again(given: tuple[Any, ...], options: tuple[Any, ...]) -> Planner:
    device, scoring, ownership, margin = options
    return Planner(*given, device=device, scoring=scoring, ownership=ownership, margin=margin)


@lru_cache(maxsize=32)
def _bound(model: Model, topology: Topology, training: Training, rules: RuleSet) -> BoundRules:
    """Binding takes longer than many a search, and its result never changes."""
    return bind(model, topology, training, rules)


def _rules(rules: RuleSet | None, reference: bool) -> RuleSet:
    if rules is not None:
        return instance("rules", rules, RuleSet)
    return reference_rules() if reference else default_rules()


def _margin(margin: float | None) -> float | None:
    if margin is None:
        return None
    return real("margin", margin, 0, 10)


def _settings(planner: Planner, ownership: OwnershipSettings | None) -> core.PlannerSettings:
    """What the core plans with, from a planner's facts."""
    model, topology, training = planner.model, planner.topology, planner.training
    return core.PlannerSettings(
        reference=planner.reference,
        trust_rules=planner.trust == "rules",
        margin=planner.has_margin,
        dp=topology.dp,
        dp_rank=planner.agreement.dp_rank,
        tp=topology.tp,
        cp=topology.cp,
        split=topology.ep == 1,
        moe=model.experts > 0,
        gdn_pending=model.gdn_layers > 0 and bool(planner.facts["recompute_full"]),
        adapter_pending=training.gradients_pending,
        scoring=planner.scoring,
        ownership=ownership_settings(model, topology) if ownership is None else ownership,
        gdn=gdn_settings(model, topology.tp) if model.gdn_layers else None,
    )
