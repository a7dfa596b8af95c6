"""Rules as frozen values, and sets of rules that together make a price."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from waveplan._values import choice, entries, flag, instance, mapping, shown, text
from waveplan.errors import InputError, one_line
from waveplan.rules import check, names
from waveplan.rules.check import BYTES, Kind
from waveplan.rules.language import Expr, as_expr, where
from waveplan.rules.text import parse

__all__ = ["Definition", "Lives", "Rule", "RuleSet"]

Lives = Literal["retained", "workspace", "gradient", "output", "buffer", "resident"]
LIVES: tuple[Lives, ...] = ("retained", "workspace", "gradient", "output", "buffer", "resident")

Predicate = Literal["coverage", "needed", "measured"]
PREDICATES: tuple[Predicate, ...] = ("coverage", "needed", "measured")
Formula = Expr | str | int
TRUE = as_expr(1)
_NAME = re.compile(r"(?=.{3,100}\Z)[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


def _formula(name: str, part: str, value: Formula) -> Expr:
    source = name if part == "bytes" else f"{name}.{part}"
    return parse(value, source) if isinstance(value, str) else as_expr(value)


@dataclass(frozen=True, eq=False)
class Rule:
    """What one thing costs, where that is known, and how it is known.

    Args:
        name: with a dot in it, the part of the model first ("moe.routed_rows").
        bytes: formula of the bytes charged, in the language of `waveplan.rules.language`.
            Open group measures make it a charge per group.
        covers: the sentence after "measured for ..."
        coverage: predicate over facts; elsewhere the rule charges 0 and says so.
        needed: predicate over facts; where it is 0 there is nothing to charge (no experts).
        measured: predicate over facts inside the coverage; elsewhere the charge is marked
            unmeasured.
        lives: when the bytes live: "retained" until backward, "workspace" of one stage,
            "gradient", "output", "buffer" or "resident" (between waves).
        why: one line, what is stored.
        source: where the formula comes from.
        ours: not charged by the published planner.
    """

    name: str
    bytes: Formula
    covers: str
    coverage: Formula = TRUE
    needed: Formula = TRUE
    measured: Formula = TRUE
    lives: Lives = "workspace"
    why: str = ""
    source: str = ""
    ours: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise InputError(f"rule name {self.name!r}: write it as part.what, such as my.buffer")
        if not isinstance(self.lives, str) or self.lives not in LIVES:
            raise InputError(f"{self.name}.lives is {self.lives!r}: one of {', '.join(LIVES)}")
        for part in ("covers", "why", "source"):
            if not isinstance(getattr(self, part), str):
                raise InputError(f"{self.name}.{part} must be text")
            object.__setattr__(self, part, one_line(getattr(self, part)))
        flag(f"{self.name}.ours", self.ours)
        if not self.covers:
            raise InputError(f"{self.name}.covers is empty: say what the rule is measured for")
        for part in ("bytes", "coverage", "needed", "measured"):
            parsed = _formula(self.name, part, getattr(self, part))
            object.__setattr__(self, part, parsed)

    @property
    def formula(self) -> Expr:
        """The bytes charged."""
        assert isinstance(self.bytes, Expr)
        return self.bytes

    def predicate(self, part: Predicate) -> Expr:
        """One of the rule's predicates."""
        expr = getattr(self, choice("part", part, PREDICATES))
        assert isinstance(expr, Expr)
        return expr


@dataclass(frozen=True, eq=False)
class Definition:
    """A name for a formula that rules share, or for a step of the total. No coverage."""

    name: str
    formula: Expr
    why: str = ""
    step: bool = False
    """A step of the total: `explain` shows it as a line of its own."""

    def __post_init__(self) -> None:
        text("a definition's name", self.name)
        instance(f"formula of {self.name}", self.formula, Expr)


def _definitions(table: Mapping[str, tuple[str, str]], step: bool) -> list[Definition]:
    made = []
    for name, row in mapping("definitions and totals", table).items():
        pair = entries(f"definition {shown(name)}", row)
        if len(pair) != 2:
            raise InputError(f"definition {shown(name)} is {shown(row)}: give a formula and why")
        made.append(
            Definition(name, _formula(text("a name", name), "bytes", pair[0]), pair[1], step)
        )
    return made


