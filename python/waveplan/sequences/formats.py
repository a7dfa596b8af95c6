"""Sequences, labels and groups from columns as trainers name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import shown
from waveplan.errors import InputError
from waveplan.sequences.columns import Lists, interleave
from waveplan.sequences.names import (
    AT_END,
    ATTENTION,
    CUMULATIVE,
    GIVEN,
    GROUP,
    IGNORED,
    LABELS,
    LENGTHS,
    MASKS,
    NUMBERED,
    PACKED,
    PAIRED,
    PAIRS,
    PROMPT,
    PROMPT_ATTENTION,
    PROMPT_LENGTH,
    RESPONSE,
    RESPONSE_ATTENTION,
    RESPONSE_LENGTH,
    SAMPLES,
    TEXT,
    WANTED,
    WEIGHTS,
    WHOLE,
)
from waveplan.sequences.nested import messages, pairs, tree
from waveplan.sequences.packed import compose, marks_of, numbered
from waveplan.sequences.reader import (
    Found,
    Reader,
    Renamed,
    at_end,
    at_start,
    refuse_all,
    seen,
    sums,
    within,
)
from waveplan.sequences.tables import Table, Unbatched, ints, refuse

__all__ = ["read_table"]

Int64 = NDArray[np.int64]
Flags = NDArray[np.bool_]


def read_table(table: Table, columns: Mapping[str, str] | None = None) -> Found:
    """Understand the rows of a table, some of its columns renamed.

    Raises:
        InputError: see `understand`.
    """
    return understand(Renamed(table, columns) if columns else table)


def understand(table: Table) -> Found:
    """Return the sequences of a table's rows.

    Raises:
        InputError: no token ids, or columns that contradict each other; names the row.
    """
    reader = _Rows(table)
    if batch := reader.batch():
        rows = Unbatched(table, batch)
        found = understand(rows)
        found.rows = rows.owner[found.rows]
        return found
    if reader.has("group_ids", "lists") and reader.has("parent_ids", "lists"):
        found = tree(reader, reader._labels)
    elif pair := reader.pair():
        found = pairs(reader, pair, lambda part: _Rows(part).read())
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


class _Rows(Reader):
    """Reads rows of token ids, one sequence each or several packed."""

    def batch(self) -> str | None:
        """Return the column of token ids whose rows are batches, [sequences, tokens] each, as
        other columns beside it are."""
        names = (*WHOLE, *PROMPT[:3], *(name.format(PAIRS[0]) for name in PAIRED))
        nested = [name for name in self.table.names if name in GIVEN and self.has(name, "nested")]
        return self.find(names, "nested") if len(nested) > 1 and not self.find(names) else None

    def pair(self) -> str | None:
        """Return what the columns of preference pairs are called."""
        for ids in PAIRED:
            if all(self.has(ids.format(pair), "lists") for pair in PAIRS):
                return ids
        return None

    def read(self) -> Found:
        """Return the sequences."""
        self._find_ids()
        keep = self._keep()
        labelled, split = self._labels(keep)
        marks = marks_of(self, keep)
        found = compose(self, keep, labelled, marks)
        if split and found.labelled is not None and marks is None:
            # One boundary a sequence says the same in fewer bytes.
            counts = np.diff(sums(found.labelled)[found.offsets])
            found.columns["first_target"] = np.diff(found.offsets) - counts
            found.labelled = None
        self._group(found)
        self._refuse_unused()
        found.used, found.odd = self.used, self.odd
        return found

    def _find_ids(self) -> None:
        if self.has("message_log", "nested"):
            self.table = messages(self)
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
        if prompt and response == "completion_input_ids" and self._begins(prompt, response):
            whole, response = response, None
            self.used[prompt] = "part of the token ids"
        if whole is not None:
            self.ids, self.offsets = self.take(whole, "token ids")
            if response is not None:
                self.responses = np.diff(self.take(response, "length of the response")[1])
                if prompt is not None:
                    self.used[prompt] = "part of the token ids"
                self.prompts = np.diff(self.offsets) - self.responses
                self._within("prompts", response)
        elif prompt is not None and response is not None:
            first = self.take(prompt, "token ids of the prompt")
            second = self._response(response)
            self.ids, self.offsets = interleave(first, second)
            self.prompts, self.responses = np.diff(first[1]), np.diff(second[1])
        else:
            self._refuse_ids(prompt or response)
        self._lengths_of_parts()

    def _begins(self, prompt: str, response: str) -> bool:
        """Whether every response begins with its prompt."""
        first, second = ints(self.table, prompt), ints(self.table, response)
        lengths = np.diff(first[1])
        if (np.diff(second[1]) < lengths).any():
            return False
        return bool((second[0][at_start(second[1], first[1])] == first[0]).all())

    def _response(self, name: str) -> Lists:
        if self.has(name, "nested"):
            return self.turns(name)
        return self.take(name, "token ids of the response")

    def _lengths_of_parts(self) -> None:
        """Read the lengths of prompts or responses."""
        if self.responses is None and (name := self.find_number(RESPONSE_LENGTH)):
            self.told = name, False, self.integers(name, "length of the response")
        elif self.prompts is None and (name := self.find_number(PROMPT_LENGTH)):
            self.told = name, True, self.integers(name, "where labels begin")

    def _refuse_unused(self) -> None:
        """Refuse columns of a known name that hold what is not read under it."""
        single = (*LENGTHS, *RESPONSE_LENGTH, *PROMPT_LENGTH, *SAMPLES, *GROUP[:3])
        listed = (*ATTENTION, *LABELS, *MASKS, *WEIGHTS, *PACKED, *CUMULATIVE, *NUMBERED)
        for name in self.table.names:
            kind = "absent" if name in self.used else self.table.kind(name)
            if name in single and kind in ("lists", "nested"):
                refuse(self.table, 0, f"{name} holds lists: give one value a row")
            if name in listed and kind == "nested":
                refuse(self.table, 0, f"{name} holds lists of lists: give one list a row")

    def _within(self, part: str, name: str) -> None:
        lengths: Int64 = getattr(self, part)
        if lengths.size and lengths.min() < 0:
            row = int(np.argmin(lengths))
            have = int(self.offsets[row + 1] - self.offsets[row])
            refuse(self.table, row, f"{name} says {have - int(lengths[row])} of {have} tokens")

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
            refuse_all(
                table, f"no token ids: {half} comes without {other}: {seen(table)}: {WANTED}"
            )
        held = [name for name in TEXT if name in table.names]
        if held and not any(table.kind(name) == "lists" for name in table.names):
            refuse_all(
                table,
                f"this holds text (column {held[0]}), not token ids: tokenize it first, see "
                "docs/sequences.md for the lines that do",
            )
        refuse_all(table, f"no token ids: {seen(table)}: {WANTED}")

    def _keep(self) -> Flags | None:
        """Return which tokens are no pads, None for all."""
        keep = np.ones(len(self.ids), np.bool_)
        name = self.find(ATTENTION)
        if name is not None:
            values, offsets = self.table.lists(name)
            self.same(name, offsets)
            self.used[name] = "pads"
            if (
                values.dtype.kind in "iu"
                and values.size
                and values.max() > 1
                and numbered(values, offsets)
            ):
                self.used[name] = "pads and packed sequences"
                self.segments = values.astype(np.int64)
                values = values > 0
            keep &= self.flags(name, (values, offsets))
        if self.prompts is not None:
            keep &= self._keep_parts()
        if (name := self.find_number(LENGTHS)) is not None:
            lengths = self.integers(name, "pads")
            most = np.diff(self.offsets)
            wrong = np.flatnonzero((lengths < 0) | (lengths > most))
            if wrong.size:
                row = int(wrong[0])
                refuse(self.table, row, f"{name} is {lengths[row]} of {most[row]} tokens")
            keep &= within(self.offsets) < np.repeat(lengths, most)
        return None if keep.all() else keep

    def _keep_parts(self) -> Flags:
        """Read the masks of prompt and response, in which 0 is a pad."""
        keep = np.ones(len(self.ids), np.bool_)
        for names, start in ((PROMPT_ATTENTION, True), (RESPONSE_ATTENTION, False)):
            if name := self.find(names):
                self.used[name] = "pads"
                keep &= self._part(name, self.flags(name), True, start)
        name = self.find(("prompt_mask",))
        attention = False
        if name is not None:
            values, offsets = self.flags(name, None, both=True)
            if not values.any():
                # Some trainers write a loss mask here: nothing of a prompt is trained on.
                self.used[name] = "labels"
            else:
                self.used[name], attention = "pads", True
                keep &= self._part(name, (values, offsets), True, True)
        mask = self.find(("completion_mask", "response_mask", "response_loss_mask"))
        if mask is not None and self.find(ATTENTION) is None:
            values, offsets = self.flags(mask, None, both=True)
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
        pads[at_end(self.offsets, offsets)] = tail.reshape(-1)
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
        place = at_start(self.offsets, offsets) if start else at_end(self.offsets, offsets)
        made[place] = values
        return made

    def _labels(self, keep: Flags | None = None) -> tuple[Flags | None, bool]:
        """Return which tokens are trained on, pads not dropped, as every column that tells agrees;
        and whether that is only a boundary between prompt and response."""
        made: Flags | None = None
        for name in self.table.names:
            flags = self._labels_of(name)
            if flags is not None:
                self.used.setdefault(name, "labels")
                made = flags if made is None else made & flags
        split = made is None
        behind = self._behind(keep)
        if behind is not None:
            made = behind if made is None else made & behind
        split &= behind is not None
        sampled = self.find(SAMPLES, "value")
        samples = np.ones(0)
        if sampled is not None:
            self.used[sampled] = "labels"
            samples = np.asarray(self.table.values(sampled))
            wrong = (samples != 0) & (samples != 1)
            if sampled == "remove_sample":
                samples = samples == 0
            if wrong.any() and sampled != "loss_multiplier":
                row = int(np.argmax(wrong))
                refuse(self.table, row, f"{sampled} is {shown(samples[row])}: it holds 0 and 1")
            if not samples.all() or made is not None:
                every = np.repeat(samples != 0, np.diff(self.offsets))
                made, split = (every, False) if made is None else (made & every, split)
        return made, split and bool(np.all(samples != 0))

    def _behind(self, keep: Flags | None) -> Flags | None:
        """Return the tokens behind each row's prompt, None where nothing tells its length."""
        if self.prompts is not None:
            return within(self.offsets) >= np.repeat(self.prompts, np.diff(self.offsets))
        if self.told is None:
            return None
        name, of_prompt, lengths = self.told
        before = np.arange(len(self.ids) + 1) if keep is None else sums(keep)
        counts = np.diff(before[self.offsets])
        prompts = lengths if of_prompt else counts - lengths
        wrong = (prompts < 0) | (prompts > counts)
        if wrong.any():
            row = int(np.argmax(wrong))
            refuse(self.table, row, f"{name} says {lengths[row]} of {counts[row]} tokens")
        first = np.repeat(before[self.offsets[:-1]] + prompts, np.diff(self.offsets))
        return before[:-1] >= first

    def _labels_of(self, name: str) -> Flags | None:
        if name in (*MASKS, *ATTENTION) and self.table.kind(name) in ("text", "value"):
            self.table.lists(name)  # raises, naming the entry
            refuse(self.table, 0, f"{name} holds {self.table.kind(name)}: give lists of 0 and 1")
        if name == "prompt_mask" and self.prompts is None and self.has(name, "lists"):
            values, offsets = self.flags(name, None, both=True)
            self.same(name, offsets)
            self.used[name] = "labels, of all but the prompt"
            made: Flags = ~values
            return made
        known = (*LABELS, *MASKS, *WEIGHTS, "mask")
        if name not in known or not (self.has(name, "lists") or self.has(name, "nested")):
            return None
        if self.has(name, "nested") and name != "response_loss_mask":
            return None
        if name == "mask":
            if not (self.find(("tokens",)) and self.find(LABELS)):
                refuse_all(
                    self.table,
                    "mask may mean pads, labels or what is left out of the loss: say which by "
                    "--column attention_mask=mask, loss_mask=mask (1 is trained on) or "
                    "prompt_mask=mask (1 is not, as torchtune has it), or drop it: --column mask=",
                )
            self.used[name] = "left to the labels"
            return None
        if name in LABELS:
            values, offsets = self.take(name, "labels")
            few = values.size > 1 and bool(((values == 0) | (values == 1)).all())
            if few and not np.array_equal(values, self.ids):
                refuse_all(
                    self.table,
                    f"{name} hold only 0 and 1: if they are a mask, say --column loss_mask={name}, "
                    f"or leave them out by --column {name}=",
                )
            values = values != IGNORED
        elif name in WEIGHTS:
            weights, offsets = self.table.lists(name)
            values = weights != 0
        else:
            values, offsets = self.flags(name, None, both=True)
        return self._align(name, values, offsets)

    def _align(self, name: str, values: Flags, offsets: Int64) -> Flags:
        """Return labels as one flag a token: of whole rows, or of their responses."""
        lengths, need = np.diff(offsets), np.diff(self.offsets)
        if (lengths == need).all():
            return values
        responses = self.responses
        if responses is None and self.told is not None and not self.told[1]:
            responses = self.told[2]
        of_responses = responses is not None and bool((lengths == responses).all())
        if (lengths <= need).all() and (name in AT_END or of_responses):
            made = np.zeros(len(self.ids), np.bool_)
            made[at_end(self.offsets, offsets)] = values
            if of_responses and self.responses is None:
                self.told = None  # the mask says as much, from the end of the row, pads and all
            return made
        wrong = lengths != need
        if responses is not None:
            wrong &= lengths != responses
        row = int(np.argmax(wrong))
        of = "" if responses is None else f", or {responses[row]} of the response"
        return refuse(
            self.table,
            row,
            f"{name} has {lengths[row]} entries for {need[row]} tokens{of}: give one each",
        )

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
