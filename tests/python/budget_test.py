"""The budget: which parameters are examined in which steps, with simulated clocks."""

import types

import plumbline  # noqa: F401
import pytest
from plumbline._watching import budget as _budget
from plumbline._watching.budget import Budget, Looks, picked
from plumbline._routers.loads import LoadsPace

MS = 1_000_000  # ns


class Trainer:
    """A trainer whose steps and looks take the given times."""

    def __init__(self, monkeypatch, step, names, base=0.2 * MS, unit=0.1 * MS, whole=False, budget=None):
        self.now = 0
        monkeypatch.setattr(_budget, "thread_time_ns", lambda: int(self.now))
        monkeypatch.setattr(Budget, "_of_threads", lambda _self, _now: 0)
        self.budget = Budget(None, budget)
        self.run = types.SimpleNamespace(_budget=self.budget, _looked_until=-1)
        self.looks = Looks(self.run, [f"p{k}" for k in range(names)], whole)
        self.step_ns, self.base, self.unit, self.ours, self.seen = step, base, unit, 0, []

    def steps(self, first, last):
        for step in range(first, last):
            chosen = self.looks.chosen(step)
            count = len(self.looks._names) if chosen is None else len(chosen)
            self.seen += [(step, name) for name in (self.looks._names if chosen is None else chosen)]
            ours = self.base + count * self.unit
            self.now += self.step_ns + ours
            self.ours += ours
            self.budget.spent = int(ours)
            self.budget.account(looked=count)
            self.looks.step_ended(ours)


@pytest.mark.parametrize("step_ms", [30, 55, 200])
@pytest.mark.parametrize("names", [5, 40, 400])
def test_looks_keep_to_the_budget_from_the_first_fifth_on(monkeypatch, step_ms, names):
    one = Trainer(monkeypatch, step_ms * MS, names)
    for first, last in ((0, 40), (40, 400), (400, 1000)):
        one.steps(first, last)
        own = last * one.step_ns
        assert one.ours <= 1.02 * 0.01 * own + one.base + 20 * one.unit
    assert len(one.seen) > 100


def test_looks_of_light_steps_get_what_the_stores_leave_and_a_quarter_at_least(monkeypatch):
    spent = {}
    for step_ms in (1, 3, 30):
        one = Trainer(monkeypatch, step_ms * MS, 10)
        one.steps(0, 3)
        one.looks.light = True
        for step in range(3, 20_000, 32):
            one.now += 31 * (one.step_ns + one.budget._light())
            chosen = one.looks.chosen(step)
            ours = (one.base + len(chosen) * one.unit) if chosen else 0
            one.now, one.ours, one.budget.spent = one.now + one.step_ns + ours, one.ours + ours, int(ours)
            one.budget.account(light=31, looked=len(chosen))
        spent[step_ms] = one.ours / (20_000 * one.step_ns)
    assert 0 < spent[1] <= 0.003 and 0 < spent[3] <= 0.003 and spent[30] <= 0.01, spent


def test_each_parameter_has_its_turn(monkeypatch):
    one = Trainer(monkeypatch, 100 * MS, 40)
    one.steps(0, 400)
    counts = [sum(name == f"p{k}" for _, name in one.seen) for k in range(40)]
    assert min(counts) >= 5 and max(counts) - min(counts) <= 1


def test_what_was_noticed_is_looked_at_whole(monkeypatch):
    one = Trainer(monkeypatch, 10 * MS, 40)
    one.run._looked_until = 7
    one.steps(0, 8)
    assert len(one.seen) == 8 * 40
    one.seen.clear()
    one.steps(8, 60)
    assert len(one.seen) < 40, "and paid back afterwards"


def test_ranks_look_at_the_same_parameters(monkeypatch):
    one = Trainer(monkeypatch, 50 * MS, 8, whole=True)
    one.steps(0, 300)
    steps = sorted({step for step, _ in one.seen})
    assert len(one.seen) == 8 * len(steps) > 8
    assert all(picked(step, one.looks.every) == step for step in steps if step > 150)


@pytest.mark.parametrize("step_ms, other_ms, unit", [(3, 3, 0.1), (3, 9, 0.1), (30, 31, 0.05), (3, 200, 0.2), (200, 210, 0.3)])
def test_ranks_of_different_speeds_look_in_the_same_steps(monkeypatch, step_ms, other_ms, unit):
    """The steps of the rank that looks more rarely are steps of the other one, but for those in which an interval changes."""
    looked = []
    for ms in (step_ms, other_ms):
        one = Trainer(monkeypatch, ms * MS, 12, unit=unit * MS, base=0.002 * ms * MS, whole=True)
        one.steps(0, 3000)
        looked.append({step for step, _ in one.seen})
        assert one.ours <= 0.0105 * 3000 * one.step_ns + 12 * one.unit
    rarely, often = sorted(looked, key=len)
    assert len(rarely) >= 3 and len(rarely & often) >= 0.9 * len(rarely) - 1, (sorted(rarely), sorted(often))


@pytest.mark.parametrize("given", [{"every": 1}, {"every": 4}, {"budget": 1}])
def test_what_the_trainer_requested_is_not_governed(given):
    assert not Budget(given.get("every"), given.get("budget")).governed


def test_another_thread_that_steps_is_no_time_that_ran_backwards(monkeypatch):
    one = Trainer(monkeypatch, 10 * MS, 4)
    one.steps(0, 5)
    one.now = 0
    balance = one.budget.balance
    one.budget.account()
    assert one.budget.balance == balance


@pytest.mark.parametrize("step_ms", [2, 20, 200])
@pytest.mark.parametrize("cost_ms", [0.3, 1.5])
def test_loads_of_experts_are_requested_in_short_runs_at_any_pace(step_ms, cost_ms):
    pace, requested = LoadsPace(Budget(None, None)), []
    for step in range(300):
        if pace.due(step):
            requested.append(step)
            pace._spent += cost_ms / 1e3
        pace.step_ends()
        pace.follow(step_ms / 1e3, 0.0, step + 1)
    assert len(requested) >= 8 and sum(step >= 75 for step in requested) >= 3, "enough for experts that get nothing at all"
    if step_ms >= 20:
        assert len(requested) >= 20 and all(2 * sum(k * 75 <= step < k * 75 + 75 for step in requested) <= len(requested) for k in range(4)), "and for all rules"


def test_loads_that_are_dear_keep_to_their_share():
    pace, cost = LoadsPace(Budget(None, None)), 0.0
    for step in range(20_000):
        if pace.due(step):
            cost += 0.002
            pace._spent += 0.002
        pace.step_ends()
        pace.follow(0.002, 0.0, step + 1)
    assert cost < 0.01 * 20_000 * 0.002 + 0.03


@pytest.mark.parametrize("given, every", [({"every": 1}, 1), ({"every": 5}, 4), ({"every": 1000}, 64), ({"budget": 1}, 1)])
def test_a_run_that_is_not_governed_is_screened_in_steps_that_no_clock_moves(given, every):
    assert Budget(given.get("every"), given.get("budget")).every == every


def test_the_environment_names_a_budget(monkeypatch):
    from plumbline._open import _share

    monkeypatch.setenv("PLUMBLINE_BUDGET", "0.05")
    assert _share(None) == 0.05 and _share(0.2) == 0.2
    for wrong in ("2", "0", "nan", "much"):
        monkeypatch.setenv("PLUMBLINE_BUDGET", wrong)
        with pytest.raises(ValueError, match="PLUMBLINE_BUDGET"):
            _share(None)
