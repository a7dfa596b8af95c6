"""Reads rule formulas written as text. A small grammar of its own; nothing is evaluated.

    choice  := logic ["if" logic "else" choice]
    logic   := "not", "and", "or" over comparisons (< <= > >= == !=)
    sum     := product (("+" | "-") product)*
    product := atom (("*" | "//") atom)*
    atom    := NUMBER [B | KiB | MiB | GiB] | NAME | NAME "(" arguments ")" | "(" choice ")"

Functions: min, max, ceildiv, choose, scale, sum_groups, max_groups, and charged(rule), which
is 1 where the rule charges. Calling any other name replaces measures or facts in it:
``moe.routed_rows(rows=packed_tokens)``.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from waveplan.errors import InputError
from waveplan.rules import language as lang
from waveplan.rules.language import Expr, Position

__all__ = ["MAX_LENGTH", "parse"]

MAX_LENGTH = 10_000
"""Longest formula in characters."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|\#[^\n]*)"
    r"|(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<op>//|<=|>=|==|!=|[-+*()<>,=])"
)
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_WORDS = ("if", "else", "and", "or", "not")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FUNCTIONS = ("min", "max", "ceildiv", "choose", "scale", "sum_groups", "max_groups", "charged")


class _Token(NamedTuple):
    kind: str
    text: str
    at: Position


def parse(text: str, source: str = "rule", line: int = 1) -> Expr:
    """The expression that ``text`` spells.

    ``source`` and ``line`` name the place in messages. Raises `InputError` with line and
    column for anything that is not in the grammar, too long or too deeply nested.
    """
    if not isinstance(text, str):
        raise InputError(f"{source}: a formula is text, not {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise InputError(f"{source}: a formula of {len(text)} characters; at most {MAX_LENGTH}")
    parser = _Parser(_tokens(text, source, line))
    expr = parser.choice()
    parser.expect_end()
    return expr


def _tokens(text: str, source: str, line: int) -> list[_Token]:
    found = []
    at, row, row_start = 0, line, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        place = Position(source, row, at - row_start + 1)
        if match is None:
            raise InputError(f"{place}: unexpected {text[at]!r}")
        kind, word = match.lastgroup or "", match.group()
        if kind == "name" and word in _WORDS:
            kind = "op"
        if kind != "space":
            found.append(_Token(kind, word, place))
        breaks = word.count("\n")
        if breaks:
            row += breaks
            row_start = at + word.rindex("\n") + 1
        at = match.end()
    found.append(_Token("end", "the end", Position(source, row, at - row_start + 1)))
    return found


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.next = 0
        self.open = 0

    def peek(self) -> _Token:
        return self.tokens[self.next]

    def take(self) -> _Token:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def found(self, *texts: str) -> _Token | None:
        token = self.peek()
        return self.take() if token.kind == "op" and token.text in texts else None

    def expect(self, text: str) -> _Token:
        return self.found(text) or self.fail(f"expected {text!r}")

    def expect_end(self) -> None:
        if self.peek().kind != "end":
            self.fail("expected an operator or the end")

    def fail(self, message: str) -> NoReturn:
        token = self.peek()
        raise InputError(f"{token.at}: {message}, found {token.text!r}")

    def nest(self) -> None:
        self.open += 1
        if self.open > lang.MAX_DEPTH // 2:
            self.fail(f"more than {lang.MAX_DEPTH // 2} levels of nesting")

    def choice(self) -> Expr:
        self.nest()
        then = self.logic_or()
        mark = self.found("if")
        if mark is not None:
            condition = self.logic_or()
            self.expect("else")
            then = Expr("choose", (condition, then, self.choice()), at=mark.at)
        self.open -= 1
        return then

    def logic_or(self) -> Expr:
        left = self.logic_and()
        while mark := self.found("or"):
            left = Expr("or", (left, self.logic_and()), at=mark.at)
        return left

    def logic_and(self) -> Expr:
        left = self.logic_not()
        while mark := self.found("and"):
            left = Expr("and", (left, self.logic_not()), at=mark.at)
        return left

    def logic_not(self) -> Expr:
        if mark := self.found("not"):
            self.nest()
            made = Expr("not", (self.logic_not(),), at=mark.at)
            self.open -= 1
            return made
        left = self.sum()
        if mark := self.found(*_COMPARISONS):
            return Expr(mark.text, (left, self.sum()), at=mark.at)
        return left

    def sum(self) -> Expr:
        left = self.product()
        while mark := self.found("+", "-"):
            left = Expr(mark.text, (left, self.product()), at=mark.at)
        return left

    def product(self) -> Expr:
        left = self.atom()
        while mark := self.found("*", "//"):
            left = Expr(mark.text, (left, self.atom()), at=mark.at)
        return left

    def atom(self) -> Expr:
        token = self.peek()
        if token.kind == "number":
            return self.number()
        if token.kind == "name":
            self.take()
            if self.found("("):
                return self.call(token)
            return lang.name(token.text, token.at)
        if self.found("("):
            inner = self.choice()
            self.expect(")")
            return inner
        return self.fail("expected a number, a name or '('")

    def number(self) -> Expr:
        token = self.take()
        if "." in token.text:
            raise InputError(
                f"{token.at}: {token.text} is not an integer: fractions only as factor of scale()"
            )
        digits = token.text.replace("_", "").lstrip("0") or "0"
        value = int(digits) if len(digits) < 20 else 1 << 63
        unit = self.peek()
        if unit.kind == "name" and unit.text in _UNITS:
            self.take()
            value *= _UNITS[unit.text]
        if value >= 1 << 63:
            raise InputError(f"{token.at}: {token.text} does not fit in 64 bits")
        is_bytes = unit.kind == "name" and unit.text in _UNITS
        return Expr("bytes" if is_bytes else "const", value=value, at=token.at)

    def call(self, token: _Token) -> Expr:
        if token.text not in _FUNCTIONS:
            return self.replacement(token)
        if token.text == "charged":
            rule = self.take()
            if rule.kind != "name":
                raise InputError(f"{rule.at}: charged() takes the name of a rule")
            self.expect(")")
            return lang.charged(rule.text, token.at)
        if token.text == "scale":
            value = self.choice()
            self.expect(",")
            factor = self.take()
            if factor.kind != "number":
                raise InputError(f"{factor.at}: the factor of scale() is a number")
            self.expect(")")
            try:
                made = lang.scale(value, float(factor.text.replace("_", "")))
            except InputError as error:
                raise InputError(f"{factor.at}: {error}") from None
            return Expr("scale", made.args, value=made.value, at=token.at)
        args = [self.choice()]
        while self.found(","):
            args.append(self.choice())
        self.expect(")")
        wanted = {"ceildiv": 2, "choose": 3, "sum_groups": 1, "max_groups": 1}.get(token.text)
        if wanted is not None and len(args) != wanted:
            raise InputError(
                f"{token.at}: {token.text}() takes {wanted} arguments, {len(args)} given"
            )
        if token.text in ("min", "max") and len(args) == 1:
            return args[0]
        return Expr(token.text, tuple(args), at=token.at)

    def replacement(self, token: _Token) -> Expr:
        values: dict[str, Expr] = {}
        while True:
            key = self.take()
            if key.kind != "name" or self.found("=") is None:
                raise InputError(
                    f"{key.at}: {token.text}(...) replaces measures by name: "
                    f"write {token.text}(rows=...)"
                )
            if key.text in values:
                raise InputError(f"{key.at}: {key.text} is given twice")
            values[key.text] = self.choice()
            if not self.found(","):
                break
        self.expect(")")
        return lang.given(token.text, token.at, **values)
