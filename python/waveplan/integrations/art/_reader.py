"""Arguments back from a saved call: a closed set of kinds, each checked before it is used."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan._values import shown
from waveplan.errors import InputError

from ._classes import class_of, field_names
from ._seams import Declined, Function
from ._trees import Trees
from ._values import filled

_PLAIN = (bool, int, float, str)


class NeedsRankError(AttributeError):
    """What a method asked of its rank was not saved with the call."""


class StandIn:
    """In place of the rank whose method was saved: what counting and layouts ask of it."""

    def __init__(self, methods: Mapping[str, Function]) -> None:
        self._methods = methods
        self._layout_cache_lock = threading.Lock()
        self._tree_cache: OrderedDict[Any, Any] = OrderedDict()
        self._layout_selection_cache: OrderedDict[Any, Any] = OrderedDict()

    def _head_workspace_bytes(self, rows: int) -> int:
        return rows

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            return MethodType(self._methods[name], self)
        raise NeedsRankError(name)


class Reader:
    """Arguments back from a file. A reader gives each array once, for one call.

    ``methods`` are those of a rank that may call one another.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        trees: Trees,
        methods: Mapping[str, Function] | None = None,
    ) -> None:
        self.arrays, self.trees = dict(arrays), trees
        self.made: dict[int, Any] = {}
        self.kinds: dict[str, tuple[set[str], Callable[[dict[str, Any]], Any]]] = {
            "tensor": ({"tensor"}, lambda v: trees.torch.from_numpy(self._array(v["tensor"]))),
            "array": ({"array"}, lambda v: self._array(v["array"])),
            "enum": ({"enum", "value"}, _member),
            "dict": ({"dict"}, self._dict),
            "tuple": ({"tuple"}, lambda v: tuple(self._parts(v["tuple"]))),
            "list": ({"list"}, lambda v: self._parts(v["list"])),
            "set": ({"set"}, lambda v: frozenset(map(_plain, _items(v["set"])))),
            "class": ({"class", "fields"}, self._instance),
            "tree": ({"tree", "number"}, self._tree),
            "layout": ({"layout", "shared", "number"}, self._layout),
            "rank": ({"rank", "number"}, lambda _: StandIn(methods or {})),
            "again": ({"again"}, self._again),
            "opaque": ({"opaque"}, lambda _: None),
        }

    def read(self, value: Any) -> Any:
        """A value as it was written.

        Raises:
            InputError: it was not written so.
        """
        if value is None or isinstance(value, _PLAIN):
            return value
        kind = next(iter(value), None) if isinstance(value, dict) else None
        keys, make = self.kinds.get(kind or "", (None, None))
        if make is None or set(value) != keys:
            raise InputError(f"{shown(value)} stands for no value")
        number = value.get("number")
        if number is not None and (type(number) is not int or number in self.made):
            raise InputError(f"a {kind} has the number {shown(number)}: each has its own")
        found = make(value)
        if number is not None:
            self.made[number] = found
        return found

    def _parts(self, values: Any) -> list[Any]:
        return [self.read(part) for part in _items(values)]

    def _array(self, name: Any) -> NDArray[Any]:
        found = self.arrays.pop(name, None) if isinstance(name, str) else None
        if found is None:
            raise InputError(f"the array {shown(name)} is missing, or given twice")
        return found.copy()

    def _dict(self, value: dict[str, Any]) -> dict[Any, Any]:
        pairs = [_items(pair) for pair in _items(value["dict"])]
        if any(len(pair) != 2 for pair in pairs):
            raise InputError("a dict is written as pairs")
        return {_plain(key): self.read(part) for key, part in pairs}

    def _instance(self, value: dict[str, Any]) -> Any:
        cls, given = class_of(value["class"]), value["fields"]
        names = field_names(cls)
        if names is None:
            raise InputError(f"{value['class']} is no class with fields")
        if not isinstance(given, dict) or set(given) != set(names):
            has = shown(list(given)) if isinstance(given, dict) else shown(given)
            raise InputError(f"the fields of {value['class']} are {', '.join(names)}, not {has}")
        fields = {name: self.read(part) for name, part in given.items()}
        if dataclasses.is_dataclass(cls):
            return filled(cls, **fields)
        return _theirs(value["class"], lambda: cls(**fields))

    def _tree(self, value: dict[str, Any]) -> Any:
        rows = self.read(value["tree"])
        return _theirs("a tree", lambda: self.trees.tree(rows))

    def _layout(self, value: dict[str, Any]) -> Any:
        tree, flags = self.read(value["layout"]), self.read(value["shared"])
        if type(tree) is not self.trees.tree_class:
            raise InputError("a layout without its tree")
        if not isinstance(flags, np.ndarray) or flags.shape != (len(tree._core),):
            raise InputError("a layout has a flag for each segment of its tree")
        plain = _theirs(
            "a layout",
            lambda: self.trees.planner.plan_prefix_tree_layout(
                tree, np.flatnonzero(flags).tolist()
            ),
        )
        return filled(
            self.trees.layout_class,
            packed_tokens=plain.packed_tokens,
            maximum_depth=plain.maximum_depth,
            _tree=tree,
            _flags=flags,
            _count=len(plain.segments),
        )

    def _again(self, value: dict[str, Any]) -> Any:
        number = value["again"]
        if type(number) is not int or number not in self.made:
            raise InputError(f"the value {shown(number)} is used before it is given")
        return self.made[number]


def _items(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise InputError(f"{shown(values)} is no list")
    return values


def _plain(value: Any) -> Any:
    if value is not None and not isinstance(value, _PLAIN):
        raise InputError(f"{shown(value)} is no plain value")
    return value


def _member(value: dict[str, Any]) -> Any:
    """A member of an enumeration, looked up among its members."""
    cls = class_of(value["enum"])
    if not issubclass(cls, enum.Enum):
        raise InputError(f"{value['enum']} is no enumeration")
    for member in cls:
        if type(value["value"]) in _PLAIN and member.value == value["value"]:
            return member
    raise InputError(f"{value['enum']} has no member {shown(value['value'])}")


def _theirs(what: str, make: Callable[[], Any]) -> Any:
    """A value that the other package makes, or says why it does not."""
    try:
        return make()
    except (Declined, LookupError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be made again: {error or type(error).__name__}") from None
