import re
import runpy
import tomllib

from conftest import ROOT

import waveplan
import waveplan.pricing


def test_version_is_the_crates():
    crate = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    assert waveplan.__version__ == crate["package"]["version"]


def test_the_page_of_public_names_is_up_to_date():
    """It is made from docstrings, and cannot be without one."""
    page = runpy.run_path(str(ROOT / "docs" / "api.py"))["markdown"]()
    named = {title.rpartition(".")[2] for title in re.findall(r"^### (\S+)$", page, re.MULTILINE)}
    assert {*waveplan.__all__, *waveplan.pricing.__all__} - named == {"__version__", "models"}
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == page, "run python docs/api.py > docs/api.md"
