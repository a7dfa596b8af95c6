"""Tables and trees for a person: through rich on a terminal, as complete plain text otherwise."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from html import escape
from typing import Any, TextIO

__all__ = ["Markup", "Table", "Tree", "integer", "seconds", "show"]


def integer(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def seconds(value: float) -> str:
    """A duration at three significant digits."""
    for limit, unit, scale in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


class Markup(str):
    """Text that is HTML already."""


@dataclass
class Table:
    """Rows of text under headings; columns named in ``right`` are aligned right.

    It is written as plain text (with a line under the headings where `ruled`), as Markdown or HTML,
    and through rich.
    """

    title: str
    columns: Sequence[str]
    given: InitVar[Iterable[Sequence[object]]] = ()
    right: Collection[str] = ()
    ruled: bool = True
    rows: list[list[str]] = field(default_factory=list, init=False)

    def __post_init__(self, given: Iterable[Sequence[object]]) -> None:
        for cells in given:
            self.add(*cells)

    def add(self, *cells: object) -> None:
        """Append one row; one cell a column."""
        if len(cells) != len(self.columns):
            raise AssertionError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([cell if isinstance(cell, str) else str(cell) for cell in cells])

    def plain(self) -> str:
        """The table as fixed-width text."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        rule = [["-" * width for width in widths]] if self.ruled else []
        lines = [self.line(cells, widths) for cells in (self.columns, *rule, *self.rows)]
        return "\n".join([self.title, *lines] if self.title else lines)

    def line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        """One row as fixed-width text, for tables that are printed row by row."""
        return "  ".join(
            cell.rjust(width) if name in self.right else cell.ljust(width)
            for cell, width, name in zip(cells, widths, self.columns, strict=True)
        ).rstrip()

    def markdown(self) -> str:
        """The table for a README."""
        rule = ["---:" if name in self.right else "---" for name in self.columns]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows))

    def html(self, rows: Iterable[Sequence[str]]) -> str:
        """Some rows of the table for a page; cells are escaped unless they are `Markup`."""

        def line(tag: str, cells: Sequence[str]) -> str:
            made = []
            for name, cell in zip(self.columns, cells, strict=True):
                kind = ' class="n"' if name in self.right else ""
                text = cell if isinstance(cell, Markup) else escape(cell)
                made.append(f"<{tag}{kind}>{text}</{tag}>")
            return f"<tr>{''.join(made)}</tr>"

        body = "".join(line("td", row) for row in rows)
        return (
            f'<div class="scroll"><table><thead>{line("th", self.columns)}</thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def rich(self) -> Any:
        """The table as a rich renderable."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        made = RichTable(title=self.title or None, title_justify="left", box=box.SIMPLE_HEAD)
        for name in self.columns:
            made.add_column(name, justify="right" if name in self.right else "left")
        for row in self.rows:
            made.add_row(*(Text(cell) for cell in row))
        return made


@dataclass
class Tree:
    """A labelled tree."""

    label: str
    children: list[Tree] = field(default_factory=list)

    def add(self, label: str) -> Tree:
        """Append a child and return it."""
        child = Tree(label)
        self.children.append(child)
        return child

    def plain(self) -> str:
        """The tree drawn with line characters, parents first."""
        lines = [self.label]
        for i, child in enumerate(self.children):
            first, rest = ("├─ ", "│  ") if i + 1 < len(self.children) else ("└─ ", "   ")
            top, *below = child.plain().split("\n")
            lines += [first + top, *(rest + line for line in below)]
        return "\n".join(lines)


def show(*parts: Table | Tree | str, out: TextIO | None = None) -> None:
    """Print parts one after another, tables through rich where the stream is a terminal."""
    stream = out if out is not None else sys.stdout
    console = _console(stream)
    for i, part in enumerate(parts):
        if i:
            print(file=stream)
        if isinstance(part, str):
            print(part, file=stream)
        elif isinstance(part, Table) and console is not None:
            console.print(part.rich())
        else:
            print(part.plain(), file=stream)
    stream.flush()


def _console(stream: TextIO) -> Any:
    """A rich console when rich is installed and the stream is a terminal."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream)
