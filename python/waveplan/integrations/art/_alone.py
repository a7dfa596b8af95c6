"""A rank that prices by itself: the package's own methods, each fact read once a search."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from art.trainer_rank import _impl as impl

from waveplan import _core

from ._seams import Declined
from ._trees import chosen
from ._values import Int64


class Share:
    """This rank's requests in the order of a search; its waves are the first of them."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        """Adapter slot, gradients and replay of each request; None if nothing is asked of it."""
        self.firsts: list[int] = []
        """The first request of each kind: those of one have the same part in a signature."""
        self.output = (0, 0)
        """So many requests, and their output bytes."""
        self.tokens: list[Int64] = []
        """Tokens of each request of the pool."""
        self.packs: list[_core.Pack] = []
        """Packs of the plan being made that our search has chosen."""
        self.facts: dict[Any, Any] = {}
        """What methods returned, by name and arguments; items, by the address of the request."""


class Alone:
    """What is read once a search; mixed into the rank's own class. It has no reductions."""

    __slots__ = ()
    _share: Share

    def _planning_status(self, _: bool) -> Any:
        return contextlib.nullcontext()

    def _ensure_checkpoint_slots_for(self, *_: Any, **__: Any) -> None: ...

    def _memory_check_required(self, required: int, **_: Any) -> int:
        return required

    def _topology_key(self) -> Any:
        return self._fact("_topology_key")

    def _slot_memory_shapes(self, ref: Any) -> Any:
        return self._fact("_slot_memory_shapes", ref)

    def _head_workspace_bytes(self, rows: int) -> Any:
        return self._fact("_head_workspace_bytes", rows)

    def _fact(self, name: str, *of: Any) -> Any:
        facts = self._share.facts
        if (name, *of) not in facts:
            facts[name, *of] = getattr(super(), name)(*of)
        return facts[name, *of]

    def _group_active_request_indices(self, requests: Sequence[Any], **_: Any) -> Any:
        groups: dict[Any, list[int]] = {}
        for i, key in enumerate(self._share.keys[: len(requests)]):
            if key is not None:
                groups.setdefault(key, []).append(i)
        return tuple((key[:2], tuple(indices)) for key, indices in groups.items())

    def _memory_signature_from_requests(self, requests: Sequence[Any], **options: Any) -> Any:
        count = len(requests)
        some = [requests[i] for i in self._share.firsts if i < count]
        if len(some) == 1 < count:
            some.append(requests[1])  # one request alone has a signature of its own
        return super()._memory_signature_from_requests(some, **options)  # type: ignore[misc]

    def _estimate_group_request_output_bytes(self, requests: Sequence[Any]) -> int:
        count, found = self._share.output if len(requests) >= self._share.output[0] else (0, 0)
        more: int = super()._estimate_group_request_output_bytes(requests[count:])  # type: ignore[misc]
        self._share.output = (len(requests), found + more)
        return found + more

    def _select_group_layout(self, input_ids: Sequence[Any], **options: Any) -> Any:
        packs = self._share.packs
        if not packs:
            return super()._select_group_layout(input_ids, **options)  # type: ignore[misc]
        pack = packs.pop(0)
        tokens = [self._share.tokens[i] for i in pack.requests]
        if [*map(len, tokens)] != [ids.numel() for ids in input_ids]:
            raise Declined
        return chosen(pack, tokens)

    def _forward_item(self, request: Any) -> Any:
        """Return an item; of plain tokens and labels, it holds the tensors themselves."""
        facts = self._share.facts
        found = facts.get(id(request))
        if found is None:
            tokens, labels = request.input_tokens, request.target_tokens
            if (
                tokens.dtype is torch.long
                and tokens.ndim == 1
                and request.top_k is None
                and request.routed_experts is None
                and (
                    labels is None or (labels.dtype is torch.long and labels.shape == tokens.shape)
                )
            ):
                found = impl._ForwardItem(request, tokens, labels)
            else:
                found = super()._forward_item(request)  # type: ignore[misc]
            facts[id(request)] = found
        return found


@functools.lru_cache(maxsize=16)
def _class(base: Any) -> Any:
    return type(base.__name__, (Alone, base), {"__slots__": ("_share",)})


def alone(rank: Any) -> Any:
    """Return a rank with the same attributes, now and later, that prices by itself."""
    base: Any = type(rank)
    made = object.__new__(_class(base))
    made.__dict__ = vars(rank)
    object.__setattr__(made, "_share", Share())
    return made
