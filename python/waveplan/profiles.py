"""Profiles of observed memory peaks: one per kind of plan, saved and loaded as JSON.

A profile only raises a price: the bytes of the rules stay its floor.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from waveplan._core import Observation, Observed, Rates, Signature
from waveplan.checks import columns, flag, instance
from waveplan.errors import InputError
from waveplan.files import read_json, write_text

__all__ = ["Observation", "Observed", "Profiles", "Rates", "Signature"]

VERSION = 1
MOST_SIGNATURES = 1024
"""Signatures whose curves are kept; a job has a handful."""

_LEARNING = threading.RLock()
MOST = (1 << 62) - 1
"""Most tokens and bytes."""


Profile: TypeAlias = Rates | Observed


class Profiles:
    """Profiles by signature.

    Args:
        reference: keep the reference rates (reference mode) instead of our curves.
    """

    def __init__(self, *, reference: bool = False) -> None:
        self.reference = flag("reference", reference)
        self._entries: dict[Signature, Profile] = {}

    def __repr__(self) -> str:
        kind = "reference rates" if self.reference else "observed peaks"
        return f"Profiles({len(self)} signatures, {kind})"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Signature]:
        return iter([signature for signature, _ in self.items()])

    def __getitem__(self, signature: Signature) -> Profile:
        return self._entries[signature]

    def __setitem__(self, signature: Signature, profile: Profile) -> None:
        wanted = Rates if self.reference else Observed
        if not isinstance(profile, wanted):
            raise InputError(f"these profiles hold {wanted.__name__}, not {type(profile).__name__}")
        instance("signature", signature, Signature)
        with _LEARNING:
            self._entries[signature] = profile

    def __getstate__(self) -> dict[str, Any]:
        """Copy the table at one moment, whatever other threads observe."""
        return {"reference": self.reference, "_entries": dict(self.items())}

    def __contains__(self, signature: object) -> bool:
        return signature in self._entries

    def observe(self, signature: Signature, seen: Observation) -> None:
        """Update the profile of a signature; from many threads at once no reading is lost.

        Beyond `MOST_SIGNATURES` the one observed longest ago is forgotten; the reference kind
        keeps all, as the reference planner does.
        """
        instance("seen", seen, Observation)
        instance("signature", signature, Signature)
        with _LEARNING:
            table = dict(self._entries)  # replaced at once: Ctrl-C leaves the old or the new one
            if self.reference:
                table[signature] = table.get(signature, Rates(0.0, 0)).after(seen)
            else:
                table[signature] = table.pop(signature, Observed()).after(seen)
                while len(table) > MOST_SIGNATURES:
                    del table[next(iter(table))]
            self._entries = table

    def items(self) -> list[tuple[Signature, Profile]]:
        """Return signatures and their profiles, those observed longest ago first."""
        with _LEARNING:
            return list(self._entries.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the profiles as stable JSON with a version."""
        entries = []
        for signature, profile in sorted(
            self.items(), key=lambda entry: (*columns(entry[0]).values(),)
        ):
            values = columns(profile)
            values.pop("here", None)
            entries.append({"signature": columns(signature), "profile": values})
        kind = "reference" if self.reference else "observed"
        return {"version": VERSION, "kind": kind, "profiles": entries}

    @classmethod
    def from_dict(cls, data: Any) -> Profiles:
        """Return the profiles of a value that `to_dict` made.

        Raises:
            InputError: another version, or something else entirely.
        """
        try:
            version, kind = data["version"], data["kind"]
            known = isinstance(version, int) and version == VERSION
            if not known or kind not in ("reference", "observed"):
                raise InputError(
                    f"profiles have version {version!r} and kind {kind!r}: this program reads "
                    f"version {VERSION}, reference or observed"
                )
            made = cls(reference=kind == "reference")
            if not made.reference and len(data["profiles"]) > MOST_SIGNATURES:
                raise InputError(
                    f"{len(data['profiles'])} profiles are more than the {MOST_SIGNATURES} kept"
                )
            for entry in data["profiles"]:
                signature, values = entry["signature"], entry["profile"]
                made[Signature(**signature)] = (Rates if made.reference else Observed)(**values)
        except InputError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"profiles cannot be read ({type(error).__name__}: {error})") from None
        return made

    def save(self, path: str | Path) -> None:
        """Write the profiles as JSON: the whole file, or none of it."""
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Profiles:
        """Read a file that `save` wrote.

        Raises:
            InputError: no such file, or not profiles of this version.
        """
        data = read_json(path)
        try:
            return cls.from_dict(data)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def known(self, context: str, mixes: Collection[str]) -> list[tuple[Signature, Profile]]:
        """Return the profiles of a job and of these output mixes."""
        present = frozenset(mixes)
        return [
            (signature, profile)
            for signature, profile in self.items()
            if signature.context == context and present.issuperset(signature.mixes)
        ]
