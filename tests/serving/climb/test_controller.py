"""The books of a controller, under any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.serving.climb.controller import Controller, Limits, Residency
from armillary.serving.climb.policies import POLICIES, Climb, Fcfs
from armillary.serving.climb.requests import Dispatch, Evict, Load, Reject, Request

OUTSIDE = [name for name, kind in POLICIES.items() if not kind.engine_loads]


class Machine:
    """Carries out a controller's actions and asks that none is against the rules."""

    def __init__(self, controller: Controller) -> None:
        self.c = controller
        self.resident: set[str] = set()
        self.loading: str | None = None
        self.running: dict[int | str, Request] = {}
        self.ended: list[int | str] = []

    def act(self, now: float) -> None:
        for action in self.c.actions(now):
            if isinstance(action, Dispatch):
                request = action.request
                assert request.adapter is None or request.adapter in self.resident
                assert request.id not in self.running
                self.running[request.id] = request
            elif isinstance(action, Evict):
                assert all(r.adapter != action.adapter for r in self.running.values())
                self.resident.remove(action.adapter)
            elif isinstance(action, Load):
                assert self.loading is None
                self.loading = action.adapter
            elif isinstance(action, Reject):
                self.ended.append(action.request.id)
            assert len(self.resident) + (self.loading is not None) <= self.c.slots
        self.c.check()

    def loaded(self, now: float) -> None:
        if self.loading is not None:
            self.resident.add(self.loading)
            self.c.loaded(self.loading, 0.1, now)
            self.loading = None

    def finish(self, id: int | str) -> None:
        self.c.finished(id)
        self.ended.append(id)
        del self.running[id]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "vip", "base", "finish", "cancel", "load", "fail", "first"]),
        st.integers(0, 5),
        st.floats(0, 5),
    ),
    max_size=80,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from(OUTSIDE), st.integers(1, 3), st.sampled_from([1, 3, None]))
def test_slots_hold_nothing_in_flight_is_evicted_and_every_request_ends_once(
    events, policy, slots, cap
):
    c = Controller(slots, POLICIES[policy](), limits=Limits(cap))
    machine, now, arrived = Machine(c), 0.0, 0
    for kind, which, wait in events:
        now += wait
        if kind in ("arrive", "vip", "base"):
            klass = "vip" if kind == "vip" else "background"
            name = None if kind == "base" else f"{klass}-{which}"
            c.arrive(Request(arrived, name, klass, now))
            arrived += 1
        elif kind == "finish" and machine.running:
            machine.finish(list(machine.running)[which % len(machine.running)])
        elif kind == "first" and machine.running:
            c.first_token(list(machine.running)[which % len(machine.running)])
        elif kind == "cancel" and arrived:
            id = which % arrived
            if id not in machine.ended:
                c.cancelled(id)
                machine.running.pop(id, None)
                machine.ended.append(id)
        elif kind == "load":
            machine.loaded(now)
        elif kind == "fail" and machine.loading is not None:
            name, machine.loading = machine.loading, None
            c.load_failed(name, "broken", now)
        machine.act(now)
    # Then everything goes through, in whatever state it was left.
    for _ in range(30 * (arrived + 1)):
        now += 61.0  # past every pause and turn
        machine.loaded(now)
        for id in list(machine.running):
            machine.finish(id)
        machine.act(now)
        if len(machine.ended) == arrived:
            break
    assert sorted(map(int, machine.ended)) == list(range(arrived))


def resident(c: Controller, name: str, now: float = 0.0) -> None:
    c.found_resident(name, now)
    assert c.adapters[name].where is Residency.RESIDENT


def test_a_request_goes_on_only_when_its_load_is_done():
    c = Controller(1, Climb())
    c.arrive(Request(1, "a", arrived=0.0))
    assert c.actions(0.0) == [Load("a")]
    assert c.actions(0.1) == []
    c.loaded("a", 0.4, 0.4)
    assert c.actions(0.4) == [Dispatch(Request(1, "a", arrived=0.0))]
    assert c.adapters["a"].load_seconds == 0.4  # the first that was seen


def test_vip_goes_first_and_takes_the_slot_of_background_that_is_done():
    c = Controller(1, Climb())
    resident(c, "slow")
    c.arrive(Request(1, "slow", arrived=1.0))
    assert c.actions(1.0) == [Dispatch(Request(1, "slow", arrived=1.0))]
    c.arrive(Request(2, "fast", "vip", arrived=1.1))
    assert c.actions(1.1) == []
    assert c.adapters["slow"].where is Residency.DRAINING  # so that its slot comes free
    c.arrive(Request(3, "slow", arrived=1.2))
    assert c.actions(1.2) == []
    c.finished(1)
    assert c.actions(1.3) == [Evict("slow"), Load("fast")]


def test_background_leaves_vip_its_slot_unless_it_waits_too_long_for_an_idle_one():
    c = Controller(1, Climb())
    c.arrive(Request(1, "v", "vip", arrived=0.0))
    c.actions(0.0)
    c.loaded("v", 0.1, 0.1)
    c.actions(0.1)
    c.finished(1)
    c.classes["v"] = "vip"
    c.adapters["v"].usual = c.adapters["v"].klass = "vip"
    c.arrive(Request(2, "b", arrived=5.0))
    assert c.actions(34.0) == []
    c.arrive(Request(3, "v", "vip", arrived=34.5))
    assert c.actions(36.0) == [Dispatch(Request(3, "v", "vip", arrived=34.5))]
    c.finished(3)
    assert c.actions(37.0) == [Evict("v"), Load("b")]


