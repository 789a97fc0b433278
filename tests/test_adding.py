"""The adding problem's experiment: a small run of it, and that its committed results are what it gives."""

import itertools
import json

import numpy as np
import pytest
import torch

import rnndata
from experiments import adding

SMALL = ["--updates", "50", "--seeds", "2", "--lengths", "4", "--units", "tanh", "gate"]


@pytest.fixture(scope="module")
def committed():
    return json.loads(rnndata.read("adding.json"))


def test_a_small_run_is_written_with_its_provenance_and_a_second_one_runs_nothing(tmp_path, monkeypatch):
    out = tmp_path / "small.json"
    assert adding.main([*SMALL, "--out", str(out)]) == 0
    first = json.loads(out.read_text("utf-8"))
    assert [(run["unit"], run["rate"], run["seed"]) for run in first["runs"]] == [
        (unit, rate, seed) for rate in adding.RATES for unit in ("tanh", "gate") for seed in (0, 1)
    ]
    assert first["settings"]["updates"] == 50
    assert first["provenance"]["PyTorch"] == torch.__version__
    monkeypatch.setattr(adding, "learn", None)  # would raise
    assert adding.main([*SMALL, "--out", str(out)]) == 0
    assert json.loads(out.read_text("utf-8")) == first


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--updates", "100"], "updates 50, seeds 1); name another file with --out"),
        (["--updates", "75"], "--updates must be a multiple of 50"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--lengths", "1"], "--lengths must be at least 2"),
    ],
)
def test_what_cannot_be_run_is_refused_and_nothing_is_lost(tmp_path, capsys, wrong, why):
    out = tmp_path / "small.json"
    arguments = ["--updates", "50", "--seeds", "1", "--lengths", "2", "--units", "tanh", "--out", str(out)]
    adding.main(arguments)
    before = out.read_bytes()
    with pytest.raises(SystemExit):
        adding.main([*arguments, *wrong])
    assert why in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before


def test_the_committed_results_are_complete(committed):
    found = [(run["unit"], run["T"], run["rate"], run["seed"]) for run in committed["runs"]]
    assert len(found) == len(set(found)) == 200
    assert set(found) == set(itertools.product(adding.UNITS, adding.LENGTHS, adding.RATES, range(5)))
    assert committed["provenance"]["written by"] == "experiments/adding.py"


def test_the_committed_reach_is_what_is_measured_today(committed):
    for unit, T in itertools.product(adding.UNITS, (10, 40)):
        generators = [torch.Generator().manual_seed(1000 * T + seed) for seed in range(5)]
        each = zip(*(adding.weights(unit, generator) for generator in generators), strict=True)
        parameters = [torch.stack(arrays).requires_grad_() for arrays in each]
        now = adding.reach(unit, T, parameters, generators).detach().numpy()
        then = [r["log10 reach"] for r in committed["runs"] if (r["unit"], r["T"], r["rate"]) == (unit, T, 0.003)]
        np.testing.assert_allclose(now, then, atol=0.01)  # in powers of ten; the rounding of float32 may differ


def test_the_baselines_are_those_of_the_text():
    x, y = adding.sequences(20, 200_000, torch.Generator().manual_seed(0))
    marked = (x[..., 0] * x[..., 1])[:, :10].sum(1)
    assert float(((y - 1) ** 2).mean()) == pytest.approx(1 / 6, rel=0.02)
    assert float(((y - marked - 0.5) ** 2).mean()) == pytest.approx(1 / 12, rel=0.02)
