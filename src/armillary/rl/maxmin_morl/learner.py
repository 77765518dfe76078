"""What both learners share: signals, dual steps, a mixture of late policies, files, evaluation."""

from __future__ import annotations

import abc
import dataclasses
import json
import os
import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from armillary import output
from armillary.rl.maxmin_morl.constraints import Constraint, Signals
from armillary.rl.maxmin_morl.dual_ascent import DualStep, DualVariables
from armillary.rl.maxmin_morl.fairness import FairnessReport, in_units, summarise
from armillary.rl.maxmin_morl.linear_program import InfeasibleConstraints
from armillary.rl.maxmin_morl.mdp import ScaleWarning
from armillary.rl.maxmin_morl.returns import Episodes
from armillary.rl.maxmin_morl.vector_env import SignalVecEnv, make_vec_env, reward_dim

if TYPE_CHECKING:
    import gymnasium

#: How many late policies are mixed, and how many a whole run would have: the last sixth is mixed.
MIXTURE, MEMBERS_A_RUN = 10, 60


@dataclasses.dataclass(frozen=True)
class MaxMinSettings:
    """What a learner is told besides Stable-Baselines3's own arguments.

    Attributes:
        eta_w, eta_u: first dual steps of weights and prices (see `dual_ascent`).
        w_init: first weights (None: uniform).
        u_init: first price.
        damping, damping_w: how strongly prices and weights answer the last slack and the last
            returns (see `dual_ascent`).
        update_w: False keeps the weights uniform: a Lagrangian method on the mean.
        update_u: False keeps prices at 0: max-min without limits.
        gradient: ``"critic"`` reads the dual gradient from the vector critic, corrected by fresh
            returns; ``"smoothing"`` from critics of perturbed weights (ICML 2024).
        warmup: share of the steps before the dual moves.
        u_max: price above which limits count as out of reach.
        patience: dual steps above ``u_max`` before learning stops.
        scale: sizes by which objectives are divided.
    """

    eta_w: float = 0.15
    eta_u: float = 0.1
    w_init: tuple[float, ...] | None = None
    u_init: float = 1.0
    damping: float = 2.0
    damping_w: float = 1.0
    update_w: bool = True
    update_u: bool = True
    gradient: str = "critic"
    warmup: float = 0.2
    u_max: float = 1e3
    patience: int = 20
    scale: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.gradient not in ("critic", "smoothing"):
            raise ValueError(f"gradient={self.gradient!r}: known are 'critic' and 'smoothing'")