@dataclass(frozen=True, eq=False)
class RuleSet:
    """A named set of rules with the definitions and totals that turn them into a price.

    Checked when made: names exist, units agree, nothing goes in a circle. Sets are values:
    `with_rule` and `override` give new ones.
    """

    name: str
    rules: Mapping[str, Rule]
    definitions: Mapping[str, Definition]
    margin: bool = False
    """Rules outside their coverage are charged as if they held there, as a visible margin."""
    kinds: Mapping[str, Kind] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        text("name", self.name)
        flag("margin", self.margin)
        for name, rule in mapping("rules", self.rules).items():
            instance(f"rules[{shown(name)}]", rule, Rule)
        for name, definition in mapping("definitions", self.definitions).items():
            instance(f"definitions[{shown(name)}]", definition, Definition)
            text("a definition's name", name)
            if name in names.PLAN or name in names.GROUP or name in names.fact_names():
                raise InputError(f"{name} is a fact or measure: a definition needs another name")
        formulas = self._formulas()
        kinds: dict[str, Kind] = {}
        levels: dict[str, int] = {}
        for name in check.order(formulas):
            levels[name] = check.nesting(formulas[name], levels)
            if levels[name] > check.MAX_NESTING:
                raise InputError(
                    f"{where(formulas[name]) or name + ': '}more than {check.MAX_NESTING} "
                    "operators inside each other, with those of the definitions in it"
                )
            kinds[name] = kind = check.infer(formulas[name], kinds)
            if name in self.rules and kind.unit not in (BYTES, check.ANY):
                raise InputError(
                    f"{where(formulas[name]) or name + ': '}a rule charges bytes, this is "
                    f"{kind.unit}: multiply by dtype_bytes or by so many B"
                )
        object.__setattr__(self, "kinds", kinds)
        for rule in self.rules.values():
            self._check_predicates(rule)

    def _formulas(self) -> dict[str, Expr]:
        charged = {name: rule.formula for name, rule in self.rules.items()}
        return {**charged, **{name: item.formula for name, item in self.definitions.items()}}

    def _check_predicates(self, rule: Rule) -> None:
        for part in PREDICATES:
            expr = rule.predicate(part)
            kind = check.infer(expr, self.kinds)
            place = where(expr) or f"{rule.name}.{part}: "
            if kind.unit == BYTES:
                raise InputError(f"{place}{part} is bytes: it must be true (1) or false (0)")
            open_names = self._reads_measures(expr)
            if open_names:
                raise InputError(
                    f"{place}{part} reads {open_names}: it may read facts only, it is decided "
                    "before any token is seen"
                )

    def _reads_measures(self, expr: Expr) -> str:
        todo, seen = [expr], set()
        while todo:
            for name, _ in check.mentioned(todo.pop()):
                if name in self.rules:
                    return f"the rule {name}"
                if name in names.PLAN or name in names.GROUP:
                    return f"the measure {name}"
                if name in self.definitions and name not in seen:
                    seen.add(name)
                    todo.append(self.definitions[name].formula)
        return ""

    @classmethod
    def of(
        cls,
        name: str,
        rules: Iterable[Rule],
        definitions: Mapping[str, tuple[str, str]],
        totals: Mapping[str, tuple[str, str]],
    ) -> RuleSet:
        """A set from its parts; definitions and totals are (formula, why) by name."""
        table: dict[str, Rule] = {}
        for rule in entries("rules", rules):
            if instance("a rule", rule, Rule).name in table:
                raise InputError(f"two rules are called {rule.name}")
            table[rule.name] = rule
        steps = [*_definitions(definitions, False), *_definitions(totals, True)]
        return cls(name, table, {step.name: step for step in steps})

    def with_rule(self, rule: Rule, total: str | None = None) -> RuleSet:
        """This set with one more rule, added to a total.

        ``total`` names the step that grows by the rule: by default ``retained`` for what
        lives until backward, ``output_total`` for outputs and ``workspace`` for everything
        else; a charge per group is summed over groups.
        """
        if instance("rule", rule, Rule).name in self.rules:
            raise InputError(f"there is a rule {rule.name} already: use override")
        defaults = {"retained": "retained", "output": "output_total", "buffer": "buffers"}
        target = defaults.get(rule.lives, "extra_workspace")
        if total is not None:
            target = text("total", total)
        if target not in self.definitions or not self.definitions[target].step:
            steps = [d.name for d in self.definitions.values() if d.step]
            raise InputError(f"no total {target!r}: {names.suggest(target, steps)}")
        check.order({**self._formulas(), rule.name: rule.formula})
        charged: Expr = Expr("name", value=rule.name)
        kind = check.infer(rule.formula, self.kinds)
        if kind.free and not self.kinds[target].free:
            charged = Expr("sum_groups", (charged,))
        grown = replace(
            self.definitions[target], formula=self.definitions[target].formula + charged
        )
        return self._with(
            rules={**self.rules, rule.name: rule},
            definitions={**self.definitions, target: grown},
        )

    def override(self, name: str, **changes: Any) -> RuleSet:
        """This set with parts of one rule replaced: ``override("moe.routed_rows", bytes=...)``.

        The new formula must keep the unit and must not read group measures where the old one
        could not.
        """
        if text("name", name) not in self.rules:
            raise InputError(f"no rule {name!r}: {names.suggest(name, self.rules)}")
        old = self.rules[name]
        allowed = {
            "bytes",
            "covers",
            "coverage",
            "needed",
            "measured",
            "why",
            "source",
            "line",
            "ours",
        }
        for key in changes:
            if key not in allowed:
                raise InputError(
                    f"{name}.{key} cannot be overridden: {names.suggest(key, allowed)}"
                )
        if "coverage" in changes and "covers" not in changes:
            raise InputError(f"{name}: a new coverage needs a new sentence: give covers=... too")
        rule = replace(old, **{"source": "override", **changes})
        kind = check.infer(rule.formula, self.kinds)
        extra = kind.free - self.kinds[name].free
        if extra and not self.kinds[name].free:
            raise InputError(
                f"{where(rule.formula) or name + ': '}{', '.join(sorted(extra))} differs per "
                "group, but this rule charges a whole plan: use sum_groups() or max_groups()"
            )
        return self._with(rules={**self.rules, name: rule})

    def redefine(self, name: str, formula: Formula, why: str | None = None) -> RuleSet:
        """This set with one definition or total replaced."""
        if text("name", name) not in self.definitions:
            raise InputError(f"no definition {name!r}: {names.suggest(name, self.definitions)}")
        old = self.definitions[name]
        new = replace(
            old,
            formula=_formula(name, "bytes", formula),
            why=old.why if why is None else text("why", why),
        )
        units = {self.kinds[name].unit, check.infer(new.formula, self.kinds).unit}
        if check.ANY not in units and len(units) > 1:
            place = where(new.formula) or f"{name}: "
            raise InputError(f"{place}{name} is {self.kinds[name].unit}: its unit must stay")
        return self._with(definitions={**self.definitions, name: new})

    def without(self, name: str) -> RuleSet:
        """This set with one rule charging nothing, and saying so."""
        return self.override(
            name, coverage=0, covers=f"nothing: {name} is switched off", source="switched off"
        )

    def _with(
        self,
        rules: Mapping[str, Rule] | None = None,
        definitions: Mapping[str, Definition] | None = None,
    ) -> RuleSet:
        name = self.name if self.name.endswith("*") else f"{self.name}*"
        return RuleSet(
            name,
            self.rules if rules is None else rules,
            self.definitions if definitions is None else definitions,
            self.margin,
        )

    @cached_property
    def per_group(self) -> frozenset[str]:
        """Names whose value differs per group."""
        return frozenset(name for name, kind in self.kinds.items() if kind.free)

    @classmethod
    def from_toml(cls, path: str | Path, base: RuleSet | None = None) -> RuleSet:
        """``base`` (default: the default rules) with the rules of a TOML file.

        A table ``[rule."part.what"]`` overrides a rule of that name or adds one; its keys are
        those of `Rule`, formulas as text; ``total`` says where a new rule is added. A table
        ``[define]`` replaces definitions and totals. Messages carry file, line and column.
        """
        from waveplan.rules.toml import load

        return load(Path(path), None if base is None else instance("base", base, RuleSet))
