"""The tree in which the leaves of a matrix product are added, and who adds which part of it.

A sum over K features is cut into leaves of B features. Inside a leaf one accumulator runs over
ascending k; leaves are added in a tree whose shape depends on K and B alone:

    [lo, hi) with n = hi - lo leaves:  n = 1 a leaf;  n even: two halves;
                                       n odd: the largest power of two below n, and the rest.

A rank that holds the leaves [a, b) can finish every subtree that lies inside; these *parts* are
what travels, and whoever has all parts can finish the tree. The value is that of the undivided sum,
bit for bit, since every addition has the same two operands in the same order.

Source: the tree-based invariant kernels of arXiv 2511.17826, whose shape is a run of q tiles under
a binary tree and needs a power-of-two number of ranks; this shape agrees with theirs for q = 1 and
q = 3, and takes any number of ranks.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Sequence

Node = tuple[int, int]
WIRES = ("float32", "bfloat16")


class PlanMismatchError(RuntimeError):
    """Ranks that were to work on one model disagree about how sums are ordered or cut."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A subtree in the order of a stack machine, as the kernels read it.

    Attributes:
        merges: (parts,) how many additions follow each part, operands taken from the stack.
        rounded: one flag a value in the order in which values appear (part, its merges, the next
            part, …): whether it is rounded to the wire's type.
    """

    merges: bytes
    rounded: bytes

    @property
    def rounds(self) -> bool:
        """Whether any value is rounded."""
        return any(self.rounded)


def split(lo: int, hi: int) -> int:
    """Where the subtree over leaves [lo, hi) is cut in two.

    Raises:
        ValueError: there are fewer than two leaves.
    """
    n = hi - lo
    if n < 2:
        raise ValueError(f"[{lo}, {hi}) holds {n} leaves: there is nothing to cut")
    return lo + (n // 2 if n % 2 == 0 else 1 << (n.bit_length() - 1))


def leaves_of(k: int, leaf: int) -> int:
    """The number of leaves of a sum over k features."""
    return -(-k // leaf)


def even_shards(k: int, leaf: int, world: int, *, unit: int = 1, name: str = "") -> list[Node]:
    """Ranges of features for each rank, as even as leaves allow.

    Args:
        k: features in all.
        leaf: features of a leaf.
        world: ranks.
        unit: every boundary is a multiple of it as well (a head of attention).
        name: the layer, for the message.

    Raises:
        ValueError: there are fewer pieces that can be told apart than ranks.
    """
    piece = math.lcm(leaf, unit)
    pieces = -(-k // piece)
    if world < 1 or world > pieces:
        what = f"{pieces} leaves of {leaf}" if piece == leaf else f"{pieces} pieces of {piece}"
        raise ValueError(
            f"layer {name or '(unnamed)'} has {what} features and world size {world}: give at most "
            f"{pieces} ranks, or a smaller leaf"
        )
    cuts = [min(k, piece * (r * pieces // world)) for r in range(world)] + [k]
    return list(itertools.pairwise(cuts))


@dataclasses.dataclass(frozen=True)
class TreePlan:
    """How the sum over k features is cut into leaves, ranks and rounding.

    Attributes:
        k: features of the whole layer, never of a rank's shard.
        leaf: features of a leaf (B).
        shards: the range [first, last) of features of each rank, on leaf boundaries.
        tp_max: with a ``bfloat16`` wire: the largest world size for which bits are the same. Every
            largest subtree of at most leaves / tp_max leaves is rounded, and all nodes above it,
            whether or not ranks meet there.
        wire: ``float32`` (nothing is rounded) or ``bfloat16``.
        name: the layer, for messages; it is no part of the identity of a plan.

    Raises:
        ValueError: shards that overlap, leave gaps or do not lie on leaf boundaries; more ranks
            than leaves; a world above ``tp_max`` with a rounded wire.
    """

    k: int
    leaf: int
    shards: tuple[Node, ...]
    tp_max: int = 8
    wire: str = "float32"
    name: str = dataclasses.field(default="", compare=False)

    def __init__(
        self,
        k: int,
        leaf: int,
        shards: Sequence[Node] | None = None,
        *,
        tp_max: int = 8,
        wire: str = "float32",
        name: str = "",
    ) -> None:
        put = functools.partial(object.__setattr__, self)
        put("k", int(k))
        put("leaf", int(leaf))
        put("shards", tuple((int(a), int(b)) for a, b in (shards or [(0, k)])))
        put("tp_max", int(tp_max))
        put("wire", wire)
        put("name", name)
        self._check()

    def _check(self) -> None:
        layer = f"layer {self.name}: " if self.name else ""
        if self.k < 1 or self.leaf < 1:
            raise ValueError(f"{layer}k={self.k}, leaf={self.leaf}: both must be at least 1")
        if self.wire not in WIRES:
            raise ValueError(f"{layer}wire={self.wire!r}: it must be one of {', '.join(WIRES)}")
        if self.world > self.leaves:
            raise ValueError(
                f"{layer}{self.leaves} leaves of {self.leaf} features and world size {self.world}: "
                f"give at most {self.leaves} ranks, or a smaller leaf"
            )
        for rank, (first, last) in enumerate(self.shards):
            for edge in (first, last):
                if edge % self.leaf and edge != self.k:
                    near = min(self.k, self.leaf * round(edge / self.leaf))
                    raise ValueError(
                        f"{layer}the shard [{first}, {last}) of rank {rank} is not on leaf "
                        f"boundaries (multiples of {self.leaf}): the nearest legal split is {near}"
                    )
        edges = [0, *(last for _, last in self.shards)]
        if [first for first, _ in self.shards] != edges[:-1] or edges[-1] != self.k:
            raise ValueError(
                f"{layer}shards {list(self.shards)} must follow one another from 0 to k={self.k}"
            )
        if any(first >= last for first, last in self.shards):
            raise ValueError(f"{layer}a shard of {list(self.shards)} is empty")
        if self.wire != "float32" and self.world > self.tp_max:
            raise ValueError(f"{layer}world size {self.world} is above tp_max={self.tp_max}")

    @property
    def leaves(self) -> int:
        """L, the number of leaves."""
        return leaves_of(self.k, self.leaf)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return len(self.shards)

    def leaf_range(self, rank: int) -> Node:
        """The leaves [a, b) of a rank."""
        first, last = self.shards[rank]
        return first // self.leaf, leaves_of(last, self.leaf)

    def nodes(self, rank: int) -> tuple[Node, ...]:
        """The largest subtrees that a rank can finish alone, from left to right."""
        return _nodes(self, rank)

    @property
    def parts(self) -> tuple[tuple[int, Node], ...]:
        """(rank, node) of every part that travels, from left to right."""
        return tuple((r, node) for r in range(self.world) for node in self.nodes(r))

    @property
    def most_parts(self) -> int:
        """The number of parts of the rank that has most: every rank's message is so long."""
        return max(len(self.nodes(r)) for r in range(self.world))

    def rounded(self, node: Node) -> bool:
        """Whether the value of a node is rounded to the wire's type."""
        return node in _rounded(self)

    @property
    def narrow(self) -> bool:
        """Whether every part is already rounded, so that it can travel in 16 bits."""
        return self.wire == "bfloat16" and all(self.rounded(node) for _, node in self.parts)

    def subtree(self, node: Node) -> Program:
        """The program that evaluates a node from its leaves."""
        return _program(self, node, tuple((i, i + 1) for i in range(*node)))

    def combination(self) -> Program:
        """The program that finishes the tree from all parts, from left to right."""
        return _program(self, (0, self.leaves), tuple(node for _, node in self.parts))

    def to_json(self) -> str:
        """The plan as JSON; the same text for the same plan."""
        fields = {
            "k": self.k, "leaf": self.leaf, "shards": [list(s) for s in self.shards],
            "tp_max": self.tp_max, "wire": self.wire,
            "parts": [[list(n) for n in self.nodes(r)] for r in range(self.world)],
        }  # fmt: skip
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TreePlan:
        """The plan that `to_json` wrote."""
        fields = json.loads(text)
        return cls(
            fields["k"], fields["leaf"], [tuple(s) for s in fields["shards"]],
            tp_max=fields["tp_max"], wire=fields["wire"],
        )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of the plan: ranks compare it before they add anything."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@functools.lru_cache(maxsize=4096)
