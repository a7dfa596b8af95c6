"""The rule language, rule sets, overrides in Python and TOML, the generated page."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from waveplan import InputError, Topology, Training, models
from waveplan.pricing import Measures, bind, price
from waveplan.rules import (
    B,
    Expr,
    Rule,
    RuleSet,
    ceildiv,
    choose,
    default_rules,
    docs,
    fact,
    max_groups,
    maximum,
    measure,
    minimum,
    parse,
    published_rules,
    rule,
    scale,
    sum_groups,
)
from waveplan.rules import (
    given as replaced,
)
from waveplan.rules.language import MAX_DEPTH, constant

MODEL = models.get("qwen3.6-35b-a3b")
PAGE = ROOT / "docs" / "rules.md"


def raw(rules: RuleSet, measures: Measures, **ranks: int) -> int:
    return bind(MODEL, Topology(**ranks), Training(), rules).results(measures)["raw"]


# -- expressions ----------------------------------------------------------------------------


def test_operators_read_as_written() -> None:
    rows, hidden = measure("rows"), fact("hidden")
    made = sum_groups(rows * (hidden + 1) * B(2) // 3)
    assert str(made) == "sum_groups(rows * (hidden + 1) * 2 B // 3)"
    assert str(choose((rows < 5) & ~(hidden == 2), B(1), B(0))) == (
        "1 B if rows < 5 and not hidden == 2 else 0 B"
    )
    assert str(scale(maximum(B(1), rule("moe.routed_rows")), 1.1)) == (
        "scale(max(1 B, moe.routed_rows), 1.1)"
    )
    assert str(2 - rows) == "2 - rows"
    assert str(minimum(rows, 3, 4)) == "min(rows, 3, 4)"
    assert str(replaced("moe.routed_rows", rows=rows + 1)) == "moe.routed_rows(rows=rows + 1)"
    assert str(7 // ceildiv(rows, 2)) == "7 // ceildiv(rows, 2)"
    assert str(B(64 << 20)) == "64 MiB"


def test_expressions_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match="combine predicates"):
        bool(fact("tp") == 1)
    with pytest.raises(AttributeError):
        fact("tp").op = "x"  # type: ignore[misc]
    for wrong in (1.5, True, "1"):
        with pytest.raises(InputError, match="integer"):
            constant(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="factor"):
        scale(1, float("nan"))
    with pytest.raises(InputError, match="not a name"):
        fact("a b")


@st.composite
def formulas(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.one_of(
                st.integers(0, 1000).map(constant),
                st.integers(0, 1 << 40).map(B),
                st.sampled_from(["rows", "hidden", "moe.routed_rows"]).map(fact),
            )
        )
    inner = formulas(depth=depth - 1)
    op = draw(
        st.sampled_from(
            ["+", "-", "*", "//", "<", "<=", ">", ">=", "==", "!=", "and", "or", "min", "max"]
        )
    )
    pick = draw(st.integers(0, 4))
    if pick == 0:
        return choose(draw(inner), draw(inner), draw(inner))
    if pick == 1:
        return Expr(draw(st.sampled_from(["sum_groups", "max_groups", "not"])), (draw(inner),))
    if pick == 2:
        return replaced("moe.routed_rows", rows=draw(inner), gradient=draw(inner))
    return Expr(op, (draw(inner), draw(inner)))


@given(formulas())
def test_text_reads_back_the_same(expr: Expr) -> None:
    assert str(parse(str(expr))) == str(expr)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("rows * ", "1:8", "expected a number"),
        ("rows +\n  * 2", "2:3", "expected a number"),
        ("rows $ 2", "1:6", "unexpected '$'"),
        ("min(rows", "1:9", "expected ')'"),
        ("rows rows", "1:6", "expected an operator"),
        ("1.5 * rows", "1:1", "not an integer"),
        ("scale(rows, hidden)", "1:13", "factor of scale"),
        ("ceildiv(rows)", "1:1", "takes 2 arguments"),
        ("sum_groups(rows, 2)", "1:1", "takes 1 arguments"),
        ("moe.routed_rows(rows)", "1:17", "by name"),
        ("moe.routed_rows(rows=1, rows=2)", "1:25", "given twice"),
        ("1 if rows", "1:10", "expected 'else'"),
        ("__import__('os')", "1:12", "unexpected"),
        ("99999999999999999999", "1:1", "64 bits"),
        ("charged(3)", "1:9", "name of a rule"),
        ("", "1:1", "expected a number"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "my.rule")
    assert str(caught.value).startswith(f"my.rule:{place}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "not " * 5000 + "1",
        "1" + " + 1" * 20_000,
        "1" + " + 1" * 2000,
        "1 if 1 else " * 3000 + "1",
        "min(" * 3000,
    ],
)
def test_long_and_deep_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"nest|levels|characters"):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse(text)


def test_depth_of_operators_is_limited() -> None:
    def deep(operators: int) -> Expr:
        expr = fact("hidden")
        for _ in range(operators):
            expr = expr + 1
        return expr

    assert deep(MAX_DEPTH - 1).depth == MAX_DEPTH
    with pytest.raises(InputError, match="nests more than"):
        deep(MAX_DEPTH)


# -- rules and sets -------------------------------------------------------------------------


def made(text: str, **parts: str) -> Rule:
    return Rule("my.rule", text, covers="a test", why="a test", source="a test", **parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows * hidden", "charges bytes"),
        ("rows + 3 B", "mixes bytes"),
        ("rows * dtype_bytes * dtype_bytes", "bytes times bytes"),
        ("max(3 B, hidden)", "mixes bytes"),
        ("3 B if dtype_bytes else 0", "bytes as a condition"),
        ("3 B if dtype_bytes == 2 else 0", "mixes bytes"),
        ("not 3 B", "compare them first"),
        ("rows // dtype_bytes * 3 B", "divided by bytes"),
        ("hiden * 2 B", "did you mean hidden"),
        ("moe.routed_row(rows=3)", "did you mean moe.routed_rows"),
        ("rows(hidden=3) * 2 B", "only rules and definitions"),
        ("moe.routed_rows(row=3)", "did you mean rows"),
        ("moe.routed_rows(rows=3 B)", "rows is a plain number, but bytes given"),
        ("my.rule + 3 B", "circle: my.rule -> my.rule"),
        ("charged(hidden) * 3 B", "no rule 'hidden'"),
    ],
)
def test_wrong_formulas_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        published_rules().with_rule(made(text))
    assert message in str(caught.value)
    if "circle" not in message:
        assert "my.rule:1:" in str(caught.value)


def test_circles_are_shown() -> None:
    rules = published_rules()
    with pytest.raises(InputError, match=r"circle: .*moe\.routed_rows"):
        rules.override("moe.routed_rows", bytes="moe.slot_stages")
    with pytest.raises(InputError, match=r"circle: .*retained"):
        rules.redefine("checkpoint_retained", "retained")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"coverage": "rows < 3"}, "the measure rows"),
        ({"coverage": "moe.routed_rows > 3 B"}, "the rule moe.routed_rows"),
        ({"coverage": "has_gradient"}, "the measure gradient"),
        ({"needed": "tpp == 1"}, "did you mean"),
        ({"measured": "3 B"}, "true .1. or false"),
    ],
)
def test_coverage_reads_facts_only(parts: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        published_rules().with_rule(made("3 B", **parts))


def test_rules_are_frozen_and_checked() -> None:
    one = made("3 B")
    with pytest.raises(AttributeError):
        one.name = "x"  # type: ignore[misc]
    with pytest.raises(InputError, match=r"part\.what"):
        Rule("plain", "3 B", covers="x")
    with pytest.raises(InputError, match="lives"):
        Rule("my.rule", "3 B", covers="x", lives="forever")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="covers is empty"):
        Rule("my.rule", "3 B", covers="")


def test_a_rule_of_ones_own() -> None:
    measures = Measures.of({"packed_tokens": 10}, [{"rows": 10, "gradient": 1}] * 2)
    base = default_rules()
    before = raw(base, measures)
    for parts, more in (
        ({}, 2 * 10 * 7_000_000),
        ({"lives": "retained"}, 2 * 10 * 7_000_000),
        ({"coverage": "tp == 2", "covers": "TP=2"}, 0),
        ({"needed": "experts == 0"}, 0),
    ):
        one = Rule("my.buffer", measure("rows") * B(7_000_000), **{"covers": "x", **parts})
        grown = base.with_rule(one)
        assert raw(grown, measures) == before + more
        assert raw(base, measures) == before
        assert grown.name == "default*"
    off = base.with_rule(Rule("my.buffer", "rows * 9 B", coverage="tp == 2", covers="TP=2"))
    got = price(measures, bind(MODEL, Topology(), Training(), off))
    assert [str(state) for state in got.off] == [
        "my.buffer: not charged at TP=1; measured for TP=2"
    ]
    with pytest.raises(InputError, match="use override"):
        base.with_rule(Rule("moe.routed_rows", "3 B", covers="x"))
    with pytest.raises(InputError, match="no total 'workspac'"):
        base.with_rule(Rule("my.buffer", "3 B", covers="x"), total="workspac")


def test_overrides() -> None:
    base = published_rules()
    one = Measures.of({"packed_tokens": 1}, [{"rows": 1, "gradient": 0}])
    doubled = base.override("moe.shared_expert_return", bytes="2 * rows * hidden * dtype_bytes")
    assert raw(doubled, one) == raw(base, one) + 4096
    assert doubled.rules["moe.shared_expert_return"].source == "override"
    with pytest.raises(InputError, match="charges bytes"):
        base.override("moe.shared_expert_return", bytes="rows")
    with pytest.raises(InputError, match="differs per group"):
        base.override("checkpoint.retained", bytes="rows * 2 B")
    with pytest.raises(InputError, match=r"no rule 'moe\.routed'"):
        base.override("moe.routed", bytes="3 B")
    with pytest.raises(InputError, match="new sentence"):
        base.override("moe.routed_rows", coverage="1")
    with pytest.raises(InputError, match="cannot be overridden"):
        base.override("moe.routed_rows", lives="output")
    with pytest.raises(InputError, match=r"routed_per_row:1:1: .*unit must stay"):
        base.redefine("routed_per_row", "3 B")
    with pytest.raises(InputError, match="no definition"):
        base.redefine("nothing", "3")
    off = base.without("moe.routed_rows")
    states = {state.name: state for state in bind(MODEL, Topology(), Training(), off).off}
    assert "switched off" in states["moe.routed_rows"].reason


def test_predicates_fold_to_the_fact_that_fails() -> None:
    one = made("3 B", coverage="(tp == 1 and cp <= 2) and pp < 3")
    rules = published_rules().with_rule(one)
    bound = bind(MODEL, Topology(cp=4), Training(), rules)
    states = {state.name: str(state) for state in bound.off}
    assert states["my.rule"] == "my.rule: not charged at CP=4; measured for a test"


def test_dead_branches_are_not_computed() -> None:
    rules = published_rules().with_rule(
        Rule("my.rule", "0 B if q_lora_rank == 0 else 9 B * (7 // q_lora_rank)", covers="x")
    )
    bind(MODEL, Topology(), Training(), rules)
    broken = published_rules().with_rule(Rule("my.rule", "9 B * (7 // q_lora_rank)", covers="x"))
    with pytest.raises(InputError, match=r"my\.rule:1:10: 7 // q_lora_rank divides by 0"):
        bind(MODEL, Topology(), Training(), broken)


# -- TOML -----------------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_toml(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
[define]
routed_per_row = "2 * topk"

[rule."moe.shared_expert_return"]
bytes = "rows * hidden * dtype_bytes * 3"

[rule."my.buffer"]
bytes = '''
rows * 5 B
  + 3 B  # a comment
'''
covers = "anything"
lives = "retained"
""",
    )
    rules = RuleSet.from_toml(path, base=published_rules())
    one = Measures.of({"packed_tokens": 1}, [{"rows": 1, "gradient": 0}])
    assert raw(rules, one) > raw(published_rules(), one)
    assert rules.rules["my.buffer"].source == str(path)
    assert rules.rules["my.buffer"].lives == "retained"
    assert RuleSet.from_toml(write(tmp_path, "")).name == "default"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[rule."moe.routed_rows"]\nbytes = "rows * hidden"', 2, "charges bytes"),
        ('[rule."moe.routed_rows"]\nbytes = "rows * hiden * 2 B"', 2, "did you mean hidden"),
        ('[rule."moe.routed_rows"]\n\nbytes = "rows * "', 3, "expected a number"),
        (
            '[rule."moe.routed_rows"]\ncoverage = "rows == 1"\ncovers = "x"',
            2,
            "may read facts only",
        ),
        ('[rule."moe.routed_rows"]\ncoverage = "tp == 1"', 1, "new sentence"),
        ('[rule."moe.routed_rows"]\nbites = "3 B"', 2, "did you mean bytes"),
        ('[rule."moe.routed_rows"]\nlives = "output"', 1, "cannot be overridden"),
        ('[rule."my.rule"]\nbytes = "3 B"', 1, "needs covers"),
        ('[rule."my.rule"]\nbytes = 1.5\ncovers = "x"', 2, "must be text"),
        ('[rule."my.rule"]\nbytes = "rows * 2 B"\ncovers = "x"\ntotal = "no"', 1, "no total"),
        ('[rule.plain]\nbytes = "3 B"\ncovers = "x"', 1, "part.what"),
        ("[define]\nrouted_per_row = 3", 2, "as text"),
        ('[define]\nrouted_per_row = "3 B"', 2, "unit must stay"),
        ('[define]\nnothing = "3"', 2, "no definition"),
        ("[rules]\nx = 1", 1, "unknown table"),
        ("rule = 3", 1, "must be a table"),
        ('[rule]\n"my.rule" = 3', 2, "must be a table"),
    ],
)
def test_bad_toml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        RuleSet.from_toml(path)
    assert str(caught.value).startswith(f"{path}:{line}:"), str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_rules(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        RuleSet.from_toml(tmp_path / "missing.toml")
    for data in (b"[rule", b"\xff\xfe", b"x = " + b"[" * 5000):
        path = tmp_path / "bad.toml"
        path.write_bytes(data)
        with pytest.raises(InputError, match="not TOML"):
            RuleSet.from_toml(path)
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InputError, match="at most"):
        RuleSet.from_toml(big)


