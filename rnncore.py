"""The course's reference implementation of recurrent networks, for NumPy arrays and PyTorch tensors.

Part 1, equations on arrays. Every function takes NumPy arrays or PyTorch tensors (on any device), in
float32 or float64, all of one kind, and returns that kind. On tensors the functions are differentiable. No
argument is ever changed in place, and results do not depend on how an array lies in memory.

Sizes: B batch, T time steps, D input size, H hidden size. Sequences are batch first: x (B, T, D). The states
hs (B, T, H) are h_1 ... h_T and never h_0. The equations multiply column vectors, W x; arrays hold one vector
a row, so the code multiplies by the transpose, x @ W.T.

Every function raises TypeError for an argument of a wrong kind or dtype and ValueError for a wrong shape,
device or option. The message names the argument, what came and what was expected.
"""

from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array

# ==========================================================================================================
# Checks. Each public function checks its arguments once, before it computes: a wrong shape is named and never
# answered by broadcasting, and the time loops stay free of checks.


def _check(**arguments):
    """Return the arrays' common namespace and the size of each letter; raise on the first misfit.

    An argument is written `name=(array, "B T D")`. A letter gets its size where it first appears, so the
    arguments come in the order in which a reader would trust them. An initial state may be None: it is passed
    over.
    """
    sizes, source, first = {}, {}, None
    for name, (array, axes) in arguments.items():
        if array is None and name in ("h0", "c0"):
            continue
        letters = axes.split()
        shape = f"({', '.join(letters)}{',' * (len(letters) == 1)})"
        kind = _kind(array)
        if kind is None:
            came = type(array).__name__
            raise TypeError(f"{name} is a {came}; expected a NumPy array or a PyTorch tensor, {shape}")
        if not str(array.dtype).endswith(("float32", "float64")):
            raise TypeError(f"{name} has dtype {array.dtype}; expected float32 or float64: convert it first")
        came = {"kind": kind, "dtype": array.dtype, "device": device(array)}
        first = first or (name, came)
        for what, value in came.items():
            if value != first[1][what]:
                error = ValueError if what == "device" else TypeError
                raise error(f"{name} has {what} {value}; expected {first[1][what]}, as {first[0]} has")
        if array.ndim != len(letters):
            came = f"{array.ndim} axes, shape {tuple(array.shape)}"
            raise ValueError(f"{name} has {came}; expected {len(letters)}, {shape}")
        for letter, size in zip(letters, array.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                known = ", ".join(f"{k} = {sizes[k]} from {source[k]}" for k in source if k in letters)
                raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape} with {known}")
            source.setdefault(letter, name)
        if first[0] == name:
            xp = array_namespace(array)
    return xp, sizes


def _kind(array):
    return "NumPy array" if is_numpy_array(array) else "PyTorch tensor" if is_torch_array(array) else None


def _check_nonlinearity(nonlinearity):
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity is {nonlinearity!r}; expected 'tanh' or 'relu'")
    return nonlinearity


def _check_steps(x):
    if x.shape[1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}, no time step; expected T of at least 1")


# ==========================================================================================================
# The plain (Elman) recurrent network: Elman 1990; as in torch.nn.RNN, with one bias where PyTorch has two.
#
#     a_t = W_xh x_t + W_hh h_{t-1} + b_h          pre-activation
#     h_t = f(a_t)                                 f = tanh or ReLU


def _activate(a, nonlinearity, xp):
    """Return f(a)."""
    return xp.tanh(a) if nonlinearity == "tanh" else xp.where(a > 0, a, xp.zeros_like(a))


def _slope(h, nonlinearity, xp):
    """Return f'(a), written in terms of h = f(a): 1 - h² for tanh; for ReLU 1 where h > 0, else 0."""
    return 1 - h * h if nonlinearity == "tanh" else xp.astype(h > 0, h.dtype)


def rnn_step(x, h, W_xh, W_hh, b_h, nonlinearity="tanh"):
    """Return the next state h_t = f(W_xh x_t + W_hh h_{t-1} + b_h), shape (B, H).

    x (B, D) is the input of this step and h (B, H) the state before it; W_xh (H, D), W_hh (H, H), b_h (H,).
    nonlinearity is "tanh" or "relu". Source: Elman 1990.
    """
    _check_nonlinearity(nonlinearity)
    xp, _ = _check(x=(x, "B D"), h=(h, "B H"), W_hh=(W_hh, "H H"), W_xh=(W_xh, "H D"), b_h=(b_h, "H"))
    a = x @ W_xh.T + h @ W_hh.T + b_h  # (B, H)
    return _activate(a, nonlinearity, xp)


