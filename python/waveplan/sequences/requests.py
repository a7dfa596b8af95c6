"""The requests of a pool, as columns: targets, top-k, logits, hidden states, gradients, adapter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan import _core
from waveplan.checks import columns, entries, integer, integers, shown
from waveplan.errors import InputError
from waveplan.sequences.sequences import Sequences

if TYPE_CHECKING:
    from numpy import bool_, int64

__all__ = ["Requests"]

IGNORED = -100
"""A label of this value is not trained on."""

Flags: TypeAlias = "bool | Sequence[bool] | NDArray[bool_]"
Targets: TypeAlias = "bool | int | Sequence[Any] | NDArray[Any] | None"


class Requests(_core.Requests):
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

    Attributes:
        sequences: the token ids. The other attributes are the core's columns, see there.

    Raises:
        InputError: an option is out of range or has a wrong length; the message names the
            option, the request and the value.
    """

    sequences: Sequences

    def __new__(
        cls,
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
    ) -> Self:
        given = Sequences.from_any(sequences)
        count = len(given)
        adapters, slot = _slots(adapter, count)
        return cls._of(
            given,
            top_k=_top_k(top_k, count),
            logits=_flags("logits", logits, count),
            hidden=_flags("hidden", hidden, count),
            gradient=_flags("gradient", gradient, count),
            routed=_integers("routed", routed, count),
            adapters=adapters,
            slot=slot,
            group_sizes=_group_sizes(groups, count),
            **_targets(targets, given.lengths),
        )

    @classmethod
    def _of(cls, sequences: Sequences, **given: Any) -> Self:
        made = super().__new__(cls, sequences.tokens, sequences.offsets, **given)
        made.sequences = sequences
        return made

    @classmethod
    def from_any(cls, requests: object) -> Requests:
        """Return `Requests` as they are, and make sequences into requests, all labelled."""
        return requests if isinstance(requests, Requests) else cls(requests)

    def __reduce__(self) -> tuple[Any, ...]:
        labels = {"first_target": self.first_target, "label_mask": self.label_mask}
        given = type(self), self.sequences, columns(self) | labels
        return _again, given, {**self.__dict__}


def _again(cls: type[Requests], sequences: Sequences, given: dict[str, Any]) -> Requests:
    return cls._of(sequences, **given)


def _entries(name: str, value: Any, count: int) -> Sequence[Any]:
    """Return the entries of a list, an array or another collection, one per request."""
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise InputError(f"{name} has {value.ndim} dimensions: give one entry per request")
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {shown(value)}: give one value, or one per request")
    found: Sequence[Any] = value if hasattr(value, "__len__") else list(value)  # type: ignore[assignment]
    if len(found) != count:  # before a long one is walked
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
    return np.array(list(entries), np.bool_)


def _integers(name: str, value: Any, count: int, least: int = 0) -> NDArray[int64]:
    if _is_integer(value):
        return np.full(count, integer(name, value, least), np.int64)
    return integers(name, _entries(name, value, count))


def _top_k(value: Any, count: int) -> NDArray[int64]:
    """Return the column in which 0 stands for none."""
    if value is None or _is_integer(value):
        return np.zeros(count, np.int64) if value is None else _integers("top_k", value, count, 1)
    entries = _entries("top_k", value, count)
    absent = [entry is None for entry in entries]
    column = integers("top_k", [1 if k is None else k for k in entries])
    for at in np.flatnonzero(column < 1)[:1]:
        raise InputError(f"top_k[{at}] is {column[at]}: it must be at least 1, or None for none")
    return np.where(absent, 0, column)


def _slots(value: Any, count: int) -> tuple[list[str], NDArray[int64]]:
    entries = [value] * count if value is None or isinstance(value, str) else value
    numbers: dict[str | None, int] = {None: 0}
    slots = []
    for i, name in enumerate(_entries("adapter", entries, count)):
        if name is not None and (not isinstance(name, str) or not name):
            raise InputError(f"adapter[{i}] is {shown(name)}: give a slot's name, or None")
        slots.append(numbers.setdefault(name, len(numbers)))
    return [name for name in numbers if name is not None], np.array(slots, np.int64)


def _group_sizes(value: Any, count: int) -> NDArray[int64]:
    if value is None:
        return np.ones(count, np.int64)
    if _is_integer(value):
        if value < 1:
            raise InputError(f"groups is {shown(value)}: a group holds at least 1 request")
        return np.diff(np.append(np.arange(0, count, value, dtype=np.int64), count))
    return integers("groups", value if isinstance(value, np.ndarray) else entries("groups", value))


def _targets(value: Any, lengths: NDArray[int64]) -> dict[str, Any]:
    """Return which requests have targets, labels per token, first targets or masks."""
    count, total = len(lengths), int(lengths.sum())
    if _is_integer(value):
        value = [value] * count
    made = {"targets": np.full(count, True), "target_width": np.ones(count, np.int64)}
    if value is None or _is_flag(value):
        made["targets"] = np.full(count, bool(value))
        return made | {"first_target": np.zeros(count, np.int64)}
    if isinstance(value, np.ndarray) and value.dtype == np.bool_ and value.shape != (count,):
        if value.shape != (total,):
            raise InputError(
                f"targets is a boolean array of shape {value.shape}: give ({count},), one per "
                f"request, or ({total},), one per token"
            )
        return made | {"label_mask": np.ascontiguousarray(value)}
    given = _entries("targets", value, count)
    if any(hasattr(entry, "__len__") and not isinstance(entry, str) for entry in given):
        return _masks(given, lengths)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        return made | {"first_target": integers("targets", given)}
    has, first = np.ones(len(given), np.bool_), [0] * len(given)
    for i, entry in enumerate(given):
        if entry is None or _is_flag(entry):
            has[i] = bool(entry)
        elif not _is_integer(entry):
            raise InputError(
                f"targets[{i}] is {shown(entry)}: give True, False, None, a first target or a mask"
            )
        else:
            first[i] = entry
    return made | {"targets": has, "first_target": integers("targets", first)}


def _first_target(request: int, value: Any, length: int) -> int:
    if not 0 <= value <= length:
        raise InputError(
            f"targets[{request}] is {shown(value)}: the first target must be within 0..{length}, "
            "the request's length"
        )
    return int(value)


def _masks(given: Sequence[Any], lengths: NDArray[int64]) -> dict[str, Any]:
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
    return {"targets": has, "target_width": width, "label_mask": mask}
