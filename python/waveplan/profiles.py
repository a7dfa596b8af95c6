"""What observed memory peaks teach: one profile per kind of plan, saved and loaded as JSON.

A profile only ever raises a price: the rules' own bytes stay its floor.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from waveplan.checks import entries, flag, instance, integer, real, text
from waveplan.errors import InputError
from waveplan.files import read_json, write_text

__all__ = ["Observation", "Observed", "Profiles", "Rates", "Signature"]

VERSION = 1
MOST_POINTS = 16
"""Observations kept per curve; beyond that, neighbours merge upwards."""

MOST_SIGNATURES = 1024
"""Signatures whose curves are kept; a job has a handful."""

_LEARNING = threading.RLock()
MOST = (1 << 62) - 1
"""Most tokens and bytes."""

Points: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """What a profile is kept by: plans of one signature behave alike.

    Args:
        context: topology and layout score of the job.
        mixes: the distinct output mixes of the requests, sorted.
        gradients: gradient mode of each group, sorted.
        adapters: gradient mode and adapter rank of each group, sorted; empty without adapters.
    """

    context: str
    mixes: tuple[str, ...]
    gradients: tuple[bool, ...]
    adapters: tuple[tuple[bool, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of a plan that ran.

    Args:
        packed: packed tokens. logical: tokens of its active requests.
        output: bytes of its requested outputs.
        peak: most bytes above what was allocated before it.
        retained: bytes above that after its forward, or None.
        whole: the reading covers forward, loss and backward of the whole wave.
    """

    packed: int
    logical: int
    output: int
    peak: int
    retained: int | None = None
    whole: bool = True

    def __post_init__(self) -> None:
        for name in ("packed", "logical", "output"):
            object.__setattr__(self, name, integer(name, getattr(self, name), 0, MOST))
        flag("whole", self.whole)
        if self.packed <= 0:
            raise InputError("the plan has no packed tokens: there is nothing to learn from it")
        for name in ("peak", "retained"):
            value = getattr(self, name)
            if value is not None or name == "peak":
                object.__setattr__(self, name, integer(f"{name}_bytes", value, 0, MOST))

    @property
    def compute(self) -> int:
        """Peak bytes without the outputs, which prices count themselves."""
        return max(0, self.peak - self.output)

    @property
    def kept(self) -> int | None:
        """Retained bytes without the outputs."""
        if self.retained is None:
            return None
        return max(0, min(self.retained, self.peak) - self.output)

    @property
    def sharing(self) -> float:
        """Logical per packed tokens."""
        return self.logical / self.packed


