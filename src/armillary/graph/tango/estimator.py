"""`SklearnTango`: training and prediction on graphs, in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from armillary.graph.tango.flow import FlowTrace
from armillary.graph.tango.graphs import Graph, batches, joined
from armillary.graph.tango.models import Tango
from armillary.graph.tango.training import Schedule, train


class SklearnTango(BaseEstimator):
    """Classes or values of nodes (one graph) or of graphs (a sequence of them).

    Integer, boolean and text targets are classes, floating-point ones values; a column of Python
    objects is taken for what all of its labelled entries are. Features are scaled to mean 0 and
    deviation 1 by the training graphs, values of targets too.

    Args:
        hidden_channels: c.
        num_layers: steps of the flow; for nodes at least the distance that a signal travels.
        pool: ``mean``, ``sum`` or ``max``, for graphs.
        epochs: passes over the training data.
        lr: learning rate at the start; it falls to 0 along a cosine.
        weight_decay: of Adam.
        dropout: on inputs, messages and outputs of the flow.
        batch_size: graphs at a time.
        validation_fraction: share of labelled rows that chooses the epoch; 0: the last epoch.
        backbone, stable, step, alpha, beta, rho, share_weights: settings of `TangoConv`.
        random_state: seed of weights, order and split; None: a new one at each fit; a NumPy
            ``RandomState`` or ``Generator``: one drawn from it.

    Attributes:
        model_: the trained `Tango`.
        task_: ``node`` or ``graph``.
        classes_: classes in order; only where targets are classes.
        n_features_in_: channels of x.
        n_epochs_: epochs that ran.
    """

    def __init__(
        self, hidden_channels: int = 32, num_layers: int = 8, *, pool: str = "mean",
        epochs: int = 100, lr: float = 5e-3, weight_decay: float = 0.0, dropout: float = 0.0,
        batch_size: int = 64, validation_fraction: float = 0.1, backbone: Any = "gcn",
        stable: str = "correct", step: float = 0.5, alpha: float = 0.05, beta: float = 1.0,
        rho: float = 1e-3, share_weights: bool = True,
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
    ) -> None:  # fmt: skip
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.pool = pool
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.stable = stable
        self.step = step
        self.alpha = alpha
        self.beta = beta
        self.rho = rho
        self.share_weights = share_weights
        self.random_state = random_state

    def fit(
        self,
        graphs: Any,
        y: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        epochs: Callable[[range], Iterator[int]] = iter,
    ) -> SklearnTango:
        """Learn from one graph (a value for each node) or many (a value for each graph).

        Args:
            graphs: a graph with ``x`` and ``edge_index`` (PyG's ``Data``, `Graph`), or a sequence.
            y: one target a node or a graph; None: the graphs' own ``y``.
            mask: for one graph: which nodes are labelled; None: all.
            epochs: wraps the range of epochs, for a progress bar.

        Raises:
            ValueError: shapes do not match, a target is missing, or a setting is out of range.
        """
        many = _is_sequence(graphs)
        self._check()
        found = [Graph.of(g) for g in (graphs if many else [graphs])]
        if not found:
            raise ValueError("no graphs were given: give at least one")
        _check_widths(found)
        targets = self._targets(found, y, many)
        rows = np.arange(len(targets))
        if mask is not None:
            rows = rows[_checked_mask(mask, len(targets), many)]
        if not len(rows):
            raise ValueError("no row is labelled: mask leaves nothing to learn from")
        if targets.dtype == object:
            targets = _typed(targets, rows)
        self._seed = _drawn_seed(self.random_state)
        answers = self._learn_scale(found, targets, rows)
        self.task_ = "graph" if many else "node"
        outputs = len(self.classes_) if self._has_classes else answers.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self.model_ = Tango(
                self.n_features_in_, self.hidden_channels, self.num_layers, outputs,
                "graph" if many else "node", self.pool, dropout=self.dropout,
                backbone=self.backbone, stable=self.stable, step=self.step, alpha=self.alpha,
                beta=self.beta, rho=self.rho, share_weights=self.share_weights,
            )  # fmt: skip
            fit = self._fit_graphs if many else self._fit_nodes
            self.n_epochs_ = fit([self._scaled(g) for g in found], answers, rows, epochs)
        return self

    def predict(self, graphs: Any) -> NDArray[Any]:
        """Classes or values, one a node of one graph or one a graph of many."""
        out = self._outputs(graphs)
        if self._has_classes:
            return self.classes_[out.argmax(1).numpy()]
        values = out.double().numpy() * self._y_scale + self._y_mean
        return values[:, 0] if self._flat else values

    def predict_proba(self, graphs: Any) -> NDArray[np.float64]:
        """(rows, classes) probabilities, in the order of ``classes_``."""
        check_is_fitted(self, "model_")
        if not self._has_classes:
            raise AttributeError("predict_proba needs classes; this estimator learnt values")
        return self._outputs(graphs).double().softmax(1).numpy()

    def score(self, graphs: Any, y: ArrayLike) -> float:
        """Accuracy of classes, R² of values."""
        from sklearn.metrics import accuracy_score, r2_score

        found = self.predict(graphs)
        return float((accuracy_score if self._has_classes else r2_score)(np.asarray(y), found))

    def trace(self, graphs: Any) -> FlowTrace:
        """What the energy does along the flow of one graph or of many."""
        check_is_fitted(self, "model_")
        found = [Graph.of(g) for g in (graphs if _is_sequence(graphs) else [graphs])]
        scaled = [self._scaled(g) for g in found]
        one = scaled[0] if len(scaled) == 1 else joined(scaled)
        return self.model_.trace(
            one.x, one.edge_index, one.edge_attr, one.batch,
            edge_weight=one.edge_weight, num_graphs=one.num_graphs,
        )  # fmt: skip

    # ---- inside --------------------------------------------------------------------------------

    def _check(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)!r}: it must be at least {least}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction={self.validation_fraction!r}: it must be at least 0 and "
                "below 1"
            )
        if not self.lr > 0:
            raise ValueError(f"lr={self.lr!r}: it must be positive")

    def _targets(self, graphs: list[Graph], y: ArrayLike | None, many: bool) -> NDArray[Any]:
        """(rows,) or (rows, o) targets."""
        if y is None:
            if any(g.y is None for g in graphs):
                raise ValueError("y is missing: pass it, or give graphs that hold one")
            own = [g.y.numpy() for g in graphs]  # pyright: ignore[reportOptionalMemberAccess]
            y = np.concatenate([v.reshape(1, -1) for v in own]) if many else own[0]
        targets = np.asarray(y)
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        rows = len(graphs) if many else graphs[0].num_nodes
        if targets.ndim not in (1, 2) or len(targets) != rows:
            raise ValueError(
                f"y has the shape {targets.shape}; there are {rows} "
                f"{'graphs' if many else 'nodes'}: give one target each"
            )
        return targets

    def _learn_scale(
        self, graphs: list[Graph], targets: NDArray[Any], rows: NDArray[np.intp]
    ) -> Tensor:
        """Note classes and scales; gives (rows,) class numbers or (rows, o) scaled values."""
        x = torch.cat([g.x for g in graphs]).double()
        if not bool(torch.isfinite(x).all()):
            node = int((~torch.isfinite(x)).any(1).nonzero()[0])
            raise ValueError(
                f"x is not finite at node {node} (the first of them): mend or impute it"
            )
        self.n_features_in_ = x.shape[1]
        self._x_mean, self._x_scale = x.mean(0), x.std(0, correction=0)
        self._x_scale[self._x_scale == 0] = 1
        self._has_classes = targets.dtype.kind not in "fc"
        self._flat = targets.ndim == 1
        if self._has_classes:
            if not self._flat:
                raise ValueError("y holds classes in several columns: give one column")
            self.classes_ = np.unique(targets[rows])
            places = np.zeros(len(targets), dtype=np.int64)
            places[rows] = np.searchsorted(self.classes_, targets[rows])
            return torch.from_numpy(places)
        values = targets.reshape(len(targets), -1).astype(float)
        if not np.isfinite(values[rows]).all():
            raise ValueError("y is not finite in a labelled row: mask those rows, or mend them")
        self._y_mean, scale = values[rows].mean(0), values[rows].std(0)
        self._y_scale = np.where(scale > 0, scale, 1)
        return torch.from_numpy((values - self._y_mean) / self._y_scale).float()

    def _scaled(self, graph: Graph) -> Graph:
        if graph.x.ndim != 2 or graph.x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"x has {graph.x.shape[-1]} channels, the estimator was fitted with "
                f"{self.n_features_in_}: give the same features"
            )
        x = ((graph.x.double() - self._x_mean) / self._x_scale).float()
        return Graph(x, graph.edge_index, None, graph.edge_attr, graph.edge_weight, graph.batch,
                     graph.num_graphs)  # fmt: skip

    def _split(self, rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        """Labelled rows for training and for choosing the epoch."""
        order = torch.from_numpy(np.random.default_rng(self._seed).permutation(rows))
        held = round(self.validation_fraction * len(order))
        if len(order) - held < 1:
            held = 0
        return order[held:], order[:held]

    def _loss(self, out: Tensor, answers: Tensor) -> Tensor:
        from torch.nn import functional

        if self._has_classes:
            return functional.cross_entropy(out, answers)
        return functional.mse_loss(out, answers)

    def _schedule(self) -> Schedule:
        return Schedule(self.epochs, self.lr, self.weight_decay)

    def _fit_nodes(
        self, graphs: list[Graph], answers: Tensor, rows: NDArray[np.intp],
        epochs: Callable[[range], Iterator[int]],
    ) -> int:  # fmt: skip
        from armillary.graph.tango.operators import Propagation

        graph = graphs[0]
        operator = Propagation(graph.edge_index, graph.num_nodes, graph.edge_weight)
        train_rows, held = self._split(rows)

        def loss(which: Tensor) -> Tensor:
            out = self.model_(graph.x, operator, graph.edge_attr, graph.batch)
            return self._loss(out[which], answers[which])

        score = (lambda: float(loss(held))) if len(held) else None
        return train(
            self.model_, lambda: iter([loss(train_rows)]), self._schedule(), score,
            epochs(range(self.epochs)),
        )  # fmt: skip

    def _fit_graphs(
        self, graphs: list[Graph], answers: Tensor, rows: NDArray[np.intp],
        epochs: Callable[[range], Iterator[int]],
    ) -> int:  # fmt: skip
        train_rows, held = self._split(rows)
        chosen = [graphs[i] for i in train_rows]
        generator = torch.Generator().manual_seed(self._seed)

        def losses() -> Iterator[Tensor]:
            for batch, part in batches(chosen, self.batch_size, generator):
                yield self._loss(_run(self.model_, batch), answers[train_rows[part]])

        kept = joined([graphs[i] for i in held]) if len(held) else None

        def score() -> float:
            assert kept is not None
            return float(self._loss(_run(self.model_, kept), answers[held]))

        return train(
            self.model_, losses, self._schedule(), None if kept is None else score,
            epochs(range(self.epochs)),
        )  # fmt: skip

    def _outputs(self, graphs: Any) -> Tensor:
        check_is_fitted(self, "model_")
        many = _is_sequence(graphs)
        if many != (self.task_ == "graph"):
            wanted = "a sequence of graphs" if self.task_ == "graph" else "one graph"
            raise ValueError(f"this estimator was fitted to {self.task_}s: give {wanted}")
        found = [self._scaled(Graph.of(g)) for g in (graphs if many else [graphs])]
        self.model_.eval()
        with torch.no_grad():
            if not many:
                return _finite(_run(self.model_, found[0]), "node")
            parts = [_run(self.model_, b) for b, _ in batches(found, self.batch_size)]
        if not parts:
            return torch.empty(0, self.model_.decoder.out_features)
        return _finite(torch.cat(parts), "graph")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.non_deterministic = False
        tags.target_tags.required = True
        return tags


def _run(model: Tango, graph: Graph) -> Tensor:
    return model(
        graph.x, graph.edge_index, graph.edge_attr, graph.batch,
        edge_weight=graph.edge_weight, num_graphs=graph.num_graphs,
    )  # fmt: skip


def _finite(out: Tensor, what: str) -> Tensor:
    """Outputs, if they are numbers: the largest of NaNs would pass for a class."""
    bad = (~torch.isfinite(out)).any(1).nonzero()
    if len(bad):
        raise ValueError(
            f"the output of {what} {int(bad[0])} is not finite: features lie far outside of those "
            "that were learnt from, or the weights ran away in training; look at the features, or "
            "train with a lower lr"
        )
    return out


def _is_sequence(graphs: Any) -> bool:
    return isinstance(graphs, Sequence) or (
        isinstance(graphs, np.ndarray) and graphs.dtype == object
    )


def _drawn_seed(random_state: Any) -> int:
    """A seed, by scikit-learn's meaning of ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if isinstance(random_state, (int, np.integer)) and 0 <= random_state < 2**32:
        return int(random_state)
    raise ValueError(
        f"random_state={random_state!r}: it must be None, an integer from 0 to 2**32 - 1, or a "
        "NumPy RandomState or Generator"
    )


def _check_widths(graphs: list[Graph]) -> None:
    """All graphs need the same channels."""
    for i, graph in enumerate(graphs):
        if graph.x.ndim != 2:
            raise ValueError(
                f"x of graph {i} has the shape {tuple(graph.x.shape)}; it must be (nodes, channels)"
            )
        if graph.x.shape[1] != graphs[0].x.shape[1]:
            raise ValueError(
                f"x of graph {i} has {graph.x.shape[1]} channels, that of graph 0 has "
                f"{graphs[0].x.shape[1]}: all graphs need the same features"
            )


def _typed(targets: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Targets held as Python objects, as text, booleans, integers or floating-point numbers.

    Rows that are not labelled may hold anything, None as well; they get a place holder.
    """
    if targets.ndim != 1:
        raise ValueError(f"y holds Python objects in {targets.shape[1]} columns: give numbers")
    kinds = (
        ("text", str, str, ""),
        ("booleans", (bool, np.bool_), bool, False),
        ("integers", (int, np.integer), int, 0),
        ("numbers", (int, float, np.integer, np.floating), float, 0.0),
    )
    for _, accepted, dtype, filler in kinds:
        if all(isinstance(targets[i], accepted) for i in rows):
            held = set(rows.tolist())
            return np.array([targets[i] if i in held else filler for i in range(len(targets))],
                            dtype=dtype)  # fmt: skip
    first = {type(targets[i]).__name__: int(i) for i in reversed(rows)}
    told = ", ".join(f"{name} (row {i})" for name, i in sorted(first.items(), key=lambda p: p[1]))
    raise ValueError(
        f"y mixes or holds what is no target: {told}; give all text, all booleans or all numbers, "
        "and mask what is unknown"
    )


def _checked_mask(mask: ArrayLike, rows: int, many: bool) -> NDArray[np.bool_]:
    found = np.asarray(mask)
    if many:
        raise ValueError("mask belongs to one graph; leave unlabelled graphs out of the sequence")
    if found.dtype != bool or found.shape != (rows,):
        raise ValueError(
            f"mask has the shape {found.shape} of {found.dtype}; it must be ({rows},) booleans, "
            "one a node"
        )
    return found
