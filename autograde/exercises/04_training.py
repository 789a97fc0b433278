"""Chapter 4: the masked loss, a classifier, the training step, batches of a stream, perplexity, sampling."""

from functools import partial

import numpy as np
import torch

from autograde import draw
from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import (
    draws,
    frequencies,
    inputs_and_targets,
    loss_and_gradient,
    module,
    perplexity_of,
    training_step,
)

# ----------------------------------------------------------------------------------------------------------
# masked-loss: masked_loss(logits, targets, lengths) -> the mean cross-entropy of what is no padding, ()


def loss_cases(rng):
    def arguments(B, T, C, *lengths, scale=1.0):
        targets = rng.integers(0, C, size=(B, T))
        targets[0, :2] = 0, 1  # so that class 0 is there, and not alone
        logits = rng.normal(size=(B, T, C))
        logits[0, 0, 0] -= 8  # and its loss is none of 0
        return {
            "logits": torch.from_numpy(scale * logits),
            "targets": torch.from_numpy(targets),
            "lengths": torch.tensor(lengths),
        }

    by_hand = torch.tensor([[[0.0, np.log(3.0)], [0.0, 0.0], [2.0, 0.0]]], dtype=torch.float64)
    given = {"logits": by_hand, "targets": torch.tensor([[1, 0, 1]]), "lengths": torch.tensor([2])}
    yield Case("two classes, numbers to check by hand: the mean of ln(4/3) and ln 2", given)
    yield Case("one sequence, padded", arguments(1, 6, 3, 4))
    yield Case("equal lengths, shorter than T", arguments(2, 5, 4, 3, 3))
    yield Case("B, T and C all different", arguments(3, 5, 4, 5, 2, 3))
    yield Case("B = T = C", arguments(4, 4, 4, 2, 4, 2, 3))
    yield Case("a long sequence and a short one", arguments(2, 9, 3, 9, 2))
    yield Case("scores in the thousands, whose exponentials overflow", arguments(2, 4, 3, 4, 2, scale=1000.0))


def _valid(logits, lengths):
    return (torch.arange(logits.shape[1]) < lengths[:, None]).to(logits.dtype)  # (B, T)


def _losses(logits, targets):
    """Return the loss of every step, (B, T)."""
    return logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]


def _masked_loss(logits, targets, lengths):
    valid = _valid(logits, lengths)
    return (valid * _losses(logits, targets)).sum() / lengths.sum()


def _weighted(logits, targets, lengths, weigh, losses=_losses):
    """Return a loss: weigh(losses (B, T), valid (B, T)) of what `losses` makes of the scores."""
    return weigh(losses(logits, targets), _valid(logits, lengths))


def _mean_of_valid(losses, valid):
    return (losses * valid).sum() / valid.sum()


def _some_valid(logits, targets, lengths, keep):
    """Return the mean over those steps that `keep` makes of valid and targets, both (B, T)."""
    return _losses(logits, targets)[keep(_valid(logits, lengths) > 0, targets)].mean()


def _by_the_longest(logits, targets, lengths):
    longest = int(lengths.max())
    return _losses(logits[:, :longest], targets[:, :longest]).mean()


def _classes_by_reshape(logits, targets):
    """Bring the classes to axis 1 by dealing the scores out anew."""
    B, T, C = logits.shape
    return torch.nn.functional.cross_entropy(logits.reshape(B, C, T), targets, reduction="none")


def _shifted(logits, targets, lengths):
    return _masked_loss(logits[:, :-1], targets[:, 1:], lengths - 1)


