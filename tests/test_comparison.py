"""Chapter 9's comparison: tasks and networks are what they say, committed results are what comes out today."""

import itertools
import json
import math

import pytest
import torch

import rnndata
from experiments import compare, tasks

SMALL = ["--share", "0.01", "--tasks", "copy", "--units", "linear", "GRU", "--rates", "0.01"]
NAMES = [*compare.PARAMETERS]
GROUPS = [*itertools.product(NAMES, compare.UNITS), *((compare.SAME_SIZE, unit) for unit in compare.SAME_UNITS)]


@pytest.fixture(scope="module")
def committed():
    return json.loads(rnndata.read("compare.json"))


def small(out, *more):
    assert compare.main([*SMALL, *more, "--out", str(out)]) == 0
    return json.loads(out.read_text("utf-8"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The file with the results of a small run."""
    out = tmp_path_factory.mktemp("ran") / "small.json"
    small(out)
    return out


def test_a_small_run_is_written_with_its_provenance_and_a_second_one_runs_nothing(ran, monkeypatch):
    first = json.loads(ran.read_text("utf-8"))
    assert [(run["seed"], run["unit"]) for run in first["runs"]] == [
        *itertools.product(compare.TUNED, ("linear", "GRU")),
        *itertools.product(compare.TESTED, ("linear", "GRU")),
    ]
    assert first["provenance"]["PyTorch"] == torch.__version__
    monkeypatch.setattr(compare, "learn", None)  # would raise
    assert small(ran) == first


def test_two_jobs_at_a_time_give_what_one_gives(ran, tmp_path):
    assert small(tmp_path / "two.json", "--jobs", "2")["runs"] == json.loads(ran.read_text("utf-8"))["runs"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--rates", "0.1"], "holds runs with other settings"),
        (["--share", "0"], "--share must be above 0 and at most 1; 0.0 came"),
        (["--jobs", "0"], "--jobs must be at least 1; 0 came"),
        (["--rates", "0"], "--rates must be above 0; 0.0 came"),
        (["--units", "Elman"], "invalid choice: 'Elman'"),
    ],
)
def test_what_cannot_be_run_is_refused_and_nothing_is_lost(ran, capsys, wrong, why):
    before = ran.read_bytes()
    with pytest.raises(SystemExit):
        compare.main([*SMALL, *wrong, "--out", str(ran)])
    assert why in " ".join(capsys.readouterr().err.split())
    assert ran.read_bytes() == before


@pytest.mark.parametrize(("name", "unit"), GROUPS)
def test_a_network_has_the_number_of_parameters_that_comes_nearest_to_the_budget(name, unit):
    task, budget = tasks.task(name), compare.PARAMETERS[name]
    network = compare.Network(unit, task, budget)
    count = sum(p.numel() for p in network.parameters())
    if unit == "linear":
        assert count == task.C * (task.D * task.window + 1)
    elif unit in compare.UNITS:
        assert count == compare.parameters(unit, task, network.H)
        neighbours = (compare.parameters(unit, task, network.H + step) for step in (-1, 1))
        assert all(abs(count - budget) <= abs(other - budget) for other in neighbours)
    else:
        assert network.H == compare.Network("LSTM", task, budget).H
        assert count == compare.parameters(unit.partition(",")[0], task, network.H)


@pytest.mark.parametrize(("name", "unit"), GROUPS)
def test_scores_come_at_every_step_and_depend_on_no_later_input(name, unit):
    torch.manual_seed(0)
    task = tasks.task(name)
    x, _ = task.batch(tasks.seeded(0))
    network = compare.Network(unit, task, compare.PARAMETERS[name])
    scores, half = network(x), x.shape[1] // 2
    assert scores.shape == (*x.shape[:2], task.C)
    other = x.clone()
    other[:, half:] = other[:, half:].flip(1) + 0.5
    torch.testing.assert_close(network(other)[:, :half], scores[:, :half])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["linear", "TCN"])
def test_a_network_without_a_state_sees_as_far_as_its_task_needs(name, unit):
    torch.manual_seed(0)
    task = tasks.task(name)
    x = torch.randn(4, task.window, task.D, requires_grad=True)
    compare.Network(unit, task, compare.PARAMETERS[name])(x)[:, -1].sum().backward()
    assert (x.grad[:, 0] != 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_every_network_of_a_seed_gets_the_same_batches(name, monkeypatch):
    task, seen = tasks.task(name), []

    def batch(generator):
        seen.append(found := task.batch(generator))
        return found

    watched = tasks.Task(**{**vars(task), "batch": batch})
    monkeypatch.setattr(tasks, "task", lambda _: watched)
    for unit in ("TCN", "LSTM"):
        compare.learn(name, unit, 0.01, 10, 20)
    first, second = seen[:20], seen[20:]
    assert all(torch.equal(a, b) for pair in zip(first, second, strict=True) for a, b in zip(*pair, strict=True))
    assert not torch.equal(first[0][0], first[1][0])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_tested_is_not_what_was_chosen_by(name):
    task = tasks.task(name)
    valid, test = ({row.numpy().tobytes() for row in x} for x, _ in (task.valid, task.test))
    assert not valid & test


@pytest.mark.parametrize("name", ["digits", "copy"])
def test_no_batch_holds_what_is_chosen_by_or_tested(name):
    task, generator = tasks.task(name), tasks.seeded(0)
    others = {row.numpy().tobytes() for x, _ in (task.valid, task.test) for row in x}
    drawn = {row.numpy().tobytes() for _ in range(100) for row in task.batch(generator)[0]}
    assert len(drawn) > 900
    assert len(drawn & others) == 0


def test_no_batch_holds_a_stretch_of_the_text_that_is_chosen_by_or_tested():
    text, generator = tasks.task("characters"), tasks.seeded(0)

    def lines(x):
        return ["".join(map(chr, row)) for row in x.argmax(2).tolist()]

    others = [line for x, _ in (text.valid, text.test) for line in lines(x)]
    drawn = [line for _ in range(50) for line in lines(text.batch(generator)[0])]
    assert not any(line in other for line in drawn for other in others)


def test_the_baselines_are_those_of_the_text():
    adding, copy = tasks.task("adding 50"), tasks.task("copy")
    ones = torch.ones(1000, 50, 1)
    assert float(adding.error(ones, adding.test[1])) == pytest.approx(1 / 6, rel=0.1)
    _, y = copy.test
    blind = torch.full((*y.shape, copy.C), -1e9)
    blind[:, :-5, tasks.BLANK] = 0  # certain of the blanks
    blind[:, -5:, : tasks.SYMBOLS] = 0  # and of nothing else
    assert float(copy.error(blind, y)) == pytest.approx(5 * math.log(8) / 30, rel=1e-5)


def test_a_sum_over_the_window_can_copy_without_an_error():
    task = tasks.task("copy")
    network = compare.Network("linear", task, compare.PARAMETERS["copy"])
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
        kernel = network.layer.sums.weight  # (C, D, window), the last tap on the input of the same step
        for symbol in range(tasks.SYMBOLS):
            kernel[symbol, symbol, -26] = 60.0  # what came T + K steps before
        network.layer.sums.bias[tasks.BLANK] = 30.0
    assert float(task.error(network(task.test[0]), task.test[1])) < 1e-6


def test_a_diverged_run_is_written_down_as_one_and_chosen_last():
    runs = [
        {"task": "copy", "unit": "GRU", "rate": rate, "seed": seed, "valid": error}
        for rate, errors in {0.01: (0.3, 0.4, 0.2), 0.1: (0.1, None, None)}.items()
        for seed, error in enumerate(errors)
    ]
    assert compare.best_rate(runs, "copy", "GRU") == 0.01
    (run,) = compare.learn("adding 50", "IRNN", 1e6, 10, 20)
    assert run["valid"] is None
    assert run["curve"] == [None] * 20


def test_the_committed_results_are_complete(committed):
    tuned = itertools.product(GROUPS, compare.RATES, compare.TUNED)
    tested = [
        (group, compare.best_rate(committed["runs"], *group), seed) for group in GROUPS for seed in compare.TESTED
    ]
    found = [((run["task"], run["unit"]), run["rate"], run["seed"]) for run in committed["runs"]]
    assert len(found) == len(set(found)) == len(GROUPS) * (5 * 3 + 6)
    assert set(found) == {*tuned, *tested}
    assert committed["provenance"]["written by"] == "experiments/compare.py"
    assert {run["updates"] for run in committed["runs"]} <= set(compare.UPDATES.values())


def test_a_committed_run_is_what_comes_out_today(committed):
    then = next(r for r in committed["runs"] if (r["task"], r["unit"], r["seed"]) == ("digits", "linear", 10))
    (now,) = compare.learn("digits", "linear", then["rate"], 10, then["updates"])
    assert now["test"] == pytest.approx(then["test"], abs=0.004)  # 2 of 500 digits; the rounding of float32 may differ
