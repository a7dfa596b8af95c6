"""The two reductions by which the ranks of a job agree, over torch.distributed or MPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import integer
from waveplan.errors import InputError, RankError

__all__ = ["Agreement", "AllShares", "Alone", "Mpi4py", "TorchDistributed"]


MOST_PROCESSES = 1 << 24


@runtime_checkable
class Agreement(Protocol):
    """The ranks of a job, connected by two reductions over all of its processes.

    Every process calls the same reductions in the same order with arrays of the same length,
    and gets the same result. A wave takes four to six calls, however many widths it prices; see
    `waveplan.agreement.protocol`.
    """

    @property
    def rank(self) -> int:
        """Number of this process, below `size`."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    @property
    def dp_rank(self) -> int:
        """Data-parallel rank of this process: its share of each wave."""
        ...

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entrywise minimum over all processes."""
        ...

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entrywise maximum over all processes."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A process that plans without the others: every reduction returns its own numbers.

    Args:
        dp_rank: the data-parallel rank whose share is planned, as if every other rank agreed.
    """

    dp_rank: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dp_rank", integer("dp_rank", self.dp_rank))

    @property
    def rank(self) -> int:
        """Zero."""
        return 0

    @property
    def size(self) -> int:
        """One."""
        return 1

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values`."""
        return values

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values`."""
        return values


class AllShares(Alone):
    """A single process that plans the shares of all data-parallel ranks, as at a desk.

    The waves are those that as many processes would get with the same bytes available. A `Wave`
    then is the busiest share's, and `Wave.shares` has the share of each rank.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()


class TorchDistributed:
    """The processes of a `torch.distributed` group, Gloo or NCCL.

    Args:
        group: the process group; None is the default group.
        dp_rank: this process's data-parallel rank; by default its rank in the group, which is
            right where every data-parallel rank is one process.
        device: where reductions run: by default the current CUDA device under NCCL (set it
            before), else the CPU.

    Raises:
        InputError: torch.distributed is not initialized, or this process is not in the group.
    """

    def __init__(self, group: Any = None, dp_rank: int | None = None, device: Any = None) -> None:
        import torch
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            raise InputError("torch.distributed is not initialized: call init_process_group first")
        self.rank: int = dist.get_rank(group)
        if self.rank < 0:
            raise InputError("this process is not in the group given as agreement")
        self.size: int = dist.get_world_size(group)
        self.dp_rank: int = self.rank if dp_rank is None else integer("dp_rank", dp_rank)
        if device is None:
            nccl = dist.get_backend(group) == "nccl"
            device = torch.device("cuda", torch.cuda.current_device()) if nccl else "cpu"
        self._torch, self._dist, self._group, self._device = torch, dist, group, device

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise minimum over the group."""
        return self._reduce(values, self._dist.ReduceOp.MIN)

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise maximum over the group."""
        return self._reduce(values, self._dist.ReduceOp.MAX)

    def _reduce(self, values: NDArray[np.int64], op: Any) -> NDArray[np.int64]:
        try:
            tensor = self._torch.tensor(values, device=self._device)
            self._dist.all_reduce(tensor, op=op, group=self._group)
            reduced: NDArray[np.int64] = tensor.cpu().numpy()
        except Exception as error:
            raise RankError(f"the processes lost touch: {error}", lost=True) from error
        return reduced


class Mpi4py:
    """The processes of an mpi4py communicator.

    Args:
        comm: an intracommunicator; None is `MPI.COMM_WORLD`. Planning shares it with no one
            else while it reduces: give it a duplicate (`comm.Dup()`) if threads use MPI too.
        dp_rank: this process's data-parallel rank; by default its rank in the communicator.
    """

    def __init__(self, comm: Any = None, dp_rank: int | None = None) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.dp_rank: int = self.rank if dp_rank is None else integer("dp_rank", dp_rank)

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise minimum over the communicator."""
        return self._reduce(values, self._mpi.MIN)

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise maximum over the communicator."""
        return self._reduce(values, self._mpi.MAX)

    def _reduce(self, values: NDArray[np.int64], op: Any) -> NDArray[np.int64]:
        reduced = np.empty(len(values), np.int64)
        try:
            self._comm.Allreduce(np.ascontiguousarray(values, np.int64), reduced, op=op)
        except Exception as error:
            raise RankError(f"the processes lost touch: {error}", lost=True) from error
        return reduced


def check_agreement(agreement: object, dp: int) -> Agreement:
    """Return `agreement`, if it has the protocol and its rank is below `dp`."""
    if agreement is None:
        if dp > 1:
            raise InputError(
                f"dp is {dp}, and no agreement says which shares are planned here: pass agreement="
                "TorchDistributed() or Mpi4py() in every process of a job, AllShares() to plan "
                "all shares in this process, or Alone(dp_rank=...) to plan one of them"
            )
        return Alone()
    if not isinstance(agreement, Agreement):
        raise InputError(
            f"agreement is {type(agreement).__name__}: it must offer rank, size, dp_rank, all_min "
            "and all_max, as waveplan.Alone() does"
        )
    size = integer("agreement.size", agreement.size, 1, MOST_PROCESSES)
    integer("agreement.rank", agreement.rank, 0, size - 1)
    if integer("agreement.dp_rank", agreement.dp_rank) >= dp:
        raise InputError(
            f"agreement.dp_rank is {agreement.dp_rank}: it must be below dp, {dp}: where ranks "
            "share requests (TP, CP, PP), pass dp_rank=, the data-parallel rank"
        )
    if size < dp and not isinstance(agreement, Alone):
        raise InputError(
            f"agreement connects {size} processes for dp = {dp}: every data-parallel rank needs one"
        )
    return agreement
