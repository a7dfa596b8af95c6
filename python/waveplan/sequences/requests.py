"""The requests of a pool, as columns: targets, top-k, logits, hidden states, gradients, adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan import _core
from waveplan.checks import choice, columns, entries, flag, integer, integers, shown
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
        targets: "given" for the labels of the sequences, every token where nothing tells; `True`
            for targets on every token, `False` or `None` for none, an integer for the first
            labelled position (the request is labelled from there to its end; its length means
            that every label is ignored), or per request a boolean mask or an array of labels of
            which -100 are ignored, [tokens] or [tokens, labels per token]. One boolean array of T
            entries is the masks of all requests, one after another.
        top_k: k of the top-k log-probabilities to return, at least 1; `None` for none.
        logits: return the logits of every token.
        hidden: return the hidden state of every token.
        gradient: compute gradients (`False`: forward only).
        adapter: name of the adapter slot that runs the request, `None` for the model's own weights.
        groups: requests that move together, the unit of a wave's width: `None` for one each, an
            integer for that many consecutive requests each, one size per group, or one value
            per request, text for example, equal within a group; its requests are consecutive.
        routed: entries of routed-expert replay per request.
        sharing: `False` for a trainer that stores shared prefixes once for each request: layouts,
            prices and savings are then those of plain packing.
        unshareable: token ids that stand for different contents, such as those of images: from
            the first of them on a request shares nothing with others.
        padding: how a trainer that runs padded batches pads: "longest", or the multiple that the
            longest request of a pack is rounded up to. Its requests run as rows of that length,
            and nothing is shared.
        hashed: hash the tokens in the pass that checks them, as several processes need to agree
            (see `content`); else they are read once more when that is first needed.

    A request without an output is inactive: it counts in its group and joins no pack.

    Attributes:
        sequences: the token ids. The other attributes are the core's columns, see there.

    Raises:
        InputError: an option is out of range or has a wrong length; the message names the
            option, the request and the value.
    """

    sequences: Sequences
    empty: tuple[str, ...] = ()
    """Places of sequences that the reader left out because they have no token."""

    def __new__(
        cls,
        sequences: Any,
        *,
        targets: Targets = "given",
        top_k: int | Sequence[int | None] | NDArray[Any] | None = None,
        logits: Flags = False,
        hidden: Flags = False,
        gradient: Flags = True,
        adapter: str | Sequence[str | None] | None = None,
        groups: int | Sequence[int] | NDArray[Any] | None = None,
        routed: int | Sequence[int] | NDArray[Any] = 0,
        sharing: bool = True,
        unshareable: Iterable[int] = (),
        padding: Literal["longest"] | int | None = None,
        hashed: bool = False,
    ) -> Self:
        given = Sequences.from_any(sequences)
        count = len(given)
        if isinstance(targets, str):
            choice("targets", targets, ("given",))
            targets = _given(given)
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
            shareable=_shareable(given, flag("sharing", sharing), unshareable),
            padding=_padding(padding),
            hashed=flag("hashed", hashed),
            **_targets(targets, given.lengths),
        )

    @classmethod
    def _of(cls, sequences: Sequences, **given: Any) -> Self:
        made = super().__new__(cls, sequences.tokens, sequences.offsets, **given)
        made.sequences = sequences
        return made

    @classmethod
    def from_any(cls, requests: object, *, hashed: bool = False) -> Requests:
        """Return `Requests` as they are; make requests of sequences, see `Sequences.from_any`, with
        the labels that they carry, and all labelled where they carry none."""
        return requests if isinstance(requests, Requests) else cls(requests, hashed=hashed)

    @cached_property
    def largest(self) -> int:
        """The largest token id."""
        return int(self.sequences.tokens.max(initial=0))

    @property
    def content(self) -> dict[str, int]:
        """Hashes of 128 bits of the tokens and of every column, by name; equal on every machine."""
        return dict(self.hashes(self.sequences.tokens))

    @classmethod
    def load(cls, path: Any, columns: Mapping[str, str] | None = None, **asked: Any) -> Requests:
        """Read requests from files, see `Sequences.load`; the other options are the class's."""
        return cls(Sequences.load(path, columns), **asked)

    def __reduce__(self) -> tuple[Any, ...]:
        labels = {"first_target": self.first_target, "label_mask": self.label_mask}
        given = type(self), self.sequences, columns(self) | labels
        return _again, given, {**self.__dict__}


def _given(sequences: Sequences) -> Targets:
    """Return the labels that sequences carry."""
    if sequences.labelled is not None:
        # One mask of a request looks like one flag a request.
        few = sequences.labelled.shape == (len(sequences),)
        return (
            [sequences.labelled[[i]] for i in range(len(sequences))]
            if few and ((sequences.lengths == 1).all())
            else sequences.labelled
        )
    return sequences.columns.get("first_target", True)


def _shareable(sequences: Sequences, sharing: bool, unshareable: Iterable[int]) -> NDArray[int64]:
    """Return how many leading tokens of each request others may share; nothing for all."""
    count = len(sequences)
    ids = integers("unshareable", list(entries("unshareable", unshareable)))
    if not sharing:
        return np.zeros(count, np.int64)
    if not ids.size:
        return np.empty(0, np.int64)
    apart = sequences.tokens == ids[0] if len(ids) == 1 else np.isin(sequences.tokens, ids)
    at = np.append(np.flatnonzero(apart), len(sequences.tokens))
    first = at[np.searchsorted(at, sequences.offsets[:-1])]
    limits: NDArray[int64] = np.minimum(first, sequences.offsets[1:]) - sequences.offsets[:-1]
    return limits


def _padding(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        choice("padding", value, ("longest",))
        return 1
    return integer("padding", value, 1)


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
    given = value if isinstance(value, np.ndarray) else entries("groups", value)
    if len(given) == count and (
        any(not _is_integer(entry) for entry in given) or sum(map(int, given)) != count
    ):
        return _tied(given)
    return integers("groups", given)


def _tied(values: Iterable[Any]) -> NDArray[int64]:
    """Return the sizes of groups that are named request by request."""
    seen: dict[Any, int] = {}
    sizes: list[int] = []
    before: Any = object()
    for i, value in enumerate(values):
        try:
            at = seen.setdefault(value, i)
        except TypeError:
            raise InputError(
                f"groups[{i}] is {shown(value)}: give a value that is hashable"
            ) from None
        if sizes and value == before:
            sizes[-1] += 1
        elif at != i:
            raise InputError(
                f"groups[{i}] is {shown(value)}, like request {at} but not the one before: put the "
                "requests of a group next to each other"
            )
        else:
            sizes.append(1)
        before = value
    return np.array(sizes, np.int64)


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
    at, binary, first = 0, True, len(given)
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
        binary = binary and labels.dtype != np.bool_ and not np.any((labels != 0) & (labels != 1))
        valid = labels if labels.dtype == np.bool_ else labels != IGNORED
        if valid.ndim == 2:
            width[i] = valid.shape[1]
            valid = valid.any(axis=1)
        part[:] = valid
        first = min(first, i) if labels.size else first
    if binary and first < len(given):
        raise InputError(
            f"targets[{first}] holds only 0 and 1, as all others do: give a mask as booleans, or "
            "labels with -100 where a token is not trained on"
        )
    return {"targets": has, "target_width": width, "label_mask": mask}
