"""Measures pages of the book as Lighthouse does, on a desktop: `python benchmarks/lighthouse.py`, after `make book`.

Lighthouse comes from npm, into _build/; Chromium is the system's own. The book is served on this machine and each page
opened `--runs` times; scores are medians. Prints a table, with what stands in the way of a full score, and writes
lighthouse.md beside this file.
"""

import argparse
import contextlib
import functools
import gzip
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "_build"
VERSION = "13.5.0"
PAGES = ("index", "chapters/05_bptt", "chapters/09_compare")  # the front page, the one with most formulas, the last
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="how often each page is opened")
    parser.add_argument("--out", type=Path, default=HERE / "lighthouse.md", help="the table to write")
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium") or parser.error("there is no chromium: sudo apt-get install chromium")
    if not (BUILD / "html" / "index.html").is_file():
        parser.error("there is no book in _build/html: run `make book` first")
    lines = [f"| page | {' | '.join(CATEGORIES)} |", "|---|" + "--:|" * len(CATEGORIES)]
    wanting = {}
    with served(BUILD / "html") as address:
        for page in PAGES:
            reports = [report(f"{address}/{page}.html", chromium) for _ in range(options.runs)]
            scores = {
                name: statistics.median(one["categories"][name]["score"] for one in reports) for name in CATEGORIES
            }
            lines.append(f"| {page} | {' | '.join(f'{score:.2f}' for score in scores.values())} |")
            for audit in short_of_full(reports[0]):
                wanting.setdefault(audit, []).append(page)
    notes = [f"- {audit}: {', '.join(pages)}" for audit, pages in sorted(wanting.items())]
    how = f"Lighthouse {VERSION}, its desktop preset, medians of {options.runs}"
    where = f"{how}, on {platform.machine()}, {os.cpu_count()} cores; texts are sent compressed, as hosts send them."
    text = "\n".join(["<!-- written by benchmarks/lighthouse.py -->", *lines, "", where, "", *notes]).rstrip() + "\n"
    options.out.write_text(text, "utf-8")
    print(text)
    return 0


@contextlib.contextmanager
def served(folder):
    """Serve a folder on this machine; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Host, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Host(SimpleHTTPRequestHandler):
    """Serves files as hosts of web pages do: texts compressed; and writes no log."""

    def send_head(self):
        """Begin an answer; return the file to send, packed where that makes it smaller."""
        path = Path(self.translate_path(self.path))
        if not path.is_file() or path.suffix not in {".html", ".js", ".css", ".svg", ".json"}:
            return super().send_head()
        packed = gzip.compress(path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(packed)))
        self.end_headers()
        return io.BytesIO(packed)

    def log_message(self, *_):
        """Say nothing."""


def report(address, chromium):
    """Return Lighthouse's report on a page."""
    command = [program(), address, "--preset=desktop", "--output=json", "--quiet", "--no-enable-error-reporting"]
    command += [f"--only-categories={','.join(CATEGORIES)}", "--chrome-flags=--headless=new --no-sandbox"]
    environment = os.environ | {"CHROME_PATH": chromium}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Lighthouse could not open {address}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


@functools.cache
def program():
    """Return the path of Lighthouse's command, installed once from npm."""
    folder = BUILD / f"lighthouse-{VERSION}"
    found = folder / "node_modules" / ".bin" / "lighthouse"
    if not found.exists():
        npm = shutil.which("npm") or sys.exit("there is no npm: sudo apt-get install npm (Node.js 20 or newer)")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([npm, "install", "--silent", "--prefix", folder, f"lighthouse@{VERSION}"], check=True)
    return found


def short_of_full(report):
    """Yield the titles of the audits that count and found something."""
    counted = {ref["id"] for name in CATEGORIES for ref in report["categories"][name]["auditRefs"] if ref["weight"]}
    for name in sorted(counted):
        audit = report["audits"][name]
        if audit["score"] is not None and audit["score"] < 0.9:
            yield audit["title"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
