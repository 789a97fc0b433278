"""How an implementation is called. Knows no right answer: a probe could run beside a student's code."""

from unittest.mock import patch

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from autograde import guard
from autograde.compare import Described, describe


class Given(dict):
    """A case's arguments as a probe gets them; `passed` is what the answer was called with, where these are others."""

    passed = None


class Unusable(Exception):
    """Raised by a probe for a result it cannot work with; its text tells the student what came and what was asked."""


def _passes(arguments, **passed):
    """Note what an answer is called with: should it raise, its student is told that, and not the case."""
    if isinstance(arguments, Given):
        arguments.passed = passed


def call(implementation, arguments):
    """Call a function with named values, in order, and return what it returns, a tensor without its graph."""
    return _without_graph(implementation(*arguments.values()))


def bits_of_relu_network(weights, arguments):
    """Run a ReLU network of these weights from h_0 = 0 on strings of bits, and return at each step if y_t > 1/2.

    weights is a dictionary with W_xh (H, 1), W_hh (H, H), b_h (H,), W_hy (1, H) and b_y (1,), for any H.
    arguments["bits"] is an array of zeros and ones, (B, T). Returns zeros and ones, (B, T).
    """
    W_xh, W_hh, b_h, W_hy, b_y = _weights(weights)
    bits = arguments["bits"]
    B, T = bits.shape
    h = np.zeros((B, b_h.shape[0]))
    answers = np.zeros((B, T))
    with np.errstate(over="ignore", invalid="ignore"):  # weights that explode give wrong bits, not warnings
        for t in range(T):
            h = np.maximum(np.outer(bits[:, t], W_xh[:, 0]) + np.einsum("bj,ij->bi", h, W_hh) + b_h, 0)
            answers[:, t] = np.einsum("bj,j->b", h, W_hy[0]) + b_y[0] > 1 / 2
    return answers


def weights_of_relu_network(implementation, arguments):
    """Call a function without arguments for the weights that `bits_of_relu_network` takes; return them as arrays."""
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    return dict(zip(names, _weights(implementation()), strict=True))


def pair(implementation, arguments):
    """Call a function with named values, in order; a list or tuple that comes back is taken as a tuple."""
    result = implementation(*arguments.values())
    return tuple(result) if isinstance(result, list | tuple) else result


def module(implementation, arguments):
    """Build a module, give it weights, run it, and differentiate.

    arguments has "sizes" {name: number}, what the class is called with, in order; "weights" {name: tensor}; "inputs"
    {name: tensor}, what forward gets, in order (None: it is left out); "outputs", the names of what it gives; and
    perhaps "upstream", a gradient for each of these. The module is put in the weights' dtype: where forward makes a
    tensor of another one, it is found out. Returns {"output NAME": tensor, ..., "gradient of NAME": tensor, ...},
    gradients of weights and inputs; what has none, or cannot be differentiated, has a description in its place.
    """
    built = _built(implementation, arguments["sizes"], arguments["weights"])
    given = {name: tensor for name, tensor in arguments["inputs"].items() if tensor is not None}
    leaves = {name: tensor.clone().requires_grad_(tensor.is_floating_point()) for name, tensor in given.items()}
    passed = {name: leaf.clone() for name, leaf in leaves.items()}  # these an answer may change in place, and it shows
    outputs, expected = built(*passed.values()), arguments["outputs"]
    for name, tensor in passed.items():
        given[name].copy_(tensor.detach())
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    if len(outputs) != len(expected) or not all(isinstance(output, torch.Tensor) for output in outputs):
        asked = f"{len(expected)} tensors: {', '.join(expected)}" if len(expected) > 1 else f"a tensor, {expected[0]}"
        raise Unusable(f"forward returns {' and '.join(map(describe, outputs))}; expected {asked}")
    result = {f"output {name}": output.detach() for name, output in zip(expected, outputs, strict=True)}
    if "upstream" in arguments:
        wanted = {name: leaf for name, leaf in (*built.named_parameters(), *leaves.items()) if leaf.requires_grad}
        found = _gradients(outputs, arguments["upstream"], wanted)
        result |= {f"gradient of {name}": gradient for name, gradient in found.items()}
    return result