class MaxMinLearner(abc.ABC):
    """Mixed into a Stable-Baselines3 algorithm whose environment gives vectors of signals.

    Attributes:
        constraints: the limits.
        dual: the dual variables.
        dual_history: one `DualStep` each time they moved.
        stopped: why learning stopped early, or "".
    """

    constraints: tuple[Constraint, ...]
    signals: Signals
    dual: DualVariables
    episodes: Episodes
    # From Stable-Baselines3:
    gamma: float
    num_timesteps: int
    policy: Any
    device: Any
    env: Any
    seed: int | None
    _total_timesteps: int

    def _prepare(
        self,
        env: Any,
        constraints: Sequence[Constraint | str],
        settings: MaxMinSettings,
        n_envs: int,
        processes: bool,
    ) -> SignalVecEnv:
        """Check what was given; the environment with signals in the place of rewards."""
        self.constraints = tuple(
            Constraint.parse(c) if isinstance(c, str) else c for c in constraints
        )
        self.settings = settings
        self._env_source = env
        venv = make_vec_env(env, n_envs, processes)
        _refuse_single_state(venv.observation_space)
        self.signals = Signals(reward_dim(venv), self.constraints, settings.scale)
        self.dual = DualVariables(
            len(self.signals.objectives), len(self.constraints), settings.eta_w,
            settings.eta_u, settings.u_init,
            settings.update_w, settings.update_u, settings.u_max,
            settings.damping,
            settings.damping_w,
            settings.w_init,
        )  # fmt: skip
        self.dual_history: list[DualStep] = []
        self.stopped = ""
        self._above = 0
        self._least_violation = np.inf
        self._safest: dict[str, torch.Tensor] | None = None
        self._mixture: deque[dict[str, torch.Tensor]] = deque(maxlen=MIXTURE)
        self._size = np.full(self.signals.size, 1e-8)
        self._told = False
        self._next_member = 0
        return SignalVecEnv(venv, self.signals)

    @property
    def _K(self) -> int:
        return len(self.signals.objectives)

    def _watch_sizes(self, signals: np.ndarray) -> None:
        """Running root mean square of a step's signals, as the size of a discounted return."""
        seen = np.sqrt(np.square(signals).mean(axis=0)) / (1 - self.gamma)
        first = self._size.max() <= 1e-8
        self._size = np.maximum(seen if first else 0.98 * self._size + 0.02 * seen, 1e-8)
        K = self._K
        self.dual.worth = self._size[:K].mean() / self._size[K:]

    def _slack(self, J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """((L,) slack, (L,) size of the threshold), in the units of each limit.

        Args:
            J: (K + L,) estimated discounted returns.
        """
        slack, size = [], []
        for i, constraint in enumerate(self.constraints):
            at = self._K + i
            plain = np.mean([e[at] for e in self.episodes.plain]) if self.episodes.plain else None
            if constraint.kind == "episode" and plain is None:
                plain = J[at] / self.episodes.ratio
            value = in_units(constraint.kind, J[at], plain, self.gamma)  # pyright: ignore
            slack.append(float(value - constraint.bound))
            unit = self._size[at] * ((1 - self.gamma) if constraint.kind == "average" else 1.0)
            if constraint.kind == "episode":
                unit = unit / self.episodes.ratio
            size.append(max(abs(constraint.bound), 0.1 * unit))
        return np.array(slack), np.array(size)

    def _tell_conversion(self) -> None:
        """Print, once, what an episode's sum is in discounted units."""
        if self._told or not self.episodes.lengths:
            return
        self._told = True
        for constraint in self.constraints:
            if constraint.kind == "episode":
                ratio = self.episodes.ratio
                output.console().note(
                    f"{constraint}: episodes last {np.mean(self.episodes.lengths):.0f} steps, so "
                    f"that a plain sum of {constraint.threshold:g} is a discounted one of about "
                    f"{constraint.threshold * ratio:.4g} (times {ratio:.4g}); it is compared plain"
                )

    def _warn_of_sizes(self) -> None:
        """Objectives of very different size make the smallest the worst whatever is done."""
        sizes = self._size[: self._K]
        if sizes.min() > 1e-6 and sizes.max() > 10 * sizes.min():
            proposed = [float(f"{size / sizes.min():.3g}") for size in sizes]
            warnings.warn(
                f"sizes of the objectives differ by a factor of {sizes.max() / sizes.min():.3g}: "
                f"the worst one will be that of the smallest unit. Give scale={proposed}, or "
                "what a unit of each is worth",
                ScaleWarning,
                stacklevel=2,
            )

    def _dual_step(self, J: np.ndarray) -> None:
        """Move (w, u) on estimated returns; remember the policy; count steps out of reach."""
        if not self.dual_history:
            self._warn_of_sizes()
        slack, size = self._slack(J)
        self.dual.step(J[: self._K], slack, float(self._size[: self._K].mean()), size)
        self.dual_history.append(
            DualStep(
                self.num_timesteps, J[: self._K].copy(), slack, self.dual.w.copy(),
                self.dual.u.copy(),
            )
        )  # fmt: skip
        state = self._actor_state()
        if self.num_timesteps >= self._next_member:
            self._next_member = self.num_timesteps + self._total_timesteps // MEMBERS_A_RUN
            self._mixture.append(state)
        violation = float(np.maximum(-slack / size, 0.0).max(initial=0.0))
        if violation < self._least_violation:
            self._least_violation, self._safest = violation, state
        beyond = self.dual.diverged and bool((slack < 0).any())
        self._above = self._above + 1 if beyond else 0
        self._tell_conversion()

    def _out_of_reach(self) -> bool:
        """Whether to stop: prices stayed above ``u_max`` and the limits stayed missed."""
        if self._above < self.settings.patience:
            return False
        last = self.dual_history[-1]
        self.stopped = (
            f"prices above {self.settings.u_max:g} for {self._above} dual steps with slack "
            f"{np.array2string(last.slack, precision=4)}: the limits look out of reach; the "
            "least-violating policy is kept"
        )
        if self._safest is not None:
            self._load_actor(self._safest)
            self._mixture.clear()
            self._mixture.append(self._safest)
        return True

    def raise_if_stopped(self) -> None:
        """Turn an early stop into `InfeasibleConstraints`."""
        if self.stopped:
            best = np.array([step.slack for step in self.dual_history]).max(axis=0)
            C = np.array([c.bound for c in self.constraints])
            prices = self.dual.prices / max(self.dual.prices.sum(), 1e-12)
            raise InfeasibleConstraints(C, C + best, prices, float(-(prices @ best)))

    def _actor_state(self) -> dict[str, torch.Tensor]:
        return {
            key: value.detach().clone()
            for key, value in self.policy.state_dict().items()
            if self._is_actor(key)
        }

    def _load_actor(self, state: dict[str, torch.Tensor]) -> None:
        self.policy.load_state_dict(state, strict=False)

    @staticmethod
    @abc.abstractmethod
    def _is_actor(key: str) -> bool:
        """Whether a tensor of the policy's state, by its name, belongs to the actor."""

    def evaluate(
        self,
        episodes: int = 20,
        env: Any = None,
        policy: str = "mixture",
        seed: int = 0,
        deterministic: bool = True,
    ) -> FairnessReport:
        """Play whole episodes and report.

        Args:
            episodes: how many.
            env: where; None: a fresh copy of what the learner was made with (an environment object
                cannot be copied and is used itself).
            policy: ``"mixture"`` draws one of the last policies for every episode, ``"last"`` takes
                the last one.
            seed: of the environment and of the draws.
            deterministic: whether actions are the policy's mode.

        Raises:
            ValueError: no such policy.
        """
        if policy not in ("mixture", "last"):
            raise ValueError(f"policy={policy!r}: known are 'mixture' and 'last'")
        venv = SignalVecEnv(make_vec_env(self._env_source if env is None else env), self.signals)
        venv.seed(seed)
        members = list(self._mixture) if policy == "mixture" and self._mixture else [None]
        draws = np.random.default_rng(seed).integers(len(members), size=episodes)
        kept = self._actor_state()
        done: list[tuple[np.ndarray, np.ndarray, int]] = []
        try:
            for member in np.unique(draws):
                if members[member] is not None:
                    self._load_actor(members[member])
                done += self._play(venv, int((draws == member).sum()), deterministic)
        finally:
            self._load_actor(kept)
            if venv.venv is not getattr(self.env, "venv", None):
                venv.close()
            else:
                self._last_obs = None
        discounted, plain, lengths = (np.array(part) for part in zip(*done, strict=True))
        return summarise(
            discounted, plain, lengths, self.constraints, self.gamma, self.dual.w, self.dual.u
        )

    def _play(
        self, venv: VecEnv, episodes: int, deterministic: bool
    ) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """(discounted sums, plain sums, length) of ``episodes`` whole episodes.

        They are dealt to the environments beforehand, so that short ones are not favoured.
        """
        n = venv.num_envs
        record = Episodes(n, self.signals.size, self.gamma, keep=1)
        quota = episodes // n + (np.arange(n) < episodes % n).astype(int)
        found: list[tuple[np.ndarray, np.ndarray, int]] = []
        seen: Any = venv.reset()
        while (quota > 0).any():
            actions, _ = self.predict(seen, deterministic=deterministic)  # pyright: ignore
            seen, signals, dones, _ = venv.step(actions)
            finished = record.add(np.asarray(signals), np.asarray(dones))
            for i, episode in finished:
                if quota[i] > 0:
                    found.append(episode)
                    quota[i] -= 1
        return found

    def _export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Weights and what stands beside them, for `save`."""
        weights = self.policy.state_dict().items()  # cloned: networks may share features
        tensors = {f"policy.{k}": v.detach().clone() for k, v in weights}
        for i, member in enumerate(self._mixture):
            tensors |= {f"mixture.{i}.{k}": v.clone() for k, v in member.items()}
        note = {
            "algorithm": type(self).__name__,
            "constraints": [str(c) for c in self.constraints],
            "settings": dataclasses.asdict(self.settings),
            "dual": self.dual.state(),
            "mixture": len(self._mixture),
            "gamma": self.gamma,
            "timesteps": self.num_timesteps,
            "policy_kwargs": self._own_policy_kwargs,  # pyright: ignore
            "stopped": self.stopped,
        }
        return tensors, note

    def save(self, path: str | os.PathLike[str]) -> None:  # pyright: ignore
        """Write the policies, the dual variables and the settings (safetensors; no pickle)."""
        tensors, note = self._export()
        with output.atomic_path(path) as temporary:
            save_file(tensors, str(temporary), metadata={"maxmin_morl": json.dumps(note)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: Any, **kwargs: Any) -> Self:  # pyright: ignore
        """Read what `save` wrote.

        Args:
            path: the file.
            env: as in the constructor.
            **kwargs: further arguments of the constructor.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is of another kind, or of another learner.
        """
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: there is no such file")
        try:
            opened = safe_open(str(path), framework="pt")
        except Exception as error:
            raise ValueError(f"{path} is no saved learner: {error}") from None
        with opened as file:
            note = json.loads((file.metadata() or {}).get("maxmin_morl", "null"))
            if note is None or note["algorithm"] != cls.__name__:
                kind = "no learner" if note is None else f"a {note['algorithm']}"
                raise ValueError(f"{path} holds {kind}: {cls.__name__} was asked to load it")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        settings = {**note["settings"]}
        for name in ("scale", "w_init"):
            settings[name] = None if settings[name] is None else tuple(settings[name])
        made = cls(
            env, note["constraints"], gamma=note["gamma"], policy_kwargs=note["policy_kwargs"],  # pyright: ignore
            **{**settings, **kwargs},
        )  # fmt: skip
        made.policy.load_state_dict(_under("policy.", tensors))
        for i in range(note["mixture"]):
            made._mixture.append(_under(f"mixture.{i}.", tensors))
        made.dual.restore(note["dual"])
        made.num_timesteps, made.stopped = note["timesteps"], note["stopped"]
        return made


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _refuse_single_state(space: gymnasium.Space) -> None:
    size = getattr(space, "n", None)
    if size == 1:
        raise ValueError(
            "the observation space has a single state: there is nothing to plan; a bandit is a "
            "choice of weights over its arms"
        )
