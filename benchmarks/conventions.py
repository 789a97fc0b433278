"""Runs GRUs and LSTMs of other programs beside rnncore with the weights that rnnconvert makes of theirs.

The programs are installed for this alone, in a folder that is removed. Writes conventions.md beside this file: what
each convention is, and how far each program's states are from rnncore's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

from rnnconvert import CONVENTIONS, to_rnncore

HERE = Path(__file__).resolve().parent
PROGRAMS = ("keras==3.15.1", "flax==0.12.8", "jax==0.10.2", "onnx==1.23.2")
B, T, D, H = 4, 12, 3, 5
SEEDS = 5
ARRAYS = ("x", "W_x", "W_h", "b_x", "b_h")


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "conventions.md", help="the tables to write")
    parser.add_argument("--there", type=Path, nargs=2, help=argparse.SUPPRESS)  # among the programs: weights, states
    options = parser.parse_args(arguments)
    if options.there:
        return there(*options.there)
    given, states = drawn(), {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        print("== installing", *PROGRAMS)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", place / "programs", *PROGRAMS]
        subprocess.run(pip, check=True)
        np.savez(place / "weights.npz", **given)
        environment = {
            "PYTHONPATH": f"{place / 'programs'}:{HERE.parent}",
            "JAX_ENABLE_X64": "1",
            "KERAS_BACKEND": "torch",
        }
        command = [sys.executable, __file__, "--there", place / "weights.npz", place / "states.npz"]
        subprocess.run(command, check=True, env=os.environ | environment)
        states = dict(np.load(place / "states.npz"))
    text = "\n".join(
        ["<!-- written by benchmarks/conventions.py -->", "<!-- table -->", *table(), "", "<!-- measured -->",
         *measured(given, states), ""]
    )  # fmt: skip
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def drawn():
    """Return {"convention: seed: array"} of random weights and inputs, as each program has them."""
    found = {}
    for name in RUNS:
        for seed in range(SEEDS):
            x = np.random.default_rng(99 + seed).normal(size=(B, T, D))
            for key, array in zip(ARRAYS, (x, *weights(name, D, H, seed)), strict=True):
                if array is not None:
                    found[f"{name}: {seed}: {key}"] = array
    return found


def weights(name, D, H, seed=0, dtype=np.float64):
    """Return random weights as a convention has them: W_x, W_h, b_x and b_h, None where it has one bias.

    Where its reset comes before the product the weights are such that it may be moved.
    """
    form, draw = CONVENTIONS[name], np.random.default_rng(seed)
    k = len(form.blocks)
    W_x, W_h = draw.normal(size=(k * H, D)), draw.normal(size=(k * H, H)) / H**0.5
    b_x, b_h = draw.normal(size=(2, k * H))
    if form.before:  # units 0 and 1 share a reset and read each other; the others read themselves alone
        r, n = (slice(form.blocks.index(gate) * H, (form.blocks.index(gate) + 1) * H) for gate in "rn")
        mask = np.eye(H)
        mask[:2, :2] = 1
        W_h[n] *= mask
        for array in (W_x, W_h, b_x, b_h):
            array[r][1:2] = array[r][:1]
    if form.biases == "b_hn":
        b_h[: 2 * H] = 0
    arrays = (W_x.T, W_h.T) if form.rows else (W_x, W_h)
    return [a.astype(dtype) for a in (*arrays, b_x)] + [None if form.biases == "one" else b_h.astype(dtype)]


def of(given, name, seed):
    """Return x, W_x, W_h, b_x and b_h of a convention and a seed."""
    return [given.get(f"{name}: {seed}: {key}") for key in ARRAYS]


def there(weights, states):
    """Run every program on its weights; called among them, in a process of its own."""
    given, found = dict(np.load(weights)), {}
    for name, run in RUNS.items():
        program, hs = run[0], []
        for seed in range(SEEDS):
            hs.append(np.asarray(run[1](*of(given, name, seed))))
            assert hs[-1].dtype == np.float64, f"{name} computes in {hs[-1].dtype}"
        found[f"{name}: states"] = np.array(hs)
        found[f"{name}: program"] = np.array(f"{program} {version(program)}")
    np.savez(states, **found)
    return 0


def keras_layer(kind, **options):
    def run(x, W_x, W_h, b_x, b_h):
        import keras  # noqa: PLC0415, of all places only there

        keras.config.set_floatx("float64")
        layer = getattr(keras.layers, kind)(H, return_sequences=True, **options)
        layer.build(x.shape)
        layer.set_weights([W_x, W_h, b_x if layer.weights[2].ndim == 1 else np.stack([b_x, b_h])])
        return layer(x).detach()

    return run


def flax_cell(kind, gates):
    def run(x, W_x, W_h, b_x, b_h):
        import flax.linen as nn  # noqa: PLC0415
        import jax  # noqa: PLC0415

        cell = getattr(nn, kind)(H, dtype="float64", param_dtype="float64")
        parameters = {}
        arrays = (W_x, W_h, b_x, b_x if b_h is None else b_h)
        for gate, from_x, from_h, at_x, at_h in zip(
            gates, *(np.split(a, len(gates), axis=-1) for a in arrays), strict=True
        ):
            parameters[f"i{gate}"], parameters[f"h{gate}"] = {"kernel": from_x}, {"kernel": from_h}
            if kind == "LSTMCell":
                parameters[f"h{gate}"]["bias"] = at_x
            else:
                parameters[f"i{gate}"]["bias"] = at_x
            if kind == "GRUCell" and gate == "n":
                parameters["hn"]["bias"] = at_h
        carry = cell.initialize_carry(jax.random.key(0), x[:, 0].shape)
        hs = []
        for x_t in np.swapaxes(x, 0, 1):
            carry, h = cell.apply({"params": parameters}, carry, x_t)
            hs.append(h)
        return np.stack(hs, axis=1)

    return run


def onnx_operator(kind, **options):
    def run(x, W_x, W_h, b_x, b_h):
        from onnx import TensorProto, helper  # noqa: PLC0415
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

        arrays = {"X": x.swapaxes(0, 1), "W": W_x[None], "R": W_h[None], "B": np.hstack([b_x, b_h])[None]}
        node = helper.make_node(kind, list(arrays), ["Y"], hidden_size=H, **options)
        inputs = [helper.make_tensor_value_info(key, TensorProto.DOUBLE, a.shape) for key, a in arrays.items()]
        output = helper.make_tensor_value_info("Y", TensorProto.DOUBLE, (T, 1, B, H))
        model = helper.make_model(helper.make_graph([node], "one layer", inputs, [output]))
        return ReferenceEvaluator(model).run(None, arrays)[0][:, 0].swapaxes(0, 1)

    return run


RUNS = {
    "Keras GRU": ("keras", keras_layer("GRU")),
    "Keras GRU, reset_after=False": ("keras", keras_layer("GRU", reset_after=False)),
    "Flax GRU": ("flax", flax_cell("GRUCell", "rzn")),
    "ONNX GRU, linear_before_reset=1": ("onnx", onnx_operator("GRU", linear_before_reset=1)),
    "ONNX GRU": ("onnx", onnx_operator("GRU")),
    "Keras LSTM": ("keras", keras_layer("LSTM")),
    "Flax LSTM": ("flax", flax_cell("LSTMCell", "ifgo")),
    "ONNX LSTM": ("onnx", onnx_operator("LSTM")),
}


def table():
    """Return the lines of a table of all conventions."""
    lines = ["| convention | blocks | vectors | at z = 1 | reset | biases |", "|---|---|---|---|---|---|"]
    for name, form in CONVENTIONS.items():
        gru = form.network == "GRU"
        z = ("takes" if form.takes else "keeps") if gru else "–"
        reset = ("before" if form.before else "after") if gru else "–"
        biases = {"two": "two", "one": "one", "b_hn": "one and $b_{hn}$"}[form.biases]
        if form.forget:
            biases += f", and {form.forget:g} on $f$ as it runs"
        cells = [f"[{name}]({form.source})", f"${', '.join(form.blocks)}$", "rows" if form.rows else "columns"]
        lines.append(f"| {' | '.join([*cells, z, reset, biases])} |")
    return lines


def measured(given, states):
    """Return the lines of a table of the largest differences between each program's states and rnncore's."""
    import rnncore  # noqa: PLC0415, needs PyTorch, which is not among the programs

    lines = ["| convention | program | largest difference |", "|---|---|--:|"]
    for name in RUNS:
        worst = 0.0
        for seed in range(SEEDS):
            x, *arrays = of(given, name, seed)
            ours = to_rnncore(name, *arrays).values()
            if CONVENTIONS[name].network == "GRU":
                hs = rnncore.gru_forward(x, None, *ours)
            else:
                hs = rnncore.lstm_forward(x, None, None, *ours)[0]
            worst = max(worst, np.abs(hs - states[f"{name}: states"][seed]).max())
        lines.append(f"| {name} | {states[f'{name}: program']} | {worst:.0e} |")
    before = "Where the reset comes before the product, units read none but those with the same reset."
    before += " A difference of about 1e-07 is rounding in float32: some of Keras' operations use it whatever they get."
    return [*lines, "", f"{SEEDS} draws of weights each. {before}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