def _built(implementation, sizes, weights):
    """Return a module with these weights in it."""
    if isinstance(implementation, torch.nn.Module):
        raise Unusable("This is a module that is built already; expected the class itself, without brackets behind it")
    if not (isinstance(implementation, type) and issubclass(implementation, torch.nn.Module)):
        raise Unusable(f"This is {describe(implementation)}; expected a class, derived from torch.nn.Module")
    try:
        built = implementation(*sizes.values())
        parameters = dict(built.named_parameters())
    except AttributeError as error:
        if "before Module.__init__" in str(error) or "'_parameters'" in str(error) or "'_modules'" in str(error):
            raise Unusable(
                "The module is not set up when it gets its first attribute: `super().__init__()` must come first"
            ) from None
        raise
    for name, value in weights.items():
        if name not in parameters:
            raise Unusable(_not_a_parameter(built, name, sorted(parameters, key=weights.__contains__)))
        if parameters[name].shape != value.shape:
            raise Unusable(
                f"The parameter {name} has shape {tuple(parameters[name].shape)}; expected {tuple(value.shape)}, since "
                + ", ".join(f"{size} = {number}" for size, number in sizes.items())
            )
    if unknown := sorted(set(parameters) - set(weights)):
        raise Unusable(f"The module has the parameter {unknown[0]}, too; expected {_some(weights)} and no other")
    built.to(next(iter(weights.values())).dtype)
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)
    return built


def _not_a_parameter(built, name, parameters):
    """Say why a module has no parameter of this name."""
    every = dict(built.named_parameters(remove_duplicate=False))
    if twin := next((n for n, p in every.items() if n != name and p is every.get(name)), ""):
        return f"{twin} and {name} are one and the same parameter; expected one for each"
    first, _, rest = name.partition(".")
    there = getattr(built, first, None)
    if isinstance(there, list | tuple | dict) and rest:
        return (
            f"`self.{first}` is {describe(there)}, and a module does not look for parameters inside it: no optimiser "
            "would find them. PyTorch has containers of its own for modules"
        )
    if isinstance(there, torch.Tensor) and not rest:
        return f"`self.{first}` is a tensor and no parameter: no optimiser would find it"
    return f"The module has no parameter {name}; its parameters are {_some(parameters) or 'none'}"


def _some(names, most=5):
    """List names, the first few of many."""
    names = list(names)
    rest = f" and {len(names) - most + 1} more" if len(names) > most else ""
    return ", ".join(names[: most - 1] if rest else names) + rest


def _gradients(outputs, upstream, wanted):
    """Return {name: gradient} for tensors that a loss, the outputs times `upstream`, may depend on."""
    pairs = list(zip(outputs, upstream, strict=True))
    if any(output.shape != gradient.shape or output.dtype != gradient.dtype for output, gradient in pairs):
        return dict.fromkeys(wanted, Described("not computed, since an output has another shape or dtype"))
    recorded = [(output, gradient) for output, gradient in pairs if output.requires_grad]
    found, why = [None] * len(wanted), "missing: what PyTorch recorded does not lead back to it"
    if recorded:
        loss = sum((output * gradient).sum() for output, gradient in recorded)
        try:
            found = guard.allowed(torch.autograd.grad, loss, list(wanted.values()), allow_unused=True)
        except RuntimeError as error:
            in_place = "a tensor that it needs was changed in place" if "inplace" in str(error) else str(error)[:200]
            why = f"missing: PyTorch cannot compute it, since {in_place}"
    return {name: Described(why) if g is None else g for name, g in zip(wanted, found, strict=True)}


