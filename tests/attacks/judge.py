"""Runs attacks and judges what comes back.

An attack ends well in an answer, in an error of the house of one short line, or in the hostile
object's own error. A `TypeError` is right only where Python itself refuses the call or the
compiled border does, which names the argument.
"""

from __future__ import annotations

import dataclasses
import inspect
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hostile
import numpy as np

import waveplan

PACKAGE = str(Path(waveplan.__file__).parent)
NO_PATH = "os.PathLike object"
"""How Python refuses what is no name of a file."""
LONGEST = 1000
"""Characters of a message: whatever was passed, it must not be printed whole."""

MOST_MEMORY = 200 << 20
"""Bytes that an attack with a few small values may add to the most that was ever in memory."""
RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A known-good call of one public function: what is called, and arguments by name."""

    covers: str
    """Its public name."""
    make: Callable[[], tuple[Callable[..., Any], Arguments]]
    """The function and fresh arguments; positional-only ones are named by their position, "0"."""
    columns: tuple[str, ...] = ()
    """Arguments that are arrays of integers, of which other forms must give the same answer."""
    spare: tuple[str, ...] = ()
    """Arguments that are used as they are and not attacked (callbacks, keyword bags)."""
    raises: tuple[type[Exception], ...] = ()
    """What it raises besides errors of the house, by Python's own protocols or as documented."""

    @property
    def arguments(self) -> list[str]:
        """The arguments to attack."""
        return [name for name in self.make()[1] if name not in self.spare]


def run(function: Callable[..., Any], arguments: Arguments) -> Any:
    """Calls with arguments by name or position."""
    positional = [arguments[str(i)] for i in range(len(arguments)) if str(i) in arguments]
    named = {name: value for name, value in arguments.items() if not name.isdigit()}
    return function(*positional, **named)


def fault(call: Call, function: Callable[..., Any], arguments: Arguments) -> str:
    """What is wrong with the outcome of a call; empty if nothing is."""
    before = peak()
    wrong = _fault(call, function, arguments)
    if not wrong and (took := peak() - before) > MOST_MEMORY:
        return f"took {took >> 20} MiB"
    return wrong


def peak() -> int:
    """The most bytes that this process has had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def _fault(call: Call, function: Callable[..., Any], arguments: Arguments) -> str:
    try:
        consume(run(function, arguments))
    except waveplan.InternalError as error:
        return f"InternalError for what a caller did: {_where(error)}"
    except waveplan.WaveplanError as error:
        return _message_fault(error)
    except hostile.CallersError:
        return ""
    except call.raises as error:
        return _message_fault(error)
    except TypeError as error:
        if _raised_inside(error) and NO_PATH not in str(error):
            return f"TypeError from inside: {_where(error)}"
        return _message_fault(error)
    except (OverflowError, ValueError, AttributeError) as error:
        # What the compiled border raises while it reads an argument.
        if str(error) == hostile.NEGATIVE_LENGTH:
            return ""
        border = call.covers.startswith("waveplan._core.")
        if _raised_inside(error) or not border:
            return f"{type(error).__name__} from inside: {_where(error)}"
        return _message_fault(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return f"{type(error).__name__} from inside: {_where(error)}"
    return ""


def faults(call: Call, argument: str) -> list[str]:
    """What is wrong with a call for any hostile value of one argument."""
    found = []
    for name, make in attacks(call, argument):
        function, arguments = call.make()
        arguments[argument] = make()
        if wrong := fault(call, function, arguments):
            found.append(f"{argument} <- {name}: {wrong}")
    return found


def consume(value: Any) -> None:
    """Reads what an answer makes only when it is asked: iterations, and properties."""
    if inspect.isgenerator(value):
        for _ in zip(value, range(3), strict=False):
            pass
    for _ in objects(value):
        pass


def objects(value: Any, depth: int = 3) -> Iterator[Any]:
    """Objects of the library in an answer, by reading all properties; of lists the first few."""
    for part in value[:4] if isinstance(value, list | tuple) else (value,):
        if type(part).__module__.startswith("waveplan"):
            yield part
            for name in properties(type(part)) if depth else ():
                yield from objects(getattr(part, name), depth - 1)


def properties(kind: type) -> list[str]:
    """Public properties of a class of the library, methods and plain fields apart."""
    if not kind.__module__.startswith("waveplan"):
        return []
    return sorted(
        name
        for base in kind.__mro__
        for name, part in vars(base).items()
        if isinstance(part, property | cached_property) and not name.startswith("_")
    )


def _message_fault(error: BaseException) -> str:
    text = str(error)
    if not text or "\n" in text:
        return f"{type(error).__name__} is not one line: {text!r:.200}"
    if len(text) > LONGEST:
        return f"{type(error).__name__} has {len(text)} characters: {text:.200}"
    return ""


def _raised_inside(error: BaseException) -> bool:
    """Raised by a line of the package that meant something else."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    if not last.filename.startswith(PACKAGE):
        # The call itself was refused, or a hostile object or numpy did: inside is where we are.
        return any(frame.filename.startswith(PACKAGE) for frame in frames)
    line = last.line or ""
    return not (line.startswith("raise TypeError") or "core." in line)


def _where(error: BaseException) -> str:
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(PACKAGE)
    ]
    return f"{error!s:.160} at {' '.join(frames[-3:]) or 'the border'}"


def plain(value: Any, depth: int = 4) -> Any:
    """An answer as values that compare with ``==``."""
    if isinstance(value, np.ndarray):
        return [value.dtype.kind, value.tolist()]
    if isinstance(value, list | tuple):
        return [plain(entry, depth) for entry in value]
    if isinstance(value, Mapping):
        return {key: plain(entry, depth) for key, entry in value.items()}
    module = type(value).__module__
    if module.startswith("waveplan") and depth:
        names = [name for name in dir(value) if not name.startswith("_")]
        parts = {name: getattr(value, name) for name in names}
        return {name: plain(part, depth - 1) for name, part in parts.items() if not callable(part)}
    if dataclasses.is_dataclass(value) or module.startswith("waveplan"):
        return type(value).__name__
    return value


def targets(calls: list[Call], *, columns: bool = False) -> list[Any]:
    """(call, argument) of every argument, or of those that are arrays of integers."""
    import pytest

    return [
        pytest.param(call, name, id=f"{call.covers}-{at}-{name}")
        for at, call in enumerate(calls)
        for name in (call.columns if columns else call.arguments)
    ]


def attacks(call: Call, argument: str) -> Iterator[tuple[str, hostile.Make]]:
    """Hostile values for an argument; where an array belongs, hostile forms of it too."""
    yield from hostile.things()
    good = call.make()[1][argument]
    if isinstance(good, np.ndarray):
        yield from hostile.wrong(good).items()
        if good.dtype == np.int64:
            yield from hostile.filled(good).items()


def forms(call: Call, argument: str) -> Iterator[tuple[str, hostile.Make]]:
    """Other forms of an argument that is an array of integers."""
    yield from hostile.same(np.asarray(call.make()[1][argument])).items()


def assert_one_line(error: BaseException) -> None:
    """The message says something, in one short line."""
    assert not (wrong := _message_fault(error)), wrong
