"""Rules and definitions, and the sets of them that together make a price."""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Literal

from waveplan.checks import choice, instance, text
from waveplan.errors import InputError, one_line
from waveplan.files import read_text
from waveplan.pricing import language as lang
from waveplan.pricing.language import BYTES, FACTOR, Expr, Formula, Kind, parse

__all__ = ["NOTHING", "REFERENCE", "Definition", "Lives", "Rule", "RuleSet", "total"]

Lives = Literal["retained", "workspace", "gradient", "output", "buffer", "resident"]
_TOTALS: dict[Lives, str] = {
    "retained": "added_retained",
    "workspace": "added_workspace",
    "gradient": "added_gradient",
    "output": "output",
    "buffer": "buffers",
    "resident": "resident_allocated",
}
"""The total that counts an added rule, by when its bytes live."""
REFERENCE = "reference planner (openpipe-art 0.5.23)"
"""The source of rules that are its own."""
_PREDICATES = ("where", "checked", "applies")
_TEXTS = ("why", "source")
_FORMULAS = ("bytes", *_PREDICATES)
_NAME = re.compile(r"(?=.{3,100}\Z)[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_TRUE = parse(1)


NOTHING = {"applies": "0"}
"""The reference planner has no such rule."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A formula of bytes that one thing takes, where it holds and how it is known.

    Args:
        name: with a dot in it, the part of the model first ("moe.routed_tokens").
        bytes: formula of the bytes charged, in the language of `waveplan.pricing.language`.
            Measures of a pack make it a charge per pack.
        where: predicate over facts; elsewhere the rule charges 0 and says so.
        checked: predicate over facts; elsewhere the charge is marked unmeasured. A rule of yours
            that states none is unmeasured everywhere.
        applies: predicate over facts; where it is 0 there is nothing to charge (no experts).
        lives: when the bytes live, and so how they add up: "retained" until backward and
            "output" are summed over packs; of "workspace" of one stage, "gradient" and "buffer"
            the largest pack counts; "resident" stays between waves.
        why: one line, what is stored.
        source: where the formula comes from.
        reference: the formulas of these fields for which the reference planner has others.
    """

    name: str
    bytes: Formula
    where: Formula = _TRUE
    checked: Formula = _TRUE
    applies: Formula = _TRUE
    lives: Lives = "workspace"
    why: str = ""
    source: str = ""
    reference: Mapping[str, str] | None = None
    from_records: bool = False
    """A bound read off measured peaks, not derived: their class does not check the price."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise InputError(f"rule name {self.name!r}: write it as part.what, such as my.buffer")
        choice(f"{self.name}.lives", self.lives, _TOTALS)
        for part in _TEXTS:
            object.__setattr__(
                self, part, one_line(text(f"{self.name}.{part}", getattr(self, part)))
            )

    def formula(self, part: str = "bytes") -> Expr:
        """The bytes charged, or one of the predicates.

        Raises:
            InputError: it is not in the language.
        """
        expr = getattr(self, part)
        if not isinstance(expr, Expr):  # read when first asked for: a job needs few of the rules
            expr = parse(expr, self.name if part == "bytes" else f"{self.name}.{part}")
            object.__setattr__(self, part, expr)
        return expr

    def as_reference(self) -> Rule:
        """The rule as the reference planner charges it."""
        changes: Any = self.reference or {}
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Definition:
    """A name for a formula that rules share, or for a step of the total."""

    name: str
    given: Formula
    why: str = ""
    reference: str | None = None
    """The formula of the reference planner, where that differs."""
    step: bool = False
    """A step of the total: `explain` shows it as a line of its own."""

    @cached_property
    def formula(self) -> Expr:
        """The formula, read."""
        return parse(self.given, self.name)

    def as_reference(self) -> Definition:
        """The definition as the reference planner has it."""
        return self if self.reference is None else replace(self, given=self.reference)


def total(name: str, formula: str, why: str, reference: str | None = None) -> Definition:
    """A step of the total."""
    return Definition(name, formula, why, reference, step=True)


@dataclass(frozen=True, eq=False)
class RuleSet:
    """A named set of rules with the definitions and totals that turn them into a price.

    Construction checks that names exist, units agree, nothing goes in a circle and every rule
    reaches the total, but in the bundled sets, for which a test does it. `with_rule`, `override`,
    `redefine` and `with_file` return new sets.
    """

    name: str
    rules: Mapping[str, Rule]
    definitions: Mapping[str, Definition]
    margin: bool = False
    """Uncharged rules are charged as if they held, as a visible margin."""
    total: str = "required"
    """The definition that every rule must reach."""
    resident: RuleSet | None = field(default=None, repr=False)
    """The rules of what stays allocated between waves; their names are overridden there."""
    bundled: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not self.bundled:
            self.check()

    @cached_property
    def formulas(self) -> Mapping[str, Expr]:
        """Of rules and definitions, by name."""
        formulas = {name: rule.formula() for name, rule in self.rules.items()}
        return formulas | {name: item.formula for name, item in self.definitions.items()}

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Of rules and definitions, by name."""
        formulas = self.formulas
        kinds: dict[str, Kind] = {}
        for name in lang.order(formulas):
            kinds[name] = kind = lang.infer(formulas[name], kinds)
            if name in self.rules and kind.unit not in (BYTES, lang.ZERO):
                raise InputError(
                    f"{formulas[name].at}a rule charges bytes, this is {kind.unit}: multiply by "
                    "dtype_bytes or by so many B"
                )
        return kinds

    @cached_property
    def folds(self) -> lang.Folds:
        """What formulas of facts alone are where facts are known."""
        return lang.Folds(self.rules, self.formula)

    @cached_property
    def masks(self) -> lang.Masks:
        """What facts and rules formulas mention."""
        return lang.Masks(self.definitions)

    @cached_property
    def reads(self) -> Mapping[str, int]:
        """By rule, what facts its predicates read, as a mask."""
        return {
            name: reduce(operator.or_, (self.masks[rule.formula(one)] for one in _PREDICATES))
            for name, rule in self.rules.items()
        }

    def formula(self, name: str) -> Expr | None:
        """The formula of a rule or definition."""
        found = self.rules.get(name)
        if found is not None:
            return found.formula()
        definition = self.definitions.get(name)
        return None if definition is None else definition.formula

    def check(self) -> None:
        """Refuse names that do not exist, wrong units, circles, rules that no total counts."""
        formulas, _ = self.formulas, self.kinds
        for rule in self.rules.values():
            for part in _PREDICATES:
                self._check_predicate(part, rule.formula(part))
        parts = lang.reached(formulas[self.total], self.formula)
        reached = {str(part.value) for part in parts if part.op != "charged"}
        self._check_total(reached)
        self._check_safety(reached)

    def read(self) -> RuleSet:
        """This set with every formula read: it then prints as every equal set does."""
        for rule in self.all_rules.values():
            for part in _FORMULAS:
                rule.formula(part)
        return self

    @property
    def all_rules(self) -> Mapping[str, Rule]:
        """The rules of waves and of what is resident, by name."""
        return self.rules if self.resident is None else {**self.rules, **self.resident.rules}

    def _check_predicate(self, part: str, expr: Expr) -> None:
        if expr.op == "const":
            return
        if lang.infer(expr, self.kinds).unit == BYTES:
            raise InputError(f"{expr.at}{part} is bytes: it must be true (1) or false (0)")
        for mention in lang.reached(expr, self.formula):
            name = str(mention.value)
            if name in self.rules or name in lang.PLAN or name in lang.PACK:
                what = "rule" if name in self.rules else "measure"
                raise InputError(
                    f"{expr.at}{part} reads the {what} {name}: it may read facts only, it is "
                    "decided before any token is seen"
                )

    def _check_total(self, reached: set[str]) -> None:
        """Refuse rules whose bytes no part of the total counts."""
        for name, rule in self.rules.items():
            applies = rule.formula("applies")
            if name not in reached and (applies.op != "const" or applies.value):
                raise InputError(
                    f"{name} ({rule.lives}) does not reach {self.total!r}: no total counts it"
                )

    def _check_safety(self, reached: set[str]) -> None:
        """Refuse totals with a factor of their own: splits and profiles have the same one."""
        factor = "safety_factor"
        if factor not in self.definitions:
            return
        for step in self.definitions.values():
            own = (part for part in lang.parts(step.formula) if part.op == "scale")
            if step.step and any(part.args[1].value != factor for part in own):
                raise InputError(
                    f"{step.formula.at}{step.name} has a factor of its own: write {factor}, which "
                    "splits and profiles have too, and redefine that"
                )
        if factor not in reached:
            raise InputError(
                f"{self.formulas[self.total].at}{self.total} lacks {factor}: redefine that as 1.0 "
                "to hold the estimate against memory"
            )

    @classmethod
    def of(cls, name: str, table: Iterable[Rule | Definition], **options: Any) -> RuleSet:
        """Return a set of rules and definitions; options are those of the class."""
        rules: dict[str, Rule] = {}
        definitions: dict[str, Definition] = {}
        for one in table:
            known: dict[str, Any] = rules if isinstance(one, Rule) else definitions
            if one.name in known:
                raise InputError(f"two entries are called {one.name}")
            known[one.name] = one
        return cls(name, rules, definitions, **options)

    def with_rule(self, rule: Rule, total: str | None = None) -> RuleSet:
        """This set with one more rule, counted by when its bytes live (see `Rule`).

        Args:
            total: the step of the total that grows by it, instead of that of its ``lives``.
        """
        if instance("rule", rule, Rule).name in self.all_rules:
            raise InputError(f"there is a rule {rule.name} already: use override")
        if rule.checked is _TRUE:  # not stated
            rule = replace(rule, checked=parse(0))
        target = text("total", total) if total is not None else _TOTALS[rule.lives]
        if self.resident is not None and target in self.resident.definitions:
            return self._with(resident=self.resident.with_rule(rule, total))
        if target not in self.definitions or not self.definitions[target].step:
            if total is None:
                raise InputError(f"{rule.name}: {rule.lives} bytes are no part of {self.total!r}")
            steps = [d.name for d in self.definitions.values() if d.step]
            raise InputError(f"no total {target!r}: {lang.suggest(target, steps)}")
        lang.order({**self.formulas, rule.name: rule.formula()})
        charge = rule.name
        if lang.infer(rule.formula(), self.kinds).free and not self.kinds[target].free:
            over = "sum" if rule.lives in ("retained", "output", "resident") else "max"
            charge = f"{over}_packs({rule.name})"
        old = self.definitions[target]
        grown = replace(old, given=f"({old.formula}) + {charge}")
        return self._with({rule.name: rule}, {target: grown})

    def override(self, name: str, **changes: Any) -> RuleSet:
        """This set with parts of one rule replaced: ``override("moe.routed_tokens", bytes=...)``.

        The new formula must keep the unit and must not read measures of a pack where the old one
        could not.
        """
        if text("name", name) not in self.rules:
            if self.resident is not None and name in self.resident.rules:
                return self._with(resident=self.resident.override(name, **changes))
            raise InputError(f"no rule {name!r}: {lang.suggest(name, self.all_rules)}")
        allowed = (*_FORMULAS, *_TEXTS)
        for key in changes:
            if key not in allowed:
                raise InputError(f"{name}.{key} cannot be overridden: {lang.suggest(key, allowed)}")
        rule = replace(self.rules[name], **{"source": "override", **changes})
        self._keeps_free(name, rule.formula())
        return self._with({name: rule})

    def _keeps_free(self, name: str, new: Expr) -> Kind:
        kind, old = lang.infer(new, self.kinds), self.kinds[name]
        if kind.free and not old.free:
            raise InputError(
                f"{new.at}{', '.join(sorted(kind.free))} differs per pack, but {name} is a number "
                "of the whole plan: use sum_packs() or max_packs()"
            )
        return kind

    def redefine(self, name: str, formula: Formula, why: str | None = None) -> RuleSet:
        """This set with one definition or total replaced."""
        if text("name", name) not in self.definitions:
            if self.resident is not None and name in self.resident.definitions:
                return self._with(resident=self.resident.redefine(name, formula, why))
            raise InputError(f"no definition {name!r}: {lang.suggest(name, self.definitions)}")
        old = self.definitions[name]
        new = replace(old, given=formula, why=old.why if why is None else text("why", why))
        unit = self._keeps_free(name, new.formula).unit
        wanted = self.kinds[name].unit
        if wanted == FACTOR and new.formula.op == "const":
            new = replace(new, given=float(new.formula.value))
        elif unit != wanted and lang.ZERO not in (unit, wanted):
            raise InputError(f"{new.formula.at}{name} is {wanted}: its unit must stay")
        return self._with(definitions={name: new})

    def without(self, name: str) -> RuleSet:
        """This set with one rule charging nothing, and saying so."""
        return self.override(name, where=0, source="switched off")

    def _with(
        self,
        rules: Mapping[str, Rule] | None = None,
        definitions: Mapping[str, Definition] | None = None,
        **parts: Any,
    ) -> RuleSet:
        return replace(
            self,
            bundled=False,
            name=self.name if self.name.endswith("*") else f"{self.name}*",
            rules={**self.rules, **(rules or {})},
            definitions={**self.definitions, **(definitions or {})},
            **parts,
        )

    def with_file(self, path: str | Path) -> RuleSet:
        """This set with the rules of a TOML file.

        A table ``[rule."part.what"]`` overrides a rule of that name (of waves or of what stays
        resident) or adds one; its keys are those of `Rule`, formulas as text; ``total`` as in
        `with_rule`. A table ``[define]`` replaces definitions and totals.

        Raises:
            InputError: the file is no TOML, or holds no such rules; with the file and the rule.
        """
        table = _toml(Path(path))
        made, at = self, str(path)
        try:
            for name, formula in table["define"].items():
                at = f"{path}: {name}"
                if not isinstance(formula, str | float):
                    raise InputError("it must be a formula as text")
                made = made.redefine(name, parse(formula, at))
            for name, entry in table["rule"].items():
                at = f"{path}: {name}"
                made = made._from_entry(name, instance("it", entry, dict), at)
        except InputError as error:
            message = str(error)
            raise InputError(
                message if message.startswith(str(path)) else f"{at}: {message}"
            ) from error
        return made

    def _from_entry(self, name: str, entry: dict[str, Any], at: str) -> RuleSet:
        values = dict(entry)
        known = (*_FORMULAS, *_TEXTS, "lives", "total")
        for key, value in values.items():
            if key not in known:
                raise InputError(f"unknown key {key!r}: {lang.suggest(key, known)}")
            if not isinstance(value, str):
                raise InputError(f'{key} must be text in quotes, such as "2 * GiB" or "tp == 1"')
            if key in _FORMULAS:
                values[key] = parse(value, f"{at}.{key}")
        if name in self.all_rules:
            return self.override(name, **values)
        if "bytes" not in values:
            raise InputError("a new rule needs bytes")
        total = values.pop("total", None)
        return self.with_rule(Rule(name, **{"source": at.partition(": ")[0], **values}), total)


_MAX_BYTES = 1 << 18
_MAX_ENTRIES = 100


def _toml(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a file of rules."""
    try:
        found = tomllib.loads(read_text(path, _MAX_BYTES))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not TOML: {one_line(str(error))}") from None
    for key, table in found.items():
        if key not in ("rule", "define"):
            raise InputError(f'{path}: unknown table {key!r}: write [rule."part.what"] or [define]')
        instance(f"{path}: {key}", table, dict)
    if (entries := sum(map(len, found.values()))) > _MAX_ENTRIES:
        raise InputError(f"{path}: {entries:,} rules and definitions: at most {_MAX_ENTRIES}")
    return {"rule": {}, "define": {}, **found}
