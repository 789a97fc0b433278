"""The benchmarks run and write what they measured."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent


def test_the_cpu_benchmark_compares_first_and_writes_the_ratios_it_measured(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "cpu.py", "--threads", "1", "--seconds", "0.01", "--quick"]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True, check=True)
    rows = json.loads((tmp_path / "cpu.json").read_text())["rows"]
    assert len(rows) == 3 * 2 * 2  # networks, dtypes, shapes
    for row in rows:
        assert row["both"]["ratio"] == row["both"]["rnncore"] / row["both"]["torch.nn"] > 0
    table = (tmp_path / "cpu.md").read_text()
    sizes = ",\N{NO-BREAK SPACE}".join(map(str, rows[0]["shape"]))
    assert f"| RNN float32 | {sizes} | {rows[0]['forward']['ratio']:.2f} | {rows[0]['both']['ratio']:.2f} |" in table
    assert "geometric means" in done.stdout
    assert re.match(r'<div class="drawing .*><svg ', (tmp_path / "cpu.svg").read_text())


def test_the_books_figures_of_speed_are_those_of_one_run():
    """The page shows benchmarks/cpu.md and cpu.svg: both must come from the figures in cpu.json."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import cpu  # noqa: PLC0415

    record = json.loads((ROOT / "benchmarks" / "cpu.json").read_text("utf-8"))
    assert cpu.table(record) == (ROOT / "benchmarks" / "cpu.md").read_text("utf-8")
    worst = re.search(r"the largest ratios .* are RNN ([\d.]+)", (ROOT / "benchmarks" / "cpu.svg").read_text("utf-8"))
    rows = [row for row in cpu.counted(record["rows"]) if row["threads"] == 1 and row["network"] == "RNN"]
    one = [row["both"]["ratio"] for row in rows]
    assert len(rows) == len(cpu.DTYPES) * len(cpu.SHAPES)
    assert worst[1] == f"{max(one):.2f}"


def test_the_table_of_attacks_is_of_the_attacks_there_are():
    """The instructor's guide shows benchmarks/attacks.md, which takes a quarter of an hour to write."""
    digest = hashlib.sha256((ROOT / "tests" / "attacks.py").read_bytes()).hexdigest()[:16]
    first, *rows = (ROOT / "benchmarks" / "attacks.md").read_text("utf-8").splitlines()
    assert f"attacks {digest} " in first, "tests/attacks.py has changed since: run python benchmarks/attacks.py"
    assert all(row.split(" | ")[-1] == "nothing |" and "NOTHING" not in row for row in rows[2:])


def test_the_guides_table_of_peers_is_of_one_run_in_which_nothing_was_gained_here():
    """The instructor's guide shows benchmarks/peers.md and peers.svg, which take ten minutes to write."""
    code = "import json, peers; record = json.load(open(peers.HERE / 'peers.json')); print(peers.table(record), end='')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, check=True)
    assert done.stdout == (ROOT / "benchmarks" / "peers.md").read_bytes()
    record = json.loads((ROOT / "benchmarks" / "peers.json").read_text("utf-8"))
    assert record["submissions"] == 40
    drawing = (ROOT / "benchmarks" / "peers.svg").read_text("utf-8")
    for name, found in record["graders"].items():
        assert (found["right"], found["blank"]) == (record["of"], 0)
        assert f"{found['memory']:.3g} by {name.replace(', ', ' with ')}" in drawing
    assert set(found["forged"].values()) == {0}, "the last is this project"
    assert found["told_apart"] == found["mistakes"]
    assert all(any(one["forged"].values()) for one in list(record["graders"].values())[:-1])


def test_the_gpu_benchmark_says_what_it_needs(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--out", tmp_path / "gpu.md", "--repeats", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if torch.cuda.is_available():
        assert done.returncode == 0, done.stderr
        assert "| LSTM |" in (tmp_path / "gpu.md").read_text()
    else:
        assert done.returncode == 2
        assert "no CUDA device" in done.stderr
        assert not (tmp_path / "gpu.md").exists()


def test_the_pages_that_lighthouse_opened_are_quick_and_without_barriers():
    """The author's guide shows benchmarks/lighthouse.md; what Lighthouse measures depends on an idle machine."""
    text = (ROOT / "benchmarks" / "lighthouse.md").read_text("utf-8")
    rows = re.findall(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    assert len(rows) == 3
    for page, performance, accessibility in rows:
        assert (ROOT / f"{page}.md").is_file() or (ROOT / f"{page}.ipynb").is_file()
        assert float(performance) >= 0.95 and float(accessibility) == 1
