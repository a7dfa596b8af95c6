"""Sequences, labels and groups from columns as trainers name them: pads, masks, packed lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import shown
from waveplan.errors import InputError
from waveplan.sequences.columns import Lists, interleave
from waveplan.sequences.tables import Kind, RecordTable, Table, entry, ints, refuse

__all__ = ["GIVEN", "Found", "Renamed", "read_table"]

Int64 = NDArray[np.int64]
Flags = NDArray[np.bool_]

IGNORED = -100
"""A label of this value is not trained on."""

WHOLE = ("input_ids", "tokens", "token_ids", "sequences")
"""Token ids of a sequence; with pads where a mask or lengths say so."""
PROMPT = ("prompt_ids", "prompt_token_ids", "prompt_input_ids", "prompts", "raw_prompt_ids")
RESPONSE = (
    *("completion_ids", "response_ids", "responses", "completion_token_ids", "response_token_ids"),
    *("completion_input_ids", "output_ids", "output_token_ids"),
)
ATTENTION = ("attention_mask",)
PROMPT_ATTENTION = ("prompt_attention_mask",)
RESPONSE_ATTENTION = ("completion_attention_mask", "response_attention_mask")
LENGTHS = ("input_lengths", "unpadded_sequence_lengths")
LABELS = ("labels",)
MASKS = (
    *("loss_mask", "loss_masks", "response_mask", "completion_mask", "assistant_masks"),
    *("assistant_mask", "action_mask", "token_mask", "token_loss_mask", "response_loss_mask"),
    *("tool_mask", "env_mask", "label_mask"),
)
"""1 for a token that is trained on."""
AT_END = ("response_mask", "action_mask", "response_loss_mask")
"""Masks of the response alone where they are shorter than the ids."""
WEIGHTS = ("loss_scale",)
SAMPLES = ("sample_mask", "sample_loss_mask")
RESPONSE_LENGTH = ("response_length", "response_lengths", "num_actions")
PROMPT_LENGTH = ("first_target", "prompt_length", "prompt_len")
PACKED = ("seq_lengths", "seq_lens")
CUMULATIVE = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q", "cu_seqlens_q")
POSITIONS = ("position_ids", "input_pos")
NUMBERED = ("seq_idx", "segment_ids", "sequence_ids")
GROUP = (
    *("group", "group_id", "uid", "group_index", "prompt_id", "prompt_uid", "example_id"),
    *("rollout_id", "rollout_ids"),
)
PAIRS = ("chosen", "rejected")
GIVEN = tuple(
    dict.fromkeys(
        (
            *(*WHOLE, *PROMPT, *RESPONSE, *ATTENTION, *PROMPT_ATTENTION, *RESPONSE_ATTENTION),
            *(*LENGTHS, *LABELS, *MASKS, "prompt_mask", "mask", *WEIGHTS, *SAMPLES),
            *(*RESPONSE_LENGTH, *PROMPT_LENGTH, *PACKED, *CUMULATIVE, *POSITIONS, *NUMBERED),
            *(*GROUP, "message_log", "group_ids", "parent_ids"),
            *(f"{pair}_{name}" for pair in PAIRS for name in ("ids", "input_ids", "labels")),
            *(f"{pair}_attention_mask" for pair in PAIRS),
        )
    )
)
"""Names of columns that are read."""
TEXT = (
    "messages",
    "prompt",
    "text",
    "conversations",
    "completion",
    "chosen",
    "messages_and_choices",
)
WANTED = (
    "give input_ids, tokens or token_ids, or prompt_ids and completion_ids, or say which column "
    "holds them, such as --column input_ids=NAME (in Python columns={'input_ids': 'NAME'})"
)


@dataclass
class Found:
    """What was understood of some rows: n sequences of T tokens, pads dropped.

    Attributes:
        tokens: [T]. offsets: [n + 1]. rows: row of each sequence, [n].
        labelled: [T], None where no column says which tokens are trained on.
        columns: one entry a sequence: ``first_target`` and ``group``, of any hashable values.
        pads: tokens dropped. used: what each column was read as. names: all columns seen.
        odd: remarks, one line each. unit: "row", or "line" of JSON lines.
    """

    tokens: Int64
    offsets: Int64
    rows: Int64
    labelled: Flags | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    pads: int = 0
    used: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    unit: str = "row"


class Renamed:
    """A table with some columns under other names; an empty name drops the column.

    Raises:
        InputError: a name that is not read, or a column that the table lacks.
    """

    def __init__(self, table: Table, columns: Mapping[str, str]) -> None:
        self.table = table
        self.theirs = {name: name for name in table.names}
        for ours, theirs in columns.items():
            if ours not in GIVEN:
                raise InputError(f"columns: {shown(ours)} is not read: {', '.join(GIVEN)}")
            if theirs and theirs not in table.names:
                raise InputError(f"has no column {theirs}: {_seen(table)}")
        for ours, theirs in columns.items():
            self.theirs.pop(theirs, None)
            self.theirs.pop(ours, None)
        self.theirs |= {ours: theirs for ours, theirs in columns.items() if theirs}
        self.names, self.rows = list(self.theirs), table.rows
        self.place = table.place

    def kind(self, name: str) -> Kind:
        """Return the kind of a column."""
        return self.table.kind(self.theirs[name])

    def lists(self, name: str, *, integer: bool = False) -> Any:
        """Return the lists of numbers of a column."""
        return self.table.lists(self.theirs[name], integer=integer)

    def nested(self, name: str) -> Any:
        """Return the inner lists of a column of lists of lists."""
        return self.table.nested(self.theirs[name])

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        return self.table.values(self.theirs[name])

    def messages(self, name: str) -> Any:
        """Return the lists of objects of a column."""
        return self.table.messages(self.theirs[name])


def _seen(table: Table) -> str:
    """List the columns of a table, and those that look like token ids."""
    names = table.names[:20]
    text = f"the columns are {', '.join(names)}" if names else "there are no columns"
    tokens = []
    for name in names:
        if table.kind(name) == "lists":
            numbers = table.lists(name)[0]
            if numbers.dtype.kind in "iu" and numbers.size and numbers.max() > 1:
                tokens.append(name)
    return text + (f"; {' and '.join(tokens)} may be token ids" if tokens else "")


def _refuse_all(table: Table, text: str) -> NoReturn:
    """Refuse the columns: of lines, which differ, with the place of the first."""
    place = table.place(0) if table.rows else ""
    raise InputError(f"{place}: {text}" if place.startswith("line") else text)


def understand(table: Table) -> Found:
    """Return the sequences of a table's rows.

    Raises:
        InputError: no token ids, or columns that contradict each other; names the row.
    """
    reader = _Reader(table)
    if reader.has("group_ids", "lists") and reader.has("parent_ids", "lists"):
        found = _tree(reader)
    elif pair := reader.pair():
        found = _pairs(reader, pair)
    else:
        found = reader.read()
    found.names = list(table.names)
    wrong = int(np.argmin(found.tokens)) if found.tokens.size else 0
    if found.tokens.size and found.tokens[wrong] < 0:
        wrong = int(np.argmax(found.tokens < 0))
        sequence = int(np.searchsorted(found.offsets, wrong, side="right")) - 1
        refuse(
            table,
            int(found.rows[sequence]),
            f"token {wrong - int(found.offsets[sequence])} is {found.tokens[wrong]}: "
            "token ids are at least 0",
        )
    return found


def read_table(table: Table, columns: Mapping[str, str] | None = None) -> Found:
    """Understand the rows of a table, some of its columns renamed.

    Raises:
        InputError: see `understand`.
    """
    return understand(Renamed(table, columns) if columns else table)


class _Reader:
    """Reads one table; remembers what each column was read as."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.used: dict[str, str] = {}
        self.odd: list[str] = []
        self.ids: Int64 = np.empty(0, np.int64)
        self.offsets: Int64 = np.zeros(1, np.int64)
        self.prompts: Int64 | None = None
        """Tokens of each row before its response, pads among them."""
        self.responses: Int64 | None = None

    def has(self, name: str, kind: str) -> bool:
        """Whether there is a column of a kind."""
        return name in self.table.names and self.table.kind(name) == kind

    def find(self, names: Sequence[str], kind: str = "lists") -> str | None:
        """Return the first of some names that is a column of a kind."""
        return next((name for name in names if self.has(name, kind)), None)

    def find_number(self, names: Sequence[str]) -> str | None:
        """Return the first of some names that is a column of numbers, or of text to refuse."""
        return self.find(names, "value") or self.find(names, "text")

    def take(self, name: str, use: str) -> Lists:
        """Read a column of integers."""
        self.used[name] = use
        return ints(self.table, name)

    def pair(self) -> str | None:
        """Return what the columns of preference pairs end in."""
        for end in ("input_ids", "ids"):
            if all(self.has(f"{pair}_{end}", "lists") for pair in PAIRS):
                return end
        return None

    def read(self) -> Found:
        """Return the sequences."""
        self._find_ids()
        keep = self._keep()
        labelled, split = self._labels()
        marks = self._marks(keep)
        found = _compose(self, keep, labelled, marks)
        if split and found.labelled is not None and marks is None:
            # One boundary a sequence says the same in fewer bytes.
            counts = np.diff(_sums(found.labelled)[found.offsets])
            found.columns["first_target"] = np.diff(found.offsets) - counts
            found.labelled = None
        self._group(found)
        found.used, found.odd = self.used, self.odd
        return found

    def _find_ids(self) -> None:
        if self.has("message_log", "nested"):
            self.table = _messages(self)
        whole, prompt = self.find(WHOLE), self.find(PROMPT)
        response = self.find(RESPONSE)
        if whole == "token_ids" and prompt == "prompt_token_ids" and response is None:
            whole, response = None, "token_ids"
        if (
            whole is None
            and prompt
            and response is None
            and self.has("response_token_ids", "nested")
        ):
            response = "response_token_ids"
        if whole is not None:
            self.ids, self.offsets = self.take(whole, "token ids")
            if response is not None:
                self.responses = np.diff(self.take(response, "length of the response")[1])
                if prompt is not None:
                    self.used[prompt] = "part of the token ids"
                self.prompts = np.diff(self.offsets) - self.responses
                self._within("prompts", response)
        elif prompt is not None and response is not None:
            first = self.take(prompt, "token ids")
            second = self._response(response)
            self.ids, self.offsets = interleave(first, second)
            self.prompts, self.responses = np.diff(first[1]), np.diff(second[1])
        else:
            self._refuse_ids(prompt or response)
        self._lengths_of_parts()

    def _response(self, name: str) -> Lists:
        if self.has(name, "nested"):
            return _turns(self, name)
        return self.take(name, "token ids")

    def _lengths_of_parts(self) -> None:
        """Read the lengths of prompts or responses."""
        lengths = np.diff(self.offsets)
        if self.responses is None and (name := self.find_number(RESPONSE_LENGTH)):
            self.responses = self._integers(name, "length of the response")
            self.prompts = lengths - self.responses
            self._within("prompts", name)
        if self.prompts is None and (name := self.find_number(PROMPT_LENGTH)):
            self.prompts = self._integers(name, "where labels begin")
            self.responses = lengths - self.prompts
            self._within("responses", name)
        for name in ("first_target",):
            if name in self.table.names and self.table.kind(name) in ("lists", "text", "nested"):
                refuse(self.table, 0, f"{name} is no integer: give the first labelled position")

    def _within(self, part: str, name: str) -> None:
        lengths: Int64 = getattr(self, part)
        if lengths.size and lengths.min() < 0:
            row = int(np.argmin(lengths))
            have = int(self.offsets[row + 1] - self.offsets[row])
            refuse(self.table, row, f"{name} says {have - int(lengths[row])} of {have} tokens")

    def _integers(self, name: str, use: str) -> Int64:
        self.used[name] = use
        values = self.table.values(name)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            return values.astype(np.int64)
        for row, value in enumerate(values):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not -(2**63) <= value < 2**63:
                refuse(self.table, row, f"{name} is {shown(value)}: give an integer")
        return np.asarray(values, np.int64)

    def _refuse_ids(self, half: str | None) -> None:
        """Say what is missing."""
        table = self.table
        for name in (*WHOLE, *PROMPT[:2], *RESPONSE[:2]):
            if name in table.names and table.kind(name) not in ("absent", "lists"):
                if table.kind(name) == "nested":
                    ints(table, name)  # raises
                table.lists(name, integer=True)  # raises, naming the entry
                raise InputError(f"{name} holds {table.kind(name)}: give lists of token ids")
        if half is not None:
            other = "the response's ids" if half in PROMPT else "the prompt's ids"
            _refuse_all(
                table, f"no token ids: {half} comes without {other}: {_seen(table)}: {WANTED}"
            )
        held = [name for name in TEXT if name in table.names]
        if held and not any(table.kind(name) == "lists" for name in table.names):
            _refuse_all(
                table,
                f"this holds text (column {held[0]}), not token ids: tokenize it first, see "
                "docs/sequences.md for the lines that do",
            )
        _refuse_all(table, f"no token ids: {_seen(table)}: {WANTED}")

    # --- pads ---

    def _keep(self) -> Flags | None:
        """Return which tokens are no pads, None for all."""
        keep = np.ones(len(self.ids), np.bool_)
        name = self.find(ATTENTION)
        self._segments: Int64 | None = None
        if name is not None:
            values, offsets = self.table.lists(name)
            self._same(name, offsets)
            self.used[name] = "pads"
            if (
                values.dtype.kind in "iu"
                and values.size
                and values.max() > 1
                and _numbered(values, offsets)
            ):
                self.used[name] = "pads and packed sequences"
                self._segments = values.astype(np.int64)
                values = values > 0
            keep &= self._flags(name, (values, offsets))
        if self.prompts is not None:
            keep &= self._keep_parts()
        if (name := self.find_number(LENGTHS)) is not None:
            lengths = self._integers(name, "pads")
            most = np.diff(self.offsets)
            wrong = np.flatnonzero((lengths < 0) | (lengths > most))
            if wrong.size:
                row = int(wrong[0])
                refuse(self.table, row, f"{name} is {lengths[row]} of {most[row]} tokens")
            keep &= _within(self.offsets) < np.repeat(lengths, most)
        return None if keep.all() else keep

    def _keep_parts(self) -> Flags:
        """Read the masks of prompt and response, in which 0 is a pad."""
        keep = np.ones(len(self.ids), np.bool_)
        self._prompt_labels: Flags | None = None
        self._response_kept = False
        for names, start in ((PROMPT_ATTENTION, True), (RESPONSE_ATTENTION, False)):
            if name := self.find(names):
                self.used[name] = "pads"
                keep &= self._part(name, self._flags(name), True, start)
        name = self.find(("prompt_mask",))
        attention = False
        if name is not None:
            values, offsets = self._flags(name, None, both=True)
            if not values.any():
                # Some trainers write a loss mask here: nothing of a prompt is trained on.
                self.used[name] = "labels"
            else:
                self.used[name], attention = "pads", True
                keep &= self._part(name, (values, offsets), True, True)
        mask = self.find(("completion_mask", "response_mask", "response_loss_mask"))
        if mask is not None and self.find(ATTENTION) is None:
            values, offsets = self._flags(mask, None, both=True)
            pads = self._trailing(values, offsets, attention and not keep.all())
            if pads is not None:
                self.used[mask] = "labels and pads"
                keep &= ~pads
        return keep

    def _trailing(self, values: Flags, offsets: Int64, padded: bool) -> Flags | None:
        """Return the tokens behind the last 1 of each row's mask of its response, if they are pads:
        rows of one length, all ending in one id, or in a batch that is padded otherwise."""
        assert self.responses is not None
        lengths = np.diff(offsets)
        if (lengths != self.responses).any() or len(set(lengths.tolist())) != 1 or not lengths[0]:
            return None
        matrix = values.reshape(len(lengths), -1)
        tail = ~np.logical_or.accumulate(matrix[:, ::-1], axis=1)[:, ::-1]
        pads = np.zeros(len(self.ids), np.bool_)
        pads[_at_end(self.offsets, offsets)] = tail.reshape(-1)
        if not pads.any():
            return None
        return (
            pads if padded or (len(np.unique(self.ids[pads])) == 1 and len(lengths) > 1) else None
        )

    def _part(self, name: str, numbers: Any, fill: bool, start: bool) -> Flags:
        """Return a mask of the prompts or the responses as one of all tokens."""
        values, offsets = numbers if isinstance(numbers, tuple) else (numbers, self._last)
        wanted = self.prompts if start else self.responses
        assert wanted is not None
        lengths = np.diff(offsets)
        wrong = np.flatnonzero(lengths != wanted)
        if wrong.size:
            row = int(wrong[0])
            refuse(
                self.table,
                row,
                f"{name} has {lengths[row]} entries for {wanted[row]} tokens: give one each",
            )
        made = np.full(len(self.ids), fill)
        place = _at_start(self.offsets, offsets) if start else _at_end(self.offsets, offsets)
        made[place] = values
        return made

    def _same(self, name: str, offsets: Int64) -> None:
        """Refuse a mask whose rows are not as long as the ids."""
        wrong = np.flatnonzero(np.diff(offsets) != np.diff(self.offsets))
        if wrong.size:
            row = int(wrong[0])
            have, need = np.diff(offsets)[row], np.diff(self.offsets)[row]
            refuse(self.table, row, f"{name} has {have} entries for {need} tokens: give one each")

    def _flags(self, name: str, numbers: Any = None, *, both: bool = False) -> Any:
        """Read a mask of 0 and 1."""
        if numbers is None:
            numbers = _turns(self, name) if self.has(name, "nested") else self.table.lists(name)
        values, self._last = numbers
        if values.dtype.kind != "b":
            wrong = (values != 0) & (values != 1)
            if wrong.any():
                entry(self.table, name, numbers, int(np.argmax(wrong)), "a mask holds 0 and 1")
            values = values != 0
        return (values, self._last) if both else values

    # --- labels ---

    def _labels(self) -> tuple[Flags | None, bool]:
        """Return which tokens are trained on, pads not dropped, as every column that tells agrees;
        and whether that is only a boundary between prompt and response."""
        made: Flags | None = None
        for name in self.table.names:
            flags = self._labels_of(name)
            if flags is not None:
                self.used.setdefault(name, "labels")
                made = flags if made is None else made & flags
        split = made is None and self.prompts is not None
        if self.prompts is not None:
            behind = _within(self.offsets) >= np.repeat(self.prompts, np.diff(self.offsets))
            made = behind if made is None else made & behind
        sampled = self.find(SAMPLES, "value")
        samples = np.ones(0)
        if sampled is not None:
            self.used[sampled] = "labels"
            samples = np.asarray(self.table.values(sampled))
            wrong = (samples != 0) & (samples != 1)
            if wrong.any():
                row = int(np.argmax(wrong))
                refuse(self.table, row, f"{sampled} is {shown(samples[row])}: it holds 0 and 1")
            if not samples.all() or made is not None:
                every = np.repeat(samples != 0, np.diff(self.offsets))
                made, split = (every, False) if made is None else (made & every, split)
        return made, split and bool(np.all(samples != 0))

    def _labels_of(self, name: str) -> Flags | None:
        if name in (*MASKS, *ATTENTION) and self.table.kind(name) in ("text", "value"):
            self.table.lists(name)  # raises, naming the entry
            refuse(self.table, 0, f"{name} holds {self.table.kind(name)}: give lists of 0 and 1")
        known = (*LABELS, *MASKS, *WEIGHTS, "mask")
        if name not in known or not (self.has(name, "lists") or self.has(name, "nested")):
            return None
        if self.has(name, "nested") and name != "response_loss_mask":
            return None
        if name == "mask":
            if not (self.find(("tokens",)) and self.find(LABELS)):
                _refuse_all(
                    self.table,
                    "mask may mean pads, labels or what is left out of the loss: say which, "
                    "--column attention_mask=mask or loss_mask=mask, or drop it: --column mask=",
                )
            self.used[name] = "left to the labels"
            return None
        if name in LABELS:
            values, offsets = self.take(name, "labels")
            if values.size > 1 and ((values == 0) | (values == 1)).all():
                _refuse_all(
                    self.table,
                    f"{name} hold only 0 and 1: if they are a mask, say --column loss_mask={name}, "
                    f"or leave them out by --column {name}=",
                )
            values = values != IGNORED
        elif name in WEIGHTS:
            weights, offsets = self.table.lists(name)
            values = weights != 0
        else:
            values, offsets = self._flags(name, None, both=True)
        return self._align(name, values, offsets)

    def _align(self, name: str, values: Flags, offsets: Int64) -> Flags:
        """Return labels as one flag a token: of whole rows, or of their responses."""
        lengths, need = np.diff(offsets), np.diff(self.offsets)
        if (lengths == need).all():
            return values
        at_end = (lengths <= need).all() and (
            name in AT_END
            or (self.responses is not None and bool((lengths == self.responses).all()))
        )
        if at_end:
            made = np.zeros(len(self.ids), np.bool_)
            made[_at_end(self.offsets, offsets)] = values
            return made
        wrong = lengths != need
        if self.responses is not None:
            wrong &= lengths != self.responses
        row = int(np.argmax(wrong))
        of = "" if self.responses is None else f", or {self.responses[row]} of the response"
        return refuse(
            self.table,
            row,
            f"{name} has {lengths[row]} entries for {need[row]} tokens{of}: give one each",
        )

    # --- packed lines ---

    def _marks(self, keep: Flags | None) -> Flags | None:
        """Return the tokens where a packed sequence begins, None if no line is packed."""
        marks = np.zeros(len(self.ids), np.bool_)
        if name := self.find(PACKED):
            values, offsets = self.take(name, "packed sequences")
            ends = self._ends(name, values, offsets, keep)
        elif name := self.find(CUMULATIVE):
            values, offsets = self.take(name, "packed sequences")
            ends = self._cumulative(name, values, offsets)
        elif self._segments is not None:
            return _changes(self._segments, self.offsets)
        elif name := self.find(NUMBERED):
            values, offsets = self.take(name, "packed sequences")
            self._same(name, offsets)
            return _changes(values, self.offsets)
        elif name := self.find(POSITIONS):
            return self._restarts(name, keep)
        else:
            return None
        marks[ends[ends < len(marks)]] = True
        return marks

    def _ends(self, name: str, values: Int64, offsets: Int64, keep: Flags | None) -> Int64:
        if values.size and values.min() < 0:
            entry(
                self.table,
                name,
                (values, offsets),
                int(np.argmin(values)),
                "a length is no less than 0",
            )
        sums = np.diff(_sums(values)[offsets])
        need = np.diff(self.offsets)
        wrong = sums > need if keep is not None else sums != need
        if wrong.any():
            row = int(np.argmax(wrong))
            refuse(self.table, row, f"{name} sum to {sums[row]} for {need[row]} tokens")
        ends = _sums(values)[1:] - np.repeat(_sums(values)[offsets[:-1]], np.diff(offsets))
        starts = np.repeat(self.offsets[:-1], np.diff(offsets))
        lead = np.zeros(len(need), np.int64)
        if keep is not None:  # behind the pads on the left
            filled = (
                np.minimum.reduceat(
                    np.where(keep, _within(self.offsets), need.max(initial=0)),
                    np.minimum(self.offsets[:-1], max(len(keep) - 1, 0)),
                )
                if len(keep)
                else lead
            )
            lead = np.where(sums + filled <= need, filled, 0)
        at = ends + starts + np.repeat(lead, np.diff(offsets))
        return at[at < np.repeat(self.offsets[1:], np.diff(offsets))]

    def _cumulative(self, name: str, values: Int64, offsets: Int64) -> Int64:
        need = np.diff(self.offsets)
        rows = np.repeat(np.arange(len(need)), np.diff(offsets))
        falls = np.zeros(len(values), np.bool_)
        falls[1:] = (values[1:] < values[:-1]) & (rows[1:] == rows[:-1])
        wrong = falls | (values < 0) | (values > need[rows])
        if wrong.any():
            repair = f"they rise from 0 to {need[rows[int(np.argmax(wrong))]]}, the tokens"
            entry(self.table, name, (values, offsets), int(np.argmax(wrong)), repair)
        inner = values < need[rows]
        return (values + self.offsets[:-1][rows])[inner]

    def _restarts(self, name: str, keep: Flags | None) -> Flags | None:
        values, offsets = self.take(name, "packed sequences")
        self._same(name, offsets)
        kept = np.arange(len(values)) if keep is None else np.flatnonzero(keep)
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[kept]
        positions = values[kept]
        same = rows[1:] == rows[:-1]
        again = same & (positions[1:] == 0)
        wrong = same & ~again & (positions[1:] != positions[:-1] + 1)
        if wrong.any():
            at = int(kept[int(np.argmax(wrong)) + 1])
            entry(
                self.table,
                name,
                (values, offsets),
                at,
                f"positions count on or start again at 0; --column {name}= leaves them out",
            )
        if not again.any():
            self.used[name] = "not packed"
            return None
        marks = np.zeros(len(values), np.bool_)
        marks[kept[1:][again]] = True
        return marks

    def _group(self, found: Found) -> None:
        name = self.find(GROUP, "value") or self.find(GROUP, "text")
        if name is None:
            return
        values = self.table.values(name)
        for row, value in enumerate(() if isinstance(values, np.ndarray) else values):
            if value is None or isinstance(value, list | dict):
                refuse(
                    self.table, row, f"{name} is {shown(value)}: give a value that names a group"
                )
        self.used[name] = "groups"
        rows = found.rows
        found.columns["group"] = (
            values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]
        )


