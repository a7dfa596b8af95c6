"""Makes the published planner importable on a machine without its GPU packages.

``import boot; boot.art()`` first, then import from ``art`` as usual. The planner is the
installed package, unchanged; only its top-level ``__init__``, which pulls in the whole SDK, is
left out, and packages that are not installed are answered with empty stand-ins.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import logging
import os
import sys
import types
import warnings
from importlib.machinery import ModuleSpec

ABSENT = {
    "absl",
    "anthropic",
    "apex",
    "causal_conv1d",
    "deep_ep",
    "fla",
    "flash_attn",
    "httpx",
    "megatron.bridge",
    "multistorageclient",
    "nvidia_resiliency_ext",
    "nvtx",
    "openai",
    "polars",
    "quack",
    "tqdm",
    "transformer_engine",
    "transformer_engine_torch",
    "transformers",
    "wandb",
    "yaml",
    "zstandard",
}
# megatron-core reads this one's version when it is imported
VERSIONS = {"transformer_engine": "2.11.0"}
# replaces kernels of a newer torch while it is imported; planning never calls it
PATCH = "art.megatron.flex_attn.flash_dlse_patch"


class _AnyName(type):
    """A class that has every attribute, and can be subscripted and joined to others."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __getitem__(cls, _):
        return cls

    def __or__(cls, _):
        return cls

    __ror__ = __or__


def _stand_in(name):
    def takes_anything(_self, *_args, **_kwargs):
        pass

    def schema(_cls, _source, _handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()

    body = {
        "__init__": takes_anything,
        "__get_pydantic_core_schema__": classmethod(schema),
    }
    return _AnyName(name, (), body)


class _Absent(types.ModuleType):
    """A module that is not installed: its names are stand-ins."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []
        self.__version__ = VERSIONS.get(name, "0")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "transformer_engine.pytorch" and name[0].isupper():
            import torch

            made = type(name, (torch.nn.Module,), {})
        else:
            made = _stand_in(name)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last, for modules that no other finder knows."""

    def find_spec(self, name, _path=None, _target=None):
        parts = name.split(".")
        if parts[0] in ABSENT or ".".join(parts[:2]) in ABSENT:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Absent(spec.name)

    def exec_module(self, module):
        pass


def art():
    """Once; returns the version of the installed package."""
    version = importlib.metadata.version("openpipe-art")
    if "art" not in sys.modules:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        logging.getLogger("megatron").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore")
        sys.meta_path.append(_Finder())
        package = types.ModuleType("art")
        package.__path__ = [str(importlib.metadata.distribution("openpipe-art").locate_file("art"))]
        sys.modules["art"] = package
        sys.modules[PATCH] = _Absent(PATCH)
    return version
