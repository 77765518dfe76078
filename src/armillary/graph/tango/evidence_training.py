"""How contenders are trained in the evidence: the same frame, loop and schedule for all.

Every contender has the parameters of ours within 5 %, the same encoder and decoder, Adam with the
same cosine and clip, and settings (learning rate, step, depth) from one grid, chosen on seeds from
1000 on; `tuned` holds what was chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.graph.tango.tuned import Setting

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.graph.tango.graphs import Graph
    from armillary.graph.tango.peers import Network, SparseFeatures, Wiring


@dataclasses.dataclass(frozen=True)
class Part:
    """A batch with what is asked of it.

    Attributes:
        x: (N, d) features.
        wiring: its edges.
        y: targets, one row a node or a graph.
        rows: which rows count; None: all.
    """

    x: Tensor | SparseFeatures
    wiring: Wiring
    y: Tensor
    rows: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Problem:
    """Training, validation and test parts.

    Attributes:
        classes: whether targets are classes (cross-entropy) or values (squared error).
    """

    train: Sequence[Part]
    val: Sequence[Part]
    test: Sequence[Part]
    inputs: int
    outputs: int
    task: str
    classes: bool


@dataclasses.dataclass(frozen=True)
class Course:
    """What all contenders of an experiment have in common.

    Attributes:
        by: what is lowest on the validation part at the epoch that is kept, and at the setting that
            `tuning` chooses: ``loss``, or ``error``, the share of rows whose class is not named.
    """

    epochs: int
    depth: int
    width: int
    dropout: float = 0.0
    weight_decay: float = 0.0
    patience: int = 0
    every: int = 1
    enough: float = -1.0
    memory: float = 0.999
    by: str = "loss"


def parts(graphs: Sequence[Graph], size: int) -> list[Part]:
    """Batches of graphs; who is in a batch stays the same, so that its wiring is made once."""
    from armillary.graph.tango.graphs import joined
    from armillary.graph.tango.peers import Wiring

    found = []
    for start in range(0, len(graphs), size):
        graph = joined(graphs[start : start + size])
        assert graph.y is not None
        found.append(Part(graph.x, Wiring(graph), graph.y))
    return found


def fitted(
    name: str, problem: Problem, course: Course, setting: Setting, seed: int, **flow: Any
) -> Network:
    """Train a contender on a problem.

    Args:
        name: of the core; ``ours`` takes ``flow``, the settings of `TangoConv`.
        problem: the work.
        course: what all have in common.
        setting: what was tuned for this contender.
        seed: of weights, dropout and the order of batches.
    """
    import torch

    from armillary.graph.tango.peers import Network as Frame
    from armillary.graph.tango.peers import count, make_core, make_network
    from armillary.graph.tango.training import Schedule, train

    torch.manual_seed(seed)
    depth = setting.depth or course.depth
    with torch.device("meta"):
        core = make_core("ours", course.width, course.depth)
        ours = Frame(core, problem.inputs, course.width, problem.outputs, problem.task)
    model = make_network(
        name, problem.inputs, problem.outputs, depth, parameters=count(ours), task=problem.task,
        dropout=course.dropout, step=setting.step_at(depth), share=setting.share,
        kind=setting.convolution, **flow,
    )  # fmt: skip

    def losses():
        for i in torch.randperm(len(problem.train)).tolist():
            yield _loss(model, problem.train[i], problem.classes)

    decay = course.weight_decay if setting.weight_decay is None else setting.weight_decay
    train(
        model,
        losses,
        Schedule(
            course.epochs, setting.lr, decay, patience=course.patience,
            every=course.every, enough=course.enough, memory=course.memory,
        ),
        lambda: validation(model, problem, course),
    )  # fmt: skip
    return model


def validation(model: Network, problem: Problem, course: Course) -> float:
    """What chooses epochs and settings, lower is better."""
    if course.by == "error":
        return 1 - accuracy(model, problem.val)
    return loss_of(model, problem.val, problem.classes)


def _loss(model: Network, part: Part, classes: bool) -> Tensor:
    from torch.nn import functional

    out, y = _answers(model, part)
    return functional.cross_entropy(out, y) if classes else functional.mse_loss(out, y)


def _answers(model: Network, part: Part) -> tuple[Tensor, Tensor]:
    out = model(part.x, part.wiring)
    return (out, part.y) if part.rows is None else (out[part.rows], part.y[part.rows])


def loss_of(model: Network, found: Sequence[Part], classes: bool) -> float:
    """Mean loss over all rows of some parts."""
    import torch

    total, rows = 0.0, 0
    for part in found:
        n = len(part.y) if part.rows is None else len(part.rows)
        with torch.no_grad():
            total, rows = total + n * float(_loss(model, part, classes)), rows + n
    return total / rows


def accuracy(model: Network, found: Sequence[Part]) -> float:
    """Share of rows whose class is named."""
    import torch

    right, rows = 0, 0
    with torch.no_grad():
        for part in found:
            out, y = _answers(model, part)
            right, rows = right + int((out.argmax(1) == y).sum()), rows + len(y)
    return right / rows


def mean_squared_error(model: Network, found: Sequence[Part]) -> float:
    """Over all rows."""
    return loss_of(model, found, classes=False)