@dataclass(frozen=True, slots=True)
class Rates:
    """The published profile: largest rates per packed token.

    Args:
        bytes_per_token: largest compute bytes per packed token.
        packed_tokens: largest packed tokens; prices are trusted up to eight times that.
        logical_per_packed: largest sharing.
        retained: largest retained bytes per packed token, None until read.
        warm_bytes_per_token, warm_packed_tokens, warm_logical_per_packed: largest rate, smallest
            tokens and largest sharing of whole waves after the first.
        whole_waves: whole waves seen.
    """

    bytes_per_token: float
    packed_tokens: int
    logical_per_packed: float = 1.0
    retained: float | None = None
    warm_bytes_per_token: float | None = None
    warm_packed_tokens: int | None = None
    warm_logical_per_packed: float | None = None
    whole_waves: int = 0

    @classmethod
    def first(cls, seen: Observation) -> Rates:
        """From the first reading."""
        return cls(0.0, 0).after(seen)

    def after(self, seen: Observation) -> Rates:
        """With one more reading."""
        instance("seen", seen, Observation)
        rate = seen.compute / seen.packed
        warm, tokens, sharing = (
            self.warm_bytes_per_token,
            self.warm_packed_tokens,
            self.warm_logical_per_packed,
        )
        if self.whole_waves and seen.whole:
            warm = max(rate, warm or 0.0)
            tokens = min(seen.packed, tokens or seen.packed)
            sharing = max(seen.sharing, sharing or 1.0)
        elif self.whole_waves:
            warm = max(rate, warm or 0.0)
        retained = self.retained
        if seen.kept is not None:
            retained = max(retained or 0.0, seen.kept / seen.packed)
        return Rates(
            max(rate, self.bytes_per_token),
            max(seen.packed, self.packed_tokens),
            max(seen.sharing, self.logical_per_packed),
            retained,
            warm,
            tokens,
            sharing,
            self.whole_waves + seen.whole,
        )

    def columns(self) -> tuple[Any, ...]:
        """What the core takes."""
        warm = None
        if (
            self.warm_bytes_per_token is not None
            and self.warm_packed_tokens is not None
            and self.warm_logical_per_packed is not None
        ):
            warm = (
                self.warm_bytes_per_token,
                self.warm_packed_tokens,
                self.warm_logical_per_packed,
            )
        return (
            float(self.bytes_per_token),
            self.packed_tokens,
            float(self.logical_per_packed),
            self.retained,
            warm,
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """Our profile: curves of bytes over tokens, with the one-time cost of a first call apart.

    A curve rises through its points, is linear between them and towards the origin, goes on in
    proportion up to eight times its last point and stays level from there: it never falls, and
    a tiny call cannot price a large one.

    Args:
        first: tokens and compute bytes of the first whole wave, which also pays for
            compilation and first-use buffers.
        later: the same of whole waves after it. partial: of readings that cover less than a
            whole wave; they only ever raise.
        sharing: largest logical per packed tokens. retained: tokens and retained bytes.
        retained_sharing: largest sharing of those.
        here: this process has run the first call already, so its one-time cost is paid.
    """

    first: tuple[int, int] | None = None
    later: Points = ()
    partial: Points = ()
    sharing: float = 1.0
    retained: Points = ()
    retained_sharing: float = 1.0
    here: bool = field(default=False, compare=False)

    def after(self, seen: Observation) -> Observed:
        """With one more reading."""
        instance("seen", seen, Observation)
        point = (seen.packed, seen.compute)
        first, later, partial = self.first, self.later, self.partial
        if not seen.whole:
            partial = envelope((*partial, point))
        elif first is None:
            first = point
        elif self.here:
            later = envelope((*later, point))
        else:  # a first call again, in a new process
            first = max(first, point, key=lambda p: p[1])
        kept = seen.kept
        return Observed(
            first,
            later,
            partial,
            max(self.sharing, seen.sharing),
            self.retained if kept is None else envelope((*self.retained, (seen.packed, kept))),
            self.retained_sharing if kept is None else max(self.retained_sharing, seen.sharing),
            self.here or seen.whole,
        )

    @property
    def peak(self) -> Points:
        """The curve of what recurs: later whole waves, or the first while it is the only one."""
        points = (*self.later, *self.partial)
        if not self.later and self.first is not None:
            points = (*points, self.first)
        return envelope(points)

    @property
    def fixed(self) -> int:
        """One-time bytes of a first call: what the first wave cost beyond the curve."""
        if self.first is None or not self.later:
            return 0
        tokens, peak = self.first
        return max(0, peak - math.ceil(at(self.peak, tokens)))

    def columns(self) -> tuple[Any, ...]:
        """What the core takes."""
        fixed = 0 if self.here else self.fixed
        return (
            list(self.peak),
            fixed,
            self.sharing,
            list(self.retained),
            self.retained_sharing,
            True,
        )


def envelope(points: Iterable[tuple[int, int]]) -> Points:
    """Points by tokens, bytes never falling, at most `MOST_POINTS` of them.

    Merging keeps the fewer tokens and the more bytes of two neighbours, so it only raises.
    """
    best: dict[int, int] = {}
    for tokens, peak in points:
        best[tokens] = max(peak, best.get(tokens, 0))
    kept: list[tuple[int, int]] = []
    most = 0
    for tokens in sorted(best):
        most = max(most, best[tokens])
        kept.append((tokens, most))
    while len(kept) > MOST_POINTS:
        gaps = [b[0] * 1000 // a[0] for a, b in pairwise(kept)]
        # The ends stay: they say how far the curve reaches.
        i = min(range(1, len(gaps) - 1), key=lambda i: gaps[i])
        kept[i : i + 2] = [(kept[i][0], kept[i + 1][1])]
    return tuple(kept)


def at(points: Points, tokens: float) -> float:
    """Bytes of a curve at so many tokens."""
    if not points:
        return 0.0
    last, top = points[-1]
    if tokens >= last:
        return top * min(tokens, 8 * last) / last
    low, base = 0, 0
    for high, peak in points:
        if tokens < high:
            return base + (peak - base) * ((tokens - low) / (high - low))
        low, base = high, peak
    raise AssertionError("unreachable")


Profile: TypeAlias = Rates | Observed


class Profiles:
    """Profiles by signature.

    Args:
        published: keep the published rates (compatible mode) instead of our curves.
    """

    def __init__(self, *, published: bool = False) -> None:
        self.published = flag("published", published)
        self._entries: dict[Signature, Profile] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Signature]:
        return iter([signature for signature, _ in self.items()])

    def __getitem__(self, signature: Signature) -> Profile:
        return self._entries[signature]

    def __setitem__(self, signature: Signature, profile: Profile) -> None:
        wanted = Rates if self.published else Observed
        if not isinstance(profile, wanted):
            raise InputError(f"these profiles hold {wanted.__name__}, not {type(profile).__name__}")
        instance("signature", signature, Signature)
        with _LEARNING:
            self._entries[signature] = profile

    def __getstate__(self) -> dict[str, Any]:
        """A copy that is whole while other threads observe."""
        return {"published": self.published, "_entries": dict(self.items())}

    def __contains__(self, signature: object) -> bool:
        return signature in self._entries

    def observe(self, signature: Signature, seen: Observation) -> None:
        """Learns from one reading; from many threads at once none is lost.

        Beyond `MOST_SIGNATURES` the one observed longest ago is forgotten; the published kind
        keeps all, as published.
        """
        instance("seen", seen, Observation)
        instance("signature", signature, Signature)
        with _LEARNING:
            self._entries = self._learned(dict(self._entries), signature, seen)

    def _learned(
        self, made: dict[Signature, Profile], signature: Signature, seen: Observation
    ) -> dict[Signature, Profile]:
        """Return the table with one more reading; Ctrl-C leaves the old one or the new one."""
        known = made.get(signature)
        if self.published:
            rates = known if isinstance(known, Rates) else None
            made[signature] = rates.after(seen) if rates else Rates.first(seen)
        else:
            curves = known if isinstance(known, Observed) else Observed()
            made.pop(signature, None)
            made[signature] = curves.after(seen)
            while len(made) > MOST_SIGNATURES:
                del made[next(iter(made))]
        return made

    def items(self) -> list[tuple[Signature, Profile]]:
        """Signatures and their profiles now, those observed longest ago first."""
        with _LEARNING:
            return list(self._entries.items())

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON with a version."""
        entries = []
        for signature, profile in sorted(self.items(), key=lambda entry: entry[0]):
            values = asdict(profile)
            values.pop("here", None)
            entries.append({"signature": asdict(signature), "profile": values})
        kind = "published" if self.published else "observed"
        return {"version": VERSION, "kind": kind, "profiles": entries}

    @classmethod
    def from_dict(cls, data: Any) -> Profiles:
        """From `to_dict`'s value.

        Raises:
            InputError: another version, or something else entirely.
        """
        try:
            version, kind = data["version"], data["kind"]
            known = isinstance(version, int) and version == VERSION
            if not known or kind not in ("published", "observed"):
                raise InputError(
                    f"profiles have version {version!r} and kind {kind!r}: this program reads "
                    f"version {VERSION}, published or observed"
                )
            made = cls(published=kind == "published")
            if not made.published and len(data["profiles"]) > MOST_SIGNATURES:
                raise InputError(
                    f"{len(data['profiles'])} profiles are more than the {MOST_SIGNATURES} kept"
                )
            for entry in data["profiles"]:
                signature, values = entry["signature"], entry["profile"]
                made[_signature(signature)] = (
                    _rates(values) if made.published else _observed(values)
                )
        except InputError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"profiles cannot be read ({type(error).__name__}: {error})") from None
        return made

    def save(self, path: str | Path) -> None:
        """Writes the profiles as JSON: the whole file, or none of it."""
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Profiles:
        """Reads what `save` wrote.

        Raises:
            InputError: no such file, or not profiles of this version.
        """
        data = read_json(path)
        try:
            return cls.from_dict(data)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def columns(self, context: str, mixes: tuple[str, ...]) -> list[tuple[Any, Any]]:
        """What the core takes: profiles of this job whose output mixes a pool has."""
        text("context", context)
        number = {text("mixes", name): i for i, name in enumerate(entries("mixes", mixes))}
        return [
            (
                (
                    [number[name] for name in signature.mixes],
                    list(signature.gradients),
                    list(signature.adapters),
                ),
                profile.columns(),
            )
            for signature, profile in self.items()
            if signature.context == context and all(name in number for name in signature.mixes)
        ]

    def fresh(self) -> Profiles:
        """The same profiles as a new process sees them: first calls are still to be paid."""
        made = Profiles(published=self.published)
        for signature, profile in self.items():
            known = profile if isinstance(profile, Rates) else replace(profile, here=False)
            made[signature] = known
        return made


def _signature(values: Mapping[str, Any]) -> Signature:
    return Signature(
        text("context", values["context"]),
        tuple(text("mixes", name) for name in entries("mixes", values["mixes"])),
        tuple(flag("gradients", mode) for mode in entries("gradients", values["gradients"])),
        tuple(
            (flag("adapters", grad), integer("adapters", rank))
            for grad, rank in entries("adapters", values["adapters"])
        ),
    )


def _number(name: str, value: Any, least: float = 0) -> float:
    return real(name, value, least, MOST)


def _points(name: str, values: Any) -> Points:
    points = entries(name, values)
    if len(points) > MOST_POINTS:
        raise InputError(f"{name} has {len(points)} points: at most {MOST_POINTS} are kept")
    return envelope(
        (integer(name, tokens, 1, MOST), integer(name, peak, 0, MOST)) for tokens, peak in points
    )


def _rates(values: Mapping[str, Any]) -> Rates:
    def maybe(name: str) -> float | None:
        return None if values[name] is None else _number(name, values[name])

    tokens = values["warm_packed_tokens"]
    if tokens is not None:
        tokens = integer("warm_packed_tokens", tokens, 1, MOST)
    return Rates(
        _number("bytes_per_token", values["bytes_per_token"]),
        integer("packed_tokens", values["packed_tokens"], 0, MOST),
        max(1e-9, _number("logical_per_packed", values["logical_per_packed"])),
        maybe("retained"),
        maybe("warm_bytes_per_token"),
        tokens,
        maybe("warm_logical_per_packed"),
        integer("whole_waves", values["whole_waves"], 0, MOST),
    )


def _observed(values: Mapping[str, Any]) -> Observed:
    first = values["first"]
    return Observed(
        None if first is None else _points("first", [first])[0],
        _points("later", values["later"]),
        _points("partial", values["partial"]),
        max(1.0, _number("sharing", values["sharing"])),
        _points("retained", values["retained"]),
        max(1.0, _number("retained_sharing", values["retained_sharing"])),
    )