def products_with_input(implementation, arguments):
    """Call a function of tensors, among them W_xh; return {"output hs": ..., "number of operations with W_xh": ...}.

    Operations are those that bring its numbers together with numbers of x or h0. The count is taken beside the answer
    and could be forged there; the states could not.
    """
    with _Uses(arguments["W_xh"], (arguments["x"], arguments["h0"])) as uses:
        hs = implementation(*arguments.values())
    return {"output hs": hs, "number of operations with W_xh": uses.count}


class _Uses(TorchFunctionMode):
    """Counts the operations that bring a weight together with data; what is made of weights alone is weight still."""

    def __init__(self, weight, data):
        super().__init__()
        self.count = 0
        self._weights, self._data = {}, {}  # by place in memory; the tensors are kept, so that none is given away anew
        self._note(self._weights, [weight])
        self._note(self._data, data)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(result)
        name = getattr(function, "__name__", "")
        if name == "__setitem__":  # it writes, and returns nothing
            made = given[:1]
        if not made or name.startswith("new_") or name.endswith("_like"):  # these take a form, no numbers
            return result
        weight, data = (any(_place(each) in known for each in given) for known in (self._weights, self._data))
        if weight and data and not all(_place(each) in self._weights for each in made):
            self.count += 1
        if data:
            self._note(self._data, [each for each in made if _place(each) not in self._weights])
        elif weight:
            self._note(self._weights, made)
        return result

    @staticmethod
    def _note(known, tensors):
        known.update((_place(each), each) for each in tensors)


