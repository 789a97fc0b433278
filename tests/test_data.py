"""The course's texts are found from any folder, in the sandbox too, and are what the README says."""

import re
import subprocess
import sys

import pytest
import run

import rnndata
from autograde import sandbox

READ = "import rnndata; print(len(rnndata.read('alice.txt')))"
README = (run.ROOT / "data" / "README.md").read_text(encoding="utf-8")
LENGTH = int(re.search(r"has ([\d,]+) characters", README)[1].replace(",", ""))


def test_a_text_is_found_from_another_folder(tmp_path):
    found = subprocess.run([sys.executable, "-c", READ], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(found.stdout) == LENGTH


def test_a_students_confined_process_finds_it():
    try:
        sandbox.bubblewrap()
    except sandbox.Unconfined as error:
        pytest.skip(str(error))
    with sandbox.Sandbox() as box, box.worker() as worker:
        said = worker.run(READ, 20)
    assert (said["error"], said["text"].strip()) == ("", str(LENGTH))


def test_another_text_is_refused_with_the_names_of_those_there_are():
    for name in ("bob.txt", "../README.md", "README.md"):
        with pytest.raises(ValueError, match=r"there is no text .*; there is .*alice\.txt"):
            rnndata.read(name)


def test_the_readme_says_what_each_text_is():
    for path in rnndata.FOLDER.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in README
    text = rnndata.read("alice.txt")
    assert text.isascii()
    assert f"in {len(text.splitlines())} lines" in README
