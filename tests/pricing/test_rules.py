"""The rule language, rule sets, overrides in Python and TOML, the generated page."""

from __future__ import annotations

import contextlib
import pickle
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from waveplan import InputError, Topology, Training, models
from waveplan.pricing import (
    Measures,
    Rule,
    RuleSet,
    bind,
    default_rules,
    price,
    reference_rules,
    resident_rules,
)
from waveplan.pricing.language import parse

MODEL = models.get("qwen3.6-35b-a3b")


def estimate(rules: RuleSet, measures: Measures, **ranks: int) -> int:
    return bind(MODEL, Topology(**ranks), Training(), rules).results(measures)["estimate"]


# -- expressions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "op", "count"),
    [
        ("local_tokens", "name", 0),
        ("moe.routed_tokens", "name", 0),
        ("moe.routed_tokens(local_tokens=1, gradient=0)", "given", 2),
        ("charged(moe.routed_tokens)", "charged", 0),
        ("3 * MiB", "*", 2),
        ("min(1, 2, 3)", "min", 3),
        ("max(1)", "max", 1),
        ("1 if tp > 2 else 3", "choose", 3),
        ("tp == 1 and cp == 1 and not pp", "and", 3),
        ("scale(local_tokens, 1.1)", "scale", 2),
        ("sum_packs(local_tokens\n  * 2)  # a comment", "sum_packs", 1),
    ],
)
def test_formulas_are_python_expressions(text: str, op: str, count: int) -> None:
    made = parse(text)
    assert (made.op, len(made.args)) == (op, count)
    assert str(parse(str(made))) == str(made)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("tokens * ", "", "no formula"),
        ("tokens $ 2", "1:", "no formula"),
        ("min(tokens", "", "no formula"),
        ("tokens tokens", "1:", "no formula"),
        ("1 +\n tokens.x * 3 * -2", "2:17", "leave out the sign"),
        ("scale(tokens)", "1:1", "takes 2 arguments"),
        ("ceildiv(tokens)", "1:1", "takes 2 arguments"),
        ("sum_packs(tokens, 2)", "1:1", "takes 1 arguments"),
        ("min()", "1:1", "arguments"),
        ("moe.routed_tokens(tokens)", "1:1", "replaces names"),
        ("moe.routed_tokens(**tokens)", "1:1", "replaces names"),
        ("moe.routed_tokens(tokens=1, tokens=2)", "1:1", "replaces names"),
        ("1 if tokens", "1:", "no formula"),
        ("1 < tokens < 3", "1:1", "Compare is not part"),
        ("tokens / 2", "1:1", "write // or ceildiv(a, b)"),
        ("tokens[0]", "1:1", "Subscript is not part"),
        ("'tokens'", "1:1", "Constant is not part"),
        ("True", "1:1", "write 1 or 0"),
        ("(tokens)(1)", "1:1", "replaces names"),
        ("tokens()()", "1:1", "not the name of a rule"),
        ("__import__('os')", "1:1", "replaces names"),
        ("99999999999999999999", "1:1", "fit in 64"),
        ("1e300", "1:1", "a million"),
        ("charged(3)", "1:9", "name of a rule"),
        ("", " ", "no formula"),
        ("[x for x in y]", "1:1", "ListComp is not part"),
        ("lambda: 1", "1:1", "Lambda is not part"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "my.rule")
    assert str(caught.value).startswith(f"my.rule:{place}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "not " * 5000 + "1",
        "1" + " + 1" * 20_000,
        "1" + " * 1" * 2000,
        "1 if 1 else " * 3000 + "1",
        "min(" * 3000,
    ],
)
def test_long_and_deep_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"nest|characters|no formula"):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse(text)


# -- rules and sets -------------------------------------------------------------------------


def made(text: str, **parts: str) -> Rule:
    return Rule("my.rule", text, why="a test", source="a test", **parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_tokens * hidden", "charges bytes"),
        ("local_tokens + 3 * B", "mixes bytes"),
        ("local_tokens * dtype_bytes * dtype_bytes", "bytes times bytes"),
        ("max(3 * B, hidden)", "mixes bytes"),
        ("3 * B if dtype_bytes else 0", "bytes as a condition"),
        ("3 * B if dtype_bytes == 2 else 0", "mixes bytes"),
        ("not 3 * B", "compare them first"),
        ("local_tokens // dtype_bytes * 3 * B", "divided by bytes"),
        ("hiden * 2 * B", "did you mean hidden"),
        ("moe.routed_token(local_tokens=3)", "did you mean moe.routed_tokens"),
        ("local_tokens(hidden=3) * 2 * B", "only rules and definitions"),
        ("moe.routed_tokens(local_token=3)", "did you mean local_tokens"),
        (
            "moe.routed_tokens(local_tokens=3 * B)",
            "local_tokens is a plain number, but bytes given",
        ),
        ("my.rule + 3 * B", "circle: my.rule -> my.rule"),
        ("charged(hidden) * 3 * B", "no rule 'hidden'"),
    ],
)
def test_wrong_formulas_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        reference_rules().with_rule(made(text))
    assert message in str(caught.value)
    if "circle" not in message:
        assert "my.rule:1:" in str(caught.value)


