"""What Prometheus reads: waits, loads, residency."""

from __future__ import annotations

from collections.abc import Callable

from armillary.serving.climb.requests import Class

_WAITS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counters of one ingress, in a registry of their own.

    Attributes:
        registry: of prometheus_client.
    """

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        r = self.registry
        self._queue = Histogram(
            "climb_queue_seconds", "Waited here before the engine.", ["class"], registry=r,
            buckets=_WAITS,
        )  # fmt: skip
        self._engine = Histogram(
            "climb_engine_ttft_seconds", "From the engine's start to its first byte.", ["class"],
            registry=r, buckets=_WAITS,
        )  # fmt: skip
        self._requests = Counter(
            "climb_requests", "Requests by how they ended.", ["class", "status"], registry=r
        )
        self._loads = Counter("climb_loads", "Loads of adapters.", registry=r)
        self._failures = Counter("climb_load_failures", "Loads that failed.", registry=r)
        self._stall = Counter("climb_stall_seconds", "Seconds in loads.", registry=r)
        self._resident = Gauge("climb_resident_adapters", "Adapters in slots.", registry=r)
        self._ratio = Gauge(
            "climb_working_set_per_slot", "Adapters with work over slots (W/K).", registry=r
        )
        self._under_way = Gauge("climb_in_flight", "Requests that engines have.", registry=r)
        self._waiting = Gauge("climb_queued", "Requests that wait here.", registry=r)

    def watch(
        self,
        resident: Callable[[], float],
        ratio: Callable[[], float],
        under_way: Callable[[], float],
        waiting: Callable[[], float],
    ) -> None:
        """Where the gauges are read."""
        self._resident.set_function(resident)
        self._ratio.set_function(ratio)
        self._under_way.set_function(under_way)
        self._waiting.set_function(waiting)

    def queued(self, klass: Class, seconds: float) -> None:
        self._queue.labels(klass).observe(seconds)

    def first_token(self, klass: Class, seconds: float) -> None:
        self._engine.labels(klass).observe(seconds)

    def rejected(self, klass: Class, status: int) -> None:
        self._requests.labels(klass, str(status)).inc()

    def ended(self, klass: Class, status: int | str) -> None:
        self._requests.labels(klass, str(status)).inc()

    def loaded(self, seconds: float) -> None:
        self._loads.inc()
        self._stall.inc(seconds)

    def load_failed(self) -> None:
        self._failures.inc()

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