def _nodes(plan: TreePlan, rank: int) -> tuple[Node, ...]:
    a, b = plan.leaf_range(rank)

    def inside(lo: int, hi: int) -> list[Node]:
        if a <= lo and hi <= b:
            return [(lo, hi)]
        if hi <= a or b <= lo:
            return []
        middle = split(lo, hi)
        return inside(lo, middle) + inside(middle, hi)

    return tuple(inside(0, plan.leaves))


@functools.lru_cache(maxsize=1024)
def _rounded(plan: TreePlan) -> frozenset[Node]:
    if plan.wire == "float32":
        return frozenset()
    found: set[Node] = set()

    def descend(lo: int, hi: int) -> None:
        found.add((lo, hi))
        if (hi - lo) * plan.tp_max > plan.leaves and hi - lo > 1:
            middle = split(lo, hi)
            descend(lo, middle)
            descend(middle, hi)

    descend(0, plan.leaves)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def _program(plan: TreePlan, root: Node, parts: tuple[Node, ...]) -> Program:
    wanted = set(parts)
    merges = dict.fromkeys(parts, 0)
    flags: list[bool] = []

    def walk(lo: int, hi: int) -> Node:
        """Emit a subtree; returns its last part."""
        if (lo, hi) in wanted:
            flags.append(plan.rounded((lo, hi)))
            return (lo, hi)
        middle = split(lo, hi)
        walk(lo, middle)
        last = walk(middle, hi)
        merges[last] += 1
        flags.append(plan.rounded((lo, hi)))
        return last

    walk(*root)
    return Program(bytes(merges[p] for p in parts), bytes(flags))
