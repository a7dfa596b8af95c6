"""Measures of plans: names, and the counts that prices read."""

from waveplan import _core


def test_measure_names_are_unique_and_explained() -> None:
    for table in (_core.PLAN_MEASURES, _core.GROUP_MEASURES):
        names = [name for name, _ in table]
        assert len(set(names)) == len(names) > 10
        assert all(name.isidentifier() and meaning for name, meaning in table)
