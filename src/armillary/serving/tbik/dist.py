"""Ranks exchange the parts of a tree, and each finishes it in the same order.

A reduction of the backend is never used: the order in which it adds depends on the backend, the
algorithm and the length of the message. Parts travel as they are; the additions are ours.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import socket
import tempfile
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from armillary import native
from armillary.native import library
from armillary.serving.tbik.plan import Node, PlanMismatchError, TreePlan

#: Elements of a part from which ranks finish a stretch of columns each.
LARGE = 1 << 16
Parts = Sequence[tuple[Node, Tensor]]


class Exchange(Protocol):
    """How ranks talk: a rank, a world, and two things to do."""

    rank: int
    world: int

    def reduce(self, parts: Parts, plan: TreePlan) -> Tensor:
        """The whole sum, on every rank, from every rank's parts (rows, N) float32."""
        ...

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """(rows, sum of sizes): every rank's columns (rows, sizes[rank]) side by side."""
        ...


def _finish(values: list[Tensor], plan: TreePlan) -> Tensor:
    """The tree over all parts, from left to right."""
    program = plan.combination()
    found = native.combine(
        [value.numpy() for value in values], program.merges,
        program.rounded if program.rounds else None,
    )  # fmt: skip
    return torch.from_numpy(found)


def _check_parts(parts: Parts, plan: TreePlan, rank: int) -> None:
    given, wanted = tuple(node for node, _ in parts), plan.nodes(rank)
    if given != wanted:
        raise ValueError(f"rank {rank} gave the nodes {list(given)}, its plan has {list(wanted)}")


class Alone:
    """One rank: the tree is already whole."""

    rank, world = 0, 1

    def reduce(self, parts: Parts, plan: TreePlan) -> Tensor:
        """The value of the root."""
        _check_parts(parts, plan, 0)
        return parts[0][1]

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """x itself."""
        return x


class GroupExchange:
    """Through a process group: all_gather, or all_to_all by columns where messages are long.

    Args:
        group: a ``torch.distributed`` process group; None: the default one.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.world = dist.get_world_size(group)

    def reduce(self, parts: Parts, plan: TreePlan) -> Tensor:
        """See `Exchange`."""
        _check_parts(parts, plan, self.rank)
        _check_world(plan, self.world)
        shape = parts[0][1].shape
        n = shape.numel()
        message = torch.zeros(plan.most_parts, n)
        for i, (_, value) in enumerate(parts):
            message[i] = value.reshape(-1)
        if plan.narrow:
            message = message.to(torch.bfloat16)  # exact: parts are rounded already
        small = n * plan.most_parts <= LARGE
        found = self._small(message, plan) if small else self._large(message, plan)
        return found.reshape(shape)

    def _small(self, message: Tensor, plan: TreePlan) -> Tensor:
        received = [torch.empty_like(message) for _ in range(self.world)]
        dist.all_gather(received, message, group=self.group)
        return _finish(_ordered(received, plan), plan)

    def _large(self, message: Tensor, plan: TreePlan) -> Tensor:
        """Each rank receives one stretch of all parts, finishes it, and sends it round."""
        n = message.shape[1]
        width = -(-n // self.world)
        padded = torch.zeros(len(message), width * self.world, dtype=message.dtype)
        padded[:, :n] = message
        out = padded.reshape(len(message), self.world, width).transpose(0, 1).contiguous()
        received = torch.empty_like(out)
        dist.all_to_all_single(received, out, group=self.group)
        mine = _finish(_ordered(list(received), plan), plan)
        stretches = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(stretches, mine, group=self.group)
        return torch.cat(stretches)[:n]

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """See `Exchange`."""
        most = max(sizes)
        message = torch.zeros(len(x), most, dtype=x.dtype)
        message[:, : x.shape[1]] = x
        received = [torch.empty_like(message) for _ in range(self.world)]
        dist.all_gather(received, message, group=self.group)
        return torch.cat([r[:, :n] for r, n in zip(received, sizes, strict=True)], 1)


def _ordered(received: list[Tensor], plan: TreePlan) -> list[Tensor]:
    """Parts from left to right, float32, out of every rank's message."""
    values, place = [], [0] * plan.world
    for rank, _ in plan.parts:
        values.append(received[rank][place[rank]].float())
        place[rank] += 1
    return values


def _check_world(plan: TreePlan, world: int) -> None:
    if plan.world != world:
        raise ValueError(f"the plan is for {plan.world} ranks, the group has {world}")