def test_a_load_is_put_off_for_first_tokens_and_then_goes_before_the_next_vip():
    c = Controller(2, Climb(), {"v": "vip"})
    resident(c, "v")
    resident(c, "b")
    c.arrive(Request(1, "v", "vip", arrived=1.0))
    c.arrive(Request(2, "c", arrived=1.0))
    assert c.actions(1.0) == [Dispatch(Request(1, "v", "vip", arrived=1.0))]
    c.arrive(Request(3, "v", "vip", arrived=1.01))
    assert c.actions(1.01) == []  # behind the load that is due
    c.first_token(1)
    assert c.actions(1.05) == [Evict("b"), Load("c")]
    c.loaded("c", 0.2, 1.25)
    done = c.actions(1.25)
    assert [a.request.id for a in done if isinstance(a, Dispatch)] == [3, 2]


def test_a_busy_adapter_keeps_its_slot_for_a_turn_and_no_longer():
    policy = Climb(q_min=2.0, pass_through=float("inf"))
    c = Controller(1, policy)
    c.arrive(Request(0, "a", arrived=0.0))
    c.actions(0.0)
    c.loaded("a", 0.1, 0.1)
    c.actions(0.1)
    c.arrive(Request(1, "b", arrived=0.2))
    for i in range(2, 40):  # one request of a is always under way
        c.arrive(Request(i, "a", arrived=0.1 * i))
        c.actions(0.1 * i)
        if c.adapters["a"].where is Residency.DRAINING:
            break
        c.finished(next(iter(c._sent)))
    turn = policy.turn_seconds(c.adapters["b"])
    assert turn == 2.5  # five loads of half a second, as long as none of b was seen
    assert 0.2 + turn < 0.1 * i < 0.2 + turn + 0.2


def test_reserve_is_kept_for_vip():
    c = Controller(2, Climb(vip_reserve=0.25, pass_through=float("inf")), limits=Limits(4))
    resident(c, "b")
    resident(c, "v")
    for i in range(6):
        c.arrive(Request(i, "b", arrived=0.0))
    assert len(c.actions(0.0)) == 3
    c.arrive(Request(9, "v", "vip", arrived=0.1))
    assert c.actions(0.1) == [Dispatch(Request(9, "v", "vip", arrived=0.1))]


def test_turns_grow_while_work_piles_up_and_loads_eat_the_time():
    policy = Climb(eta=0.5)
    c = Controller(1, policy)
    a = c.adapter("a", "background")
    a.load_seconds = 1.0
    assert policy.turn_seconds(a) == 5.0
    c.queued["background"], c.load_seconds = 10, 8.0
    policy._count(c, 10.0)
    assert policy.turn_seconds(a) == 7.5
    c.queued["background"], c.load_seconds = 5, 16.0
    policy._count(c, 20.0)
    assert policy.turn_seconds(a) == pytest.approx(6.25)
    policy._growth = 100.0
    assert policy.turn_seconds(a) == 20.0  # at most 20 loads


def test_full_queues_late_deadlines_and_broken_adapters_are_refused_at_once():
    c = Controller(1, Climb(), limits=Limits(4, {"background": 1}))
    resident(c, "a")
    c.arrive(Request(1, "b", arrived=0.0))
    c.arrive(Request(2, "c", arrived=0.0))
    c.arrive(Request(3, "v", "vip", arrived=0.0, deadline=0.01))
    refused = [a for a in c.actions(0.0) if isinstance(a, Reject)]
    assert [(r.request.id, r.status) for r in refused] == [(2, 429), (3, 504)]
    assert refused[0].retry_after > 0
    c.load_failed("b", "no file", 1.0)
    c.arrive(Request(4, "b", arrived=1.5))
    refused = [a for a in c.actions(1.5) if isinstance(a, Reject)]
    assert [(r.request.id, r.status) for r in refused] == [(1, 503), (4, 503)]
    assert refused[1].retry_after == pytest.approx(0.5)
    pauses = []
    for _ in range(8):
        adapter = c.adapters["b"]
        now = adapter.not_before
        c.arrive(Request(f"again-{now}", "b", arrived=now))
        assert Load("b") in c.actions(now)
        c.load_failed("b", "no file", now)
        pauses.append(adapter.not_before - now)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_lost_engine_holds_nothing_and_what_waits_goes_on_waiting():
    c = Controller(1, Climb())
    resident(c, "a")
    c.arrive(Request(1, "a", arrived=0.0))
    c.arrive(Request(2, "b", arrived=0.0))
    c.actions(0.0)
    assert [r.id for r in c.engine_lost()] == [1]
    assert c.in_flight == 0
    assert c.actions(1.0) == [Load("b")]
    c.check()


def test_wrong_use_is_told():
    with pytest.raises(ValueError, match="slots=0"):
        Controller(0, Fcfs())
    with pytest.raises(ValueError, match="'gold'"):
        Controller(1, Fcfs(), {"a": "gold"})  # pyright: ignore[reportArgumentType]
    c = Controller(1, Climb())
    c.arrive(Request(1, "a"))
    with pytest.raises(ValueError, match="under way already"):
        c.arrive(Request(1, "a"))
    with pytest.raises(ValueError, match="was not loading"):
        c.loaded("a", 0.1, 0.1)
    with pytest.raises(KeyError, match="not in flight"):
        c.finished(1)
    with pytest.raises(ValueError, match="not resident"):
        c.dispatch(c.adapters["a"], 0.0)
    for setting in ("eta", "q_min", "max_wait"):
        with pytest.raises(ValueError, match=setting):
            Climb(**{setting: 0.0})  # pyright: ignore[reportArgumentType]