def rnn_step_backward(dh, x, h, h_next, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_step` took: {"x", "h", "W_xh", "W_hh", "b_h"}.

    dh (B, H) is dL/dh_t and h_next (B, H) the state that the step returned; the rest is what the step got.
    With da = dh ⊙ f'(a), each row of the batch gives  dL/dx = W_xhᵀ da,  dL/dh_{t-1} = W_hhᵀ da,  and adds
    da xᵀ, da h_{t-1}ᵀ and da  to the gradients of W_xh, W_hh and b_h.
    """
    _check_nonlinearity(nonlinearity)
    xp, _ = _check(
        x=(x, "B D"),
        h=(h, "B H"),
        W_hh=(W_hh, "H H"),
        W_xh=(W_xh, "H D"),
        h_next=(h_next, "B H"),
        dh=(dh, "B H"),
    )
    da = dh * _slope(h_next, nonlinearity, xp)  # (B, H)
    return {
        "x": da @ W_xh,  # (B, D)
        "h": da @ W_hh,  # (B, H)
        "W_xh": da.T @ x,  # (H, D), summed over the batch
        "W_hh": da.T @ h,  # (H, H), summed over the batch
        "b_h": xp.sum(da, axis=0),  # (H,)
    }


def rnn_forward(x, h0, W_xh, W_hh, b_h, nonlinearity="tanh"):
    """Return the states hs (B, T, H): `rnn_step` applied at t = 1 ... T, each state fed to the next step.

    x (B, T, D); h0 (B, H), or None for zeros; W_xh (H, D), W_hh (H, H), b_h (H,). hs[:, -1] is h_T.
    The inputs' part of every step is one matrix product before the loop, because it needs no state.
    """
    _check_nonlinearity(nonlinearity)
    xp, n = _check(x=(x, "B T D"), W_hh=(W_hh, "H H"), h0=(h0, "B H"), W_xh=(W_xh, "H D"), b_h=(b_h, "H"))
    _check_steps(x)
    h = _zeros(n, x, xp) if h0 is None else h0  # (B, H)
    projected = x @ W_xh.T + b_h  # (B, T, H)
    hs = []
    for projected_t in xp.unstack(projected, axis=1):  # (B, H)
        h = _activate(projected_t + h @ W_hh.T, nonlinearity, xp)
        hs.append(h)
    return xp.stack(hs, axis=1)  # (B, T, H)


def rnn_backward(dhs, x, h0, hs, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_forward` took: {"x", "h0", "W_xh", "W_hh", "b_h"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence (the loss at that step;
    zeros where there is none); hs (B, T, H) is what `rnn_forward` returned; h0 may be None, as there.
    Backpropagation through time (Werbos 1990): walking back from t = T, a state's gradient is the outside
    part plus what step t + 1 sends back,

        dL/dh_t = dhs_t + W_hhᵀ da_{t+1},      da_t = dL/dh_t ⊙ f'(a_t),

    and the weights, used at every step, collect a sum over the steps and the batch.
    """
    _check_nonlinearity(nonlinearity)
    xp, n = _check(
        x=(x, "B T D"),
        W_hh=(W_hh, "H H"),
        h0=(h0, "B H"),
        W_xh=(W_xh, "H D"),
        hs=(hs, "B T H"),
        dhs=(dhs, "B T H"),
    )
    _check_steps(x)
    h0 = _zeros(n, x, xp) if h0 is None else h0
    slopes = _slope(hs, nonlinearity, xp)  # (B, T, H)
    das = []
    dh = xp.zeros_like(h0)  # (B, H): nothing comes back from beyond the last step
    steps = zip(xp.unstack(dhs, axis=1), xp.unstack(slopes, axis=1), strict=True)
    for dhs_t, slope_t in reversed(list(steps)):  # (B, H), (B, H)
        da = (dhs_t + dh) * slope_t  # (B, H)
        dh = da @ W_hh  # (B, H)
        das.append(da)
    das = xp.stack(das[::-1], axis=1)  # (B, T, H)
    before = xp.concat([h0[:, None, :], hs[:, :-1, :]], axis=1)  # (B, T, H): h_0 ... h_{T-1}
    rows = xp.reshape(das, (-1, n["H"]))  # (B T, H): one product sums over batch and time
    return {
        "x": das @ W_xh,  # (B, T, D)
        "h0": dh,  # (B, H)
        "W_xh": rows.T @ xp.reshape(x, (-1, n["D"])),  # (H, D)
        "W_hh": rows.T @ xp.reshape(before, (-1, n["H"])),  # (H, H)
        "b_h": xp.sum(rows, axis=0),  # (H,)
    }


def rnn_jacobian(h_next, W_hh):
    """Return the Jacobian of one tanh step, J_t = ∂h_t/∂h_{t-1} = diag(1 − h_t²) W_hh, shape (B, H, H).

    h_next (B, H) is the state h_t that the step returned; entry [b, i, j] is ∂h_t[b, i] / ∂h_{t-1}[b, j].
    A gradient with respect to h_t, as a row, multiplies it from the left. Source: Werbos 1990.
    """
    xp, _ = _check(W_hh=(W_hh, "H H"), h_next=(h_next, "B H"))
    return _slope(h_next, "tanh", xp)[:, :, None] * W_hh  # (B, H, 1) * (H, H)


def _zeros(n, like, xp):
    """Return the zero state, shape (B, H), of the same kind as `like`."""
    return xp.zeros((n["B"], n["H"]), dtype=like.dtype, device=device(like))
