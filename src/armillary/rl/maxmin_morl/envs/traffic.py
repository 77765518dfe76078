"""A crossing with traffic lights in SUMO: four approaches' queues against a limit on CO2.

The network (one crossing, four approaches of two lanes, all turns) is made by SUMO's own
``netgenerate`` in a temporary folder; cars come by chance, at a rate an approach. A decision holds
every five seconds: which green to show; a change costs three seconds of yellow. An approach's
objective is the free share of its lanes, 1 - halting cars / cars that fit. ``info["co2"]`` is minus
the grams that all cars gave off since the last decision.

libsumo allows one simulation a process: a second environment is refused with a hint, and learners
start one process a copy with ``processes=True``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

DECISION, YELLOW = 5, 3
LENGTH, LANES, CAR = 200.0, 2, 7.5
#: Cars an hour that come in from the south, east, north and west.
RATES = (600.0, 300.0, 450.0, 150.0)
#: Shares of right, straight and left turns.
TURNS = (0.2, 0.6, 0.2)
INSTALL = "pip install 'armillary[rl-peers]' (eclipse-sumo, libsumo)"


def sumo_program(name: str) -> str:
    """The path of one of SUMO's programs.

    Raises:
        FileNotFoundError: eclipse-sumo is not installed.
    """
    found = importlib.util.find_spec("sumo")
    for place in (found.submodule_search_locations or []) if found else []:
        program = Path(place) / "bin" / name
        if program.exists():
            return str(program)
    raise FileNotFoundError(f"SUMO's {name} is not installed: {INSTALL}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on the two streams, whoever writes: SUMO is C++ and does not ask Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(sink)


def import_libsumo() -> Any:
    """libsumo, without its word on pyarrow."""
    try:
        with _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import libsumo
    except ImportError:
        raise ImportError(f"TrafficCO2 needs libsumo: {INSTALL}") from None
    return libsumo


def make_network(folder: Path) -> Path:
    """One crossing with four approaches.

    Raises:
        RuntimeError: netgenerate failed.
    """
    path = folder / "crossing.net.xml"
    made = subprocess.run(
        [
            sumo_program("netgenerate"), "--grid", "--grid.number", "1",
            "--grid.attach-length", f"{LENGTH:g}", "--default.lanenumber", str(LANES),
            "--default-junction-type", "traffic_light", "--no-turnarounds", "true",
            "--tls.layout", "incoming", "--output-file", str(path),
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"netgenerate failed: {made.stderr.strip()[:300]}")
    return path


def _incoming(network: Path) -> list[str]:
    """Approaches of the crossing, clockwise from the south."""
    import xml.etree.ElementTree as tree

    root = tree.parse(network).getroot()
    places = {j.get("id"): j for j in root.iter("junction") if j.get("type") != "internal"}
    edges = [e for e in root.iter("edge") if e.get("function") != "internal"]
    middle = next(j.get("id") for j in root.iter("junction") if j.get("type") == "traffic_light")
    approaches = [e for e in edges if e.get("to") == middle]
    x0, y0 = (float(places[middle].get(axis, 0)) for axis in ("x", "y"))

    def side(edge: Any) -> int:
        at = places[edge.get("from")]
        x, y = float(at.get("x", 0)) - x0, float(at.get("y", 0)) - y0
        return (0 if y < 0 else 2) if abs(y) > abs(x) else (1 if x > 0 else 3)

    return [e.get("id") for e in sorted(approaches, key=side)]  # pyright: ignore


def _exits(network: Path, approaches: list[str]) -> list[str]:
    """The road out on the side of each approach."""
    import xml.etree.ElementTree as tree

    edges = {e.get("id"): e for e in tree.parse(network).getroot().iter("edge")}
    out = {e.get("to"): name for name, e in edges.items() if e.get("function") != "internal"}
    return [str(out[edges[name].get("from")]) for name in approaches]


def write_demand(network: Path, seconds: int, rates: tuple[float, ...]) -> Path:
    """Flows of cars from each approach to the three others."""
    approaches = _incoming(network)
    exits = _exits(network, approaches)
    lines = ['<routes><vType id="car" emissionClass="HBEFA3/PC_G_EU4"/>']
    for i, (approach, rate) in enumerate(zip(approaches, rates, strict=True)):
        for turn, share in zip((1, 2, 3), TURNS, strict=True):
            target = exits[(i + turn) % 4]
            lines.append(
                f'<flow id="f{i}{turn}" type="car" begin="0" end="{seconds}" from="{approach}" '
                f'to="{target}" probability="{rate * share / 3600:.6f}" departLane="best" '
                'departSpeed="max"/>'
            )
    path = network.parent / "demand.rou.xml"
    path.write_text("\n".join([*lines, "</routes>"]), "utf-8")
    return path


class TrafficCO2(gymnasium.Env):
    """The crossing, after the conventions of mo-gymnasium.

    Args:
        seconds: length of an episode.
        rates: cars an hour from south, east, north and west.

    Raises:
        FileNotFoundError: SUMO is not installed.
        RuntimeError: another simulation is open in this process.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    _open: ClassVar[TrafficCO2 | None] = None

    def __init__(
        self,
        seconds: int = 600,
        rates: tuple[float, float, float, float] = RATES,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode, self.seconds = render_mode, int(seconds)
        self._folder = tempfile.TemporaryDirectory(prefix="armillary-sumo-")
        self._network = make_network(Path(self._folder.name))
        self._demand = write_demand(self._network, self.seconds, tuple(rates))
        self._approaches = _incoming(self._network)
        self._sumo: Any = None
        self._greens = self._green_states()
        size = 2 * 4 + len(self._greens) + 1
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(self._greens))
        self.reward_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float64)
        self.reward_dim = 4

    def _green_states(self) -> list[str]:
        """The signal states of the network's own programme that show green and no yellow."""
        import xml.etree.ElementTree as tree

        logic = next(tree.parse(self._network).getroot().iter("tlLogic"))
        self._light = str(logic.get("id"))
        states = [str(phase.get("state")) for phase in logic.iter("phase")]
        return [state for state in states if "y" not in state.lower() and "G" in state]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if TrafficCO2._open not in (None, self):
            raise RuntimeError(
                "libsumo runs one simulation a process, and one is open: close() it, or give "
                "processes=True to the learner"
            )
        if self._sumo is None:
            self._sumo = import_libsumo()
        with _quiet():
            if TrafficCO2._open is self:
                self._sumo.close()
            self._sumo.start(
                [
                    sumo_program("sumo"), "-n", str(self._network), "-r", str(self._demand),
                    "--seed", str(int(self.np_random.integers(2**31 - 1))), "--no-step-log", "true",
                    "--no-warnings", "true", "--time-to-teleport", "-1", "--step-length", "1",
                ]
            )  # fmt: skip
        TrafficCO2._open = self
        self._time, self._phase, self._held = 0, 0, 0
        self._show(self._greens[0])
        return self._observe(), {"co2": 0.0}

    def _show(self, state: str) -> None:
        self._sumo.trafficlight.setRedYellowGreenState(self._light, state)

    def _run(self, seconds: int) -> float:
        """Let time pass; grams of CO2."""
        grams = 0.0
        for _ in range(seconds):
            self._sumo.simulationStep()
            grams += sum(self._sumo.edge.getCO2Emission(edge) for edge in self._edges()) / 1000
        self._time += seconds
        return grams

    def _edges(self) -> list[str]:
        return [edge for edge in self._sumo.edge.getIDList() if not edge.startswith(":")]

    def step(self, action: int) -> tuple[np.ndarray, np.ndarray, bool, bool, dict]:
        action, grams = int(action), 0.0
        if action != self._phase:
            before, after = self._greens[self._phase], self._greens[action]
            pairs = zip(before, after, strict=True)
            self._show("".join("y" if a in "Gg" and b == "r" else a for a, b in pairs))
            grams += self._run(YELLOW)
            self._phase, self._held = action, 0
            self._show(after)
            grams += self._run(DECISION - YELLOW)
        else:
            grams += self._run(DECISION)
            self._held += 1
        return (
            self._observe(),
            1 - self._queues(),
            False,
            self._time >= self.seconds,
            {"co2": -grams},
        )

    def _queues(self) -> np.ndarray:
        """(4,) share of each approach that halting cars fill."""
        halting = [self._sumo.edge.getLastStepHaltingNumber(edge) for edge in self._approaches]
        return np.clip(np.array(halting) * CAR / (LENGTH * LANES), 0, 1)

    def _observe(self) -> np.ndarray:
        cars = [self._sumo.edge.getLastStepVehicleNumber(edge) for edge in self._approaches]
        filled = np.clip(np.array(cars) * CAR / (LENGTH * LANES), 0, 1)
        phase = np.eye(len(self._greens))[self._phase]
        held = [min(self._held / 12, 1.0)]
        return np.concatenate([self._queues(), filled, phase, held]).astype(np.float32)

    def close(self) -> None:
        if TrafficCO2._open is self:
            with _quiet():
                self._sumo.close()
            TrafficCO2._open = None
        self._folder.cleanup()