def test_a_rule_of_your_own_is_unmeasured_unless_you_say_where_it_was_checked() -> None:
    for parts, state in (({}, "unmeasured"), ({"checked": "1"}, "charged")):
        rules = default_rules().with_rule(made("GiB", **parts))
        bound = bind(models.get("qwen3-0.6b"), Topology(), Training(), rules)
        assert bound.states[made("GiB").name].state == state


def test_circles_are_shown() -> None:
    rules = reference_rules()
    with pytest.raises(InputError, match=r"circle: .*moe\.routed_tokens"):
        rules.override("moe.routed_tokens", bytes="moe.slot_stages")
    with pytest.raises(InputError, match=r"circle: .*retained"):
        rules.redefine("checkpoint_retained", "retained + checkpoint.retained")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"where": "local_tokens < 3"}, "the measure local_tokens"),
        ({"where": "moe.routed_tokens > 3 * B"}, "the rule moe.routed_tokens"),
        ({"where": "has_gradient"}, "the measure gradient"),
        ({"applies": "tpp == 1"}, "did you mean"),
        ({"checked": "3 * B"}, "true .1. or false"),
    ],
)
def test_predicates_read_facts_only(parts: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reference_rules().with_rule(made("3 * B", **parts))


def test_rules_are_frozen_and_checked() -> None:
    one = made("3 * B")
    with pytest.raises(AttributeError):
        one.name = "x"  # type: ignore[misc]
    with pytest.raises(InputError, match=r"part\.what"):
        Rule("plain", "3 * B")
    with pytest.raises(InputError, match="lives"):
        Rule("my.rule", "3 * B", lives="forever")  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [default_rules(), reference_rules(), resident_rules()])
def test_bundled_sets_pass_the_checks_of_every_other(rules: RuleSet) -> None:
    rules.check()
    bind(MODEL, Topology(), Training())  # functions of formulas do not pickle
    again = pickle.loads(pickle.dumps(rules))
    assert [*again.formulas] == [*rules.formulas]


PACKS = [{"local_tokens": tokens, "gradient": 1} for tokens in (10, 7)]


@pytest.mark.parametrize(
    ("lives", "tokens", "of_split"),
    [
        ("retained", 17, {"split_kept", "cost_required"}),
        ("output", 17, {"output", "split_kept", "cost_required"}),
        ("workspace", 10, {"split_workspace", "cost_required"}),
        ("gradient", 10, {"split_workspace", "cost_required", "peak_increment"}),
        ("buffer", 10, {"buffers", "cost_required"}),
    ],
)
@pytest.mark.parametrize("recompute", ["full", "selective"])
@pytest.mark.parametrize("base", [default_rules(), reference_rules()], ids=lambda one: one.name)
def test_an_added_rule_counts_by_when_its_bytes_live(
    base: RuleSet, recompute: str, lives: str, tokens: int, of_split: set[str]
) -> None:
    """Retained and output are summed over packs, of the others the largest pack counts."""
    if base.name == "reference" and recompute == "selective" and lives == "gradient":
        of_split = {"split_workspace"}  # the reference has no backward part there
    measures = Measures.of({"packed_tokens": 17, "retained_tokens": 17}, PACKS)
    one = Rule("my.rule", "local_tokens * 1_000_000 * B", lives=lives)  # type: ignore[arg-type]
    grown = base.with_rule(one)
    assert grown.name == f"{base.name}*"
    training = Training(recompute=recompute)
    before, after = (
        bind(MODEL, Topology(), training, rules).results(measures) for rules in (base, grown)
    )
    assert after["estimate"] - before["estimate"] == tokens * 1_000_000
    assert after["required"] - before["required"] == pytest.approx(tokens * 1_100_000, abs=2)
    moved = {name for name in after if after[name] != before[name]}
    assert of_split <= moved


@pytest.mark.parametrize("parts", [{"where": "tp == 2"}, {"applies": "experts == 0"}])
def test_an_added_rule_outside_its_predicates_charges_nothing(parts: dict[str, str]) -> None:
    measures = Measures.of({"packed_tokens": 17}, PACKS)
    base = reference_rules()
    grown = base.with_rule(made("local_tokens * 9 * B", **parts))
    assert estimate(grown, measures) == estimate(base, measures)
    states = [
        str(state)
        for state in price(measures, bind(MODEL, Topology(), Training(), grown)).uncharged
    ]
    wanted = ["my.rule: not charged at TP=1: holds where TP == 2"] if "where" in parts else []
    assert states == wanted


