"""Finds pairs of answers that share what hardly anyone else wrote: for a person to look at, never a verdict."""

import io
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations

from copydetect import CodeFingerprint, compare_files
from copydetect.utils import get_token_coverage, highlight_overlap

LENGTH = {"code": 20, "markdown": 40}  # characters of the shortest passage that counts; names count as one
COMMON = 10  # a passage that so many students wrote is nobody's in particular (MOSS draws the line there, too)
LEAST = {"code": 30, "markdown": 80}  # characters, not written by many, that an answer must have to be compared
ALIKE = 0.8  # the share of them that two answers must have in common


@dataclass(frozen=True)
class Pair:
    """Two students' answers to one exercise: the share they have in common, and their texts as HTML, marked."""

    exercise: str
    students: tuple[str, str]
    share: float
    marked: tuple[str, str]


def pairs(answers, known):
    """Return the `Pair`s of answers that are alike, most alike first.

    answers has {exercise: {student: text}} and known {exercise: (kind of cell, texts that everyone was given or that
    are right)}. Names, comments and layout of code make no difference (winnowing, Schleimer et al. 2003).
    """
    found = [pair for exercise, texts in answers.items() for pair in _of_exercise(exercise, texts, *known[exercise])]
    return sorted(found, key=lambda pair: (-pair.share, pair.exercise, pair.students))


def _of_exercise(exercise, texts, kind, known):
    given = set().union(*(_fingerprint(text, kind).hashes for text in known))
    prints = {student: _fingerprint(text, kind) for student, text in sorted(texts.items())}
    count = Counter(passage for found in prints.values() for passage in found.hashes)
    usual = given | {passage for passage, times in count.items() if times > COMMON}
    holders = defaultdict(list)
    for student, found in prints.items():
        _leave_out(found, usual)
        if found.token_coverage >= LEAST[kind]:
            for passage in found.hashes:
                holders[passage].append(student)
    for one, other in sorted({pair for students in holders.values() for pair in combinations(students, 2)}):
        _, shares, places = compare_files(prints[one], prints[other])
        if min(shares) >= ALIKE:
            marked = tuple(_marked(prints[student], where) for student, where in zip((one, other), places, strict=True))
            yield Pair(exercise, (one, other), min(1.0, *map(float, shares)), marked)


def _fingerprint(text, kind):
    if kind != "code":
        text = re.sub(r"\s+", " ", text).strip()
    return CodeFingerprint("answer.py", LENGTH[kind], 1, filter=kind == "code", fp=io.StringIO(text))


def _leave_out(found, passages):
    """Take passages out of a fingerprint; the library's own way to do it takes repeated ones for known ones."""
    found.hashes = found.hashes - passages
    found.hash_idx = {passage: places for passage, places in found.hash_idx.items() if passage in found.hashes}
    found.token_coverage = get_token_coverage(found.hash_idx, found.k, len(found.filtered_code))


def _marked(found, places):
    return highlight_overlap(found.raw_code, places, "<mark>", "</mark>", escape_html=True)[0]
