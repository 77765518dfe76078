"""What the experiments train: data, networks of each contender, and the settings of each.

All contenders run on the same code: the same fused neurons, loops and optimisers. Settings (the
optimiser, its rate, the surrogate's α) of ours and of every normalised network were chosen from one
grid on seed 1000 of Fashion-MNIST, on validation rows that no experiment reports: `tuning` ran it,
`TUNED` keeps the answer. Initialisations and ablations without a setting of their own run at ours.
Small batches reuse the settings of batches of 64.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from armillary.corpora import images
from armillary.neuro.spikeinit.apply import init_
from armillary.neuro.spikeinit.models import (
    SpikingNetwork,
    deep_ms_resnet,
    deep_sew_resnet,
    plain_mlp,
)
from armillary.neuro.spikeinit.neurons import LIF
from armillary.neuro.spikeinit.peers import (
    INITIALISATIONS,
    NORMALISATIONS,
    MPBNNeuron,
    kaiming,
)
from armillary.neuro.spikeinit.theory import Neuron
from armillary.neuro.spikeinit.training import Recipe

NEURON = Neuron(0.5, 0.5, 0.5)
#: α of the theory for this neuron at a rate of 0.1, as `solve` gives it.
THEORY = 2.3058
OURS = ("ours", "theory-alpha", "unit-alpha", "adaptive", "no-sew-rule")

Family = Literal["plain", "residual", "sew", "sequence"]
CONTENDERS = (*OURS, *INITIALISATIONS, "kaiming-zero", *NORMALISATIONS, "tdbn-zero")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What tuning chose for a contender: optimiser, learning rate, α of the surrogate."""

    optimiser: Literal["sgd", "adam"]
    lr: float
    alpha: float
    block_scale: float = 1.0


#: The grid, the same for all: optimiser and learning rate, times α.
_OPTIMISERS: tuple[tuple[Literal["sgd", "adam"], float], ...] = (
    ("adam", 1e-3),
    ("adam", 3e-3),
    ("sgd", 0.1),
)
GRID = tuple(
    Setting(optimiser, lr, alpha) for optimiser, lr in _OPTIMISERS for alpha in (1.0, THEORY)
)


class Split(NamedTuple):
    """Standardised images (n, 1, side, side) and labels of one draw."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def fashion(seed: int, side: int, rows: int = 10_000, tests: int = 2_000) -> Split:
    """Fashion-MNIST averaged to side×side pixels: ``rows`` of the training part, and test rows.

    Seeds from 1000 on are for development: their test rows come from the training part.
    """
    train = images.fashion_mnist("train")
    order = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(seed))
    if seed >= 1000:
        held = train.pixels, train.labels, order[rows : rows + tests]
    else:
        test = images.fashion_mnist("test")
        chosen = torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(seed))
        held = test.pixels, test.labels, chosen[:tests]
    x, y = _take(train.pixels, train.labels, order[:rows], side)
    x_test, y_test = _take(*held, side)
    mean, std = x.mean(), x.std()
    return Split((x - mean) / std, y, (x_test - mean) / std, y_test)


def _take(pixels: Any, labels: Any, rows: Tensor, side: int) -> tuple[Tensor, Tensor]:
    x = torch.from_numpy(pixels[rows.numpy()]).unsqueeze(1)
    return nn.functional.adaptive_avg_pool2d(x, side), torch.from_numpy(labels[rows.numpy()])


#: Draws the rows of digits that are held out, the same for all seeds.
_HOLD_OUT = 2026


def digit_rows(seed: int) -> tuple[Tensor, Tensor]:
    """Rows of digits to train on (1100, drawn by the seed) and to test on.

    397 rows, the same for all seeds, are held out. Reported seeds test on those; seeds from 1000
    on, which are for development, never see them and test on the 300 rows that are left.
    """
    fixed = torch.randperm(1797, generator=torch.Generator().manual_seed(_HOLD_OUT))
    held, open_ = fixed[:397], fixed[397:]
    order = open_[torch.randperm(len(open_), generator=torch.Generator().manual_seed(seed))]
    return order[:1_100], order[1_100:] if seed >= 1000 else held


def digits(seed: int) -> Split:
    """scikit-learn's digits, standardised by the rows to train on; see `digit_rows`."""
    data = images.digits()
    rows, tests = digit_rows(seed)
    x, y = _take(data.pixels, data.labels, rows, 8)
    x_test, y_test = _take(data.pixels, data.labels, tests, 8)
    mean, std = x.mean(), x.std()
    return Split((x - mean) / std, y, (x_test - mean) / std, y_test)


