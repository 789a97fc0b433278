"""Chapter 9: sizes of equal cost, the best learning rate, a report on a few runs, and two models seed by seed."""

from functools import partial

import numpy as np

from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import call

# ----------------------------------------------------------------------------------------------------------
# matched-sizes: matched_size(blocks, D, C, budget) -> the hidden size, int


def size_cases(rng):
    def arguments(blocks, D, C, H, at):
        """Return a budget between the counts for H and for H + 1 units: at 0 it is the one, at 1 the other.

        Beside the middle even a small miscount shows, elsewhere only a larger one: so no two look alike, and what a
        miscount adds is not made good by rounding down.
        """
        fewer, more = (_count(blocks, D, C, units) for units in (H, H + 1))
        return {"blocks": blocks, "D": D, "C": C, "budget": fewer + int(at * (more - fewer))}

    def drawn(low, high, step=1):
        return int(rng.choice(np.arange(low, high + 1, step)))

    yield Case(
        "blocks = D = C = 1, where 1, 2, 3 and 4 units have 6, 13, 22 and 33 parameters",
        {"blocks": 1, "D": 1, "C": 1, "budget": 20},
    )
    yield Case("an RNN", arguments(1, drawn(8, 10, 2), 4, drawn(18, 26), at=0.5))
    yield Case("a GRU", arguments(3, drawn(8, 10), 2, drawn(18, 26), at=0.55))
    yield Case("an LSTM, C odd", arguments(4, drawn(8, 10), 3, drawn(18, 26), at=0.5))
    yield Case("an LSTM, C even", arguments(4, drawn(8, 10), 2, drawn(18, 26), at=0.49))
    yield Case("an LSTM, two sizes equally near", arguments(4, drawn(8, 10), 2, drawn(18, 26), at=0.5))
    yield Case("a GRU, D much larger than H", arguments(3, drawn(60, 90), 4, drawn(11, 14), at=0.55))
    yield Case("an RNN of some hundred units", arguments(1, drawn(30, 40), 10, drawn(400, 500), at=0.502))
    yield Case("a GRU, nearly one unit more", arguments(3, drawn(8, 10), 2, drawn(18, 26), at=0.9))
    yield Case("an LSTM of three units, D = 5", arguments(4, 5, 2, 3, at=0.1))


def _count(blocks, D, C, H):
    return blocks * (H * D + H * H + 2 * H) + C * H + C


def _sized(blocks, D, C, budget, count=_count, lower=lambda below, above: below <= above):
    """Return the hidden size. Each keyword stands for one decision, right unless another is given."""
    H = 1
    while count(blocks, D, C, H + 1) <= budget:
        H += 1
    below, above = budget - count(blocks, D, C, H), count(blocks, D, C, H + 1) - budget
    return H if lower(below, above) else H + 1


def _root(blocks, D, C, budget):
    """Solve the quadratic equation for the size."""
    half = (blocks * (D + 2) + C) / (2 * blocks)
    return float(np.sqrt(half**2 + (budget - C) / blocks) - half)


def _reached(blocks, D, C, budget):
    H = _sized(blocks, D, C, budget)
    return _count(blocks, D, C, H)


BLOCKS = "Write down the shape of every array of a layer, and of the readout. How many numbers are there in all?"
NEAREST = "There is a size on each side of the budget. Which of the two is nearer?"