def _place(tensor):
    """Return where a tensor's numbers lie; a view's lie where those of the whole do."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # inside vmap
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage().data_ptr()


def _tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def filled(implementation, arguments):
    """Let a function fill parameters at random; return them as arrays, with what shows whose numbers they are.

    implementation(W_xh, W_hh, b_h, gain, generator) fills the three in place; arguments has "D", "H", "gain", "seed".
    Returns {"W_xh", "W_hh", "b_h"}, "again", W_hh from the same seed, and "other", W_hh from another.
    """
    D, H, gain, seed = arguments.values()

    def fill(seed):
        parameters = [torch.nn.Parameter(torch.full(shape, 0.25)) for shape in ((H, D), (H, H), (H,))]
        generator = torch.Generator().manual_seed(seed)
        named = zip(("W_xh", "W_hh", "b_h"), parameters, strict=True)
        _passes(arguments, **dict(named), gain=gain, generator=generator)
        implementation(*parameters, gain, generator)
        return [parameter.detach().numpy() for parameter in parameters]

    first, again, other = fill(seed), fill(seed), fill(seed + 1)
    return dict(zip(("W_xh", "W_hh", "b_h", "again", "other"), (*first, again[1], other[1]), strict=True))


def spread(weights, arguments):
    """Measure what `filled` gives, a dictionary: sizes of the weights, times √H or H so that they are numbers near 1.

    Compare with a tolerance of 0.05: with 10,000 weights or more that is over five standard deviations of what an
    answer draws, where the reference's weights are spaced evenly.
    """
    H = arguments["H"]
    shapes = {"W_xh": (H, arguments["D"]), "W_hh": (H, H), "b_h": (H,), "again": (H, H), "other": (H, H)}
    for name, shape in shapes.items():
        array = weights.get(name) if isinstance(weights, dict) else None
        if not (isinstance(array, np.ndarray) and array.shape == shape and array.dtype.kind == "f"):
            raise Unusable(f"{name} is {describe(array)}; expected the parameter that was passed, filled in place")
    result = {}
    for name in ("W_xh", "W_hh"):
        drawn = weights[name].astype(np.float64)
        result[f"mean square of {name}, times H,"] = round(float(H * np.square(drawn).mean()), 2)
        result[f"size that 99 of 100 of {name} stay below, times √H,"] = round(
            float(H**0.5 * np.quantile(np.abs(drawn), 0.99)), 2
        )
        result[f"share of {name} above zero"] = round(float((drawn > 0).mean()), 2)
    result["largest entry of b_h, times √H,"] = round(float(H**0.5 * np.abs(weights["b_h"]).max()), 2)
    result |= _of_the_seed(weights["W_hh"], weights["again"], weights["other"])
    return result


def with_rnn(implementation, arguments):
    """Make a torch.nn.RNN, batch first, with arguments["weights"], and call a function with it and the others."""
    weights = arguments["weights"]
    (H, D), layers = weights["weight_ih_l0"].shape, len(weights) // 4
    return _with(torch.nn.RNN(D, H, layers, batch_first=True, dtype=torch.float64), implementation, arguments)


def with_gru_cell(implementation, arguments):
    """Make a torch.nn.GRUCell with arguments["weights"], and call a function with it and the other arguments."""
    weights = arguments["weights"]
    D, H = weights["weight_ih"].shape[1], weights["weight_hh"].shape[1]
    return _with(torch.nn.GRUCell(D, H, dtype=torch.float64), implementation, arguments)


def _with(layer, implementation, arguments):
    """Call a function with a layer and the other arguments; "weights" are the layer's, {torch's name: tensor}."""
    for name, parameter in layer.named_parameters():
        parameter.data = arguments["weights"][name]  # shared, so that an answer that changes a weight is found out
    others = (value for name, value in arguments.items() if name != "weights")
    return _without_graph(implementation(layer, *others))


def rnn_of_two_layers(implementation, arguments):
    """Let a function make a torch.nn.RNN of weights, and run it on arguments["x"], (B, T, D), from ["h0"], (2, B, H).

    While it is made, whatever PyTorch would draw at random is 1/2, so that what is left as drawn gives the same numbers
    each time. Returns {"output": (B, T, H), "h_n": (2, B, H)}.
    """
    x, h0 = (torch.as_tensor(arguments[name]) for name in ("x", "h0"))
    with patch.object(torch.nn.init, "uniform_", lambda tensor, *_, **__: tensor.data.fill_(0.5)):
        made = implementation(*(value for name, value in arguments.items() if name not in ("x", "h0")))
    if type(made) is not torch.nn.RNN:
        kind = type(made)
        came = f"a {kind.__module__}.{kind.__name__}" if isinstance(made, torch.nn.Module) else describe(made)
        came = "what load_state_dict returns" if kind.__name__ == "_IncompatibleKeys" else came
        raise Unusable(f"The function returns {came}; expected a torch.nn.RNN")
    D, H = x.shape[2], h0.shape[2]
    options = {"input_size": D, "hidden_size": H, "num_layers": 2, "bidirectional": False}
    for name, wanted in (options | ({"dropout": 0} if made.training else {})).items():
        if getattr(made, name) != wanted:
            raise Unusable(f"The network's {name} is {getattr(made, name)}; expected {wanted}")
    for name, parameter in made.named_parameters():
        wanted = (H,) if name.startswith("bias") else (H, D) if name == "weight_ih_l0" else (H, H)
        if parameter.dtype != torch.float64 or tuple(parameter.shape) != wanted:
            raise Unusable(f"{name} is {describe(parameter.data)}; expected shape {wanted}, float64")
    try:
        with torch.no_grad():
            output, h_n = made(x, h0)
    except RuntimeError as error:
        read = f"x of shape {tuple(x.shape)}, (B, T, D), from h_0 of shape {tuple(h0.shape)}, (2, B, H)"
        raise Unusable(f"The network cannot read {read}: {error}") from None
    return {"output": output.detach(), "h_n": h_n.detach()}


def output_and_h_n(implementation, arguments):
    """Call a function that returns two things as torch.nn.RNN does, and name them: {"output": ..., "h_n": ...}."""
    return _two_named(implementation, arguments, ("output", "h_n"), "two tensors: output, h_n")


def on_a_sum_of_cubes(implementation, arguments):
    """Call a function with f(w) = Σ_k ⟨c_k, w⟩³ for arguments["c"], (K, ...), then the others: w and a step, say.

    f is no plain data, so it is made here. It takes arrays of w's shape and no other.
    """
    c = arguments["c"]

    def f(w):
        if np.shape(w) != c.shape[1:]:
            raise ValueError(f"f takes an array of shape {c.shape[1:]}; here came {describe(w)}")
        return float((np.tensordot(c, w, w.ndim) ** 3).sum())

    others = {name: value for name, value in arguments.items() if name != "c"}
    _passes(arguments, f=f, **others)
    return implementation(f, *others.values())


DRAWS, AGAIN = 4000, 500  # of each row: to count, and to compare one by one


def draws(implementation, arguments):
    """Let a function draw from rows of scores, often; return what it drew, as arrays.

    arguments has "logits" (B, V), what else the function takes, and "seed"; implementation(logits, ..., generator)
    returns one index for each row, (B,) int64. Returns {"many": (B, DRAWS), "again": two times the same generator's,
    "next": what it draws after the second, "other": another one's}. One row is drawn, too: an axis may get lost.
    """
    given = {name: value for name, value in arguments.items() if name not in ("logits", "seed")}
    logits = torch.as_tensor(arguments["logits"])

    def draw(generator, rows):
        _passes(arguments, logits=rows, **given, generator=generator)
        drawn = implementation(rows.clone(), *given.values(), generator)
        if not isinstance(drawn, torch.Tensor) or drawn.dtype != torch.int64 or drawn.shape != rows.shape[:1]:
            asked = f"indices, an int64 tensor of shape (B,) = {tuple(rows.shape[:1])}"
            raise Unusable(
                f"Of scores of shape {tuple(rows.shape)} the function returns {describe(drawn)}; expected {asked}"
            )
        return drawn.numpy()

    first, same, last = (torch.Generator().manual_seed(seed) for seed in (7, 7, 8))
    draw(last, logits[:1])
    many = draw(torch.Generator().manual_seed(arguments["seed"]), logits.repeat_interleave(DRAWS, 0))
    again, once_more, later, other = (draw(g, logits.repeat_interleave(AGAIN, 0)) for g in (first, same, same, last))
    many = many.reshape(len(logits), DRAWS)
    return {"many": many, "again": np.stack([again, once_more]), "next": later, "other": other}


def frequencies(drawn, arguments):
    """Count what `draws` gives, a dictionary.

    Returns {"frequencies": (B, V)} and whether the same seed gives the same draws, and the next call and another seed
    others. Compare with a tolerance of about 5 / (2 √DRAWS), five standard deviations.
    """
    B, V = np.shape(arguments["logits"])
    shapes = {"many": (B, DRAWS), "again": (2, AGAIN * B), "next": (AGAIN * B,), "other": (AGAIN * B,)}
    for name, shape in shapes.items():
        array = drawn.get(name) if isinstance(drawn, dict) else None
        if not (isinstance(array, np.ndarray) and array.dtype == np.int64 and array.shape == shape):
            raise Unusable(f"The draws are {describe(array)}; expected indices, int64, of shape {shape}")
        if not 0 <= array.min() <= array.max() < V:
            raise Unusable(f"The function returns an index that is not between 0 and V - 1 = {V - 1}")
    return {
        "frequencies": np.stack([np.bincount(row, minlength=V) for row in drawn["many"]]) / DRAWS,
        "next draw from one generator": _against(drawn["again"][1], drawn["next"]),
        **_of_the_seed(*drawn["again"], drawn["other"]),
    }


def loss_and_gradient(implementation, arguments):
    """Call a function of scores, and differentiate the loss that it returns.

    arguments has "logits" first, a tensor. Returns {"loss": tensor of shape (), "gradient of logits": tensor}.
    """
    logits = arguments["logits"].clone().requires_grad_()
    passed = logits.clone()  # this an answer may change in place, and it shows
    loss = implementation(passed, *(value for name, value in arguments.items() if name != "logits"))
    arguments["logits"].copy_(passed.detach())
    if not isinstance(loss, torch.Tensor):
        raise Unusable(f"The function returns {describe(loss)}; expected a tensor of shape (), which a step can use")
    if loss.shape != ():
        raise Unusable(f"The function returns {describe(loss)}; expected one number, a tensor of shape ()")
    found = _gradients([loss], [torch.ones((), dtype=loss.dtype)], {"logits": logits})
    return {"loss": loss.detach(), "gradient of logits": found["logits"]}


def inputs_and_targets(implementation, arguments):
    """Call a function that returns two tensors of tokens, and name them: {"inputs": ..., "targets": ...}."""
    expected = "two tensors: the inputs and the targets"
    return _two_named(implementation, arguments, ("inputs", "targets"), expected, kind=torch.Tensor)


class _LanguageModel(torch.nn.Module):
    """A plain recurrent network of given weights that reads tokens; notes how many at once, and if autograd records."""

    def __init__(self, weights):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.as_tensor(value)))
        self.recorded, self.longest = False, 0

    def forward(self, tokens, state=None):
        self.longest = max(self.longest, tokens.shape[1])
        self.recorded = self.recorded or torch.is_grad_enabled()
        h = torch.zeros(len(tokens), len(self.W_hh), dtype=self.W_hh.dtype) if state is None else state
        hs = []
        for token in tokens.T:
            h = torch.tanh(self.W_xh.T[token] + h @ self.W_hh.T + self.b_h)
            hs.append(h)
        return torch.stack(hs, 1) @ self.W_hy.T + self.b_y, h


def perplexity_of(implementation, arguments):
    """Make a small language model of the arguments' weights, and call a function with it and the other arguments.

    model(tokens (B, T), state) returns (logits (B, T, V), state); state None begins a text. Returns {"perplexity": a
    number, "recording for a backward": whether autograd recorded what the model did, "largest number of steps read at
    once"}.
    """
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    model = _LanguageModel({name: arguments[name] for name in names}).eval()
    others = {name: value for name, value in arguments.items() if name not in names}
    _passes(arguments, **others)
    result = implementation(model, *others.values())
    if isinstance(result, torch.Tensor) or _numbers(result) is None:
        raise Unusable(f"The function returns {describe(result)}; expected a number: of a tensor, .item() gives it")
    seen = {"recording for a backward": model.recorded, "largest number of steps read at once": model.longest}
    return {"perplexity": float(result)} | seen


def training_step(implementation, arguments):
    """Let a function train a small linear model for one step, and look at what it left.

    implementation(model, optimiser, x, y) returns the loss as a number; the model is a linear layer with the given
    "weight" and "bias", the optimiser plain gradient descent with the given "learning rate". Where there is a "largest
    norm", to which gradients are clipped, it comes last. Two steps are made, so that a gradient that is not cleared
    shows. Returns {"losses": (2,), "weight": (…), "bias": (…)} after both.
    """
    weight, bias = (torch.as_tensor(arguments[name]) for name in ("weight", "bias"))
    model = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(bias)
    optimiser = torch.optim.SGD(model.parameters(), lr=arguments["learning rate"])
    given = [torch.as_tensor(arguments[name]) for name in ("x", "y")]
    given += [arguments["largest norm"]] if "largest norm" in arguments else []
    _passes(arguments, **{name: arguments[name] for name in ("x", "y", "largest norm") if name in arguments})
    losses = []
    for _ in range(2):
        loss = implementation(model, optimiser, *given)
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            raise Unusable("The loss that is returned still holds the whole graph; return a number, with .item()")
        if isinstance(loss, torch.Tensor) or _numbers(loss) is None:
            raise Unusable(f"The function returns {describe(loss)}; expected the loss as a number, with .item()")
        losses.append(float(loss))
    return {"losses": np.array(losses), "weight": model.weight.detach().numpy(), "bias": model.bias.detach().numpy()}


def _weights(weights):
    """Return the five arrays of a network's dictionary, checked one by one."""
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    if not isinstance(weights, dict):
        raise Unusable(f"The function returns {describe(weights)}; expected a dictionary with {', '.join(names)}")
    if missing := [name for name in names if name not in weights]:
        raise Unusable(f"The dictionary lacks {', '.join(missing)}; expected {', '.join(names)}")
    if unknown := sorted(set(map(str, weights)) - set(names)):
        raise Unusable(f"The dictionary has the unknown entry {', '.join(unknown)}; expected {', '.join(names)}")
    arrays = []
    for name in names:
        array = _numbers(weights[name])
        if array is None:
            raise Unusable(f"{name} is {describe(weights[name])}; expected an array of real numbers")
        arrays.append(array)
    H = arrays[1].shape[0] if arrays[1].ndim == 2 else 0
    if H == 0:
        raise Unusable(f"W_hh has shape {arrays[1].shape}; expected (H, H) with H of your choice, at least 1")
    for name, array, wanted in zip(names, arrays, [(H, 1), (H, H), (H,), (1, H), (1,)], strict=True):
        if array.shape != wanted:
            raise Unusable(f"{name} has shape {array.shape}; expected {wanted}, since W_hh has {H} rows")
        if not np.isfinite(array).all():
            raise Unusable(f"{name} holds numbers that are not finite")
    return arrays


def _numbers(value):
    """Return a value as an array, float64, or None when it is no array of real numbers."""
    try:
        array = np.asarray(value)
    except Exception:  # rows of unequal length, a tensor that needs a gradient
        return None
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def _two(result, kinds, expected):
    """Return the two things that a function returned; raise Unusable where they are not two, of these kinds."""
    if isinstance(result, list | tuple) and len(result) == 2 and all(map(isinstance, result, kinds)):
        return result
    came = " and ".join(map(describe, result)) if isinstance(result, tuple) else describe(result)
    raise Unusable(f"The function returns {came or 'nothing'}; expected {expected}")


def _two_named(implementation, arguments, names, expected, kind=object):
    """Call a function that returns two things of a kind, and name them."""
    result = _two(implementation(*arguments.values()), (kind, kind), expected)
    return dict(zip(names, map(_without_graph, result), strict=True))


def _of_the_seed(first, again, other):
    """Say whether draws come of their generators: the same from the same seed, another from another one."""
    return {
        "second draw from the same seed": _against(first, again),
        "draw from another seed": _against(first, other),
    }


def _against(first, second):
    return "the same" if np.array_equal(first, second) else "another"


def _without_graph(result):
    """Return a tensor that may leave the process: one with a graph can be neither copied nor sent."""
    return result.detach() if isinstance(result, torch.Tensor) else result


def clipped_and_norm(implementation, arguments):
    """Call a function of {name: gradient} and a limit that returns another such dictionary, and the norm before.

    Returns one dictionary with both: the arrays under their names, the norm as "norm before".
    """
    result = implementation(*arguments.values())
    clipped, norm = _two(result, (dict, object), "two things: a dictionary, then a number")
    grads = next(iter(arguments.values()))
    if set(clipped) != set(grads):
        has, expected = (", ".join(map(repr, names)) or "no entry" for names in (clipped, grads))
        raise Unusable(f"The dictionary has {has}; expected {expected}")
    return {"norm before": norm, **clipped}


def orthogonal_draws(implementation, arguments):
    """Let a function draw a matrix: {"drawn", "again" from the same seed, "other" from another}.

    implementation(H, gain, rng) returns an array (H, H); arguments has "H", "gain" and "seed".
    """
    H, gain, seed = arguments.values()

    def draw(seed):
        rng = np.random.default_rng(seed)
        _passes(arguments, H=H, gain=gain, rng=rng)
        W = implementation(H, gain, rng)
        if type(W) is not np.ndarray or W.shape != (H, H) or W.dtype != np.float64:
            raise Unusable(f"The function returns {describe(W)}; expected a NumPy array of shape {(H, H)}, float64")
        return W

    return {"drawn": draw(seed), "again": draw(seed), "other": draw(seed + 1)}


def singular_values(matrices, arguments):
    """Measure what `orthogonal_draws` gives: the ends of the singular values, and whether it was drawn.

    An orthogonal matrix drawn from all of them has no zeros and, with many rows, no entry near its gain: a reflection
    of the identity in one direction has.
    """
    H = arguments["H"]
    for name in ("drawn", "again", "other"):
        W = matrices.get(name) if isinstance(matrices, dict) else None
        if not (isinstance(W, np.ndarray) and W.shape == (H, H) and W.dtype == np.float64 and np.isfinite(W).all()):
            raise Unusable(f"The matrix is {describe(W)}; expected finite numbers, float64, of shape {(H, H)}")
    sizes = np.linalg.svd(matrices["drawn"], compute_uv=False)
    return {
        "largest singular value": round(float(sizes[0]), 9),
        "smallest singular value": round(float(sizes[-1]), 9),
        "share of entries that are zero": float((matrices["drawn"] == 0).mean()),
        **_of_the_seed(matrices["drawn"], matrices["again"], matrices["other"]),
        "share of rows that are nearly a row of the identity": float(
            (np.abs(matrices["drawn"]).max(1) > 0.98 * sizes[0]).mean()
        ),
    }


def predictions(implementation, arguments):
    """Call a function on each of arguments["W_hh"] (K, H, H), ["scale"] (K,), ["T"] (K,); return numbers, (K,)."""
    found = []
    for W_hh, scale, T in zip(arguments["W_hh"], arguments["scale"], arguments["T"], strict=True):
        passed = {"W_hh": W_hh, "scale": float(scale), "T": int(T)}
        _passes(arguments, **passed)
        number = implementation(*passed.values())
        value = _numbers(number)
        if value is None or value.shape != ():
            raise Unusable(f"The function returns {describe(number)}; expected one number")
        found.append(float(value))
    return np.array(found)


def state_and_cell(implementation, arguments):
    """Call a function that returns two things, and name them: {"state": ..., "cell": ...}."""
    return _two_named(implementation, arguments, ("state", "cell"), "two arrays: of the state, then of the cell")


def lstm_returned(implementation, arguments):
    """Make an LSTM or LSTMCell of PyTorch with arguments["weights"]; return the parameters of what a function returns.

    implementation(module, value); arguments["kind"] is the class's name, D, H, the number of layers and of directions.
    """
    kind, D, H, layers, directions = arguments["kind"]
    options = {} if kind == "LSTMCell" else {"num_layers": layers, "bidirectional": directions == 2}
    made = getattr(torch.nn, kind)(D, H, **options, dtype=torch.float64)
    made.load_state_dict(arguments["weights"])
    result = implementation(made, arguments["value"])
    if result is not made:
        copied = isinstance(result, torch.nn.Module)
        came = "another module" if copied else describe(result)
        raise Unusable(f"The function returns {came}; expected the module that it got{', changed in place' * copied}")
    return {name: parameter.detach().numpy().copy() for name, parameter in result.named_parameters()}


def summed_biases(parameters, arguments):
    """Measure what `lstm_returned` gives: the weights as they are, and of each pair of biases their sum.

    Any two biases with the same sum are the same network.
    """
    result = {}
    for name, given in arguments["weights"].items():
        array = parameters.get(name) if isinstance(parameters, dict) else None
        if not (isinstance(array, np.ndarray) and array.shape == tuple(given.shape) and array.dtype == np.float64):
            came = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "missing"
            raise Unusable(f"The parameter {name} is {came}; expected float64 of shape {tuple(given.shape)}")
        if "bias_hh" in name:
            continue
        if "weight" in name:
            result[f"parameter {name}"] = array
            continue
        total = array + parameters[name.replace("_ih", "_hh")]
        blocks = zip(("input gate", "forget gate", "candidate", "output gate"), np.split(total, 4), strict=True)
        for gate, block in blocks:
            where = name.removeprefix("bias_ih").replace("_l", " of layer ").replace("_reverse", ", reverse direction")
            result[f"sum of both biases of the {gate}{where}, entry"] = block
    return result
