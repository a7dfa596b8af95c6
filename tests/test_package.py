import tomllib

from conftest import ROOT

import waveplan


def test_version_is_the_crates():
    crate = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    assert waveplan.__version__ == crate["package"]["version"]