LOSS = Exercise(
    id="masked-loss",
    points=3,
    reference=_masked_loss,
    cases=loss_cases,
    probe=loss_and_gradient,
    axes={"gradient of logits": "B T C"},
    section="“Scores, probabilities, loss”",
    misconceptions={
        "the padding counts": M(
            partial(_weighted, weigh=lambda losses, valid: losses.mean()),
            "What stands behind a sequence's length is no data. Which argument is never used?",
        ),
        "the padding's losses are 0, but its steps are counted in the mean": M(
            partial(_weighted, weigh=lambda losses, valid: (losses * valid).mean()),
            "By how many steps do you divide? A step that is left out may not be counted either.",
        ),
        "the mean of each sequence is taken first": M(
            partial(_weighted, weigh=lambda losses, valid: ((losses * valid).sum(1) / valid.sum(1)).mean()),
            "In a mean of means a step of a short sequence weighs more. Each step is to weigh the same.",
        ),
        "the mask is used after the mean": M(
            partial(_weighted, weigh=lambda losses, valid: (losses.mean() * valid).mean()),
            "Once the mean is taken the padding is in it. What has to come first?",
        ),
        "the mask is turned round": M(
            partial(_weighted, weigh=lambda losses, valid: _mean_of_valid(losses, 1 - valid)),
            "Is your mask 1 where there is data, or where there is padding?",
        ),
        "the mask is one step too long": M(
            lambda logits, targets, lengths: _masked_loss(logits, targets, (lengths + 1).clamp(max=logits.shape[1])),
            "Steps are counted from 1 in the text and from 0 in the code. Is the step at index length valid?",
        ),
        "the mask is one step too short": M(
            lambda logits, targets, lengths: _masked_loss(logits, targets, lengths - 1),
            "Steps are counted from 1 in the text and from 0 in the code. Is the step at index length - 1 valid?",
        ),
        "all is left out that lies behind the longest sequence, and nothing else": M(
            _by_the_longest,
            "Each sequence has a length of its own.",
        ),
        "only the last valid step of each sequence counts": M(
            partial(_some_valid, keep=lambda valid, targets: valid & ~torch.nn.functional.pad(valid[:, 1:], (0, 1))),
            "That is a loss for many to one. Here every valid step has a target.",
        ),
        "the targets are shifted by a step": M(
            _shifted,
            "A language model's targets are shifted when its batches are made. Here the targets of step t stand at t.",
        ),
        "the classes are brought to the other axis by reshape": M(
            partial(_weighted, weigh=_mean_of_valid, losses=_classes_by_reshape),
            "reshape keeps the numbers in their order and deals them out anew; it exchanges no axes.",
        ),
        "softmax is taken twice": M(
            partial(
                _weighted, weigh=_mean_of_valid, losses=lambda logits, targets: _losses(logits.softmax(-1), targets)
            ),
            "PyTorch's cross-entropy takes scores and makes the probabilities itself.",
        ),
        "softmax is taken over time": M(
            partial(
                _weighted,
                weigh=_mean_of_valid,
                losses=lambda logits, targets: -logits.log_softmax(1).gather(-1, targets[..., None])[..., 0],
            ),
            "At each step the probabilities of the classes add up to 1. Which axis holds the classes?",
        ),
        "softmax is taken over the batch": M(
            partial(
                _weighted,
                weigh=_mean_of_valid,
                losses=lambda logits, targets: -logits.log_softmax(0).gather(-1, targets[..., None])[..., 0],
            ),
            "At each step the probabilities of the classes add up to 1. Which axis holds the classes?",
        ),
        "the scores are taken for logarithms of probabilities": M(
            partial(
                _weighted,
                weigh=_mean_of_valid,
                losses=lambda logits, targets: -logits.gather(-1, targets[..., None])[..., 0],
            ),
            "Scores become probabilities by softmax. What in your line makes sure that they add up to 1?",
        ),
        "the sum is not divided": M(
            partial(_weighted, weigh=lambda losses, valid: (losses * valid).sum()),
            "The sum grows with the batch and with the lengths; the mean is asked for.",
        ),
        "the sum is divided by B": M(
            partial(_weighted, weigh=lambda losses, valid: (losses * valid).sum() / len(losses)),
            "Long sequences would count for more in every step. By how many steps do you divide?",
        ),
        "the sum is divided by T": M(
            partial(_weighted, weigh=lambda losses, valid: (losses * valid).sum() / losses.shape[1]),
            "By how many steps do you divide? Count those with data.",
        ),
        "the scores are masked, not the losses": M(
            lambda logits, targets, lengths: _losses(logits * _valid(logits, lengths)[..., None], targets).mean(),
            "Where all scores are 0 the loss is ln C, not 0.",
        ),
        "the padding's targets are set to class 0": M(
            lambda logits, targets, lengths: _losses(logits, targets * _valid(logits, lengths).long()).mean(),
            "Class 0 is a class like any other: the padding still has a loss.",
        ),
        "steps of class 0 are left out": M(
            partial(_some_valid, keep=lambda valid, targets: valid & (targets != 0)),
            "Class 0 is a class like any other. The lengths say what is padding.",
        ),
        "the mask is made of the targets that are not 0": M(
            partial(_some_valid, keep=lambda valid, targets: targets != 0),
            "Class 0 is a class like any other. The lengths say what is padding.",
        ),
        "the sign is wrong": M(
            partial(_weighted, weigh=lambda losses, valid: -_mean_of_valid(losses, valid)),
            "A probability is at most 1, so its logarithm is not positive; a loss is not negative.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# token-classifier: Classifier(V, D, H, C), a module; forward(tokens, lengths) -> the scores of the classes, (B, C)


def classifier_cases(rng):
    def arguments(B, T, V, D, H, C, *lengths, gradients=True):
        shapes = {
            "embedding.weight": (V, D),
            "rnn.weight_ih_l0": (H, D),
            "rnn.weight_hh_l0": (H, H),
            "rnn.bias_ih_l0": (H,),
            "rnn.bias_hh_l0": (H,),
            "out.weight": (C, H),
            "out.bias": (C,),
        }
        weights = draw.normal(rng, **shapes)
        weights["rnn.weight_hh_l0"] *= 0.9 / np.linalg.norm(weights["rnn.weight_hh_l0"], ord=2)
        tokens = torch.from_numpy(np.stack([rng.permutation(max(V, T))[:T] % V for _ in range(B)]))
        tokens[0, 0] = 0  # which is a token like any other
        given = {
            "sizes": {"V": V, "D": D, "H": H, "C": C},
            "weights": draw.tensors(weights),
            "inputs": {"tokens": tokens, "lengths": torch.tensor(lengths)},
            "outputs": ["scores"],
        }
        upstream = {"upstream": [torch.from_numpy(rng.normal(size=(B, C)))]}
        return given | (upstream if gradients else {})

    yield Case("one token in each sequence", arguments(3, 1, 5, 2, 3, 4, 1, 1, 1, gradients=False))
    yield Case("no padding", arguments(2, 4, 6, 3, 5, 2, 4, 4, gradients=False))
    yield Case("lengths that differ, with gradients", arguments(3, 6, 8, 2, 4, 5, 6, 2, 3))
    yield Case("B = T = V = D = H = C, with gradients", arguments(4, 4, 4, 4, 4, 4, 2, 4, 3, 1))
    yield Case("a batch of one, padded", arguments(1, 5, 7, 3, 2, 4, 3, gradients=False))


class _Classifier(torch.nn.Module):
    def __init__(self, V, D, H, C):
        super().__init__()
        self.embedding, self.out = torch.nn.Embedding(V, D), torch.nn.Linear(H, C)
        self.rnn = torch.nn.RNN(D, H, batch_first=True)

    def forward(self, tokens, lengths):
        return self.out(self.read_off(self.states(tokens), lengths))

    def states(self, tokens):
        return self.rnn(self.embedding(tokens))[0]  # (B, T, H)

    def read_off(self, hs, lengths):
        return torch.stack([states[length - 1] for states, length in zip(hs, lengths.tolist(), strict=True)])


def _changed(**methods):
    """Return the classifier with some of its methods written otherwise."""
    return type("Classifier", (_Classifier,), methods)


def _mean_of_states(self, hs, lengths):
    valid = _valid(hs, lengths)[..., None]
    return (valid * hs).sum(1) / valid.sum(1)


def _sorted_by_length(self, tokens, lengths):
    order = lengths.argsort(descending=True, stable=True)
    return _Classifier.forward(self, tokens[order], lengths[order])


def _zeros_for_padding(self, tokens, lengths):
    embedded = self.embedding(tokens)
    return self.out(self.rnn(embedded * _valid(embedded, lengths)[..., None])[0][:, -1])


def _without_the_padding_s_gradient(self, V, D, H, C):
    _Classifier.__init__(self, V, D, H, C)
    self.embedding = torch.nn.Embedding(V, D, padding_idx=0)


CLASSIFIER = Exercise(
    id="token-classifier",
    points=3,
    reference=_Classifier,
    cases=classifier_cases,
    probe=module,
    axes={"output scores": "B C"},
    section="“A classifier”",
    misconceptions={
        "the state after the padding is read": M(
            _changed(read_off=lambda self, hs, lengths: hs[:, -1]),
            "At the end of a row there may be padding. Which argument is never used?",
        ),
        "the state one step late is read": M(
            _changed(read_off=lambda self, hs, lengths: hs[torch.arange(len(hs)), lengths.clamp(max=hs.shape[1] - 1)]),
            "The first state is hs[:, 0]. At which index is the state after as many tokens as the length says?",
        ),
        "the state one step early is read": M(
            _changed(read_off=lambda self, hs, lengths: hs[torch.arange(len(hs)), lengths - 2]),
            "The first state is hs[:, 0]. At which index is the state after as many tokens as the length says?",
        ),
        "the state of the longest sequence's end is read for all": M(
            _changed(read_off=lambda self, hs, lengths: hs[:, int(lengths.max()) - 1]),
            "Each sequence has a length of its own.",
        ),
        "the state of the shortest sequence's end is read for all": M(
            _changed(read_off=lambda self, hs, lengths: hs[:, int(lengths.min()) - 1]),
            "Each sequence has a length of its own.",
        ),
        "every sequence is read at the lengths of all": M(
            _changed(read_off=lambda self, hs, lengths: hs[:, lengths - 1]),
            "A colon takes all rows. For each row of the batch one step is asked for, its own.",
        ),
        "the axis of layers is left on the scores": M(
            _changed(read_off=lambda self, hs, lengths: _Classifier.read_off(self, hs, lengths)[None]),
            "h_n has an axis for layers and directions in front, also when there is only one.",
        ),
        "the batch is sorted by length and not put back": M(
            _changed(forward=_sorted_by_length),
            "The scores come out in the sorted order. Whose are they in row 0?",
        ),
        "padding is made zero, and the last state is read": M(
            _changed(forward=_zeros_for_padding),
            "A network that reads zeros still changes its state, by its bias and by W_hh.",
        ),
        "the first state is read": M(
            _changed(read_off=lambda self, hs, lengths: hs[:, 0]),
            "Which state has read the whole sequence?",
        ),
        "the mean over all states is read, the padding's too": M(
            _changed(read_off=lambda self, hs, lengths: hs.mean(1)),
            "The exercise asks for one state of each sequence. Which has read all of it?",
        ),
        "the mean over the valid states is read": M(
            _changed(read_off=_mean_of_states),
            "The mask is right; the exercise asks for one state of each sequence.",
        ),
        "the largest value over time is read": M(
            _changed(read_off=lambda self, hs, lengths: hs.amax(1)),
            "The exercise asks for one state of each sequence. Which has read all of it?",
        ),
        "batch_first is missing": M(
            _changed(
                states=lambda self, tokens: torch.func.functional_call(
                    torch.nn.RNN(*self.embedding.weight.shape[1:], self.out.in_features).double(),
                    dict(self.rnn.named_parameters()),
                    (self.embedding(tokens),),
                )[0]
            ),
            "Without a word from you, nn.RNN takes the first axis for time.",
        ),
        "softmax is taken of the scores": M(
            _changed(forward=lambda self, tokens, lengths: _Classifier.forward(self, tokens, lengths).softmax(-1)),
            "The loss makes probabilities of scores by itself.",
        ),
        "log-softmax is taken of the scores": M(
            _changed(forward=lambda self, tokens, lengths: _Classifier.forward(self, tokens, lengths).log_softmax(-1)),
            "The loss makes probabilities of scores by itself.",
        ),
        "tanh is taken of the scores": M(
            _changed(forward=lambda self, tokens, lengths: _Classifier.forward(self, tokens, lengths).tanh()),
            "A score may be as large as it needs to be.",
        ),
        "the likeliest class is returned": M(
            _changed(forward=lambda self, tokens, lengths: _Classifier.forward(self, tokens, lengths).argmax(-1)),
            "The loss needs the scores of all classes.",
        ),
        "token 0 is taken for padding": M(
            _changed(__init__=_without_the_padding_s_gradient),
            "Token 0 is a token like any other here; with padding_idx it is never learned. The lengths say what is "
            "padding.",
        ),
        "the states carry no gradient": M(
            _changed(states=lambda self, tokens: _Classifier.states(self, tokens).detach()),
            "What is detached is not trained. Nothing needs to be detached here.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# train-step: train_step(model, optimiser, x, y, max_norm) -> the loss, a number


def step_cases(rng):
    def arguments(B, D, C, max_norm, x=1.0, rate=2.0):
        given = draw.normal(rng, weight=(C, D), bias=(C,), x=(B, D))
        given["x"] *= x
        unlikely = (given["x"] @ given["weight"].T + given["bias"]).argmin(1)  # so that no gradient is small
        return given | {"y": unlikely, "learning rate": rate, "largest norm": max_norm}

    by_hand = {"weight": np.zeros((2, 1)), "bias": np.zeros(2), "x": np.array([[4.0]]), "y": np.array([1])}
    yield Case("one example, all weights 0", by_hand | {"learning rate": 0.5, "largest norm": 0.25})
    yield Case("a threshold that no gradient reaches", arguments(5, 3, 4, 100.0, rate=0.5))
    yield Case("a threshold that no gradient reaches, one example", arguments(1, 3, 4, 100.0, rate=0.5))
    yield Case("a threshold that is always passed", arguments(5, 3, 4, 0.3))
    yield Case("a threshold that is always passed, one example", arguments(1, 4, 3, 0.3, x=0.5, rate=4.0))
    yield Case("only the bias gets a gradient", arguments(3, 2, 4, 0.3, x=0.0, rate=4.0))


def _scaled(gradients, max_norm):
    norm = sum((gradient**2).sum() for gradient in gradients) ** 0.5
    for gradient in gradients:
        gradient.mul_(min(1.0, max_norm / (float(norm) + 1e-12)))  # a gradient may be 0


def _scaled_by_the_square(gradients, max_norm):
    squares = float(sum((gradient**2).sum() for gradient in gradients))
    for gradient in gradients:
        gradient.mul_(min(1.0, max_norm / squares))


def _scaled_always(gradients, max_norm):
    norm = sum((gradient**2).sum() for gradient in gradients) ** 0.5
    for gradient in gradients:
        gradient.mul_(max_norm / norm)


def _scaled_each(gradients, max_norm):
    for gradient in gradients:
        _scaled([gradient], max_norm)


def _cut_each_number(gradients, max_norm):
    for gradient in gradients:
        gradient.clamp_(-max_norm, max_norm)


def _train(
    model,
    optimiser,
    x,
    y,
    max_norm,
    clip=_scaled,
    loss=torch.nn.functional.cross_entropy,
    order="zero backward clip step",
):
    """Train for a step, in an order; what is wrong is wrong in one of these."""
    found = loss(model(x), y)
    for what in order.split():
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if what == "zero":
            optimiser.zero_grad()
        elif what == "zero-fill":
            optimiser.zero_grad(set_to_none=False)
        elif what == "backward":
            found.backward()
        elif what == "clip" and gradients:
            clip(gradients, max_norm)
        elif what == "step":
            optimiser.step()
    return found.item()


def _loss_after(model, optimiser, x, y, max_norm):
    _train(model, optimiser, x, y, max_norm)
    return torch.nn.functional.cross_entropy(model(x), y).item()


def _clipped_loss(model, optimiser, x, y, max_norm):
    limited = lambda logits, y: torch.nn.functional.cross_entropy(logits, y).clamp(max=max_norm)  # noqa: E731
    return _train(model, optimiser, x, y, max_norm, loss=limited, order="zero backward step")


def _clipped_weights(model, optimiser, x, y, max_norm):
    found = _train(model, optimiser, x, y, max_norm, order="zero backward step")
    with torch.no_grad():
        _scaled(list(model.parameters()), max_norm)
    return found


STEP = Exercise(
    id="train-step",
    points=3,
    reference=_train,
    cases=step_cases,
    probe=training_step,
    section="“The training loop”",
    tolerance=1e-5,
    misconceptions={
        "the gradients of the step before are not cleared": M(
            partial(_train, order="backward clip step"),
            "PyTorch adds each new gradient to the one that is there.",
        ),
        "no gradient is there when the optimiser makes its step, or it makes none": M(
            partial(_train, order="zero step backward clip"),
            "The weights do not move. Go through your lines in order: when are the gradients computed, when used, when "
            "cleared?",
        ),
        "the step comes before backward, with the gradients of the call before": M(
            partial(_train, order="step zero backward clip"),
            "The optimiser uses the gradients that it finds. Whose are they when it makes its step?",
        ),
        "nothing is clipped when the optimiser makes its step": M(
            partial(_train, order="zero backward step clip"),
            "Is the clipping left out, or does it come before the gradients are there, or after they are used?",
        ),
        "each parameter's gradient is clipped by itself": M(
            partial(_train, clip=_scaled_each),
            "The norm is one number, of all gradients together; so their direction stays.",
        ),
        "each number of the gradients is cut off": M(
            partial(_train, clip=_cut_each_number),
            "Cutting off single numbers changes the direction. Here the norm is to be limited.",
        ),
        "the gradients get the largest norm even where theirs is smaller": M(
            partial(_train, clip=_scaled_always),
            "A norm that is below the threshold stays as it is.",
        ),
        "the sum of squares is taken for the norm": M(
            partial(_train, clip=_scaled_by_the_square),
            "Of a vector of two numbers, 3 and 4, the norm is 5.",
        ),
        "the loss is clipped, not the gradients": M(
            _clipped_loss,
            "The loss is what is measured; it stays as it is. What may be too long?",
        ),
        "the weights are clipped, not the gradients": M(
            _clipped_weights,
            "What may not be too long is the step, so what has to be clipped is the gradient.",
        ),
        "softmax is taken twice": M(
            partial(_train, loss=lambda logits, y: torch.nn.functional.cross_entropy(logits.softmax(-1), y)),
            "The model gives scores, and PyTorch's cross-entropy makes the probabilities itself.",
        ),
        "the losses are added up": M(
            partial(_train, loss=lambda scores, y: torch.nn.functional.cross_entropy(scores, y, reduction="sum")),
            "The mean over the batch is asked for: a larger batch should not mean larger steps.",
        ),
        "the loss after the step is returned": M(
            _loss_after,
            "The weights are right. Which loss did the gradients come from?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# lm-batches: lm_batches(tokens, B, T) -> inputs and targets, (K, B, T) each


def batch_cases(rng):
    def arguments(N, B, T):
        return {"tokens": torch.from_numpy(rng.permutation(N) + 100), "B": B, "T": T}

    yield Case("the numbers 0 to 12 in two streams, chunks of three", {"tokens": torch.arange(13), "B": 2, "T": 3})
    yield Case("one stream", arguments(17, 1, 4))
    yield Case("some tokens are left over", arguments(60, 3, 4))
    yield Case("the last token can only be a target", arguments(48, 2, 6))
    yield Case("B = T", arguments(65, 4, 4))
    yield Case("chunks of one step", arguments(14, 3, 1))


def _batches(tokens, B, T, shift=1, chunk=lambda streams, B, K, T: streams.view(B, K, T).transpose(0, 1)):
    """Return both tensors; `chunk` cuts streams (B, K T) into (K, B, T)."""
    length = (len(tokens) - max(shift, 1)) // B
    K = length // T
    both = (tokens[start : start + B * length].view(B, length)[:, : K * T] for start in (0, shift))
    return tuple(chunk(streams, B, K, T) for streams in both)


def _by_rolling(tokens, B, T):
    """Give the last token the first for a target, where it is used."""
    length = len(tokens) // B
    K = length // T
    both = (tokens, tokens.roll(-1))
    return tuple(t[: B * length].view(B, length)[:, : K * T].view(B, K, T).transpose(0, 1) for t in both)


def _rolled_in_chunks(tokens, B, T):
    inputs = _batches(tokens, B, T)[0]
    return inputs, inputs.roll(-1, dims=-1)


def _rolled_in_streams(tokens, B, T):
    length = len(tokens) // B
    K, streams = length // T, tokens[: len(tokens) // B * B].view(B, length)
    both = (streams[:, : K * T], streams.roll(-1, dims=1)[:, : K * T])
    return tuple(one.reshape(B, K, T).transpose(0, 1) for one in both)


def _whole_chunks_of_the_text(tokens, B, T):
    """Leave out at the end of the text what does not fill a chunk of all streams, and only then cut the streams."""
    K = (len(tokens) - 1) // (B * T)
    return tuple(tokens[start : start + B * K * T].view(B, K, T).transpose(0, 1) for start in (0, 1))


def _row_after_row(tokens, B, T):
    """Fill each chunk from the text, row after row, and go on with the next chunk."""
    K = (len(tokens) - 1) // (B * T)
    return tuple(tokens[start : start + K * B * T].view(K, B, T) for start in (0, 1))


def _dealt_out(tokens, B, T):
    K = (len(tokens) - 1) // B // T
    return tuple(tokens[start : start + K * B * T].view(K, T, B).transpose(1, 2) for start in (0, 1))


def _streams_that_end_early(tokens, B, T):
    """Cut whole streams, and lose the last token of each, which has no target in its own row."""
    length = len(tokens) // B
    streams = tokens[: B * length].view(B, length)
    K = (length - 1) // T
    both = (streams[:, :-1], streams[:, 1:])
    return tuple(one[:, : K * T].reshape(B, K, T).transpose(0, 1) for one in both)


BATCHES = Exercise(
    id="lm-batches",
    points=3,
    reference=_batches,
    cases=batch_cases,
    probe=inputs_and_targets,
    axes={"inputs": "K B T", "targets": "K B T"},
    section="“Streams of text”",
    misconceptions={
        "the targets are the inputs": M(
            partial(_batches, shift=0),
            "The network is to say what comes next. It has already read its input.",
        ),
        "the targets lie two tokens ahead": M(
            partial(_batches, shift=2),
            "The target of a token is the token right after it.",
        ),
        "inputs and targets are swapped": M(
            lambda *a: _batches(*a)[::-1],
            "The target is what comes after the input. The inputs are returned first.",
        ),
        "the last target of a chunk is its own first token": M(
            _rolled_in_chunks,
            "roll puts in front what falls off at the end. After a chunk comes the next chunk of its stream.",
        ),
        "the last target of a stream is its own first token": M(
            _rolled_in_streams,
            "roll puts in front what falls off at the end. What stands in the text after the stream's last token?",
        ),
        "the last token of the text gets the first for a target": M(
            _by_rolling,
            "roll puts in front what falls off at the end. After the last token nothing comes: how many have a target?",
        ),
        "a chunk is filled row after row, and the next chunk goes on where it ended": M(
            _row_after_row,
            "Read row 0 of one chunk and then row 0 of the next: is that one piece of text?",
        ),
        "what fills no chunk is left out at the end of the text, before the streams are cut": M(
            _whole_chunks_of_the_text,
            "How long is a stream, by the exercise's text? Where does stream 1 begin, and what is left out of each?",
        ),
        "the text is dealt out to the rows token by token": M(
            _dealt_out,
            "Read row 0 alone: is it a piece of text? view and reshape fill the last axis first.",
        ),
        "the last token of every stream is lost": M(
            _streams_that_end_early,
            "Its target is the token after it in the text, the first of the next stream. Shift first, then cut.",
        ),
        "time comes before the batch": M(
            partial(_batches, chunk=lambda streams, B, K, T: streams.view(B, K, T).permute(1, 2, 0)),
            "The tokens are right; the axes are K, B, T in this order.",
        ),
        "the batch comes before the chunks": M(
            partial(_batches, chunk=lambda streams, B, K, T: streams.view(B, K, T)),
            "The tokens are right; the axes are K, B, T in this order.",
        ),
        "the axes K and B are exchanged by reshape": M(
            partial(_batches, chunk=lambda streams, B, K, T: streams.reshape(K, B, T)),
            "reshape keeps the tokens in their order and deals them out anew; it exchanges no axes.",
        ),
        "the last chunk is missing": M(
            lambda *a: tuple(both[:-1] for both in _batches(*a)),
            "How many whole chunks of T steps are there in a stream?",
        ),
        "the first chunk is missing": M(
            lambda *a: tuple(both[1:] for both in _batches(*a)),
            "The first chunk begins with the first token.",
        ),
        "only the first chunk is returned": M(
            lambda *a: tuple(both[:1] for both in _batches(*a)),
            "How many whole chunks of T steps are there in a stream?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# perplexity: perplexity(model, tokens, T) -> the perplexity of a text, a number


def perplexity_cases(rng):
    def arguments(N, T, V, H):
        weights = draw.recurrent(rng, V, H) | draw.normal(rng, W_hy=(V, H), b_y=(V,))
        return weights | {"tokens": torch.from_numpy(rng.integers(0, V, size=N)), "T": T}

    yield Case("one chunk", arguments(7, 6, 4, 3))
    yield Case("two whole chunks", arguments(9, 4, 4, 3))
    yield Case("the last chunk is shorter", arguments(12, 4, 5, 3))
    yield Case("the last chunk has one step", arguments(17, 5, 3, 4))
    yield Case("chunks of one step", arguments(8, 1, 6, 5))


def _chunks(model, tokens, T, carry=lambda state: state, shift=1, scores=lambda logits: logits):
    """Yield the losses of each chunk's steps."""
    state = None
    for start in range(0, len(tokens) - 1, T):
        x = tokens[start : start + T][: len(tokens) - 1 - start]
        with torch.no_grad():
            logits, state = model(x[None], carry(state))
        y = tokens[start + shift : start + shift + len(x)]
        yield torch.nn.functional.cross_entropy(scores(logits[0]), y, reduction="none")


def _whole_chunks(model, tokens, T, rest):
    whole = (len(tokens) - 1) // T * T
    losses = torch.cat(list(_chunks(model, tokens[: whole + 1], T)))
    return float((losses.sum() / (len(tokens) - 1 if rest else whole)).exp())


def _inside_chunks(model, tokens, T):
    """Take the targets from the chunk itself."""
    state, losses = None, []
    for chunk in tokens.split(T):
        with torch.no_grad():
            logits, state = model(chunk[None], state)
        losses += torch.nn.functional.cross_entropy(logits[0, :-1], chunk[1:], reduction="none").tolist()
    return float(np.exp(sum(losses) / len(losses)))


def _perplexity(*a, **k):
    return float(torch.cat(list(_chunks(*a, **k))).mean().exp())


def _of_chunks(model, tokens, T, reduce):
    """Return what `reduce` makes of the losses, one tensor a chunk."""
    return float(reduce(list(_chunks(model, tokens, T))))


def _while_recording(model, tokens, T):
    """Compute it right, with everything recorded for a backward that never comes."""
    state, total = None, 0.0
    for start in range(0, len(tokens) - 1, T):
        y = tokens[start + 1 : start + 1 + T]
        logits, state = model(tokens[None, start : start + len(y)], state)
        total = total + torch.nn.functional.cross_entropy(logits[0], y, reduction="sum")
    return (total / (len(tokens) - 1)).exp().item()


PERPLEXITY = Exercise(
    id="perplexity",
    points=3,
    reference=_perplexity,
    cases=perplexity_cases,
    probe=perplexity_of,
    section="“Perplexity and its baselines”",
    misconceptions={
        "the state is not carried from chunk to chunk": M(
            partial(_perplexity, carry=lambda state: None),
            "The second chunk goes on where the first ended. What does the model get with it?",
        ),
        "the mean of each chunk is taken first": M(
            partial(_of_chunks, reduce=lambda found: torch.stack([losses.mean() for losses in found]).mean().exp()),
            "The last chunk may be shorter: in a mean of means its steps weigh more. Add up, and divide at the end.",
        ),
        "the perplexities of the chunks are averaged": M(
            partial(_of_chunks, reduce=lambda found: torch.stack([losses.mean().exp() for losses in found]).mean()),
            "The mean of exponentials is not the exponential of the mean. Which comes last?",
        ),
        "the perplexities of the steps are averaged": M(
            partial(_of_chunks, reduce=lambda found: torch.cat(found).exp().mean()),
            "The mean of exponentials is not the exponential of the mean. Which comes last?",
        ),
        "the losses are added up and not divided": M(
            partial(_of_chunks, reduce=lambda found: torch.cat(found).sum().exp()),
            "The mean of all steps is asked for. How many predictions are there?",
        ),
        "the sum is divided by the number of tokens": M(
            lambda model, tokens, T: float((torch.cat(list(_chunks(model, tokens, T))).sum() / len(tokens)).exp()),
            "How many tokens have one after them, and so a prediction?",
        ),
        "the sum is divided by the number of chunks": M(
            partial(_of_chunks, reduce=lambda found: (torch.cat(found).sum() / len(found)).exp()),
            "Divide by the number of predictions.",
        ),
        "the last, shorter chunk is left out": M(
            partial(_whole_chunks, rest=False),
            "The text has N - 1 predictions; a chunk may be shorter than T.",
        ),
        "the last, shorter chunk is left out, but its steps are counted": M(
            partial(_whole_chunks, rest=True),
            "The text has N - 1 predictions; a chunk may be shorter than T.",
        ),
        "each chunk's first token is predicted by nobody": M(
            _inside_chunks,
            "The target of a chunk's last token is the first of the next chunk.",
        ),
        "softmax is taken twice": M(
            lambda *a: float(torch.cat(list(_chunks(*a, scores=lambda logits: logits.softmax(-1)))).mean().exp()),
            "The model gives scores, and PyTorch's cross-entropy makes the probabilities itself.",
        ),
        "the whole text is read at once": M(
            lambda model, tokens, T: _perplexity(model, tokens, len(tokens)),
            "The number is right. How much memory would it take for a whole library? T says how much to read at once.",
        ),
        "the mean loss is returned": M(
            partial(_of_chunks, reduce=lambda found: torch.cat(found).mean()),
            "That is the loss in nats. What makes a perplexity of it?",
        ),
        "2 stands in place of e": M(
            partial(_of_chunks, reduce=lambda found: 2 ** torch.cat(found).mean()),
            "PyTorch's loss is in nats, with the natural logarithm. 2 would be right for bits.",
        ),
        "the sign is wrong": M(
            partial(_of_chunks, reduce=lambda found: torch.cat(found).mean().neg().exp()),
            "A perplexity is at least 1.",
        ),
        "the targets are the inputs": M(
            partial(_perplexity, shift=0),
            "What the model gives at a step is about the next token.",
        ),
        "only the last chunk is counted": M(
            partial(_of_chunks, reduce=lambda found: found[-1].mean().exp()),
            "Is the sum begun anew in each turn of the loop?",
        ),
        "only the first chunk is counted": M(
            partial(_of_chunks, reduce=lambda found: found[0].mean().exp()),
            "How far to the right does your return stand: in the loop or after it?",
        ),
        "what is computed is recorded for a backward that never comes": M(
            _while_recording,
            "The number is right. PyTorch recorded every step for a backward that never comes, which costs memory.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# sampler: sample(logits, temperature, generator) -> one token for each row, (B,)


def sampler_cases(rng):
    def arguments(B, V, temperature):
        one = rng.permutation(np.linspace(-1.2, 1.8, V))
        logits = np.stack([one[::-1], one, one])[:B]  # not all alike, nor such that a softmax over the batch comes near
        logits += np.arange(B)[:, None]  # of which softmax takes no notice, other than along the batch
        return {"logits": logits, "temperature": temperature, "seed": int(rng.integers(2**31))}

    thirds = {"logits": np.log([[2.0, 1.0]]), "temperature": 1.0, "seed": int(rng.integers(2**31))}
    yield Case("two tokens at temperature 1: 2/3 and 1/3", thirds)
    yield Case("temperature 1/4", arguments(1, 4, 0.25))
    yield Case("temperature 2", arguments(1, 4, 2.0))
    yield Case("a batch of three, temperature 0.4", arguments(3, 4, 0.4))
    yield Case("B = V, temperature 3", arguments(3, 3, 3.0))


def _drawn(logits, temperature, generator, weigh=lambda y, t: (y / t).softmax(-1)):
    """Draw by turning the cumulative probabilities round."""
    p = weigh(logits, temperature)
    u = torch.rand((len(p), 1), generator=generator, dtype=p.dtype) * p.sum(-1, keepdim=True)
    return (p.cumsum(-1) < u).sum(-1).clamp(max=p.shape[1] - 1)


def _from_its_seed(logits, temperature, generator):
    return _drawn(logits, temperature, torch.Generator().manual_seed(generator.initial_seed()))


def _weighed(weigh):
    return partial(_drawn, weigh=weigh)


SAMPLER = Exercise(
    id="sampler",
    points=3,
    reference=_drawn,
    cases=sampler_cases,
    probe=draws,
    measure=frequencies,  # anyone who reads the scores can say how often each token must come; it has to be drawn
    axes={"frequencies": "B V"},
    section="“Sampling”",
    tolerance=0.05,
    misconceptions={
        "the scores are multiplied by the temperature": M(
            _weighed(lambda y, t: (y * t).softmax(-1)),
            "Warm is bold: a high temperature makes the scores' differences count for less.",
        ),
        "the temperature is not used": M(
            _weighed(lambda y, t: y.softmax(-1)),
            "Which argument makes no difference? Where multinomial gets numbers that do not add up to 1, it rescales "
            "them, so what divides all of them has no effect.",
        ),
        "the likeliest token is taken": M(
            lambda y, t, g: y.argmax(-1),
            "What always takes the likeliest is no draw; a token of probability 1/3 is to come one time in three.",
        ),
        "all tokens are drawn alike": M(
            _weighed(lambda y, t: torch.ones_like(y)),
            "The scores say which tokens are likelier.",
        ),
        "softmax is taken over the batch": M(
            _weighed(lambda y, t: (y / t).softmax(0)),
            "In each row the probabilities of the tokens add up to 1. Which axis holds the tokens?",
        ),
        "softmax is taken twice": M(
            _weighed(lambda y, t: (y / t).softmax(-1).softmax(-1)),
            "multinomial takes probabilities as they are.",
        ),
        "the temperature divides the probabilities, and softmax is taken of those": M(
            _weighed(lambda y, t: (y.softmax(-1) / t).softmax(-1)),
            "The temperature divides scores, not probabilities.",
        ),
        "the scores' size is taken for a probability": M(
            lambda y, t, g: torch.multinomial(y / t, 1, generator=g)[:, 0],
            "Scores may be negative. What makes probabilities of them?",
        ),
        "the probabilities are turned upside down": M(
            _weighed(lambda y, t: (-y / t).softmax(-1)),
            "A high score is to come often.",
        ),
        "every row gets the token of the first": M(
            lambda y, t, g: _drawn(y[:1].expand(len(y), -1), t, g)[:1].expand(len(y)).clone(),
            "Each row has scores of its own, and a draw of its own.",
        ),
        "all rows are drawn from the first one's scores": M(
            lambda y, t, g: _drawn(y[:1].expand(len(y), -1), t, g),
            "Each row has scores of its own.",
        ),
        "the generator's seed is used again at every call": M(
            _from_its_seed,
            "A text of one letter after another would get the same number each time. What moves a generator on?",
        ),
        "the generator is not used": M(
            lambda y, t, g: _drawn(y, t, None),
            "Without it nobody can draw the same again. Functions that draw take a generator=…",
        ),
        "a generator of one's own is used": M(
            lambda y, t, g: _drawn(y, t, torch.Generator().manual_seed(0)),
            "Whoever calls the function chooses the draws: by the generator that is passed.",
        ),
    },
)

EXERCISES = [LOSS, STEP, CLASSIFIER, BATCHES, PERPLEXITY, SAMPLER, Manual("loss-curves", 4)]