class SharedMemoryExchange:
    """Through memory that the ranks of one host share; a rank that waits sleeps.

    Args:
        group: a process group whose ranks are all on this host; used to agree on the memory.
        capacity: elements of a rank's slot; longer messages go in pieces.
        timeout: seconds after which a rank that does not come is an error.

    Raises:
        ValueError: ranks on several hosts.
        RuntimeError: there is no compiled library.
    """

    def __init__(self, group: Any = None, capacity: int = 1 << 20, timeout: float = 30.0) -> None:
        found = library.load()
        if found is None:
            raise RuntimeError("shared memory needs the compiled library: use GroupExchange")
        self._library, self.group = found, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.capacity, self.timeout = capacity, timeout
        hosts: list[Any] = [None] * self.world
        dist.all_gather_object(hosts, socket.gethostname(), group=group)
        if len(set(hosts)) > 1:
            raise ValueError(f"ranks are on {len(set(hosts))} hosts: use GroupExchange")
        self._memory = self._share(group)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._step = ctypes.c_uint32(0)
        self._isa = library.NAMES.index(library.instruction_sets()[-1])
        self._routes: dict[TreePlan, tuple[Any, Any]] = {}

    def _share(self, group: Any) -> mmap.mmap:
        size = self._library.arm_exchange_bytes(self.world, self.capacity)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        name: list[Any] = [None]
        if self.rank == 0:
            handle, name[0] = tempfile.mkstemp(prefix="armillary-", dir=folder)
            os.ftruncate(handle, size)
            os.close(handle)
        source = dist.get_global_rank(group, 0) if group is not None else 0
        dist.broadcast_object_list(name, src=source, group=group)
        with open(name[0], "r+b") as file:
            memory = mmap.mmap(file.fileno(), size)
        dist.barrier(group)
        if self.rank == 0:
            os.unlink(name[0])  # the memory lives as long as it is mapped
        return memory

    def _late(self) -> RuntimeError:
        return RuntimeError(f"rank {self.rank} waited {self.timeout:.0f} s for another rank")

    def reduce(self, parts: Parts, plan: TreePlan) -> Tensor:
        """See `Exchange`."""
        _check_parts(parts, plan, self.rank)
        _check_world(plan, self.world)
        shape = parts[0][1].shape
        mine = np.stack([value.reshape(-1).numpy() for _, value in parts])
        n = mine.shape[1]
        piece = self.capacity // plan.most_parts
        out = np.empty(n, np.float32)
        for start in range(0, n, piece):
            stop = min(n, start + piece)
            self._reduce(mine[:, start:stop], plan, out[start:stop])
        return torch.from_numpy(out).reshape(shape)

    def _reduce(self, mine: Any, plan: TreePlan, out: Any) -> None:
        if plan not in self._routes:
            owner = np.array([r for r, _ in plan.parts], np.int32)
            place = np.array([plan.nodes(r).index(node) for r, node in plan.parts], np.int32)
            self._routes[plan] = owner, place
        owner, place = self._routes[plan]
        mine = np.ascontiguousarray(mine)
        program = plan.combination()
        met = self._library.arm_exchange_tree(
            self._isa, self._address, self.rank, self.world, self.capacity,
            ctypes.byref(self._step), mine.ctypes.data, len(mine), mine.shape[1],
            owner.ctypes.data, place.ctypes.data, len(owner), program.merges,
            program.rounded if program.rounds else None, self.timeout, out.ctypes.data,
        )  # fmt: skip
        if not met:
            raise self._late()

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """See `Exchange`."""
        wide = x.float().contiguous().numpy()
        rows = max(1, self.capacity // max(sizes))
        if max(sizes) > self.capacity:
            raise ValueError(f"a row of {max(sizes)} columns is above capacity={self.capacity}")
        blocks = [self._gather(wide[i : i + rows], sizes) for i in range(0, len(wide), rows)]
        return torch.from_numpy(np.concatenate(blocks)).to(x.dtype)

    def _gather(self, mine: Any, sizes: Sequence[int]) -> Any:
        slots = (ctypes.c_void_p * self.world)()
        met = self._library.arm_exchange_gather(
            self._address, self.rank, self.world, self.capacity, ctypes.byref(self._step),
            mine.ctypes.data, mine.size, self.timeout, slots,
        )  # fmt: skip
        if not met:
            raise self._late()
        rows = len(mine)
        found = []
        for address, n in zip(slots, sizes, strict=True):
            view = (ctypes.c_float * (rows * n)).from_address(address or 0)
            found.append(np.ctypeslib.as_array(view).reshape(rows, n))
        return np.concatenate(found, 1)


def exchange_of(group: Any) -> Exchange:
    """The exchange that a ``group`` argument means: None one rank, a process group its own."""
    if group is None:
        return Alone()
    if hasattr(group, "reduce") and hasattr(group, "gather") and hasattr(group, "world"):
        return group
    return GroupExchange(group)


def tree_all_reduce(parts: Parts, plan: TreePlan, group: Any = None) -> Tensor:
    """The sum over all ranks, the same bits on every rank and for every number of ranks.

    Args:
        parts: this rank's (node, value), from `tree_parts`; values (rows, N) float32.
        plan: of the whole layer.
        group: a process group, an `Exchange`, or None: the default group if there is one.

    Returns:
        (rows, N) float32.

    Raises:
        ValueError: parts or a group that are not the plan's.
    """
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    return exchange_of(group).reduce(parts, plan)


def settings(plans: Sequence[TreePlan]) -> str:
    """What ranks must agree on, as one hash: trees, leaves, arithmetic, the kernels' version."""
    tiny = np.array([1e-30], np.float32) * np.array([1e-10], np.float32)
    about = {
        "plans": [plan.digest() for plan in plans],
        "kernels": library.VERSION,
        "subnormal numbers kept": bool(np.any(tiny != 0)),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def agree(plans: Sequence[TreePlan], group: Any) -> None:
    """Compare settings among the ranks of a process group.

    Raises:
        PlanMismatchError: on every rank, if any two differ.
    """
    mine = settings(plans)
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, mine, group=group)
    if len(set(every)) > 1:
        others = [r for r, found in enumerate(every) if found != every[0]]
        raise PlanMismatchError(
            f"ranks {others} differ from rank 0 in leaf, tree, shards or arithmetic: start every "
            "rank with the same model, leaf, tp_max, wire_dtype and flush-to-zero setting"
        )
