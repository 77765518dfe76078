"""The encoder as a scikit-learn transformer: patches in, rates of excitatory units out."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted, validate_data

from armillary.neuro.ssn.dynamics import SSNDynamics, UnstableNetwork
from armillary.neuro.ssn.encoding import (
    ContrastOutsideTraining,
    Encoding,
    UnconvergedRates,
    first_runaway,
    refuse_non_finite,
)
from armillary.neuro.ssn.network import BATCH, Learner, Network, Rules
from armillary.neuro.ssn.settings import check_settings, own_generator
from armillary.neuro.ssn.whitening import Directions, Whitening
from armillary.output import progress

if TYPE_CHECKING:
    from jaxtyping import Float

Totals = tuple[float, float, float, float]

#: Patches on which the decoder of `inverse_transform` is fitted, at most.
DECODER_PATCHES = 2000
#: Its ridge, as a share of the mean squared feature.
DECODER_RIDGE = 0.01
#: Patches whose stability is checked after learning.
LAST_CHECK = 64
#: Patches that settle together: enough to fill the machine, few enough to stay in its caches.
BLOCK = 512


class SSNEncoder(TransformerMixin, BaseEstimator):
    """A stabilised supralinear network that learns image patches by local plasticity.

    Faint patches are coded by many units, strong ones by few. Do not use it where all inputs have
    full contrast and a linear decoder reads the code: without lateral connections
    (``ablate()``) the same units keep more of the patch.

    Patches have their mean taken off and are whitened. A patch whose whitened norm is the median of
    the training patches' has the contrast in the middle of ``contrast_range``; all others are in
    proportion. Learning draws patches at random, each at a contrast drawn from the range.

    Args:
        n_exc: excitatory units, the length of a code.
        n_inh: inhibitory units.
        n: exponent of the transfer function (2: supralinear; 1: a rectified linear network).
        k: its gain in Hz mV^-n.
        tau: time constants of excitatory and inhibitory units, ms.
        J: totals that each unit receives: onto E from E, onto E from I, onto I from E, onto I from
            I. J_EE is lowered while learning if a fixed point comes near instability.
        gain: mV of drive for a patch of contrast 1 that a unit's field matches perfectly.
        n_iter: batches of 48 patches that `fit` learns from; 0 leaves all weights random.
        contrast_range: lowest and highest contrast while learning.
        lateral: False cuts the lateral connections, while learning too.
        device: where the dynamics run, as torch names it.
        random_state: seed of weights and batches; a generator is read, not advanced.
        rules: learning rates; None: the defaults of `Rules`.
        verbose: show a progress bar while learning.

    Attributes:
        network_: weights and thresholds.
        whitening_: the map from pixels.
        reference_norm_: whitened norm of a patch of contrast 1.
        n_batches_: learned from.
        shrinks_: at which batches J_EE was lowered.
        unconverged_: patches whose rates had not settled while learning.
        n_features_in_: pixels a patch.

    Integer images (``uint8``, ``uint16``) are scaled to [0, 1] first. Codes are computed in the
    precision of the patches: ``float32`` is about twice as fast. Learning is in ``float32`` always.
    """

    network_: Network
    whitening_: Whitening
    n_features_in_: int

    def __init__(
        self,
        n_exc: int = 192,
        n_inh: int = 48,
        n: float = 2.0,
        k: float = 0.04,
        tau: tuple[float, float] = (20.0, 5.0),
        J: Totals = (1.5, 1.5, 2.0, 0.3),
        gain: float = 60.0,
        n_iter: int = 1200,
        contrast_range: tuple[float, float] = (1.0, 3.0),
        lateral: bool = True,
        device: str = "cpu",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        rules: Rules | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_exc = n_exc
        self.n_inh = n_inh
        self.n = n
        self.k = k
        self.tau = tau
        self.J = J
        self.gain = gain
        self.n_iter = n_iter
        self.contrast_range = contrast_range
        self.lateral = lateral
        self.device = device
        self.random_state = random_state
        self.rules = rules
        self.verbose = verbose

    # ---- learning ------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: object = None) -> SSNEncoder:
        """Learn fields, lateral weights and thresholds from patches.

        Args:
            X: (n, pixels) patches; pixels in any unit.
            y: ignored.

        Raises:
            ValueError: a setting is out of its range; X holds NaN, infinite numbers or constant
                patches only, or has a single pixel.
            UnstableNetwork: J_EE is too strong for J_EI, and lowering it did not help.
        """
        check_settings(self)
        # A copy learns: what is refused half-way leaves this object as it was.
        new = copy.copy(self)
        patches = new._patches(X, reset=True)
        new._start(patches)
        x = new._learnable(patches)
        new._learn(
            x[new._rng.integers(len(x), size=BATCH)]
            for _ in progress(range(self.n_iter), "learning", quiet=not self.verbose)
        )
        new._finish(patches)
        return self._become(new)

    def partial_fit(self, X: ArrayLike, y: object = None) -> SSNEncoder:
        """Learn from these patches once each, in random order; the first call sets the whitening.

        The decoder of `inverse_transform` is fitted anew to the patches of this call alone: codes
        of earlier ones are those of a network that has changed since. Let the last call have some
        hundreds of patches, or expect poor reconstructions.

        Args:
            X: (n, pixels) patches.
            y: ignored.

        Raises:
            ValueError, UnstableNetwork: as `fit`; this object is then as it was.
        """
        first = not hasattr(self, "network_")
        if first:
            check_settings(self)
        new = copy.copy(self)
        patches = new._patches(X, reset=first)
        if first:
            new._start(patches)
        else:
            new._rng = copy.deepcopy(self._rng)
        x = new._learnable(patches)
        order = new._rng.permutation(len(x))
        new._learn(x[order[start : start + BATCH]] for start in range(0, len(x), BATCH))
        new._finish(patches)
        return self._become(new)

    def _become(self, new: SSNEncoder) -> SSNEncoder:
        vars(self).clear()
        vars(self).update(vars(new))
        return self

    def _patches(self, X: ArrayLike, *, reset: bool) -> NDArray:
        """(n, pixels) float patches."""
        given = getattr(X, "dtype", None)
        refuse_non_finite(X)
        checked = np.asarray(
            validate_data(
                self,
                X,  # pyright: ignore[reportArgumentType]
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_min_features=2 if reset else 1,
            )
        )
        if isinstance(given, np.dtype) and given in (np.uint8, np.uint16):
            checked = checked / float(np.iinfo(given).max)
        return checked

    def _start(self, patches: NDArray) -> None:
        self._rng = own_generator(self.random_state)
        self.whitening_ = Whitening.fit(patches)
        norms = self.whitening_.directions(patches).norm
        middle = float(np.mean(self.contrast_range))
        self.reference_norm_ = float(np.median(norms[norms > 0])) / middle
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        j_ee, j_ei, j_ie, j_ii = (float(total) for total in self.J)
        self.network_ = Network.random(
            len(self.whitening_.scale),
            self.n_exc,
            self.n_inh,
            (j_ee, j_ei, j_ie, j_ii),
            float(self.gain),
            generator,
        )
        self.n_batches_, self.unconverged_ = 0, 0
        self.shrinks_: list[int] = []
        self._mean_rate: NDArray | None = None

    def _learnable(self, patches: NDArray) -> NDArray:
        """(n, D) directions of the patches that are not blank."""
        found = self.whitening_.directions(patches)
        if found.blank.all():
            raise ValueError("X holds constant patches only: there is nothing to learn from")
        return found.x[~found.blank].astype(np.float32)

    def _learn(self, batches: Iterable[NDArray]) -> None:
        learner = self._learner()
        for x in batches:
            contrast = self._rng.uniform(*self.contrast_range, size=len(x)).astype(np.float32)
            learner.learn(
                torch.from_numpy(x).to(self.device), torch.from_numpy(contrast).to(self.device)
            )
        self.network_ = learner.network.to(torch.float32)
        self.n_batches_, self.unconverged_ = learner.batches, learner.unconverged
        self.shrinks_ = learner.shrunk
        if learner.mean_rate is not None:
            self._mean_rate = learner.mean_rate.cpu().numpy()

    def _learner(self) -> Learner:
        mean = self._mean_rate
        low, high = self.contrast_range
        return Learner(
            self.network_.to(torch.float32, self.device),
            self.n,
            self.k,
            (self.tau[0], self.tau[1]),
            self.lateral,
            self.rules or Rules(),
            (float(low), float(high)),
            self.n_batches_,
            None if mean is None else torch.as_tensor(mean, device=self.device),
            list(self.shrinks_),
            self.unconverged_,
        )

    def _finish(self, patches: NDArray) -> None:
        """Make sure of stability, and fit the decoders with and without lateral connections.

        Connections that did not take part in learning may not be stable when they are put back:
        there is no decoder for them then.
        """
        self._stabilise(patches)
        step = max(1, len(patches) // DECODER_PATCHES)
        some = patches[::step][:DECODER_PATCHES].astype(np.float64)
        found = self.whitening_.directions(some)
        contrast = found.norm / self.reference_norm_
        self.decoders_: dict[bool, NDArray] = {}
        for lateral in (True, False):
            try:
                features = np.sqrt(self._encode(found, contrast, lateral).rates)
            except UnstableNetwork:
                if lateral == self.lateral:
                    raise
                continue
            penalty = DECODER_RIDGE * float((features**2).mean()) * len(features) or 1.0
            ridge = Ridge(alpha=penalty, fit_intercept=False)
            ridge.fit(features, some - some.mean(axis=1, keepdims=True))
            self.decoders_[lateral] = np.atleast_2d(ridge.coef_).T

    def _stabilise(self, patches: NDArray) -> None:
        if self.lateral:
            x = self._learnable(patches)
            learner = self._learner()
            for count, check in (
                (DECODER_PATCHES, learner.keep_finite),
                (LAST_CHECK, learner.keep_stable),
            ):
                some = x[:: max(1, len(x) // count)][:count]
                check(torch.from_numpy(np.ascontiguousarray(some)).to(self.device))
            self.network_, self.shrinks_ = learner.network.to(torch.float32), learner.shrunk

    # ---- coding --------------------------------------------------------------------------------

    def encode(self, X: ArrayLike, contrast: ArrayLike | None = None) -> Encoding:
        """Codes of patches, each with its flags.

        Args:
            X: (n, pixels) patches.
            contrast: a number, or (n,) one a patch: every patch enters at this contrast, whatever
                its own. None: at its own.

        Raises:
            NotFittedError: before `fit`.
            ValueError: X or the contrasts are not finite, or the contrasts are negative.
            UnstableNetwork: rates ran away; the message names the first such patch.
        """
        check_is_fitted(self, "network_")
        found = self.whitening_.directions(self._patches(X, reset=False))
        return self._encode(found, self._contrasts(found, contrast), self.lateral)

    def transform(self, X: ArrayLike, contrast: ArrayLike | None = None) -> NDArray:
        """(n, E) rates of the excitatory units in Hz; arguments and errors as for `encode`.

        Warns:
            ContrastOutsideTraining: ``contrast`` leaves ``contrast_range``.
            UnconvergedRates: with the number of patches; `encode` says which.
        """
        return self.encode(X, contrast).rates

    def _contrasts(self, found: Directions, contrast: ArrayLike | None) -> NDArray:
        if contrast is None:
            return found.norm / self.reference_norm_
        if np.iscomplexobj(contrast):
            raise ValueError("contrast holds complex numbers: expected real ones >= 0")
        given = np.asarray(contrast, dtype=np.float64)
        if given.ndim > 1 or (given.ndim == 1 and len(given) != len(found.x)):
            raise ValueError(
                f"contrast has the shape {given.shape}: expected one number, or one for each of "
                f"the {len(found.x)} patches"
            )
        bad = ~(np.isfinite(given) & (given >= 0))
        if bad.any():
            where = int(np.argmax(np.atleast_1d(bad)))
            value = float(np.atleast_1d(given)[where])
            raise ValueError(f"contrast[{where}] is {value}: expected a finite number >= 0")
        low, high = self.contrast_range
        outside = int(((given < low) | (given > high)).sum())
        if outside:
            warnings.warn(
                f"{outside} of {given.size} contrasts are outside {low:g} to {high:g}, which the "
                "network learned at",
                ContrastOutsideTraining,
                stacklevel=4,
            )
        return np.broadcast_to(given, len(found.x)).astype(found.x.dtype)

    def _encode(self, found: Directions, contrast: NDArray, lateral: bool) -> Encoding:
        dtype = torch.float32 if found.x.dtype == np.float32 else torch.float64
        network = self.network_.to(dtype, self.device)
        dynamics = self._dynamics(network, lateral)
        parts = []
        for start in range(0, len(found.x), BLOCK):
            x, c = (
                torch.as_tensor(np.ascontiguousarray(a[start : start + BLOCK]))
                for a in (found.x, contrast)
            )
            with torch.inference_mode():
                drive = network.drive(x.to(self.device), c.to(self.device, dtype))
                drive[torch.as_tensor(found.blank[start : start + BLOCK])] = 0
                try:
                    parts.append(dynamics.fixed_point(drive))
                except UnstableNetwork as error:
                    at = first_runaway(dynamics, drive)
                    raise UnstableNetwork(
                        f"X[{start + at}] enters at contrast {float(c[at]):.4g} (learned: "
                        f"{self.contrast_range[0]:g} to {self.contrast_range[1]:g}) and is too "
                        "bright: lower contrast=, scale the patch down or leave it out, or learn "
                        f"with other totals J ({error})"
                    ) from error
        rates, converged, residual, oscillating, _ = (
            torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True)
        )
        if not converged.all():
            warnings.warn(
                f"{int((~converged).sum())} of {len(converged)} patches: rates had not settled "
                f"after 400 ms ({int(oscillating.sum())} oscillate); encode() says which",
                UnconvergedRates,
                stacklevel=4,
            )
        return Encoding(
            np.ascontiguousarray(rates[:, : self.n_exc]),
            np.where(found.blank, 0, contrast).astype(found.x.dtype),
            converged,
            residual,
            oscillating,
            found.blank,
        )

    def inverse_transform(self, X: ArrayLike) -> NDArray:
        """(n, pixels) mean-free patches that codes stand for, by a ridge on the roots of the rates.

        The ridge was fitted to the training patches at their own contrasts, without an intercept.

        Args:
            X: (n, E) rates.
        """
        check_is_fitted(self, "network_")
        if np.iscomplexobj(X):
            raise ValueError("X holds complex numbers: rates are real and >= 0")
        rates = np.asarray(X, dtype=np.float64)
        if rates.ndim != 2 or rates.shape[1] != self.n_exc:
            raise ValueError(f"X has the shape {rates.shape}, expected (n, {self.n_exc}) rates")
        if not np.isfinite(rates).all() or (rates < 0).any():
            raise ValueError("X holds negative or non-finite numbers: rates are >= 0")
        if bool(self.lateral) not in self.decoders_:
            raise UnstableNetwork(
                "lateral=True: this encoder learned without lateral connections, and with them "
                "put back rates of its training patches run away: there is no decoder for "
                "such codes; learn with lateral=True"
            )
        return np.sqrt(rates) @ self.decoders_[bool(self.lateral)]

    # ---- looking inside ------------------------------------------------------------------------

    @property
    def components_(self) -> Float[NDArray, "E pixels"]:
        """The patch that each excitatory unit's afferents draw, in pixels."""
        check_is_fitted(self, "network_")
        return self.whitening_.patches(self.network_.f_exc.double().numpy())

    @property
    def filters_(self) -> Float[NDArray, "E pixels"]:
        """What each excitatory unit multiplies the pixels with."""
        check_is_fitted(self, "network_")
        return self.network_.f_exc.double().numpy() @ self.whitening_.filters

    @property
    def totals_(self) -> Totals:
        """J_EE, J_EI, J_IE, J_II after learning."""
        check_is_fitted(self, "network_")
        return self.network_.totals

    def dynamics(self, lateral: bool | None = None) -> SSNDynamics:
        """The network's dynamics in double precision, to be looked at or built on."""
        check_is_fitted(self, "network_")
        network = self.network_.to(torch.float64, self.device)
        return self._dynamics(network, self.lateral if lateral is None else lateral)

    def _dynamics(self, network: Network, lateral: bool) -> SSNDynamics:
        return network.dynamics(self.n, self.k, (self.tau[0], self.tau[1]), lateral=lateral)

    def drive(
        self, X: ArrayLike, contrast: ArrayLike | None = None
    ) -> Float[torch.Tensor, "n units"]:
        """The feed-forward drive of patches in mV, for `dynamics`; blank patches have none."""
        check_is_fitted(self, "network_")
        found = self.whitening_.directions(self._patches(X, reset=False).astype(np.float64))
        contrasts = torch.as_tensor(self._contrasts(found, contrast)).double()
        network = self.network_.to(torch.float64, self.device)
        x = torch.as_tensor(found.x).to(self.device)
        drive = network.drive(x, contrasts.to(self.device))
        drive[torch.as_tensor(found.blank)] = 0
        return drive

    def ablate(self, lateral: bool = False) -> SSNEncoder:
        """The same weights and thresholds with the lateral connections cut (or put back)."""
        check_is_fitted(self, "network_")
        view = copy.copy(self)
        view.lateral = lateral
        # Weights are never changed in place; what would be is the view's own.
        view._rng, view.shrinks_ = copy.deepcopy(self._rng), list(self.shrinks_)
        view.decoders_ = dict(self.decoders_)
        return view

    # ---- files and conventions -----------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the encoder as one ``.npz`` file of arrays and JSON; nothing is pickled.

        Raises:
            NotFittedError: before `fit`.
        """
        from armillary.neuro.ssn import storage

        check_is_fitted(self, "network_")
        return storage.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> SSNEncoder:
        """Read an encoder that `save` wrote."""
        from armillary.neuro.ssn import storage

        return storage.load(path)

    @property
    def _n_features_out(self) -> int:
        return self.n_exc

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Names of the units: ssn0, ssn1, …"""
        check_is_fitted(self, "network_")
        return np.array([f"ssn{i}" for i in range(self.n_exc)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