def build(
    who: str,
    family: Family,
    depth: int,
    width: int,
    sample: Tensor,
    seed: int,
    alpha: float = 1.0,
    T: int = 2,
) -> SpikingNetwork:
    """The network of a contender, initialised.

    Args:
        who: one of `OURS`, of the initialisations or of the normalisations; ``tdbn-zero`` is tdBN
            with the weight of each branch's last normalisation at zero, as is common practice,
            ``kaiming-zero`` He's initialisation with each branch's last convolution and the
            classifier at zero, as ours have them.
        family: ``plain`` (fully connected), ``residual`` (membrane shortcuts), ``sew`` (shortcuts
            of spikes) or ``sequence`` (fully connected, images read a row a step).
        depth, width: of the network.
        sample: standardised images; the shape of the input, and for ours the first layer's RMS.
        seed: of the weights.
        alpha: of the surrogate; ``theory-alpha`` and ``unit-alpha`` have their own.
        T: time steps; of sequences the height of the images.

    Raises:
        ValueError: no such contender or family.
    """
    if who not in CONTENDERS:
        raise ValueError(f"who={who!r}: expected one of {', '.join(CONTENDERS)}")
    if family not in get_args(Family):
        raise ValueError(f"family={family!r}: expected one of {', '.join(get_args(Family))}")
    if who.endswith("-zero") and family not in ("residual", "sew"):
        raise ValueError(f"who={who!r}: only residual networks have branches")
    torch.set_flush_denormal(True)  # dying gradients must not slow their contender down
    alpha = {"theory-alpha": THEORY, "unit-alpha": 1.0}.get(who, alpha)
    neuron: Any = lambda channels: LIF(0.5, 0.5, 0.5, alpha)  # noqa: E731
    if who == "mpbn":
        neuron = lambda channels: MPBNNeuron(channels, LIF(0.5, 0.5, 0.5, alpha))  # noqa: E731
    elif who == "adaptive":
        neuron = "adaptive"
    norm = NORMALISATIONS.get(who.removesuffix("-zero"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if family == "plain":
            inputs = sample[0].numel()
            model = plain_mlp(depth, width, inputs=inputs, T=T, norm=norm, neuron=neuron)
        elif family == "sequence":
            rows, columns = sample.shape[-2:]
            model = plain_mlp(
                depth, width, inputs=columns, T=rows, norm=norm, neuron=neuron, scan=True
            )
        else:
            made = deep_ms_resnet if family == "residual" else deep_sew_resnet
            model = made(depth, width, T=T, norm=norm, neuron=neuron, strides=(2, 2, 1), grid=2)
    generator = torch.Generator().manual_seed(seed)
    if norm is not None:
        kaiming(model, NEURON, generator)
        if who.endswith("-zero"):
            for block in model.body.blocks:  # pyright: ignore
                nn.init.zeros_(block.conv2[1].weight)
    elif who == "kaiming-zero":
        kaiming(model, NEURON, generator)
        for block in model.body.blocks:  # pyright: ignore
            nn.init.zeros_(block.conv2.weight)
        nn.init.zeros_(model.readout.weight)  # pyright: ignore
    elif who in INITIALISATIONS:
        INITIALISATIONS[who](model, NEURON, generator)
    else:
        init_(
            model,
            sample=sample[:64],
            residual=None if who == "no-sew-rule" else "auto",
            surrogate=who == "adaptive",
            generator=generator,
        )
    return model


def recipe(setting: Setting, steps: int, batch: int) -> Recipe:
    return Recipe(setting.optimiser, setting.lr, steps, batch, block_scale=setting.block_scale)


#: (family, contender) -> what the grid gave on seed 1000. Filled by `tuning`.
TUNED: dict[tuple[Family, str], Setting] = {
    ("plain", "ours"): Setting("adam", 1e-3, 1.0),
    ("plain", "tdbn"): Setting("adam", 3e-3, 1.0),
    ("plain", "tebn"): Setting("adam", 3e-3, 1.0),
    ("plain", "bntt"): Setting("adam", 3e-3, 1.0),
    ("plain", "mpbn"): Setting("adam", 3e-3, 1.0),
    ("residual", "ours"): Setting("sgd", 0.1, THEORY),
    ("residual", "tdbn"): Setting("adam", 3e-3, 1.0),
    ("residual", "tebn"): Setting("adam", 3e-3, 1.0),
    ("residual", "bntt"): Setting("adam", 3e-3, 1.0),
    ("residual", "mpbn"): Setting("adam", 3e-3, 1.0),
    ("residual", "tdbn-zero"): Setting("sgd", 0.1, THEORY),
    ("sew", "ours"): Setting("sgd", 0.1, THEORY),
    ("sew", "tdbn"): Setting("sgd", 0.1, THEORY),
    ("sew", "tebn"): Setting("adam", 3e-3, 1.0),
    ("sew", "bntt"): Setting("sgd", 0.1, THEORY),
    ("sew", "mpbn"): Setting("adam", 3e-3, 1.0),
    ("sew", "tdbn-zero"): Setting("sgd", 0.1, THEORY),
    ("sequence", "ours"): Setting("adam", 3e-3, 1.0),
    ("sequence", "tdbn"): Setting("sgd", 0.1, THEORY),
    ("sequence", "tebn"): Setting("sgd", 0.1, THEORY),
    ("sequence", "bntt"): Setting("sgd", 0.1, THEORY),
    ("sequence", "mpbn"): Setting("sgd", 0.1, THEORY),
    # On seed 1000 of digits, whose 1400 rows are none of those that are held out.
    ("residual", "thousand"): Setting("sgd", 0.1, THEORY, block_scale=0.1),
}


def setting_of(family: Family, who: str) -> Setting:
    """The tuned setting; ablations of ours and the adaptive neuron run with ours."""
    own = TUNED.get((family, who))
    return own if own is not None else TUNED.get((family, "ours"), Setting("adam", 1e-3, 1.0))
