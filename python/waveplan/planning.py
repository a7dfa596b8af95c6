"""Protocols of a planner and of a pool's waves, for the modules that these import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from waveplan import _core as core
from waveplan.agreement.adapters import Agreement
from waveplan.agreement.protocol import Ranks
from waveplan.budget import Budget
from waveplan.facts.topology import Topology
from waveplan.plan import Plan
from waveplan.pricing import BoundRules, Status
from waveplan.profiles import Profile, Signature
from waveplan.sequences.requests import Requests

__all__ = ["Planning", "Searching"]


class Planning(Protocol):
    """A planner, see `waveplan.Planner`."""

    model: Any
    topology: Topology
    trust: str
    agreement: Agreement
    ranks: Ranks
    bound: BoundRules
    available: int
    budget: Budget
    width_hint: int | None

    @property
    def reference(self) -> bool: ...
    @property
    def digests(self) -> dict[str, int]: ...
    def doubtful(self, pool: Requests) -> tuple[Status, ...]: ...
    def kept(self, available: int, doubtful: Iterable[Status]) -> int: ...
    def known(self, pool: Requests) -> list[tuple[Signature, Profile]]: ...
    @property
    def shares(self) -> Sequence[int]: ...
    def make_engine(
        self,
        pool: Requests,
        dp_rank: int | None = None,
        order: Any = None,
        blocks: bool | None = None,
    ) -> core.Engine: ...
    def signature_of(self, pool: Requests, indices: Any = None) -> Signature: ...
    def plan(self, requests: Any, *, available: int | None = None) -> Plan: ...
    def like(
        self, *, topology: Topology, budget: Budget, agreement: Agreement | None = None
    ) -> Planning: ...


class Searching(Protocol):
    """The waves of a pool, see `waveplan.waves.Waves`."""

    planner: Planning
    pool: Requests
    groups: int
    moved: int
    start: int
    available: int
    width_hint: int | None
    on_refusal: str
    blocks: bool

    @property
    def content(self) -> dict[str, int]: ...
    def sessions(self) -> list[core.Session]: ...
