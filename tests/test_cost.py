"""What networks cost: a small measurement of it, and that the counted numbers are right."""

import json

import pytest
import torch

import rnndata
from experiments import compare, cost, tasks


def test_a_small_measurement_is_written_with_its_provenance(tmp_path):
    out = tmp_path / "cost.json"
    assert cost.main(["--rounds", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))
    assert found["provenance"]["PyTorch"] == torch.__version__
    pairs = [(row["task"], row["unit"]) for row in found["costs"]]
    assert pairs == [(task, unit) for task in compare.PARAMETERS for unit in compare.UNITS]
    assert all(row["ms"] > 0 and row["kept"] > 0 for row in found["costs"])


def test_a_measurement_without_a_round_is_refused(capsys):
    with pytest.raises(SystemExit):
        cost.main(["--rounds", "0"])
    assert "--rounds must be at least 1; 0 came" in capsys.readouterr().err


def test_what_is_kept_for_the_backward_pass_is_counted_once():
    x = torch.randn(100, requires_grad=True)

    def squares():
        return (x * x.detach()).sum()

    def exponentials():
        return x.exp().exp().sum()

    assert cost.kept(squares) == 400  # both factors have the same memory
    assert cost.kept(exponentials) == 800  # two results


@pytest.mark.parametrize("unit", compare.UNITS)
def test_the_numbers_of_the_past_are_as_many_as_can_change_a_later_score(unit):
    """Found from outside: change one number of what was kept, here by hand for the convolutions."""
    torch.manual_seed(0)
    task = tasks.task("copy")
    network = compare.Network(unit, task, 5000)
    if unit in ("linear", "TCN"):
        inputs = []
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv1d):
                layer.register_forward_pre_hook(lambda layer, given: inputs.append((layer, given[0])))
        network(torch.randn(1, task.window, task.D))
        # At the last step a layer reads its kernel's reach; all but the newest of these columns are of the past.
        past = sum(layer.dilation[0] * (layer.kernel_size[0] - 1) * given.shape[1] for layer, given in inputs)
    else:
        _, last = network.layer(torch.randn(1, 3, task.D))
        past = sum(part.numel() for part in (last if isinstance(last, tuple) else (last,)))
    assert cost.state(unit, network, task) == past


def test_the_committed_costs_are_those_of_the_networks_that_are_compared():
    rows = json.loads(rnndata.read("cost.json"))["costs"]
    for row in rows:
        network = compare.Network(row["unit"], tasks.task(row["task"]), compare.PARAMETERS[row["task"]])
        assert (row["H"], row["parameters"]) == (network.H, sum(p.numel() for p in network.parameters()))
    assert len(rows) == len(compare.PARAMETERS) * len(compare.UNITS)
