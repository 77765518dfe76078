"""Who holds which heads, features and columns when ranks share a model."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch

from armillary.serving.tbik.plan import Node, TreePlan, even_shards


@dataclasses.dataclass(frozen=True)
class Layout:
    """The cuts of one model for one world size.

    Attributes:
        rank, world: this rank and how many there are.
        heads: query heads [first, last) of every rank; contiguous, as even as leaves allow.
        head_dim: width of a head.
        group: query heads that share one key head.
        attention: plan of the sums of ``o_proj``.
        mlp: plan of the sums of ``down_proj``.
        vocabulary: rows [first, last) of the output layer of every rank.
    """

    rank: int
    world: int
    heads: tuple[Node, ...]
    head_dim: int
    group: int
    attention: TreePlan
    mlp: TreePlan
    vocabulary: tuple[Node, ...]

    @property
    def key_heads(self) -> list[int]:
        """The key heads that this rank computes: those that its query heads need."""
        first, last = self.heads[self.rank]
        return list(range(first // self.group, (last - 1) // self.group + 1))

    @property
    def served(self) -> list[int]:
        """For each query head of this rank the position of its key head among `key_heads`."""
        first, last = self.heads[self.rank]
        return [h // self.group - first // self.group for h in range(first, last)]

    def query_rows(self) -> torch.Tensor:
        """Rows of ``q_proj`` (columns of ``o_proj``) of this rank."""
        first, last = self.heads[self.rank]
        return torch.arange(first * self.head_dim, last * self.head_dim)

    def key_rows(self) -> torch.Tensor:
        """Rows of ``k_proj`` and ``v_proj`` of this rank."""
        return rows_of(self.key_heads, self.head_dim)


def rows_of(heads: list[int], width: int) -> torch.Tensor:
    """The rows that some heads take, in the order given."""
    return torch.cat([torch.arange(h * width, (h + 1) * width) for h in heads])


def layout(config: Any, rank: int, world: int, leaf: int, tp_max: int, wire: str) -> Layout:
    """How a model of that configuration is cut.

    Args:
        config: a configuration of transformers (Llama and its kin).
        rank, world: this rank and how many there are.
        leaf: features of a leaf.
        tp_max, wire: of the plans.

    Raises:
        ValueError: more ranks than pieces; it names the layer.
    """
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    cut = {"tp_max": tp_max, "wire": wire}
    attention = even_shards(heads * width, leaf, world, unit=width, name="self_attn.o_proj")
    mlp = even_shards(config.intermediate_size, leaf, world, name="mlp.down_proj")
    edges = [config.vocab_size * r // world for r in range(world + 1)]
    return Layout(
        rank=rank,
        world=world,
        heads=tuple((a // width, b // width) for a, b in attention),
        head_dim=width,
        group=heads // config.num_key_value_heads,
        attention=TreePlan(heads * width, leaf, attention, name="self_attn.o_proj", **cut),
        mlp=TreePlan(config.intermediate_size, leaf, mlp, name="mlp.down_proj", **cut),
        vocabulary=tuple(itertools.pairwise(edges)),
    )