MATCHED_SIZES = Exercise(
    id="matched-sizes",
    points=3,
    reference=_sized,
    cases=size_cases,
    probe=call,
    section="“Equal sizes”",
    misconceptions={
        "the largest size that does not exceed the budget is taken": M(
            partial(_sized, lower=lambda below, above: True), NEAREST
        ),
        "the smallest size that reaches the budget is taken": M(
            partial(_sized, lower=lambda below, above: below == 0), NEAREST
        ),
        "of two sizes equally near the larger is taken": M(
            partial(_sized, lower=lambda below, above: below < above),
            "Look at what your comparison does with two equal numbers.",
        ),
        "the positive root of the equation is rounded": M(
            lambda *a: round(_root(*a)),
            "The number of parameters grows faster and faster with H. Is the nearer H the one with the nearer number?",
        ),
        "the positive root of the equation is returned as it is": M(
            _root,
            "How many units can a layer have?",
        ),
        "the number of parameters is returned": M(
            _reached,
            "You have found the layer. What was asked about it?",
        ),
        "the size is 1, whatever the budget": M(
            lambda blocks, D, C, budget: 1,
            "A distance is never below 0. Is yours, for a layer far smaller than the budget?",
        ),
        "the readout is left out": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H + 2)),
            "Which argument is never used?",
        ),
        "the readout's bias is left out": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H + 2) + C * H), BLOCKS
        ),
        "two biases are counted in the readout": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H + 2) + C * (H + 2)),
            "PyTorch's layer has two biases in each block. How many has a linear readout?",
        ),
        "the readout is counted with each block": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * (H * (D + H + 2) + C * (H + 1))),
            "A layer has blocks. How many readouts are there?",
        ),
        "the readout is taken to read the input": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H + 2) + C * (D + 1)),
            "What does the readout read: what goes into the layer, or what comes out of it?",
        ),
        "one bias is counted in each block": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H + 1) + C * (H + 1)),
            "How many biases does a layer of PyTorch have?",
        ),
        "one bias is counted in each block, and the largest size that does not exceed the budget is taken": M(
            partial(
                _sized,
                count=lambda blocks, D, C, H: blocks * H * (D + H + 1) + C * (H + 1),
                lower=lambda below, above: True,
            ),
            f"How many biases does a layer of PyTorch have? {NEAREST}",
        ),
        "no bias is counted at all, and the largest size that does not exceed the budget is taken": M(
            partial(
                _sized,
                count=lambda blocks, D, C, H: blocks * H * (D + H) + C * H,
                lower=lambda below, above: True,
            ),
            f"{BLOCKS} {NEAREST}",
        ),
        "two biases are counted in each block, for all its units": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * (H * (D + H) + 2) + C * (H + 1)),
            "What has each unit of a block of its own?",
        ),
        "the layer's biases are left out": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H) + C * (H + 1)),
            "How many biases does a layer of PyTorch have?",
        ),
        "the biases are counted once and not in each block": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H) + 2 * H + C * (H + 1)),
            "A gate has a sum of its own, and each sum has its biases.",
        ),
        "no bias is counted at all": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + H) + C * H), BLOCKS
        ),
        "the blocks are left out": M(
            partial(_sized, count=lambda blocks, D, C, H: H * (D + H + 2) + C * (H + 1)),
            "Which argument is never used?",
        ),
        "every network is counted with four blocks": M(
            partial(_sized, count=lambda blocks, D, C, H: 4 * H * (D + H + 2) + C * (H + 1)),
            "Networks differ in the number of their blocks, and yours comes as an argument.",
        ),
        "every network is counted with three blocks": M(
            partial(_sized, count=lambda blocks, D, C, H: 3 * H * (D + H + 2) + C * (H + 1)),
            "Networks differ in the number of their blocks, and yours comes as an argument.",
        ),
        "the weights of the input are left out": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (H + 2) + C * (H + 1)),
            "Which argument is never used?",
        ),
        "the weights of the input are counted once and not in each block": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (H + 2) + H * D + C * (H + 1)),
            "Each gate reads the input, too.",
        ),
        "the recurrent weights are left out": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + 2) + C * (H + 1)),
            "Each unit reads the state of all units, its own among them.",
        ),
        "the recurrent weights are counted as H by D": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * (D + D + 2) + C * (H + 1)),
            "What does W_hh read, and what does it give?",
        ),
        "only the recurrent weights are counted": M(
            partial(_sized, count=lambda blocks, D, C, H: blocks * H * H), BLOCKS
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# best-rate: best_rate(rates, validation) -> the learning rate, float

N, I = np.nan, np.inf  # noqa: E741, of a run that diverged

# The errors of each rate, of which every case takes a share. Here the mean, the luckiest run and each wrong way with a
# run that diverged choose another rate than the median does.
RUNS = {
    "one run became NaN": [[40, 42, 41], [N, 22, 20], [31, 30, 32]],
    "one run became NaN, which spoils a good median": [[40, 42, 41], [N, 22, 20], [21, 21.5, 32]],
    "two runs of a rate became NaN": [[33, 35, 34], [36, 24, 26], [N, 10, N]],
    "NaN at the largest rates": [[52, 60, 51], [37, 35, 36], [30, 39, 31], [40, N, 20], [90, N, N]],
    "infinity at the largest rates": [[45, 44, 46], [33, 32, 31], [21, 22, I], [I, 5, I]],
    "NaN and infinity at one rate": [[45, 44, 48], [29, 33, 32], [31, 30, 35], [2, N, I]],
    "two medians are equal": [[44, 47, 45], [35, 20, 30], [41, 36, 37], [30, 40, 10], [38, 37, 39]],
    "four seeds": [[5, 60, 10, 50], [90, 20, 36, 10], [30, 29.5, 25, 33]],
    "four seeds, of which one and two became NaN": [[40, 42, 41, 44], [28, N, 30, 36], [8, N, N, 9]],
    "one seed": [[36], [24], [39]],
}


def rate_cases(rng):
    rates = np.array([0.001, 0.003, 0.01])
    by_hand = np.array([[0.30, 0.32, 0.31], [0.10, 0.40, 0.50], [0.25, 0.28, 0.90]])
    yield Case("three rates, three seeds, numbers to check by hand", {"rates": rates, "validation": by_hand})
    for label, rows in RUNS.items():
        rates = rng.choice([1e-4, 2e-4, 3e-4]) * np.array([1, 3, 10, 30, 100])[: len(rows)]
        share = rng.uniform(0.005, 0.02)
        yield Case(label, {"rates": rates.round(4), "validation": (share * np.array(rows)).round(4)})


def _middle(errors, low=-1, high=0):
    """Return the median: the mean of the two in the middle, which for an odd number are one and the same."""
    found, S = sorted(errors), len(errors)
    return (found[(S + low) // 2] + found[(S + high) // 2]) / 2


def _rated(
    rates,
    validation,
    clean=lambda rows: [[float("inf") if np.isnan(e) else e for e in row] for row in rows.tolist()],
    score=_middle,
    rank=lambda scores: scores.index(min(scores)),
    gives=lambda best, scores, rates: rates[best],
):
    """Return the rate. Each keyword stands for one decision, right unless another is given."""
    scores = [score(row) for row in clean(validation)]
    return gives(rank(scores), scores, rates.tolist())


def _without(rows, gone):
    """Take out of each row what is gone; where nothing is left, the row is infinite."""
    return [[e for e in row if not gone(e)] or [float("inf")] for row in rows.tolist()]


def _thrown_out(rows, gone):
    """Make a row infinite if any of its runs is gone."""
    return [[float("inf")] * len(row) if any(map(gone, row)) else row for row in rows.tolist()]


def _argmin_of(rates, scores):
    return rates[int(np.argmin(scores))]


MEDIAN = "One run, very good or very bad, should not decide. Which number of several runs does it hardly move?"
NAN = "NaN is neither above nor below a number. Which place does your code give it, and which place should it have?"
DIVERGED = "A run that diverged is the worst that can happen. Does your code let a rate gain by it?"
TOO_HARD = "A rate at which one run of several diverged has a median still. Where do the bad runs stand in the order?"
EVEN = "With an even number of runs two stand in the middle. What is the median then?"
SEEDS = "All runs of a rate have a say. Which columns does your code read?"

BEST_RATE = Exercise(
    id="best-rate",
    points=3,
    reference=_rated,
    cases=rate_cases,
    probe=call,
    section="“Equal tuning”",
    misconceptions={
        "NaN passes for the lowest": M(
            lambda rates, validation: _argmin_of(rates, np.median(validation, 1)),
            NAN,
        ),
        "the runs that became NaN are left out": M(
            partial(_rated, clean=lambda rows: _without(rows, np.isnan)),
            DIVERGED,
        ),
        "the runs that diverged are left out": M(
            partial(_rated, clean=lambda rows: _without(rows, lambda e: not np.isfinite(e))),
            DIVERGED,
        ),
        "NaN counts as zero": M(
            partial(_rated, clean=lambda rows: np.where(np.isnan(rows), 0, rows).tolist()),
            DIVERGED,
        ),
        "a rate with any NaN is thrown out": M(
            partial(_rated, clean=lambda rows: _thrown_out(rows, np.isnan)),
            TOO_HARD,
        ),
        "a rate at which any run diverged is thrown out": M(
            partial(_rated, clean=lambda rows: _thrown_out(rows, lambda e: not np.isfinite(e))),
            TOO_HARD,
        ),
        "the mean stands in place of the median": M(
            partial(_rated, score=lambda row: sum(row) / len(row)),
            MEDIAN,
        ),
        "the mean stands in place of the median, and NaN passes for the lowest": M(
            lambda rates, validation: _argmin_of(rates, np.mean(validation, 1)),
            f"{MEDIAN} {NAN}",
        ),
        "the mean stands in place of the median, and the runs that became NaN are left out": M(
            lambda rates, validation: _argmin_of(rates, np.nanmean(validation, 1)),
            f"{MEDIAN} {DIVERGED}",
        ),
        "the luckiest single run decides": M(
            partial(_rated, score=lambda row: sorted(row)[0]),
            MEDIAN,
        ),
        "the luckiest single run decides, and NaN passes for the lowest": M(
            lambda rates, validation: _argmin_of(rates, np.min(validation, 1)),
            f"{MEDIAN} {NAN}",
        ),
        "the worst single run decides": M(
            partial(_rated, score=lambda row: sorted(row)[-1]),
            MEDIAN,
        ),
        "only the first seed is read": M(partial(_rated, score=lambda row: row[0]), SEEDS),
        "only the last seed is read": M(partial(_rated, score=lambda row: row[-1]), SEEDS),
        "the lower of two runs in the middle is taken": M(
            partial(_rated, score=lambda row: _middle(row, high=-1)),
            EVEN,
        ),
        "the upper of two runs in the middle is taken": M(
            partial(_rated, score=lambda row: _middle(row, low=0)),
            EVEN,
        ),
        "the runs are not sorted before the middle one is taken": M(
            partial(_rated, score=lambda row: (row[(len(row) - 1) // 2] + row[len(row) // 2]) / 2),
            "Half of the runs are to lie below the median. Do they?",
        ),
        "the median is taken over the rates": M(
            lambda rates, validation: _argmin_of(
                rates, np.median(np.where(np.isnan(validation), float("inf"), validation), 0)
            ),
            "A row belongs to a rate, a column to a seed. Over which of the two is the median?",
        ),
        "of equal medians the last is taken": M(
            partial(_rated, rank=lambda scores: len(scores) - 1 - scores[::-1].index(min(scores))),
            "Look at what your comparison does with two equal numbers.",
        ),
        "the rate with the highest median is taken": M(
            partial(_rated, rank=lambda scores: scores.index(max(scores))),
            "These are errors. Which one do you want?",
        ),
        "the place of the rate is returned and not the rate": M(
            partial(_rated, gives=lambda best, scores, rates: best),
            "You know where it stands. Which argument is never used?",
        ),
        "the lowest median is returned and not its rate": M(
            partial(_rated, gives=lambda best, scores, rates: scores[best]),
            "You know how low the median is. At which rate was it?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# report-runs: report_runs(errors) -> {"median", "low", "high", "coverage"}


def report_cases(rng):
    def runs(*errors):
        return {"errors": (rng.uniform(0.005, 0.02) * np.array(errors)).round(5)}

    yield Case("three seeds, numbers to check by hand", {"errors": np.array([0.5, 0.25, 0.375])})
    yield Case("two seeds", runs(31, 24))
    yield Case("six seeds", runs(23, 29, 20, 40, 22, 26))
    yield Case("five seeds, one of them far off", runs(21, 23, 95, 20, 24))
    yield Case("seven seeds, of which three have one and the same error", runs(26, 22, 31, 22, 38, 22, 29))
    yield Case("nine seeds", runs(35, 28, 31, 33, 47, 30, 36, 29, 34))


def _reported(errors, median=_middle, low=min, high=max, coverage=lambda S: 1 - 2 / 2**S):
    """Return the report. Each keyword stands for one decision, right unless another is given."""
    found, S = errors.tolist(), len(errors)
    values = (median(found), low(found), high(found), coverage(S))
    return dict(zip(("median", "low", "high", "coverage"), map(np.float64, values), strict=True))


def _mean(errors):
    return np.mean(errors)


def _below(errors):
    """Return the mean less a standard deviation."""
    return np.mean(errors) - np.std(errors)


def _above(errors):
    return np.mean(errors) + np.std(errors)


def _below_of_sample(errors):
    """Return the mean less a standard deviation that is divided by S - 1."""
    return np.mean(errors) - np.std(errors, ddof=1)


def _above_of_sample(errors):
    return np.mean(errors) + np.std(errors, ddof=1)


def _beside(errors, spread):
    """Return the median plus so many standard deviations."""
    return _middle(errors) + spread * np.std(errors)


def _error_beside(errors, sign, ddof=0):
    """Return the mean plus or minus its standard error."""
    return np.mean(errors) + sign * np.std(errors, ddof=ddof) / len(errors) ** 0.5


def _equal_ones_once(errors):
    return _reported(np.unique(errors))


def _sorted_in_place(errors):
    errors.sort()
    return _reported(errors)


CENTRE = "One seed far off moves the mean as far as it likes. Which number in the middle hardly moves?"
RANGE = "Asked for is where the runs themselves lie, without any assumption about their distribution."
CHANCE = (
    "The range misses the true median if all runs lie above it, or all below. How likely is the one, and how "
    "likely the other?"
)
ORDER = "The runs stand in the order of their seeds. Which of them is the smallest?"

REPORT_RUNS = Exercise(
    id="report-runs",
    points=3,
    reference=_reported,
    cases=report_cases,
    probe=call,
    section="“What a few seeds tell”",
    misconceptions={
        "the mean stands in place of the median": M(partial(_reported, median=_mean), CENTRE),
        "the best run stands in place of the median": M(
            partial(_reported, median=lambda errors: sorted(errors)[0]),
            "A seed is drawn. What would another six have given? The best of them is a matter of how many you try.",
        ),
        "the worst run stands in place of the median": M(
            partial(_reported, median=lambda errors: sorted(errors)[-1]),
            "Half of the runs are to lie below the median. Do they?",
        ),
        "the middle between smallest and largest stands in place of the median": M(
            partial(_reported, median=lambda errors: (min(errors) + max(errors)) / 2), CENTRE
        ),
        "the lower of two runs in the middle is taken for the median": M(
            partial(_reported, median=lambda errors: _middle(errors, high=-1)),
            "With an even number of runs two stand in the middle. What is the median then?",
        ),
        "the upper of two runs in the middle is taken for the median": M(
            partial(_reported, median=lambda errors: _middle(errors, low=0)),
            "With an even number of runs two stand in the middle. What is the median then?",
        ),
        "the runs are not sorted before the middle one is taken": M(
            partial(_reported, median=lambda e: (e[(len(e) - 1) // 2] + e[len(e) // 2]) / 2), ORDER
        ),
        "the first run is taken for the smallest and the last for the largest": M(
            partial(
                _reported,
                low=lambda errors: errors[0],
                high=lambda errors: errors[-1],
            ),
            ORDER,
        ),
        "smallest and largest change places": M(
            partial(
                _reported,
                low=lambda errors: sorted(errors)[-1],
                high=lambda errors: sorted(errors)[0],
            ),
            "These are errors, and low is the smaller number. Is it in yours?",
        ),
        "mean and mean ± standard deviation stand in place of median and range": M(
            partial(
                _reported,
                median=_mean,
                low=_below,
                high=_above,
            ),
            f"{CENTRE} {RANGE}",
        ),
        "mean and mean ± standard deviation, divided by S - 1, stand in place of median and range": M(
            partial(
                _reported,
                median=_mean,
                low=_below_of_sample,
                high=_above_of_sample,
            ),
            f"{CENTRE} {RANGE}",
        ),
        "mean and mean ± standard error stand in place of median and range": M(
            partial(
                _reported,
                median=_mean,
                low=lambda errors: _error_beside(errors, -1),
                high=lambda errors: _error_beside(errors, 1),
            ),
            f"{CENTRE} {RANGE}",
        ),
        "mean and mean ± standard error, divided by S - 1, stand in place of median and range": M(
            partial(
                _reported,
                median=_mean,
                low=lambda errors: _error_beside(errors, -1, ddof=1),
                high=lambda errors: _error_beside(errors, 1, ddof=1),
            ),
            f"{CENTRE} {RANGE}",
        ),
        "the standard deviation on both sides of the median stands in place of the range": M(
            partial(
                _reported,
                low=lambda errors: _beside(errors, -1),
                high=lambda errors: _beside(errors, 1),
            ),
            RANGE,
        ),
        "mean ± standard deviation stands in place of the range": M(
            partial(_reported, low=_below, high=_above),
            RANGE,
        ),
        "mean ± standard deviation, divided by S - 1, stands in place of the range": M(
            partial(_reported, low=_below_of_sample, high=_above_of_sample),
            RANGE,
        ),
        "equal errors count as one run": M(
            _equal_ones_once,
            "Two seeds may err alike, and are two runs. How many runs does your code see?",
        ),
        "the quartiles stand in place of the range": M(
            partial(
                _reported,
                low=lambda errors: np.quantile(errors, 0.25),
                high=lambda errors: np.quantile(errors, 0.75),
            ),
            f"{RANGE} How much of it do you leave out?",
        ),
        "the best and the worst run are left out of the range": M(
            partial(
                _reported,
                low=lambda errors: sorted(errors)[min(1, len(errors) - 1)],
                high=lambda errors: sorted(errors)[-min(2, len(errors))],
            ),
            "No run is left out. The chance that is asked for belongs to the range of all.",
        ),
        "quantiles that leave out 2.5 per cent on each side, with .95, stand in place of range and coverage": M(
            partial(
                _reported,
                low=lambda errors: np.quantile(errors, 0.025),
                high=lambda errors: np.quantile(errors, 0.975),
                coverage=lambda S: 0.95,
            ),
            f"{RANGE} Two runs have no 2.5 per cent.",
        ),
        "errors is sorted in place": M(
            _sorted_in_place,
            "Whoever called it wants to compare seed by seed next. In which order are their errors now?",
        ),
        "coverage counts one side only": M(
            partial(_reported, coverage=lambda S: 1 - 1 / 2**S),
            CHANCE,
        ),
        "coverage is the chance that the range misses the median": M(
            partial(_reported, coverage=lambda S: 2 / 2**S),
            "The more runs, the surer is their range. Is it in yours?",
        ),
        "coverage is .95, however many runs there are": M(
            partial(_reported, coverage=lambda S: 0.95),
            "Does the range of two runs cover the median as often as that of nine?",
        ),
        "coverage is that of six runs, however many there are": M(
            partial(_reported, coverage=lambda S: 31 / 32),
            "Does the range of two runs cover the median as often as that of nine?",
        ),
        "coverage is that of one run fewer": M(
            partial(_reported, coverage=lambda S: 1 - 4 / 2**S),
            "Two runs enclose the median when one lies above it and one below. How likely is that? What do you get?",
        ),
        "coverage is the chance that the next run lies in the range": M(
            partial(_reported, coverage=lambda S: (S - 1) / (S + 1)),
            "That is about one more run. Asked for is the chance that the true median lies in the range.",
        ),
        "coverage is in per cent": M(
            partial(_reported, coverage=lambda S: 100 * (1 - 2 / 2**S)),
            "A probability lies between 0 and 1.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# compare-paired: compare_paired(ours, theirs) -> {"difference", "wins", "p"}


def paired_cases(rng):
    def seeds(ours, theirs):
        """Scale both, so that equal errors stay equal."""
        scale = rng.uniform(0.005, 0.02)
        return {"ours": (scale * np.array(ours)).round(5), "theirs": (scale * np.array(theirs)).round(5)}

    by_hand = {"ours": np.array([0.75, 0.5, 1.0, 0.25]), "theirs": np.array([1.0, 0.625, 0.875, 0.875])}
    yield Case("four seeds, numbers to check by hand", by_hand)
    yield Case("six seeds, ours lower with each", seeds([23, 40, 31, 52, 28, 45], [25, 44, 32, 58, 31, 52]))
    yield Case("six seeds, ours higher with each", seeds([27, 44, 36, 52, 30, 49], [25, 41, 30, 51, 22, 48]))
    yield Case("six seeds, three to three", seeds([20, 38, 29, 50, 33, 41], [21, 30, 31, 44, 36, 37]))
    yield Case("seven seeds, two of them equal", seeds([30, 22, 41, 35, 27, 50, 38], [34, 22, 47, 36, 27, 38, 49]))
    yield Case("eight seeds, one equal", seeds([30, 22, 41, 35, 27, 50, 38, 44], [24, 22, 37, 34, 21, 52, 31, 47]))
    yield Case("five seeds, all equal", seeds([30, 22, 41, 35, 27], [30, 22, 41, 35, 27]))


def _compared(
    ours,
    theirs,
    difference=lambda ours, theirs: _middle(ours - theirs),
    wins=lambda better, worse, ties: better,
    p=lambda better, worse, ties: min(1.0, 2 * _at_most(min(better, worse), better + worse)),
    paired=lambda errors: errors,
):
    """Return the comparison. Each keyword stands for one decision, right unless another is given."""
    ours, theirs = paired(ours), paired(theirs)
    found = [int(np.count_nonzero(np.sign(ours - theirs) == sign)) for sign in (-1, 1, 0)]
    return {"difference": np.float64(difference(ours, theirs)), "wins": wins(*found), "p": np.float64(p(*found))}


def _share(k, n):
    """Return the chance that exactly k of n even bets are won, by Pascal's triangle."""
    row = np.ones(1)
    for _ in range(n):
        row = np.convolve(row, [0.5, 0.5])
    return row[int(k)] if k == int(k) else 0.0


def _at_most(k, n):
    return sum(_share(j, n) for j in range(int(k) + 1))


def _every_pair(ours, theirs):
    """Compare each of ours with each of theirs."""
    found = _compared(ours, theirs)
    return found | {"wins": int((ours[:, None] < theirs).sum())}


def _without_ties(ours, theirs):
    """Return the median of the differences that are not 0; of none, 0."""
    return _middle([d for d in (ours - theirs).tolist() if d] or [0.0])


def _swapped(ours, theirs):
    return _compared(theirs, ours)


PAIRS = "The same seed gave both models the same data. Which error of theirs belongs to the first of ours?"
TIES = "A seed at which both err alike speaks for nobody. Where does it count in your code?"
SIGN = "A negative difference is to say that ours errs less, and a win is a seed at which it does."
SIDES = "Before the runs you could not know which model would win. Which outcomes are as surprising as yours?"
TAIL = "Which numbers of wins would have been at least as surprising as yours?"

COMPARE_PAIRED = Exercise(
    id="compare-paired",
    points=3,
    reference=_compared,
    cases=paired_cases,
    probe=call,
    section="“Seed by seed”",
    misconceptions={
        "the medians are subtracted, and not the errors of each seed": M(
            partial(_compared, difference=lambda ours, theirs: _middle(ours) - _middle(theirs)),
            PAIRS,
        ),
        "both are sorted first": M(partial(_compared, paired=lambda errors: errors[errors.argsort()]), PAIRS),
        "the best runs are subtracted": M(
            partial(_compared, difference=lambda ours, theirs: min(ours) - min(theirs)),
            "How much of a difference of two best runs is luck? Every seed has one.",
        ),
        "the seeds that are ties are left out of the difference": M(
            partial(_compared, difference=_without_ties),
            "The difference is a median over all seeds. Which part of them does your code see?",
        ),
        "the mean of the differences is taken": M(
            partial(_compared, difference=lambda ours, theirs: np.mean(ours - theirs)),
            "One seed far off moves it as far as it likes. Which number in the middle hardly moves?",
        ),
        "the sizes of the differences are taken, without their signs": M(
            partial(_compared, difference=lambda ours, theirs: _middle(abs(ours - theirs))),
            "A difference should say for whom it speaks.",
        ),
        "each difference is divided by the error of theirs": M(
            partial(_compared, difference=lambda ours, theirs: _middle((ours - theirs) / theirs)),
            "Asked for is a difference and no ratio.",
        ),
        "ours is subtracted from theirs": M(
            partial(_compared, difference=lambda ours, theirs: _middle(theirs - ours)), SIGN
        ),
        "ours and theirs are swapped": M(_swapped, SIGN),
        "the seeds at which ours is higher count as wins": M(
            partial(_compared, wins=lambda better, worse, ties: worse), SIGN
        ),
        "ties count as wins": M(
            partial(
                _compared,
                wins=lambda better, worse, ties: better + ties,
                p=lambda better, worse, ties: min(1.0, 2 * _at_most(min(better + ties, worse), better + worse + ties)),
            ),
            TIES,
        ),
        "ties count as losses": M(
            partial(
                _compared,
                p=lambda better, worse, ties: min(1.0, 2 * _at_most(min(better, worse + ties), better + worse + ties)),
            ),
            TIES,
        ),
        "ties count as wins, but not in p": M(
            partial(_compared, wins=lambda better, worse, ties: better + ties),
            TIES,
        ),
        "ties count as half a win": M(
            partial(
                _compared,
                wins=lambda better, worse, ties: better + ties / 2,
                p=lambda better, worse, ties: min(
                    1.0, 2 * _at_most(min(better, worse) + ties / 2, better + worse + ties)
                ),
            ),
            TIES,
        ),
        "ties count among the seeds in p": M(
            partial(
                _compared,
                p=lambda better, worse, ties: min(1.0, 2 * _at_most(min(better, worse), better + worse + ties)),
            ),
            TIES,
        ),
        "the share of wins is returned": M(
            partial(_compared, wins=lambda better, worse, ties: better / (better + worse + ties)),
            "Asked for is how many seeds, and not which part of them.",
        ),
        "each of ours is compared with each of theirs": M(_every_pair, PAIRS),
        "p counts one side only": M(
            partial(_compared, p=lambda better, worse, ties: _at_most(min(better, worse), better + worse)),
            SIDES,
        ),
        "p counts only the side on which ours wins at least as often": M(
            partial(_compared, p=lambda better, worse, ties: _at_most(worse, better + worse)),
            SIDES,
        ),
        "p starts from the losses, be they the smaller number or not": M(
            partial(_compared, p=lambda better, worse, ties: min(1.0, 2 * _at_most(worse, better + worse))),
            TAIL,
        ),
        "p starts from the wins, be they the smaller number or not": M(
            partial(_compared, p=lambda better, worse, ties: min(1.0, 2 * _at_most(better, better + worse))),
            "Let ours win with each of six seeds. How surprising is that, and what does your code say?",
        ),
        "p is not limited to 1": M(
            partial(_compared, p=lambda better, worse, ties: 2 * _at_most(min(better, worse), better + worse)),
            "A probability lies between 0 and 1. When is the middle counted twice?",
        ),
        "p is the chance of exactly this number of wins, on both sides": M(
            partial(
                _compared,
                p=lambda better, worse, ties: min(1.0, 2 * _share(min(better, worse), better + worse)),
            ),
            TAIL,
        ),
        "p is the chance of exactly this number of wins": M(
            partial(_compared, p=lambda better, worse, ties: _share(better, better + worse)),
            f"{TAIL} {SIDES}",
        ),
        "p leaves out the outcome itself": M(
            partial(
                _compared,
                p=lambda better, worse, ties: min(1.0, 2 * _at_most(min(better, worse) - 1, better + worse)),
            ),
            TAIL,
        ),
        "p is that of a win with every seed, however the seeds went": M(
            partial(_compared, p=lambda better, worse, ties: min(1.0, 2 * _at_most(0, better + worse))),
            TAIL,
        ),
        "one minus p is returned": M(
            partial(_compared, p=lambda b, worse, ties: 1 - min(1.0, 2 * _at_most(min(b, worse), b + worse))),
            "A small p is to say: hardly by chance. What does yours say of six wins in six?",
        ),
    },
)

EXERCISES = [MATCHED_SIZES, BEST_RATE, REPORT_RUNS, COMPARE_PAIRED, Manual("three-applications", 4)]
