"""Self-checks in a manuscript's prose: a question, its choices, and an explanation for each of them.

:::{selfcheck} an-id
A question, in Markdown.

- [ ] A choice that is wrong
  : Why it is wrong
- [x] The one that is right
  : Why it is right
:::
"""

import re
from dataclasses import dataclass, field

OPEN = re.compile(r"^:::\{selfcheck\}(?=\s|$)", re.MULTILINE)
BLOCK = re.compile(r"^:::\{selfcheck\}[ \t]*(.*)\n((?:(?!:::).*\n)*):::[ \t]*$", re.MULTILINE)
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CHOICE = re.compile(r"[-*+][ \t]*\[(.*?)\](?!\()(.*)")  # with a round bracket after it, it is a link
EXPLANATION = re.compile(r"[ \t]+:(?!:)(.*)")
OTHER_BLOCK = re.compile(r"\s*(#{1,6} |`{3}|\$\$|>|[-*+] |\d+[.)] )")  # what one paragraph cannot hold
NOT_IN_A_QUESTION = re.compile(r"\s*(#{1,6} |`{3,}\{|:{3,})")

LETTERS = "ABCDEF"
VERDICTS = {True: "right", False: "not quite"}


@dataclass
class Choice:
    """One of a question's answers; `text` and `explanation` are a paragraph of Markdown each."""

    letter: str
    right: bool
    text: str
    explanation: str | None = None
    line: int = 0  # of the self-check's body, counted from 0


@dataclass
class SelfCheck:
    """A question that readers answer for themselves, with what is wrong with its form: (reason, line of the body)."""

    name: str
    question: str = ""
    choices: list[Choice] = field(default_factory=list)
    faults: list[tuple[str, int]] = field(default_factory=list)

    def fault(self, reason, line=-1):
        """Note a fault; -1 is the line with the id."""
        self.faults.append((reason, line))


def parse(name, body):
    """Return the `SelfCheck` of an id and a body, with its faults."""
    check, lines = SelfCheck(name), body.splitlines()
    first = next((number for number, line in enumerate(lines) if CHOICE.match(line)), len(lines))
    for number, line in enumerate(lines[:first]):
        if EXPLANATION.match(line):
            check.fault("this explanation has no choice before it; a choice begins with - [ ] or - [x]", number)
        elif NOT_IN_A_QUESTION.match(line):
            check.fault("a question holds no heading and no other directive", number)
    check.question = "\n".join(lines[:first]).strip()
    for number, line in enumerate(lines[first:], start=first):
        _read(line, number, check)
    _complete(check)
    return check


def _read(line, number, check):
    """Read one line of the choices and their explanations."""
    if found := CHOICE.match(line):
        if found[1] not in {" ", "x", "X"}:
            reason = f"write [x] before the right choice and [ ] before the others; here it is [{found[1]}]"
            check.fault(reason, number)
        letter = LETTERS[min(len(check.choices), len(LETTERS) - 1)]
        check.choices.append(Choice(letter, found[1] in "xX", found[2].strip(), line=number))
        return
    choice = check.choices[-1]
    if found := EXPLANATION.match(line):
        if choice.explanation is not None:
            reason = f"choice {choice.letter} has a second explanation; a choice begins with - [ ] or - [x]"
            check.fault(reason, number)
        choice.explanation = found[1].strip()
    elif line and not line[0].isspace():
        check.fault("after the first choice, begin a line with - [ ] or - [x], or indent it", number)
    elif OTHER_BLOCK.match(line):
        check.fault("a choice and its explanation are one paragraph each: no list, display or code block", number)
    elif line.strip():
        if choice.explanation is None:
            choice.text += f"\n{line.strip()}"
        else:
            choice.explanation += f"\n{line.strip()}"


def _complete(check):
    """Note what a self-check lacks."""
    if not NAME.fullmatch(check.name):
        check.fault(f"a self-check has an id of lower-case words with hyphens; here it is {check.name!r}")
    if not check.question:
        check.fault("a self-check begins with its question")
    if not 2 <= len(check.choices) <= len(LETTERS):
        check.fault(f"a self-check has two to {len(LETTERS)} choices; here are {len(check.choices)}")
    if (right := sum(choice.right for choice in check.choices)) != 1:
        check.fault(f"exactly one choice is right, marked [x]; here are {right or 'none'}")
    texts = set()
    for choice in check.choices:
        name = f"choice {choice.letter}"
        if not choice.text:
            check.fault(f"{name} has no words", choice.line)
        elif choice.text in texts:
            check.fault(f"{name} stands here already", choice.line)
        if not choice.explanation:
            check.fault(f"{name} has no explanation; write it below, indented, after a colon", choice.line)
        texts.add(choice.text)


def problems(markdown):
    """Yield (reason, place) for each thing that is wrong with the self-checks of a cell's prose."""
    whole = {match.start(): match for match in BLOCK.finditer(markdown)}
    for match in OPEN.finditer(markdown):
        if match.start() not in whole:
            yield "this self-check is not closed by a line `:::`, or holds another directive", match.start()
    for start, match in whole.items():
        body = match[2].splitlines(keepends=True)
        for reason, line in parse(match[1].strip(), match[2]).faults:
            yield reason, start if line < 0 else match.start(2) + len("".join(body[:line]))


def names(markdown):
    """Yield (id, place) of each self-check in a cell's prose."""
    for match in BLOCK.finditer(markdown):
        yield match[1].strip(), match.start()


def plain(markdown):
    """Return a cell's prose with its self-checks as a notebook shows them, the answers folded."""
    return BLOCK.sub(lambda match: _plain(parse(match[1].strip(), match[2])), markdown)


def _plain(check):
    choices = [f"- **{one.letter}.** {_indented(one.text)}" for one in check.choices]
    answers = [f"- **{one.letter}: {VERDICTS[one.right]}.** {_indented(one.explanation)}" for one in check.choices]
    lines = [f"**Self-check.** {check.question}", "", *choices, "", "```{dropdown} Answers", *answers, "```"]
    return "\n".join(lines)


def _indented(text):
    return text.replace("\n", "\n  ")
