"""The experiment on reach: a small run of it, and that its committed results are complete and what it gives."""

import itertools
import json

import pytest
import torch

import rnndata
from experiments import reach

SMALL = ["--updates", "50", "--seeds", "1", "--length", "4", "--units", "RNN", "LSTM, f 3"]


@pytest.fixture(scope="module")
def committed():
    return json.loads(rnndata.read("reach.json"))


def test_a_small_run_is_written_with_its_provenance_and_a_second_one_runs_nothing(tmp_path, monkeypatch):
    out = tmp_path / "small.json"
    assert reach.main([*SMALL, "--out", str(out)]) == 0
    first = json.loads(out.read_text("utf-8"))
    assert [(run["rate"], run["unit"]) for run in first["runs"]] == [
        (rate, unit) for rate in reach.RATES for unit in ("RNN", "LSTM, f 3")
    ]
    assert first["settings"]["T"] == 4
    assert first["provenance"]["written by"] == "experiments/reach.py"
    monkeypatch.setattr(reach, "learn", None)  # would raise
    assert reach.main([*SMALL, "--out", str(out)]) == 0
    assert json.loads(out.read_text("utf-8")) == first


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--seeds", "2"], "updates 50, seeds 1); name another file with --out"),
        (["--updates", "75"], "--updates must be a multiple of 50"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--length", "1"], "--length must be at least 2"),
    ],
)
def test_what_cannot_be_run_is_refused_and_nothing_is_lost(tmp_path, capsys, wrong, why):
    out = tmp_path / "small.json"
    arguments = [*SMALL[:-1], "--out", str(out)]  # the plain network alone
    reach.main(arguments)
    before = out.read_bytes()
    with pytest.raises(SystemExit):
        reach.main([*arguments, *wrong])
    assert why in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before


def test_the_committed_results_are_complete(committed):
    found = [(run["seed"], run["rate"], run["unit"]) for run in committed["runs"]]
    seeds = range(committed["settings"]["seeds"])
    assert len(found) == len(set(found))
    assert set(found) == set(itertools.product(seeds, reach.RATES, reach.UNITS))
    assert committed["provenance"]["written by"] == "experiments/reach.py"


def test_the_committed_reach_before_training_is_what_is_measured_today(committed):
    for unit in reach.UNITS:
        (run,) = [r for r in committed["runs"] if (r["unit"], r["rate"], r["seed"]) == (unit, 0.01, 0)]
        torch.manual_seed(1000 * reach.T)
        layer, _ = reach.network(unit, reach.D, reach.H), torch.nn.Linear(reach.H, 1)
        if unit in ("RNN", "orthogonal", "identity, ReLU"):
            torch.nn.init.normal_(layer.weight_ih_l0)
        row, generator = torch.randn(reach.H), torch.Generator().manual_seed(10**6 + reach.T)
        x, _ = reach.adding.sequences(reach.T, reach.HELD_OUT, generator)
        now = reach.reach(layer, x[:256], lambda h, row=row: (h @ row).sum())
        assert now == pytest.approx(run["by a row before"], abs=0.02)  # in powers of ten
