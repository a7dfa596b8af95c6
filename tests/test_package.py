import waveplan


def test_version_is_the_crates():
    assert waveplan.__version__.count(".") == 2
