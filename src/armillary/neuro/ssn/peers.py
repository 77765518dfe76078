"""The rivals: other unsupervised codes of the same whitened patches.

Every rival is a `Code`: learned from full-contrast whitened patches (unit norm), it gives features
of any whitened patches. ``normalised`` scales each patch to unit norm first, which is the simplest
answer to low contrast. Settings stand in `SETTINGS`; `tuning` chose them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


#: Whitened patches (n, D) to features (n, F).
Code = Callable[[Floats], Floats]


#: Steps of LCA from one look at which items have come to rest to the next.
LOOK = 5
#: What `tuning` chose, see there for the grids. A normalised twin has a setting of its own.
SETTINGS: dict[str, float] = {
    "sparse-coding": 0.005,  # penalty
    "sparse-coding-normalised": 0.005,
    "lca": 0.005,  # threshold
    "lca-normalised": 0.005,
    "ica": 1.0,  # share of the components kept
    "ica-normalised": 1.0,
    "pca": 1.0,  # share of the components kept
    "pca-normalised": 1.0,
    "nmf": 1.0,  # penalty on the code
    "nmf-normalised": 1.0,
    "divisive": 1.0,  # semi-saturation, in drives of a patch of full contrast
    "divisive-normalised": 1.0,
    "autoencoder": 0.0,  # standard deviation of the noise it learns to take off
    "autoencoder-normalised": 0.0,
}


def normalised(code: Code) -> Code:
    """The code of patches that are scaled to unit norm first."""

    def coded(w: Floats) -> Floats:
        return code(w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-12))

    return coded


# ---- sparse coding -----------------------------------------------------------------------------


def dictionary(w: Floats, atoms: int, penalty: float, seed: int) -> Floats:
    """(atoms, D) of scikit-learn's mini-batch dictionary learning, atoms of unit norm."""
    from sklearn.decomposition import MiniBatchDictionaryLearning

    learner = MiniBatchDictionaryLearning(
        n_components=atoms,
        alpha=penalty,  # pyright: ignore[reportArgumentType] - a number, whatever its stub says
        fit_algorithm="cd",
        batch_size=256,
        max_iter=10,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(w).components_


def lasso_code(w: Floats, atoms: Floats, penalty: float) -> Floats:
    """Lasso codes by scikit-learn's coordinate descent."""
    from sklearn.decomposition import sparse_encode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sparse_encode(w, atoms, algorithm="lasso_cd", alpha=penalty, max_iter=1000)


def lca_code(
    w: Floats, atoms: Floats, threshold: float, *, tolerance: float = 1e-3, steps: int = 2000
) -> Floats:
    """Locally competitive algorithm (Rozell, Johnson, Baraniuk, Olshausen 2008), batched.

    tau du/dt = D w - u - (D D^T - 1) a with a the soft threshold of u, in steps of tau / L where L
    is the largest eigenvalue of D D^T. At rest a solves the lasso of penalty ``threshold``.

    Args:
        w: (n, D) patches.
        atoms: (atoms, D) of unit norm.
        threshold: of the activation.
        tolerance: ||tau du/dt|| / ||D w|| at which an item has come to rest and is done.
        steps: at most so many.
    """
    import torch

    d, x = torch.as_tensor(atoms), torch.as_tensor(w)
    gram, drive = d @ d.T, x @ d.T
    step = 1 / float(torch.linalg.matrix_norm(gram, 2))
    inhibition = gram - torch.eye(len(gram), dtype=gram.dtype)
    goal = tolerance * drive.norm(dim=1)
    codes, left = torch.zeros_like(drive), torch.arange(len(drive))
    u, a = torch.zeros_like(drive), torch.zeros_like(drive)
    for i in range(steps):
        force = torch.addmm(drive - u, a, inhibition, alpha=-1)
        u += step * force
        a = torch.nn.functional.softshrink(u, threshold)
        if i % LOOK:
            continue
        moving = force.norm(dim=1) > goal
        if not bool(moving.all()):  # items at rest are done, as ours are
            codes[left] = a
            left, drive, goal, u, a = (x[moving] for x in (left, drive, goal, u, a))
            if not len(left):
                break
    codes[left] = a
    return codes.numpy()


def sparse_coding(w: Floats, features: int, seed: int, setting: float) -> Code:
    atoms = dictionary(w, features, setting, seed)
    return lambda new: lasso_code(new, atoms, setting)


def lca(w: Floats, features: int, seed: int, setting: float) -> Code:
    atoms = dictionary(w, features, setting, seed)
    return lambda new: lca_code(new, atoms, setting)


# ---- linear codes ------------------------------------------------------------------------------


def _kept(w: Floats, features: int, share: float) -> int:
    return max(1, round(share * min(features, w.shape[1])))


def ica(w: Floats, features: int, seed: int, setting: float) -> Code:
    """scikit-learn's FastICA; complete at most, so a code is as long as the whitened patch."""
    from sklearn.decomposition import FastICA

    model = FastICA(
        _kept(w, features, setting), whiten="unit-variance", max_iter=400, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(w)
    return lambda new: new @ model.components_.T  # no mean is taken off: linear in contrast


def pca(w: Floats, features: int, seed: int, setting: float) -> Code:
    """Principal components of whitened patches: the first ones as they come from the pixels."""
    kept = _kept(w, features, setting)
    return lambda new: new[:, :kept]


def nmf(w: Floats, features: int, seed: int, setting: float) -> Code:
    """scikit-learn's NMF of the patches' positive and negative halves."""
    from sklearn.decomposition import MiniBatchNMF

    def halves(v: Floats) -> Floats:
        return np.concatenate([np.maximum(v, 0), np.maximum(-v, 0)], axis=1)

    model = MiniBatchNMF(
        min(features, 2 * w.shape[1]), init="nndsvda", alpha_W=setting, max_iter=60,
        batch_size=256, random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(halves(w))

    def coded(new: Floats) -> Floats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(model.transform(halves(new)))

    return coded


# ---- a trained network -------------------------------------------------------------------------


def autoencoder(
    w: Floats, features: int, seed: int, noise: float, *, basis: Floats, steps: int = 500
) -> Code:
    """A convolutional denoising auto-encoder (torch), learned by back-propagation.

    Two layers of 3x3 convolutions, then a rectified layer of ``features`` units; it learns to give
    the clean whitened patch from a noisy one.

    Args:
        w: (n, D) whitened patches of unit norm.
        features: length of the code.
        seed: of weights, batches and noise.
        noise: standard deviation of the noise on pixels, as a share of a typical pixel's.
        basis: (D, pixels) draws a whitened vector as a square patch.
        steps: batches of 128.
    """
    import torch
    from torch import nn

    side = int(np.sqrt(basis.shape[1]))

    def picture(v: Floats) -> torch.Tensor:
        return torch.as_tensor(v @ basis, dtype=torch.float32).reshape(-1, 1, side, side)

    x = picture(w)
    target = torch.as_tensor(w / w.std(), dtype=torch.float32)
    unit = float(x.std())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * side * side, features), nn.ReLU(),
        )  # fmt: skip
        decoder = nn.Linear(features, w.shape[1])
        optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
        for _ in range(steps):
            batch = torch.randint(len(x), (128,))
            noisy = x[batch] / unit + noise * torch.randn(len(batch), 1, side, side)
            loss = ((decoder(encoder(noisy)) - target[batch]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def coded(new: Floats) -> Floats:
        with torch.inference_mode():
            return encoder(picture(new) / unit).double().numpy()

    return coded


Learn = Callable[[Floats, int, int, float], Code]

LEARNED: dict[str, Learn] = {
    "sparse-coding": sparse_coding,
    "lca": lca,
    "ica": ica,
    "pca": pca,
    "nmf": nmf,
}


def divisive(drives: Floats, n: float, semi_saturation: float) -> Floats:
    """Divisive normalisation (Naka and Rushton's form; Heeger 1992) of feed-forward drives.

    r = d^n / (s^n + mean_j d_j^n): the same fields and thresholds, and one pool for all units.

    Args:
        drives: (n, E) rectified drives.
        n: exponent.
        semi_saturation: s, in the drives' unit.
    """
    power = drives**n
    return power / (semi_saturation**n + power.mean(axis=1, keepdims=True))
