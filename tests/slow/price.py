"""A readable evaluator of rule formulas: no folding, no sharing, no core.

It walks the same expressions with plain integers and dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping

from waveplan.pricing import Measures, RuleSet
from waveplan.pricing.language import Expr


class Slow:
    """Evaluates totals of a rule set for one configuration and one plan."""

    def __init__(
        self, rules: RuleSet, facts: Mapping[str, int], charged: set[str], measures: Measures
    ) -> None:
        self.rules, self.facts, self.charged = rules, facts, charged
        table = measures.to_dict()
        self.plan: dict[str, int] = table["plan"]
        self.packs: list[dict[str, int]] = table["packs"]

    def total(self, name: str) -> int:
        return self.named(name, {}, None)

    def value(self, expr: Expr, given: dict[str, int], pack: int | None) -> int:
        op, args = expr.op, expr.args
        if op in ("const", "bytes"):
            return int(expr.value)
        if op == "name":
            return self.named(str(expr.value), given, pack)
        if op == "given":
            pairs = zip(expr.names, args, strict=True)
            new = {key: self.value(arg, given, pack) for key, arg in pairs}
            return self.named(str(expr.value), {**given, **new}, pack)
        if op == "charged":
            return int(expr.value in self.charged)
        if op == "choose":
            return self.value(args[1 if self.value(args[0], given, pack) else 2], given, pack)
        if op == "and":
            return int(all(self.value(arg, given, pack) for arg in args))
        if op == "or":
            return int(any(self.value(arg, given, pack) for arg in args))
        if op == "sum_packs":
            return sum(self.value(args[0], given, g) for g in range(len(self.packs)))
        if op == "max_packs":
            values = [self.value(args[0], given, g) for g in range(len(self.packs))]
            return max([0, *values])
        if op == "scale":
            return int(self.value(args[0], given, pack) * self.factor(args[1]))
        values = [self.value(arg, given, pack) for arg in args]
        if op == "not":
            return int(not values[0])
        if op in ("min", "max"):
            return min(values) if op == "min" else max(values)
        if op == "+":
            return sum(values)
        a, b = values
        return {
            "-": lambda: a - b,
            "*": lambda: a * b,
            "//": lambda: a // b,
            "ceildiv": lambda: -(-a // b),
            "<": lambda: int(a < b),
            "<=": lambda: int(a <= b),
            ">": lambda: int(a > b),
            ">=": lambda: int(a >= b),
            "==": lambda: int(a == b),
            "!=": lambda: int(a != b),
        }[op]()

    def factor(self, expr: Expr) -> float:
        if expr.op == "name":
            return self.factor(self.rules.definitions[str(expr.value)].formula)
        return float(expr.value)

    def named(self, name: str, given: dict[str, int], pack: int | None) -> int:
        if name in given:
            return given[name]
        if name in self.rules.rules:
            rule = self.rules.rules[name]
            return self.value(rule.formula(), given, pack) if name in self.charged else 0
        if name in self.rules.definitions:
            return self.value(self.rules.definitions[name].formula, given, pack)
        if name in self.plan:
            return self.plan[name]
        if pack is not None and name in self.packs[pack]:
            return self.packs[pack][name]
        return self.facts[name]