def test_a_rule_that_no_total_counts_is_refused() -> None:
    base = default_rules()
    for name in ("moe.routed_tokens", "resident.embeddings"):
        with pytest.raises(InputError, match="use override"):
            base.with_rule(Rule(name, "3 * B"))
    with pytest.raises(InputError, match="no total 'workspac'"):
        base.with_rule(made("3 * B"), total="workspac")
    with pytest.raises(InputError, match=r"my\.rule \(workspace\) does not reach 'required'"):
        base.with_rule(made("3 * B"), total="peak_increment")
    with pytest.raises(InputError, match=r"my\.rule: resident bytes are no part of 'required'"):
        replace(base, resident=None).with_rule(made("3 * B", lives="resident"))
    with pytest.raises(InputError, match=r"adapter\.gradient \(gradient\) does not reach"):
        base.redefine("adapter_gradient", "0")
    with pytest.raises(InputError, match=r"moe\.routed_tokens .* does not reach"):
        base.redefine("moe_routed", "moe.shared_expert_return")
    held = resident_rules().with_rule(Rule("my.rule", "3 * B", lives="resident"))
    assert "my.rule" in str(held.definitions["resident_allocated"].formula)


def test_overrides() -> None:
    base = reference_rules()
    one = Measures.of({"packed_tokens": 1}, [{"local_tokens": 1, "gradient": 0}])
    doubled = base.override(
        "moe.shared_expert_return", bytes="2 * local_tokens * hidden * dtype_bytes"
    )
    assert estimate(doubled, one) == estimate(base, one) + 4096
    assert doubled.rules["moe.shared_expert_return"].source == "override"
    with pytest.raises(InputError, match="charges bytes"):
        base.override("moe.shared_expert_return", bytes="local_tokens")
    with pytest.raises(InputError, match="differs per pack"):
        base.override("checkpoint.retained", bytes="local_tokens * 2 * B")
    with pytest.raises(InputError, match="differs per pack"):
        base.redefine("state", "local_tokens * 2 * B")
    with pytest.raises(InputError, match=r"no rule 'moe\.routed'"):
        base.override("moe.routed", bytes="3 * B")
    with pytest.raises(InputError, match="cannot be overridden"):
        base.override("moe.routed_tokens", lives="output")
    with pytest.raises(InputError, match=r"routed_per_token:1:1: .*unit must stay"):
        base.redefine("routed_per_token", "3 * B")
    with pytest.raises(InputError, match="no definition"):
        base.redefine("nothing", "3")
    off = base.without("moe.routed_tokens")
    states = {state.name: state for state in bind(MODEL, Topology(), Training(), off).uncharged}
    assert states["moe.routed_tokens"].reason == "not charged"


def test_predicates_fold_to_the_fact_that_fails() -> None:
    one = made("3 * B", where="(tp == 1 and cp <= 2) and pp < 3")
    rules = reference_rules().with_rule(one)
    bound = bind(MODEL, Topology(cp=4), Training(), rules)
    states = {state.name: str(state) for state in bound.uncharged}
    assert states["my.rule"] == "my.rule: not charged at CP=4: holds where CP <= 2"


def test_definitions_are_written_out_where_they_fail() -> None:
    bound = bind(MODEL, Topology(tp=2, pp=2), Training(), reference_rules())
    states = {state.name: state.reason for state in bound.uncharged}
    assert states["checkpoint.retained"] == (
        "not charged at PP=2, TP=2, sequence_parallel=0, moe_layers=40: holds where PP == 1 and "
        "(TP == 1 or sequence_parallel and moe_layers == 0)"
    )


def test_dead_branches_are_not_computed() -> None:
    rules = reference_rules().with_rule(Rule("my.rule", "0 if mla == 0 else 9 * B * (7 // mla)"))
    bind(MODEL, Topology(), Training(), rules)
    broken = reference_rules().with_rule(Rule("my.rule", "9 * B * (7 // mla)"))
    with pytest.raises(InputError, match=r"my\.rule:1:10: 7 // mla divides by 0"):
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
routed_per_token = "2 * topk"
safety_factor = 1.2

[rule."moe.shared_expert_return"]
bytes = "local_tokens * hidden * dtype_bytes * 3"