def _compose(
    reader: _Reader, keep: Flags | None, labelled: Flags | None, marks: Flags | None
) -> Found:
    """Drop pads and cut packed lines."""
    ids, offsets = reader.ids, reader.offsets
    rows = np.arange(len(offsets) - 1)
    if marks is not None:
        keep = _drop_packed_pads(reader, keep, labelled, marks)
    if keep is None and marks is None:
        return Found(ids, offsets, rows, labelled)
    if keep is not None:
        kept = np.flatnonzero(keep)
        row = np.repeat(rows, np.diff(offsets))[kept]
        part = row if marks is None else np.cumsum(marks)[kept]
        counts = np.diff(_sums(keep)[offsets])
    else:
        assert marks is not None
        kept, row = np.arange(len(ids)), np.repeat(rows, np.diff(offsets))
        part, counts = np.cumsum(marks), np.diff(offsets)
    starts = np.ones(len(kept), np.bool_)
    starts[1:] = (part[1:] != part[:-1]) | (row[1:] != row[:-1])
    empty = np.flatnonzero(counts == 0)
    first = np.flatnonzero(starts)
    lengths = np.diff(np.append(first, len(kept)))
    owner = np.concatenate([row[first], empty])
    order = np.argsort(owner, kind="stable")
    lengths = np.concatenate([lengths, np.zeros(len(empty), np.int64)])[order]
    tokens = ids if keep is None else ids[kept]
    if labelled is not None and keep is not None:
        labelled = labelled[kept]
    return Found(tokens, _sums(lengths), owner[order], labelled, pads=len(ids) - len(tokens))


