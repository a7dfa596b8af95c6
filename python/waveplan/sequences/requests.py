"""The requests of a pool, as columns: targets, top-k, logits, hidden states, gradients, adapter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan import _core
from waveplan.checks import entries, integer, integers, shown
from waveplan.errors import InputError
from waveplan.sequences.sequences import Sequences

if TYPE_CHECKING:
    from numpy import bool_, int64

__all__ = ["Requests"]

IGNORED = -100
"""A label of this value is not trained on."""

Flags: TypeAlias = "bool | Sequence[bool] | NDArray[bool_]"
Targets: TypeAlias = "bool | int | Sequence[Any] | NDArray[Any] | None"


class Requests:
    """The requests of a pool: one per request, as columns.

    Every option is one value for all requests or a sequence with one entry per request.

    Args:
        requests: `Sequences`, or anything `Sequences.from_any` takes: n requests, T tokens.
        targets: `True` for targets on every token, `False` or `None` for none, an integer for
            the first labelled position (the request is labelled from there to its end; its length
            means that every label is ignored), or per request a boolean mask or an array of labels
            of which -100 are ignored, [tokens] or [tokens, labels per token]. One boolean
            array of T entries is the masks of all requests, one after another.
        top_k: k of the top-k log-probabilities to return, at least 1; `None` for none.
        logits: return the logits of every token.
        hidden: return the hidden state of every token.
        gradient: compute gradients (`False`: forward only).
        adapter: name of the adapter slot that runs the request, `None` for the model's own weights.
        groups: requests that move together, the unit of a wave's width: `None` for one each, an
            integer for that many consecutive requests each, or one size per group.
        routed: entries of routed-expert replay per request.

    A request without an output is inactive: it counts in its group and joins no pack.

    Raises:
        InputError: an option is out of range or has a wrong length; the message names the
            option, the request and the value.
    """

    sequences: Sequences
    lengths: NDArray[int64]
    """Tokens of each request [n]."""
    targets: NDArray[bool_]
    """Has targets [n]."""
    first_target: NDArray[int64] | None
    """First labelled position [n]; `None` where masks were given."""
    label_mask: NDArray[bool_] | None
    """Labelled tokens of all requests [T]; `None` where first targets were given."""
    target_width: NDArray[int64]
    """Labels per token [n]."""
    top_k: NDArray[int64]
    """k, 0 for none [n]."""
    logits: NDArray[bool_]
    hidden: NDArray[bool_]
    gradient: NDArray[bool_]
    routed: NDArray[int64]
    adapters: tuple[str, ...]
    """Names of the adapter slots 1, 2, ...; slot 0 is the model's own weights."""
    slot: NDArray[int64]
    """Adapter slot [n]."""
    mixes: tuple[str, ...]
    """The distinct output mixes, for example "target:single+hidden"."""
    mix: NDArray[int64]
    """Index into `mixes` [n]."""
    group_sizes: NDArray[int64]
    """Requests of each group."""

    def __init__(
        self,
        sequences: Any,
        *,
        targets: Targets = True,
        top_k: int | Sequence[int | None] | NDArray[Any] | None = None,
        logits: Flags = False,
        hidden: Flags = False,
        gradient: Flags = True,
        adapter: str | Sequence[str | None] | None = None,
        groups: int | Sequence[int] | NDArray[Any] | None = None,
        routed: int | Sequence[int] | NDArray[Any] = 0,
    ) -> None:
        self.sequences = Sequences.from_any(sequences)
        self.lengths = np.diff(self.sequences.offsets)
        count = len(self.lengths)
        self.targets, self.target_width, self.first_target, self.label_mask = _targets(
            targets, self.lengths
        )
        self.top_k = _top_k(top_k, count)
        self.logits = _flags("logits", logits, count)
        self.hidden = _flags("hidden", hidden, count)
        self.gradient = _flags("gradient", gradient, count)
        self.routed = _integers("routed", routed, count)
        self.adapters, self.slot = _slots(adapter, count)
        self.group_sizes = _group_sizes(groups, count)
        self._core = self._pool()
        self.mixes, self.mix = self._mixes()

    @classmethod
    def from_any(cls, requests: object) -> Requests:
        """Return `Requests` as they are, and make sequences into requests, all labelled."""
        return requests if isinstance(requests, Requests) else cls(requests)

    def _pool(self) -> _core.Pool:
        """Return the columns as the core keeps them, with the prefix tree."""
        return _core.Pool(
            self.sequences.tokens,
            self.sequences.offsets,
            self.targets,
            self.first_target,
            self.label_mask,
            self.target_width,
            self.top_k,
            self.logits,
            self.hidden,
            self.gradient,
            self.slot,
            self.routed,
            self.group_sizes,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_core"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._core = self._pool()

    def _mixes(self) -> tuple[tuple[str, ...], NDArray[int64]]:
        numbers, first = self._core.mixes()
        names = tuple(
            _mix_name(
                int(self.target_width[i]) if self.targets[i] else 0,
                int(self.top_k[i]),
                bool(self.logits[i]),
                bool(self.hidden[i]),
                bool(self.routed[i] > 0),
            )
            for i in first.tolist()
        )
        return names, numbers

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return (
            f"Requests({len(self)} requests, {int(self.lengths.sum())} tokens, "
            f"{len(self.group_sizes)} groups, outputs {', '.join(self.mixes)})"
        )

    @property
    def labelled(self) -> NDArray[int64]:
        """Labelled tokens of each request [n]."""
        return self._core.labelled()

    def packs(
        self, indices: Sequence[int] | NDArray[Any] | None = None
    ) -> list[_core.PackRequests]:
        """The packs of some requests (all by default), in the order they execute."""
        picked = np.arange(len(self)) if indices is None else indices
        return self._core.packs(integers("indices", picked), list(self.adapters))


def _mix_name(width: int, k: int, logits: bool, hidden: bool, routed: bool) -> str:
    parts = []
    if width:
        parts.append("target:single" if width == 1 else f"target:{width}")
    if k:
        parts.append(f"top_k:{k}")
    for wanted, name in ((logits, "logits"), (hidden, "hidden"), (routed, "routes")):
        if wanted:
            parts.append(name)
    return "+".join(parts) or "inactive"


def _entries(name: str, value: Any, count: int) -> Sequence[Any]:
    """Return one entry per request."""
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise InputError(f"{name} has {value.ndim} dimensions: give one entry per request")
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {shown(value)}: give one value, or one per request")
    found: Sequence[Any] = value if hasattr(value, "__len__") else list(value)  # type: ignore[assignment]
    if len(found) != count:
        raise InputError(f"{name} has {len(found)} entries for {count} requests: give one each")
    return found


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_integer(value: Any) -> bool:
    if isinstance(value, np.timedelta64):  # numpy counts it among the integers
        return False
    return isinstance(value, int | np.integer) and not _is_flag(value)


def _flags(name: str, value: Any, count: int) -> NDArray[bool_]:
    if _is_flag(value):
        return np.full(count, bool(value))
    entries = _entries(name, value, count)
    if isinstance(entries, np.ndarray) and entries.dtype == np.bool_:
        return np.ascontiguousarray(entries)
    for i, entry in enumerate(entries):
        if not _is_flag(entry):
            raise InputError(f"{name}[{i}] is {shown(entry)}: give True or False")
    return np.array(entries, np.bool_)


def _integers(name: str, value: Any, count: int, least: int = 0) -> NDArray[int64]:
    if _is_integer(value):
        return np.full(count, integer(name, value, least), np.int64)
    column = integers(name, _entries(name, value, count))
    wrong = np.flatnonzero(column < least)
    if wrong.size:
        at = int(wrong[0])
        raise InputError(f"{name}[{at}] is {column[at]}: it must be at least {least}")
    return column.copy()


def _top_k(value: Any, count: int) -> NDArray[int64]:
    if value is None:
        return np.zeros(count, np.int64)
    if _is_integer(value):
        return _integers("top_k", value, count, least=1)
    entries = _entries("top_k", value, count)
    absent = [entry is None for entry in entries]
    column = _integers("top_k", [1 if k is None else k for k in entries], count, least=1)
    column[absent] = 0
    return column


def _slots(value: Any, count: int) -> tuple[tuple[str, ...], NDArray[int64]]:
    if value is None:
        return (), np.zeros(count, np.int64)
    if isinstance(value, str):
        value = [value] * count
    numbers: dict[str | None, int] = {None: 0}
    slots = np.zeros(count, np.int64)
    for i, name in enumerate(_entries("adapter", value, count)):
        if name is not None and (not isinstance(name, str) or not name):
            raise InputError(f"adapter[{i}] is {shown(name)}: give a slot's name, or None")
        slots[i] = numbers.setdefault(name, len(numbers))
    return tuple(name for name in numbers if name is not None), slots


def _group_sizes(value: Any, count: int) -> NDArray[int64]:
    if value is None:
        return np.ones(count, np.int64)
    if _is_integer(value):
        if value < 1:
            raise InputError(f"groups is {shown(value)}: a group holds at least 1 request")
        return np.diff(np.append(np.arange(0, count, value, dtype=np.int64), count))
    sizes = value if isinstance(value, np.ndarray) and value.ndim == 1 else entries("groups", value)
    return _integers("groups", sizes, len(sizes), least=1)


_Targets: TypeAlias = (
    "tuple[NDArray[bool_], NDArray[int64], NDArray[int64] | None, NDArray[bool_] | None]"
)


def _targets(value: Any, lengths: NDArray[int64]) -> _Targets:
    """Return which requests have targets, labels per token, first targets or masks."""
    count, total = len(lengths), int(lengths.sum())
    ones = np.ones(count, np.int64)
    if value is None or _is_flag(value):
        return np.full(count, bool(value)), ones, np.zeros(count, np.int64), None
    if _is_integer(value):
        value = [value] * count
    if isinstance(value, np.ndarray) and value.dtype == np.bool_ and value.shape != (count,):
        if value.shape != (total,):
            raise InputError(
                f"targets is a boolean array of shape {value.shape}: give ({count},), one per "
                f"request, or ({total},), one per token"
            )
        return np.full(count, True), ones, None, np.ascontiguousarray(value)
    given = _entries("targets", value, count)
    if any(hasattr(entry, "__len__") and not isinstance(entry, str) for entry in given):
        return _masks(given, lengths)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        column = integers("targets", given)
        for at in np.flatnonzero((column < 0) | (column > lengths))[:1].tolist():
            _first_target(at, column[at], lengths[at])
        return np.full(count, True), ones, column.copy(), None
    has = np.ones(count, np.bool_)
    first = np.zeros(count, np.int64)
    for i, (entry, length) in enumerate(zip(given, lengths.tolist(), strict=True)):
        if entry is None or _is_flag(entry):
            has[i] = bool(entry)
        elif not _is_integer(entry):
            raise InputError(
                f"targets[{i}] is {shown(entry)}: give True, False, None, a first target or a mask"
            )
        else:
            first[i] = _first_target(i, entry, length)
    return has, ones, first, None


def _first_target(request: int, value: Any, length: int) -> int:
    if not 0 <= value <= length:
        raise InputError(
            f"targets[{request}] is {shown(value)}: the first target must be within 0..{length}, "
            "the request's length"
        )
    return int(value)


def _masks(given: Sequence[Any], lengths: NDArray[int64]) -> _Targets:
    """Return targets of which some are masks or labels."""
    has = np.ones(len(lengths), np.bool_)
    width = np.ones(len(lengths), np.int64)
    mask = np.zeros(int(lengths.sum()), np.bool_)
    at = 0
    for i, (entry, length) in enumerate(zip(given, lengths.tolist(), strict=True)):
        part = mask[at : at + length]
        at += length
        if entry is None or _is_flag(entry):
            has[i] = bool(entry)
            part[:] = bool(entry)
            continue
        if _is_integer(entry):
            part[_first_target(i, entry, length) :] = True
            continue
        try:
            # Looked at first: numpy takes memory for as many entries as a sequence says it has.
            many = len(entry) if isinstance(entry, Sequence) else length
            labels = np.asarray(entry if many == length else np.broadcast_to(0, (many,)))
        except Exception:
            raise InputError(f"targets[{i}] is {shown(entry)}: give one entry per token") from None
        if labels.ndim not in (1, 2) or len(labels) != length:
            raise InputError(
                f"targets[{i}] has shape {labels.shape} for a request of {length} tokens: give one "
                "entry per token"
            )
        if labels.ndim == 2 and labels.shape[1] < 1:
            raise InputError(f"targets[{i}] has no label per token: give at least 1")
        if length and labels.dtype.kind not in "biu":  # a duration is no integer, for numpy it is
            raise InputError(
                f"targets[{i}] holds {labels.dtype}: give a boolean mask or integer labels"
            )
        valid = labels if labels.dtype == np.bool_ else labels != IGNORED
        if valid.ndim == 2:
            width[i] = valid.shape[1]
            valid = valid.any(axis=1)
        part[:] = valid
    return has, width, None, mask