[rule."my.buffer"]
bytes = '''
local_tokens * 5 * B
  + 3 * B  # a comment
'''
lives = "retained"
""",
    )
    rules = reference_rules().with_file(path)
    one = Measures.of({"packed_tokens": 1}, [{"local_tokens": 1, "gradient": 0}])
    assert estimate(rules, one) > estimate(reference_rules(), one)
    assert rules.rules["my.buffer"].source == str(path)
    assert rules.rules["my.buffer"].lives == "retained"
    assert str(rules.definitions["safety_factor"].formula) == "1.2"
    assert default_rules().with_file(write(tmp_path, "")).name == "default"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            '[rule."moe.routed_tokens"]\nbytes = "local_tokens * hidden"',
            "moe.routed_tokens.bytes:1:",
            "charges bytes",
        ),
        (
            '[rule."my.rule"]\nbytes = """\nlocal_tokens * 2 * B\n  + hiden * 3 * B"""',
            "my.rule.bytes:2:5:",
            "did you mean hidden",
        ),
        (
            '[rule."moe.routed_tokens"]\nbytes = "hidden * "',
            "moe.routed_tokens.bytes:",
            "no formula",
        ),
        (
            '[rule."moe.routed_tokens"]\nwhere = "local_tokens == 1"',
            "moe.routed_tokens.where:1:",
            "may read facts only",
        ),
        ('[rule."moe.routed_tokens"]\nbites = "3 * B"', "moe.routed_tokens:", "did you mean bytes"),
        (
            '[rule."moe.routed_tokens"]\nlives = "output"',
            "moe.routed_tokens:",
            "cannot be overridden",
        ),
        ('[rule."my.rule"]\nwhy = "3 * B"', "my.rule:", "needs bytes"),
        ('[rule."my.rule"]\nbytes = 1.5', "my.rule:", "must be text"),
        ('[rule."my.rule"]\nbytes = "3 * B"\ntotal = "no"', "my.rule:", "no total"),
        ('[rule.plain]\nbytes = "3 * B"', "plain:", "part.what"),
        ("[define]\nrouted_per_token = 3", "routed_per_token:", "as text"),
        ('[define]\nrouted_per_token = "3 * B"', "routed_per_token:1:", "unit must stay"),
        ('[define]\nnothing = "3"', "nothing:", "no definition"),
        ("[rules]\nx = 1", "", "unknown table"),
        ("rule = 3", "rule", "must be a dict"),
        ('[rule]\n"my.rule" = 3', "my.rule:", "must be a dict"),
    ],
)
def test_bad_toml_is_refused_with_its_place(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        default_rules().with_file(path)
    assert str(caught.value).startswith(f"{path}: {place}"), str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_rules(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        default_rules().with_file(tmp_path / "missing.toml")
    for data in (b"[rule", b"\xff\xfe", b"x = " + b"[" * 5000):
        path = tmp_path / "bad.toml"
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"not (TOML|text in UTF-8)"):
            default_rules().with_file(path)
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InputError, match="at most"):
        default_rules().with_file(big)


# -- the page -------------------------------------------------------------------------------


def test_the_page_of_rules_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "rules.py"))["markdown"]()
    for name in default_rules().rules:
        assert f"### {name}" in page
    written = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert written == page, "run python docs/rules.py > docs/rules.md"


def test_every_rule_says_where_it_comes_from() -> None:
    for rules in (reference_rules(), default_rules()):
        for one in rules.rules.values():
            assert one.why, one.name
            assert one.source, one.name


def test_forward_alone_has_no_backward_part() -> None:
    measures = Measures.of({"packed_tokens": 100}, [{"local_tokens": 100, "gradient": 1}])
    both = bind(MODEL, Topology(), Training(), default_rules()).results(measures)
    forward = Training(phase="forward")
    alone = bind(MODEL, Topology(), forward, default_rules()).results(measures)
    assert alone["input_gradient"] == 0 < both["input_gradient"]
    assert alone["required"] < both["required"]


@pytest.mark.parametrize(("ep", "share"), [(1, 0.26), (2, 0.75)])
def test_selective_recompute_follows_the_tokens_of_a_rank(ep: int, share: float) -> None:
    """Mixers keep a rank's own tokens, and so do experts that every rank holds; experts of several
    ranks may get every token."""
    model = models.get("qwen3.6-35b-a3b")
    training = Training(recompute="selective")

    def kept(cp: int) -> int:
        tokens = 40_000 // cp
        plan = {"packed_tokens": 40_000, "retained_tokens": tokens, "logical_tokens": 40_000}
        bound = bind(model, Topology(dp=2, cp=cp, ep=ep), training)
        pack = {"local_tokens": tokens, "gradient": 1, "segments": 1}
        made = price(Measures.of(plan, [pack]), bound)
        return made.terms["selective.activations"]

    assert kept(2) < kept(1)
    assert kept(4) < share * kept(1)
    if ep > 1:
        assert kept(4) > 0.3 * kept(1)