def _drop_packed_pads(
    reader: _Reader, keep: Flags | None, labelled: Flags | None, marks: Flags
) -> Flags | None:
    """Drop what fills up a packed line: one-token sequences of one id side by side, and a last
    sequence of one id without a label."""
    ids, offsets = reader.ids, reader.offsets
    kept = np.arange(len(ids)) if keep is None else np.flatnonzero(keep)
    if not kept.size:
        return keep
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[kept]
    part = np.cumsum(marks)[kept]
    starts = np.ones(len(kept), np.bool_)
    starts[1:] = (part[1:] != part[:-1]) | (row[1:] != row[:-1])
    first = np.flatnonzero(starts)
    lengths = np.diff(np.append(first, len(kept)))
    owner, token = row[first], ids[kept][first]
    single = lengths == 1
    beside = np.zeros(len(first), np.bool_)
    alike = single[1:] & single[:-1] & (owner[1:] == owner[:-1]) & (token[1:] == token[:-1])
    beside[1:] |= alike
    beside[:-1] |= alike
    drop = beside
    if labelled is not None:
        last = np.zeros(len(first), np.bool_)
        left = np.flatnonzero(~drop)
        if left.size:
            last[left] = np.append(owner[left][1:] != owner[left][:-1], True)
        several = np.bincount(owner, minlength=len(offsets) - 1)[owner] > 1
        flags = labelled[kept]
        unlabelled = np.add.reduceat(flags.astype(np.int64), first) == 0
        values = ids[kept]
        same = np.maximum.reduceat(values, first) == np.minimum.reduceat(values, first)
        drop |= last & several & unlabelled & same
    if not drop.any():
        return keep
    made = np.zeros(len(ids), np.bool_)
    made[kept[~np.repeat(drop, lengths)]] = True
    return made


