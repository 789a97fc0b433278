"""Pages of the appendices whose cells MyST-NB runs when the book is built: here in a small book of their own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """---
file_format: mystnb
kernelspec:
  name: python3
  display_name: Python 3
mystnb:
  execution_mode: force
---

# A page
"""
DRAWING = """
```{code-cell} python
---
mystnb:
  figure:
    name: fig-line
    caption: A line.
  image:
    alt: A line that rises.
---
import matplotlib.pyplot as plt
import os
import time

import rnnplot
import small

rnnplot.use_style()
plt.plot(small.LINE);
```

```{code-cell} python
print(os.environ["OMP_NUM_THREADS"], end=" ", flush=True)
time.sleep(0.5)  # so that the line arrives in two pieces
print(os.listdir())
```
"""


def cell(code):
    return f"\n```{{code-cell}} python\n{code}\n```\n"


@pytest.fixture
def small(root, tmp_path):
    """A book of two pages with the course's settings and extensions."""
    for name in ("publish", "_static", "autograde"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_config.yml", "references.bib", "rnnplot.py", "requirements.txt", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n  - file: page\n")
    (tmp_path / "index.md").write_text("# The book\n\n```{bibliography}\n:all:\n```\n")
    (tmp_path / "small.py").write_text("LINE = [1, 2]\n")
    return tmp_path


def build(small, page=None):
    """Build the small book; return the exit status and what was printed."""
    if page:
        (small / "page.md").write_text(HEAD + page)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n", "--keep-going"]
    done = subprocess.run(
        command, cwd=small, env=os.environ | {"PYTHONPATH": str(small)}, capture_output=True, text=True, check=False
    )
    return done.returncode, re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)


def test_a_page_is_run_when_it_or_what_it_imports_has_changed_and_has_its_drawings_inside(small):
    status, printed = build(small, DRAWING)
    assert status == 0, printed
    page = (small / "_build" / "html" / "page.html").read_text("utf-8")
    figure = re.search(r"<figure.*?</figure>", page, re.DOTALL)[0]
    assert "<svg" in figure and 'aria-label="A line that rises."' in figure and "currentColor" in figure
    assert "<img" not in figure and not list((small / "_build" / "html").glob("_images/*.svg"))
    assert "1 []" in page, "cells run on one thread, in an empty folder"
    assert "0 added, 0 changed" in build(small)[1]
    (small / "small.py").write_text("LINE = [1, 3]\n")
    status, printed = build(small)
    assert status == 0 and "0 added, 1 changed" in printed


def test_a_cell_that_raises_or_writes_to_stderr_fails_the_build(small):
    status, printed = build(small, cell('import sys\nprint("a warning", file=sys.stderr)') + cell("1 / 0"))
    assert status != 0
    assert "ZeroDivisionError" in printed
    assert re.search(r"page\.md:\d+: WARNING: .*stderr", printed)
