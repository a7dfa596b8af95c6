"""Files of sequences in plain values, and the requests that are made of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waveplan.checks import shown, text
from waveplan.errors import InputError
from waveplan.facts.fields import check, count, given, switch, word
from waveplan.files import kind

if TYPE_CHECKING:
    from waveplan.sequences.requests import Requests
    from waveplan.sequences.sequences import Sequences

__all__ = ["Source"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files of sequences, or so many unshared tokens, and the outputs of their requests.

    ``path`` is a file or folder of sequences that every worker can read, or several; ``tokens`` in
    ``number`` sequences of equal length stand in for them; ``targets``
    is ``"given"`` (those that the file labels, all where it labels none), ``"all"`` tokens,
    ``"last-turn"`` (those that the file labels, refused where it labels none) or ``"none"``;
    ``columns`` renames columns, ``"input_ids=ids,labels=y"``; ``limit`` keeps the first sequences
    only. The other fields are options of `Sequences.load` and `Requests`.
    """

    path: str | tuple[str, ...] = ""
    tokens: int | None = count(
        None,
        "instead of a file: so many unshared tokens; 128k is 131,072",
        1,
        1 << 26,
        kind="tokens",
    )
    number: int = count(
        1,
        "with --tokens: in K sequences of equal length",
        1,
        1 << 20,
        flag="--requests",
        metavar="K",
    )
    targets: str = word(
        "given",
        ("given", "all", "last-turn", "none"),
        "labelled tokens: those that the file labels, or all where it labels none (default); all; "
        "those that it must label; none",
    )
    top_k: int | None = count(None, "return the K best tokens too", 1, metavar="K")
    logits: bool = switch(doc="return full logits too")
    hidden: bool = switch(doc="return hidden states too")
    gradient: bool = switch(True, "forward only, no gradients", flag="--no-grad")
    limit: int | None = count(None, "take the first N sequences only", 1)
    columns: str = given(
        "",
        "other names of columns, such as input_ids=ids (repeatable); an empty one leaves it out",
        kind="text",
        metavar="NAME=COLUMN",
        flag="--column",
    )
    pad: int | None = count(None, "drop runs of this id at both ends of a sequence", metavar="ID")
    skip_empty: bool = switch(doc="leave out sequences without a token")
    sharing: bool = switch(True, "plan without shared prefixes", flag="--no-sharing")
    padding: str | None = given(
        None,
        "price padded batches: to the longest, or to a multiple of N",
        kind="text",
        metavar="longest|N",
    )
    groups: bool = switch(doc="keep the sequences of a group in one wave", flag="--keep-groups")

    def requests(
        self,
        on_read: Callable[[int, int | None], object] | None = None,
        unshareable: tuple[int, ...] = (),
    ) -> Requests:
        """The requests, read once in each process, without the empty ones: ``requests.empty`` has
        their places unless ``skip_empty``.

        ``on_read(bytes read, bytes in all)`` is called while long files of JSON lines are read;
        the second is None for stdin. ``unshareable`` are token ids, see `Requests`.

        Raises:
            InputError: a file or an option is wrong, or there is no sequence.
        """
        for path in self.path if isinstance(self.path, tuple) else (self.path,):
            if not isinstance(path, os.PathLike):
                text("path", path)
        check(self)
        if bool(self.path) == (self.tokens is not None):
            raise InputError("give either files of sequences or a number of tokens")
        if self.number > (self.tokens or 1):
            raise InputError(f"--requests is {self.number}: it goes with as many --tokens or more")
        key = self, unshareable
        if key not in _READ:
            made = _requests(self, on_read, unshareable)
            while len(_READ) > 1:
                del _READ[next(iter(_READ))]
            _READ[key] = made
        return _READ[key]

    def sequences(self, on_read: Callable[[int, int | None], object] | None = None) -> Sequences:
        """The sequences, the empty ones among them; see `requests`."""
        import numpy as np

        from waveplan.sequences.files import files_of, read
        from waveplan.sequences.sequences import Sequences

        if self.tokens is not None:
            starts = np.arange(self.number + 1, dtype=np.int64) * self.tokens // self.number
            return Sequences(np.zeros(self.tokens, np.int64), starts)
        files = files_of(self.path)
        sizes = [Path(file).stat().st_size for file in files if kind(str(file)) == "file"]
        total = sum(sizes) if len(sizes) == len(files) else None
        progress = None if on_read is None else lambda done: on_read(done, total)
        sequences = Sequences.of(read(self.path, self.names(), progress, self.pad))
        if not len(sequences):
            raise InputError(f"{self.path_text()} holds no sequences")
        if self.limit is not None and self.limit < len(sequences):
            sequences = sequences.take(range(self.limit))
        return sequences

    def names(self) -> dict[str, str]:
        """The columns that have other names."""
        pairs = [pair.partition("=") for pair in self.columns.split(",") if pair]
        for name, equals, _ in pairs:
            if not equals or not name:
                raise InputError(
                    f"columns: {shown(name or '=')} is no pair: give input_ids=COLUMN, for example"
                )
        return {name.strip(): column.strip() for name, _, column in pairs}

    def path_text(self) -> str:
        """The names of the files in a few words."""
        if self.tokens is not None:
            return f"{self.tokens:,} unshared tokens"
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        first = "stdin" if str(paths[0]) == "-" else str(paths[0])
        return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"


# A worker plans many configurations over the same files.
_READ: dict[tuple[Source, tuple[int, ...]], Requests] = {}


def _requests(
    source: Source,
    on_read: Callable[[int, int | None], object] | None,
    unshareable: tuple[int, ...],
) -> Requests:
    import numpy as np

    from waveplan.sequences.requests import Requests

    if source.targets == "none" and not (source.top_k or source.logits or source.hidden):
        raise InputError("targets is 'none' and there is no other output: add some output")
    padding: Any = source.padding
    if padding is not None and padding != "longest":
        if not (padding.isascii() and padding.isdecimal() and 0 < len(padding) < 10):
            raise InputError(f"padding is {shown(padding)}: give longest or a multiple such as 64")
        padding = int(padding)
    sequences = source.sequences(on_read)
    empty = np.flatnonzero(sequences.lengths == 0)
    if len(empty) == len(sequences):
        raise InputError(f"{source.path_text()}: every sequence is empty: give token ids")
    places = [sequences.place(int(i)) for i in empty]
    if empty.size:
        sequences = sequences.take(np.flatnonzero(sequences.lengths))
    targets: Any = "given" if source.targets == "given" else source.targets == "all"
    if source.targets == "last-turn":
        if sequences.labelled is None and "first_target" not in sequences.columns:
            raise InputError(
                f"{source.path_text()} has no labels, such as loss_mask, labels, completion_ids or "
                "first_target: use targets 'all'"
            )
        targets = "given"
    groups = sequences.columns.get("group")
    if source.groups and groups is None:
        raise InputError(f"{source.path_text()} has no groups, such as a column group or uid")
    made = Requests(
        sequences,
        targets=targets,
        top_k=source.top_k,
        logits=source.logits,
        hidden=source.hidden,
        gradient=source.gradient,
        groups=groups.tolist() if source.groups and groups is not None else None,
        sharing=source.sharing and source.tokens is None,
        unshareable=unshareable if source.sharing else (),
        padding=padding,
    )
    made.empty = () if source.skip_empty else tuple(places)
    return made
