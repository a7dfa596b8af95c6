"""Files of rules that go in circles, explode, nest, overflow or are something else entirely."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from waveplan import InputError, Topology, Training, models
from waveplan.cli import main
from waveplan.pricing import Measures, RuleSet, bind, default_rules, price

MODEL = models.get("qwen3.6-35b-a3b")


def rule(formula: str, name: str = "my.part", more: str = "") -> str:
    return f'[rule."{name}"]\nbytes = "{formula}"\n{more}\n'


def load(path: Path, text: str | bytes) -> RuleSet:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return default_rules().with_file(path)


def refused(path: Path, text: str | bytes, *says: str) -> None:
    with pytest.raises(InputError) as error:
        load(path, text)
    message = str(error.value)
    assert message.startswith((str(path), f"cannot read {path}"))
    assert "\n" not in message
    assert len(message) <= 1000
    for part in says:
        assert part in message


CHAIN = " - ".join(["B"] * 90)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (rule("my.part"), "in a circle: my.part -> my.part"),
        (rule("retained", more='lives = "retained"'), "in a circle"),
        ('[define]\nestimate = "required"\nrequired = "estimate"', "in a circle"),
        (rule("nobody"), "no 'nobody'"),
        (rule("charged(no.rule) * B"), "no rule 'no.rule'"),
        (rule("no.rule(local_tokens=1)"), "no 'no.rule'"),
        (rule("moe.routed_tokens(nobody=1)"), "is no fact or measure"),
        (rule("9" * 5000), "no formula"),
        (rule("9223372036854775808 * B"), "does not fit in 64"),
        (rule("1.5 * B"), "a decimal number"),
        (rule("1 * B + hidden"), "mixes bytes and plain numbers"),
        (rule("local_tokens"), "a rule charges bytes"),
        (rule("1 * TiB"), "no 'TiB'"),
        (rule("scale(B, " + "9" * 400 + ".5)"), "a million"),
        (rule("scale(B, local_tokens)"), "the factor of scale() is a decimal number"),
        (rule("scale(B, missing)"), "no 'missing'"),
        (rule("٣ * B"), "no formula"),
        (rule("B; import os"), "no formula"),
        (rule("__import__('os')"), "replaces names"),
        (rule("B " * 6000), "no formula"),
        (rule("(" * 4000 + "B" + ")" * 4000), "no formula"),
        (rule("not " * 2000 + "1"), "nests more than 100"),
        (rule("B" + " * 1" * 200), "nests more than 100"),
        (rule(""), "no formula"),
        (rule("min()"), "takes some arguments"),
        (rule("B", name="nodot"), "write it as part.what"),
        (rule("B", name="a." + "b" * 1000), "write it as part.what"),
        (rule("B", name="a.\\u001b[31m"), "write it as part.what"),
        (rule("B", more='lives = "forever"'), "lives is 'forever'"),
        (rule("B", more='total = "nobody"'), "no total 'nobody'"),
        (rule("B", more='where = "local_tokens > 5"'), "it may read facts only"),
        (rule("B", more="reference = true"), "unknown key 'reference'"),
        (rule("B") + rule("2 * B"), "not TOML"),
        ('[rule."a.b"]\nwhy = "x"', "needs bytes"),
        ('[rule."a.b"]\nbytes = 1.5', "must be text"),
        ('[rule."a.b"]\nbytes = 1979-05-27', "must be text"),
        ("rule = 5", "must be a dict"),
        ('[[rule]]\nbytes = "B"', "must be a dict"),
        ('[define]\nnobody = "1"', "no definition 'nobody'"),
        ("[define]\nretained = 5", "it must be a formula as text"),
        ('[define]\nretained = "hidden"', "its unit must stay"),
        ("version = 7", "unknown table 'version'"),
        ('{"rule": {}}', "not TOML"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"\0", "not TOML"),
        ("x = " + "[" * 100_000, "not TOML"),
        ("".join(rule("B", name=f"a.b{i}") for i in range(5000)), "at most 100"),
        ("# " + "x" * 300_000, "at most 262144 bytes"),
        # Six rules in a row, each as deep as one may be: what walks over them is recursive.
        (
            rule(CHAIN, name="a.r0")
            + "".join(rule(f"a.r{i} - {CHAIN}", name=f"a.r{i + 1}") for i in range(5)),
            "operators inside each other",
        ),
    ],
)
def test_files(text: str | bytes, says: str, tmp_path: Path) -> None:
    refused(tmp_path / "rules.toml", text, says)


@pytest.mark.parametrize("end", range(0, 160, 7))
def test_every_beginning_of_a_file(end: int, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    text = rule("local_tokens * hidden * dtype_bytes", more='lives = "retained"\nwhy = "a, b"')
    try:
        made = load(path, text[:end])
    except InputError:
        refused(path, text[:end])
    else:
        assert made.rules.keys() - {"my.part"} == default_rules().rules.keys()


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("1 * B // 0", "divides by 0"),
        ("1 * B // (pp - pp)", "divides by 0"),
        ("ceildiv(1 * B, cp - cp)", "divides by 0"),
        ("9223372036854775807 * B * 9223372036854775807", "does not fit in 64 bits"),
        ("9223372036854775807 * B + hidden * 1 * B", "does not fit in 64 bits"),
        ("scale(9223372036854775807 * B, 999999)", "does not fit in 64 bits"),
    ],
)
def test_formulas_that_facts_make_impossible(formula: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    rules = load(path, rule(formula))
    with pytest.raises(InputError, match=says) as error:
        bind(MODEL, Topology(), Training(), rules)
    assert str(path) in str(error.value)
    words = ["price", "--tokens", "9", "--model", "qwen3.6-35b-a3b", "--rules", str(path)]
    assert main(words) == 2


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("1 * B // (local_tokens - local_tokens)", "a rule divides by 0"),
        ("ceildiv(1 * B, segments - segments)", "a rule divides by 0"),
        ("local_tokens * 9223372036854775807 * B", "must fit in 63 bits"),
        ("scale(local_tokens * 1073741824 * GiB, 999999)", "must fit in 63 bits"),
        ("9223372036854775807 * B * local_tokens * local_tokens", "must fit in 63 bits"),
        ("0 * B - local_tokens * 9223372036854775807 * B", "must fit in 63 bits"),
    ],
)
def test_formulas_that_a_plan_makes_impossible(formula: str, says: str, tmp_path: Path) -> None:
    rules = load(tmp_path / "rules.toml", rule(formula))
    bound = bind(MODEL, Topology(), Training(), rules)
    plan = Measures.of(
        {"packed_tokens": 9, "retained_tokens": 9}, [{"local_tokens": 9, "gradient": 1}]
    )
    with pytest.raises(InputError, match=says) as error:
        price(plan, bound)
    assert "\n" not in str(error.value)


def test_replacements_that_multiply_are_refused(tmp_path: Path) -> None:
    """Nine rules that each mention the last one eight times, with other tokens: 8**9 formulas."""
    text = rule("local_tokens * 1 * B", name="a.r0")
    for i in range(9):
        terms = " + ".join(
            f"a.r{i}(local_tokens=local_tokens * {k + 2} + {9**i})" for k in range(8)
        )
        text += rule(terms, name=f"a.r{i + 1}")
    rules = load(tmp_path / "rules.toml", text)
    with pytest.raises(InputError, match="expand to more than 100,000 operations"):
        bind(MODEL, Topology(), Training(), rules)


def test_definitions_that_multiply_are_priced_but_not_explained(tmp_path: Path) -> None:
    """Each step of the total holds the one before it twenty times."""
    steps = ["checkpoint.retained", "gdn_retained", "added_retained", "added_workspace"]
    text = "[define]\n"
    for before, name in itertools.pairwise([*steps, "added_gradient"]):
        text += f'{name} = "{" + ".join([before] * 20)}"\n'
    rules = load(tmp_path / "rules.toml", text)
    bound = bind(MODEL, Topology(), Training(), rules)
    plan = Measures.of(
        {"packed_tokens": 9, "retained_tokens": 9}, [{"local_tokens": 9, "gradient": 1}]
    )
    made = price(plan, bound)
    assert made.required > 0
    with pytest.raises(InputError, match="more than 100,000 terms"):
        made.explain()


def test_conditions_that_multiply_still_say_why(tmp_path: Path) -> None:
    """Facts to blame are sought once in each definition, not in each mention of it."""
    text = '[define]\nkept_shared = "' + " and ".join(["pp"] * 20) + '"\n'
    names = ["kept_shared", "recomputed_mlps", "kept_common"]
    for before, name in itertools.pairwise(names):
        text += f'{name} = "{" + ".join([before] * 30)}"\n'
    text += rule("1 * B", more=f'where = "{" and ".join(["kept_common > 10000000"] * 60)}"')
    rules = load(tmp_path / "rules.toml", text)
    state = bind(MODEL, Topology(), Training(), rules).states["my.part"]
    assert state.state == "uncharged"
    assert "PP=1" in state.reason


def test_texts_of_rules_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[rule."my.part"]\nbytes = "1 * B"\nsource = "a\\nb\\u001b[2J"\n'
        'why = """long\nstory""" # ' + "x" * 5000 + "\n"
    )
    assert main(["rules", "--rules", str(path), "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "source: a b\\x1b[2J" in out
    assert "long story" in out
    assert max(map(len, out.splitlines())) < 2000


@pytest.mark.parametrize("name", ["/dev/zero", "folder", "none.toml", "a\0b", "x" * 300, ""])
def test_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert main(["rules", "--rules", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("waveplan rules: ")
