"""Every public function and class of the library against every hostile value."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import calls_python
import pytest
from judge import Call, faults, forms, objects, plain, properties, run, targets

import waveplan

CALLS = calls_python.CALLS

MODULES = (
    "rows",
    "tree",
    "packing",
    "requests",
    "layout",
    "scoring",
    "assignment",
    "recurrent",
    "model",
    "models",
    "hf",
    "megatron",
    "parameters",
    "adapters",
    "topology",
    "training",
    "facts",
    "budget",
    "pricing",
    "pricing.resident",
    "planner",
    "waves",
    "wave",
    "plan",
    "profiles",
    "agreement",
    "ranks",
    "jobs",
    "sweep",
    "integrations.art",
)
"""Public modules, besides those of files and of the command line."""

MADE = {
    "adapters.Adapter": "layer_adapters",
    "adapters.Adapter.elements": "layer_elements",
    "assignment.Assignment": "assign",
    "assignment.PackedRow": "a protocol: assign",
    "assignment.ProfiledWork": "assign",
    "integrations.art.Difference": "install",
    "integrations.art.Replay": "replay",
    "integrations.art.Report": "install",
    "layout.Layout": "choose_layout",
    "megatron.Run": "read",
    "packing.Packing": "pack",
    "parameters.LayerParts": "layer_parts",
    "parameters.Parameters": "count",
    "plan.Forward": "Planner.plan",
    "plan.ForwardGroup": "Planner.plan",
    "plan.Plan": "Planner.plan",
    "pricing.BoundRules": "bind",
    "pricing.Price": "price",
    "recurrent.GdnSchedule": "gdn_schedule",
    "recurrent.Recurrent": "recurrent",
    "pricing.Definition": "a row of the table",
    "pricing.Reference": "a row of the table",
    "pricing.Reference.changes": "reference_rules",
    "pricing.RuleSet.of": "default_rules",
    "pricing.Rule.as_reference": "reference_rules",
    "pricing.Definition.as_reference": "reference_rules",
    "pricing.Status": "bind",
    "pricing.BoundRules.every": "Price.explain",
    "pricing.resident.Resident": "resident",
    "pricing.resident.Term": "resident",
    "scoring.Table": "constants: TABLES",
    "tree.Tree": "tree",
    "wave.Binding": "Planner.wave",
    "wave.Probe": "Planner.wave",
    "wave.Stopped": "Planner.wave",
    "wave.Tried": "Planner.wave",
    "wave.Wave": "Planner.wave",
}
"""What the library makes and nobody else, with what makes it: attacked there."""

ELSEWHERE = {
    "agreement.TorchDistributed": "needs torch: tests/processes",
    "agreement.TorchDistributed.all_max": "needs torch: tests/processes",
    "agreement.TorchDistributed.all_min": "needs torch: tests/processes",
    "agreement.Mpi4py": "needs MPI: tests/processes",
    "agreement.Mpi4py.all_max": "needs MPI: tests/processes",
    "agreement.Mpi4py.all_min": "needs MPI: tests/processes",
    "agreement.Agreement.all_max": "a protocol: test_state.py",
    "agreement.Agreement.all_min": "a protocol: test_state.py",
    "ranks.Ranks": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.differ": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.fail": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.leave": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.meet": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.table": "made by Planner and in_step: test_state.py",
    "ranks.Ranks.telling": "made by Planner and in_step: test_state.py",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("call", "argument"), targets(CALLS))
def test_a_hostile_argument(call: Call, argument: str) -> None:
    found = faults(call, argument)
    assert not found, found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.covers)
def test_the_good_call_answers(call: Call) -> None:
    function, arguments = call.make()
    absent = ImportError if ImportError in call.raises else ()
    with suppress(*([absent] if absent else [])):
        run(function, arguments)


@pytest.mark.parametrize(("call", "argument"), targets(CALLS, columns=True))
def test_an_array_in_another_form_gives_the_same_answer(call: Call, argument: str) -> None:
    function, arguments = call.make()
    right = plain(run(function, arguments))
    for name, make in forms(call, argument):
        function, arguments = call.make()
        arguments[argument] = make()
        assert plain(run(function, arguments)) == right, name


def public() -> Iterator[str]:
    """Public functions, classes and methods, by module and name."""
    for name in MODULES:
        module = importlib.import_module(f"waveplan.{name}")
        for public_name in module.__all__:
            value = getattr(module, public_name)
            if not callable(value) or not str(value.__module__).startswith("waveplan"):
                continue
            if value.__module__ != module.__name__ and name not in ("pricing", "integrations.art"):
                continue
            yield f"{name}.{public_name}"
            if inspect.isclass(value):
                for method, part in vars(value).items():
                    made = isinstance(part, classmethod | staticmethod) or inspect.isfunction(part)
                    if made and not method.startswith("_"):
                        yield f"{name}.{public_name}.{method}"


def test_every_public_name_is_attacked() -> None:
    attacked = {call.covers.removeprefix("waveplan.") for call in CALLS}
    names = set(public())
    missing = sorted(names - attacked - MADE.keys() - ELSEWHERE.keys())
    assert not missing, f"register known-good calls in calls_python.py: {missing}"
    gone = sorted((attacked | MADE.keys() | ELSEWHERE.keys()) - names)
    assert not gone, f"no longer public: {gone}"


PROTOCOLS = {"assignment.PackedRow", "agreement.Agreement"}


def test_every_property_is_read_from_what_hostile_arguments_make() -> None:
    reached = set()
    for call in CALLS:
        function, arguments = call.make()
        if call.arguments and ImportError not in call.raises:
            reached |= {type(made) for made in objects(run(function, arguments))}
    with_properties = {
        getattr(importlib.import_module(f"waveplan.{module}"), name)
        for module, _, name in (path.rpartition(".") for path in set(public()) - PROTOCOLS)
        if module in MODULES
    }
    with_properties = {kind for kind in with_properties if inspect.isclass(kind)}
    with_properties = {kind for kind in with_properties if properties(kind)}
    assert len(with_properties) > 20
    missing = sorted(kind.__name__ for kind in with_properties - reached)
    assert not missing, f"return an object of these from a call in calls_python.py: {missing}"


def test_every_name_of_the_package_is_in_a_module_that_is_attacked() -> None:
    homes = {f"waveplan.{name}" for name in MODULES} | {"waveplan.errors", "waveplan.refusal"}
    for name in waveplan.__all__:
        value: Any = getattr(waveplan, name)
        if callable(value):
            assert value.__module__ in homes, name