# -- the page -------------------------------------------------------------------------------


def test_the_page_of_rules_is_up_to_date(tmp_path: Path) -> None:
    page = docs.markdown()
    for name in default_rules().rules:
        assert f"### {name}" in page
    if PAGE.parent.is_dir():
        assert PAGE.read_text(encoding="utf-8") == page, "run python -m waveplan.rules.docs"
    other = tmp_path / "rules.md"
    assert docs.main([str(other), "--check"]) == 1
    assert docs.main([str(other)]) == 0
    assert docs.main([str(other), "--check"]) == 0


def test_every_rule_says_where_it_comes_from() -> None:
    for rules in (published_rules(), default_rules()):
        for one in rules.rules.values():
            assert one.why, one.name
            assert one.source, one.name
        assert max_groups(measure("rows")).op == "max_groups"


def test_a_formula_of_several_lines_is_placed(tmp_path: Path) -> None:
    text = "[rule.\"my.rule\"]\ncovers = 'x'\nbytes = '''\nrows * 2 B\n  + hiden * 3 B\n'''\n"
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        RuleSet.from_toml(path)
    assert str(caught.value).startswith(f"{path}:5:5: no 'hiden'")


def test_forward_alone_has_no_backward_part() -> None:
    measures = Measures.of({"packed_tokens": 100}, [{"rows": 100, "gradient": 1}])
    both = bind(MODEL, Topology(), Training(), default_rules()).results(measures)
    forward = Training(phase="forward")
    alone = bind(MODEL, Topology(), forward, default_rules()).results(measures)
    assert alone["input_gradient"] == 0 < both["input_gradient"]
    assert alone["required"] < both["required"]


@pytest.mark.parametrize(("ep", "share"), [(1, 0.26), (2, 0.75)])
def test_selective_recompute_follows_the_rows_of_a_rank(ep: int, share: float) -> None:
    """Mixers keep a rank's own rows, and so do experts that every rank holds; experts of several
    ranks may get every row."""
    model = models.get("qwen3.6-35b-a3b")
    training = Training(recompute="selective")

    def kept(cp: int) -> int:
        rows = 40_000 // cp
        plan = {"packed_tokens": 40_000, "retained_rows": rows, "logical_tokens": 40_000}
        bound = bind(model, Topology(dp=2, cp=cp, ep=ep), training)
        group = {"rows": rows, "gradient": 1, "segments": 1}
        made = price(Measures.of(plan, [group]), bound)
        return made.terms["selective.activations"]

    assert kept(2) < kept(1)
    assert kept(4) < share * kept(1)
    if ep > 1:
        assert kept(4) > 0.3 * kept(1)
