"""Tables as text that fits the terminal: no number is cut and no word broken."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from html import escape
from typing import TextIO

__all__ = ["Markup", "Table", "integer", "seconds", "show", "width", "wrapped"]

PIPED = 100
"""Columns where the output is no terminal and COLUMNS is not set."""
FOLDED = 15
"""Rows of a table on a page before the rest is folded away."""
LEAST = 20
"""Columns that text in a table needs to be wrapped there."""


def integer(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def seconds(value: float) -> str:
    """A duration at three significant digits."""
    for limit, unit, scale in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def width() -> int:
    """Return the columns of the terminal, or those of the variable COLUMNS."""
    return max(20, shutil.get_terminal_size((PIPED, 24)).columns)


def wrapped(text: str, columns: int, indent: str = "  ") -> list[str]:
    """Return a text in lines of so many columns; longer words stay whole."""
    return textwrap.wrap(
        text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _hanging(line: str, columns: int) -> list[str]:
    start = re.match(r" *(?:[\d.,]+ [KMGT]?i?B [* ] *)?", line)  # of a price's explanation
    return wrapped(line, columns, " " * min(columns // 2, len(start[0] if start else "") + 2))


class Markup(str):
    """Text that is HTML already."""


@dataclass
class Table:
    """Rows of text under headings; columns named in ``right`` are aligned right.

    It is written as plain text (with a line under the headings where `ruled`), as Markdown or HTML.
    Where columns are too many for the width, those of ``optional`` go, the first first; then the
    last one is wrapped; then the rows stand one under another. Text of ``about`` follows, of the
    columns that are shown.
    """

    title: str
    columns: Sequence[str]
    given: InitVar[Iterable[Sequence[object]]] = ()
    right: Collection[str] = ()
    ruled: bool = True
    optional: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    rows: list[list[str]] = field(default_factory=list, init=False)

    def __post_init__(self, given: Iterable[Sequence[object]]) -> None:
        for cells in given:
            self.add(*cells)

    def add(self, *cells: object) -> None:
        """Append one row; one cell a column."""
        if len(cells) != len(self.columns):
            raise AssertionError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([cell if isinstance(cell, str) else str(cell) for cell in cells])

    def plain(self, columns: int = 1 << 20) -> str:
        """The table as text of so many columns."""
        lines = list(self.title and wrapped(self.title, columns))
        sizes = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        shown = list(range(len(sizes)))
        fewer = [shown]
        for name in self.optional:
            at = self.columns.index(name)
            fewer.append([i for i in fewer[-1] if i != at])
        room = [columns - sum(sizes[i] + 2 for i in kept[:-1]) for kept in fewer]
        # A last column of text is wrapped before rows stand one under another.
        last = [(i, sizes[kept[-1]], room[i]) for i, kept in enumerate(fewer)]
        fits = [i for i, size, left in last if left >= size] or [
            i
            for i, size, left in last
            if left >= min(size, LEAST) and self.columns[fewer[i][-1]] not in self.right
        ]
        if not fits:
            return "\n".join([*lines, *self._records(columns), *self._about(shown, columns)])
        shown = fewer[fits[0]]
        sizes[shown[-1]] = min(sizes[shown[-1]], room[fits[0]])
        rule = [["-" * size for size in sizes]] if self.ruled else []
        for cells in (self.columns, *rule, *self.rows):
            lines += self._lines(cells, sizes, shown)
        return "\n".join([*lines, *self._about(shown, columns)])

    def _about(self, shown: Sequence[int], columns: int) -> list[str]:
        """What the columns shown mean, below an empty line."""
        names = {self.columns[i] for i in shown}
        lines = [f"{name}: {text}" for name, text in self.about.items() if name in names]
        return ["", *(part for line in lines for part in wrapped(line, columns))] if lines else []

    def _lines(self, cells: Sequence[str], sizes: Sequence[int], shown: Sequence[int]) -> list[str]:
        """One row; a cell of the last column that is too long goes on below."""
        *some, end = shown
        first, *more = [cells[end]]
        if len(first) > sizes[end]:
            first, *more = wrapped(first, sizes[end])
        parts = [self._cell(i, cells[i], sizes[i]) for i in some]
        line = "  ".join((*parts, self._cell(end, first, sizes[end]))).rstrip()
        indent = " " * sum(sizes[i] + 2 for i in some)
        return [line, *(indent + part for part in more)]

    def _cell(self, at: int, text: str, size: int) -> str:
        return text.rjust(size) if self.columns[at] in self.right else text.ljust(size)

    def _records(self, columns: int) -> list[str]:
        """The rows one under another."""
        lines = []
        names = max(map(len, self.columns[1:]), default=0)
        for row in self.rows:
            lines += wrapped(f"{self.columns[0]} {row[0]}", columns)
            for name, cell in zip(self.columns[1:], row[1:], strict=True):
                lines += wrapped(f"  {name.ljust(names)}  {cell}", columns, " " * (names + 4))
        return lines

    def markdown(self) -> str:
        """The table for a README."""
        rule = ["---:" if name in self.right else "---" for name in self.columns]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows))

    def html(self, kind: str = "", most: int = FOLDED) -> str:
        """The table for a page in a frame of a `kind`: cells are escaped unless they are `Markup`,
        rows beyond `most` folded away; what columns mean follows."""

        def line(tag: str, cells: Sequence[str]) -> str:
            made = []
            for name, cell in zip(self.columns, cells, strict=True):
                side = ' class="n"' if name in self.right else ""
                side += f' data-name="{escape(name)}"' if tag == "td" else ""
                text = cell if isinstance(cell, Markup) else escape(cell)
                text = text if tag == "td" else text.replace("/", "/<wbr>")
                made.append(f"<{tag}{side}>{text}</{tag}>")
            return f"<tr>{''.join(made)}</tr>"

        def part(rows: Iterable[Sequence[str]]) -> str:
            body = "".join(line("td", row) for row in rows)
            head = f"<thead>{line('th', self.columns)}</thead>"
            return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'

        text, rest = part(self.rows[:most]), self.rows[most:]
        if rest:
            text += f"<details><summary>{len(rest):,} more</summary>{part(rest)}</details>"
        below = [
            f"<p>{escape(part)}</p>" for part in self._about(range(len(self.columns)), 1 << 20)
        ]
        return f'<div class="{kind}">{text}</div><div class="job">{"".join(below)}</div>'


def show(*parts: Table | str, out: TextIO | None = None, end: str = "\n") -> None:
    """Print parts one after another as wide as the terminal; there the answer is bold."""
    stream = out if out is not None else sys.stdout
    columns = width()
    text = "\n\n".join(
        "\n".join(line for one in part.split("\n") for line in _hanging(one, columns))
        if isinstance(part, str)
        else part.plain(columns)
        for part in parts
    )
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if isinstance(parts[0], str) and stream.isatty() and not plain:
        first, blank, rest = text.partition("\n\n")
        text = f"\x1b[1m{first}\x1b[0m{blank}{rest}"
    print(text, file=stream, end=end, flush=True)