def _sums(values: NDArray[Any]) -> Int64:
    """Return the sums of the first values, for every number of them."""
    made = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=made[1:])
    return made


def _within(offsets: Int64) -> Int64:
    """Return the position of each token in its row."""
    return np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], np.diff(offsets))


def _at_end(offsets: Int64, part: Int64) -> Int64:
    """Return where the last tokens of each row are, as many as its part has."""
    return np.arange(int(part[-1])) + np.repeat(offsets[1:] - part[1:], np.diff(part))


def _at_start(offsets: Int64, part: Int64) -> Int64:
    """Return where the first tokens of each row are, as many as its part has."""
    return np.arange(int(part[-1])) + np.repeat(offsets[:-1] - part[:-1], np.diff(part))


def _changes(values: Int64, offsets: Int64) -> Flags:
    marks = np.zeros(len(values), np.bool_)
    marks[1:] = values[1:] != values[:-1]
    marks[offsets[:-1][np.diff(offsets) > 0]] = False
    return marks


def _numbered(values: NDArray[Any], offsets: Int64) -> bool:
    """Whether a mask counts the sequences of each packed line, 1, 2, ..., with 0 for pads at its
    end: each of two tokens or more, so that a wrong entry is no sequence."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    starts = np.ones(len(values), np.bool_)
    starts[1:] = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
    first = np.flatnonzero(starts)
    lengths, number, row = np.diff(np.append(first, len(values))), values[first], rows[first]
    fresh = np.ones(len(first), np.bool_)
    fresh[1:] = row[1:] != row[:-1]
    before = np.append(0, number[:-1])
    last = np.append(row[1:] != row[:-1], True)
    counts_on = np.where(fresh, number == 1, number == before + 1) & (lengths > 1)
    return bool((counts_on | ((number == 0) & last & ~fresh)).all())


def _turns(reader: _Reader, name: str) -> Lists:
    """Join the turns of each row."""
    reader.used.setdefault(name, "token ids")
    (values, inner), outer = reader.table.nested(name)
    if values.dtype.kind not in "iub":
        raise InputError(f"{name} holds {values.dtype}: give lists of lists of integers")
    return values, inner[outer]


def _messages(reader: _Reader) -> Table:
    """Join the messages of each row: their ``token_ids``, and their masks or roles."""
    table, records = reader.table, []
    for row, log in enumerate(reader.table.messages("message_log")):
        ids: list[Any] = []
        mask: list[int] = []
        for message in log:
            part = message.get("token_ids") if isinstance(message, Mapping) else None
            if part is None:
                refuse(
                    table, row, "message_log holds a message without token_ids: tokenize it first"
                )
            part = part if isinstance(part, list) else np.asarray(part).tolist()
            told = message.get("token_loss_mask")
            if told is None:
                told = [int(message.get("role") == "assistant")] * len(part)
            ids += part
            mask += told if isinstance(told, list) else np.asarray(told).tolist()
        records.append({"input_ids": ids, "token_mask": mask})
    for name in GROUP:
        if name in table.names and table.kind(name) in ("value", "text"):
            for record, value in zip(records, table.values(name), strict=True):
                record[name] = value
    reader.used["message_log"] = "token ids and labels"
    return RecordTable(records, table.place)


def _pairs(reader: _Reader, end: str) -> Found:
    """Read the chosen and the rejected sequence of each row, which are one group."""
    table, parts = reader.table, []
    for pair in PAIRS:
        prompt = reader.find(PROMPT)
        names = {
            f"{pair}_{end}": "input_ids" if prompt is None else "completion_ids",
            f"{pair}_labels": "labels",
            f"{pair}_attention_mask": "attention_mask"
            if prompt is None
            else "completion_attention_mask",
            f"{pair}_mask": "completion_attention_mask",
        }
        chosen = {ours: theirs for theirs, ours in names.items() if theirs in table.names}
        drop = dict.fromkeys(("labels", "attention_mask"), "") if prompt is None else {}
        part = _Reader(Renamed(table, {**drop, **chosen}))
        parts.append(part.read())
        reader.used |= {
            theirs: part.used[ours]
            for theirs, ours in names.items()
            if ours in part.used and theirs in table.names
        } | {name: use for name, use in part.used.items() if name in table.names}
    first, second = parts
    lengths = np.stack([np.diff(first.offsets), np.diff(second.offsets)], 1).reshape(-1)
    tokens, _ = interleave((first.tokens, first.offsets), (second.tokens, second.offsets))
    labelled = None
    if first.labelled is not None and second.labelled is not None:
        labelled = (
            interleave(
                (first.labelled.astype(np.int64), first.offsets),
                (second.labelled.astype(np.int64), second.offsets),
            )[0]
            != 0
        )
    rows = np.repeat(np.arange(table.rows), 2)
    columns: dict[str, Any] = {"group": rows}
    for name in ("first_target", "group"):
        if name in first.columns and name in second.columns:
            both = zip(first.columns[name], second.columns[name], strict=True)
            columns[name] = [value for pair in both for value in pair]
    return Found(
        tokens, _sums(lengths), rows, labelled, columns, first.pads + second.pads, reader.used
    )


def _tree(reader: _Reader) -> Found:
    """Read packed lines whose sequences share prefixes: segments with a parent each."""
    table = reader.table
    name = reader.find(WHOLE)
    if name is None:
        raise InputError(f"no token ids: {_seen(table)}: {WANTED}")
    ids, offsets = reader.take(name, "token ids")
    reader.ids, reader.offsets = ids, offsets
    groups, parents = (reader.take(n, "shared prefixes")[0] for n in ("group_ids", "parent_ids"))
    for column in ("group_ids", "parent_ids"):
        reader._same(column, ints(table, column)[1])
    labelled, _ = reader._labels()
    changes = _changes(groups, offsets)
    changes[offsets[:-1][np.diff(offsets) > 0]] = True
    first = np.flatnonzero(changes)
    ends = np.append(first[1:], len(ids))
    rows = np.searchsorted(offsets, first, side="right") - 1
    paths: dict[tuple[int, int], list[NDArray[Any]]] = {}
    places: list[list[NDArray[Any]]] = []
    owner: list[int] = []
    roots: list[tuple[int, int]] = []
    of: dict[tuple[int, int], tuple[int, int]] = {}
    inner = {
        (int(r), int(parents[s]))
        for r, s in zip(rows, first, strict=True)
        if parents[s] != groups[s]
    }
    for row, start, end in zip(rows.tolist(), first.tolist(), ends.tolist(), strict=True):
        group, parent = int(groups[start]), int(parents[start])
        if group < 0:
            continue
        above = [] if parent == group else paths.get((row, parent))
        if above is None:
            refuse(table, row, f"parent_ids names {parent} before its segment comes")
        paths[row, group] = [*above, np.arange(start, end)]
        of[row, group] = (row, group) if parent == group else of[row, parent]
        if (row, group) not in inner:
            places.append(paths[row, group])
            owner.append(row)
            roots.append(of[row, group])
    lengths = [sum(map(len, path)) for path in places]
    at = np.concatenate([np.empty(0, np.int64), *(part for path in places for part in path)])
    numbers: dict[Any, int] = {}
    columns = {"group": [numbers.setdefault(root, len(numbers)) for root in roots]}
    pads = int((groups < 0).sum())
    if reader.find(POSITIONS):
        reader.used[str(reader.find(POSITIONS))] = "left to the segments"
    return Found(
        ids[at],
        _sums(np.array(lengths, np.int64)),
        np.array(owner, np.int64),
        None if labelled is None else labelled[at],
        columns,
        pads,
        reader.used,
    )
