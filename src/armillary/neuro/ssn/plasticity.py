"""Local learning: each synapse changes by its own pre- and postsynaptic rates, and by nothing else.

Legend: B patches, D input dimensions, A post- and P presynaptic units. Rates enter relative to
the postsynaptic (or presynaptic) unit's own mean over the batch, r^ = r / mean(r).

    dF_E   = r^_E^T x / B                       Hebb, onto excitatory units from the input
    dF_I   = [r^_I - 1]_+^T x / B               only what is above the unit's own mean
    dW_AP  = (r^_A - 1)^T (r^_P - 1) / B        covariance, for each of EE, EI, IE, II

What a unit receives through one type of synapse is held constant by scaling those synapses
together (`unit_rows`, `compete`), so that they compete with each other and with no other unit's.
Thresholds follow a unit's mean rate against the population's (`homeostasis`): this rule alone reads
more than one unit.

The rules are ours: the paper's are not public. They follow the synapse-type-specific competitive
Hebbian learning of Eckmann, Young, Gjorgjieva (PNAS 2024) and the homeostasis of SAILnet
(Zylberberg, Murphy, DeWeese, PLoS Computational Biology 2011). No gradient is computed anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

#: A unit whose mean rate (Hz) is lower is taken to have this one.
RATE_FLOOR = 1e-3


def relative_rates(rates: Float[Tensor, "B A"]) -> Float[Tensor, "B A"]:
    """Each unit's rates over its own mean in the batch."""
    return rates / rates.mean(0).clamp(min=RATE_FLOOR)


def hebb(post: Float[Tensor, "B A"], pre: Float[Tensor, "B D"]) -> Float[Tensor, "A D"]:
    """The change of each synapse: the mean over the batch of its post- times its presynaptic rate.

    Element (a, d) reads column a of ``post`` and column d of ``pre``.
    """
    return post.T @ pre / len(post)


def covariance(post: Float[Tensor, "B A"], pre: Float[Tensor, "B P"]) -> Float[Tensor, "A P"]:
    """The covariance of relative rates (whose means are 1)."""
    return hebb(post - 1, pre - 1)


def unit_rows(weights: Float[Tensor, "A D"]) -> Float[Tensor, "A D"]:
    """Each unit's afferent synapses scaled to length 1 (zero rows stay zero)."""
    return weights / weights.norm(dim=1, keepdim=True).clamp(min=1e-12)


def compete(
    weights: Float[Tensor, "A P"], total: float, *, own: bool = False
) -> Float[Tensor, "A P"]:
    """Each unit's synapses of one type: cut at zero and scaled to add up to ``total``.

    Args:
        weights: (A, P), of any sign.
        total: what every row adds up to.
        own: post- and presynaptic units are the same ones, and none drives itself.
    """
    kept = weights.clamp(min=0)
    if own:
        kept = kept.clone()
        kept.fill_diagonal_(0)
    sums = kept.sum(1, keepdim=True)
    even = torch.ones_like(kept)  # a unit that has lost all of its synapses starts anew
    if own:
        even.fill_diagonal_(0)
    even = even / even.sum(1, keepdim=True).clamp(min=1)
    return total * torch.where(sums > 1e-12, kept / sums.clamp(min=1e-12), even)


def homeostasis(
    threshold: Float[Tensor, " A"],
    mean_rate: Float[Tensor, " A"],
    *,
    step: float = 0.004,
    low: float = -0.1,
    high: float = 0.5,
) -> Float[Tensor, " A"]:
    """Thresholds up where a unit's running mean rate exceeds the population's, else down."""
    relative = mean_rate / mean_rate.mean().clamp(min=RATE_FLOOR) - 1
    return (threshold + step * relative.clamp(-1, 1)).clamp(low, high)
