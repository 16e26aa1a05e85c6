#!/usr/bin/env python3
"""Reference values for the layer tests, computed with PyTorch.

    python3 make.py > values.json

needs PyTorch (Debian: python3-torch; PyPI: torch), of any version since 1.13.
The tests themselves read only values.json, which is kept in the repository.

The file is {"torch": VERSION, "cases": [CASE, ...]}, with one case to a line.
A CASE has the keys

    name         unique name of the case
    layer        the layer as in a model: "name", "type" and the type's keys;
                 keys left out have their default values
    training     whether the layer runs in training mode
    inputs       list of tensors; labels and indices have "dtype": "i32"
    params       learnable parameters by name ("weight", "bias"), maybe none
    state        batch_norm only: running_mean, running_var before the pass
    output       the output of the layer
    grad_output  gradient of the objective by the output; null for a loss
    input_grads  gradient by each input; null for labels and indices
    param_grads  gradient by each of params
    state_after  batch_norm only: state after the pass (unchanged if not
                 training)

where a tensor is {"shape": [...], "values": [...]} with the values in
row-major order. Shapes include the minibatch (the first dimension).

For softmax_cross_entropy the output has, for each sample, the sum of its
targets' losses, without the weight, and the numbers of targets that count, that
are predicted rightly, and that are among the top five; the gradients are those
of weight * (sum of the losses) / (number of targets, ignored ones included).

All is computed in double precision. Inputs, parameters, states and output
gradients are rounded to 3 decimals before they are used and so are exact (to
the type's precision); results have 9 significant digits, and those smaller in
magnitude than 1e-14 are written as 0. Results may be small by cancellation,
so compare them with an absolute as well as a relative tolerance.

The random numbers of a case depend only on its name: cases can be added,
removed and reordered without changing the others.
"""

import json
import random
import sys

import torch
import torch.nn.functional as F


# Layers: forward computations ---------------------------------------------
#
# Each takes the layer's keys, the inputs, the parameters and the state, and
# whether it is training. The state is updated in place.

def conv2d(layer, x, p, state, training):
    return F.conv2d(x[0], p["weight"], p.get("bias"),
                    stride=layer.get("stride", 1),
                    padding=layer.get("padding", 0),
                    dilation=layer.get("dilation", 1),
                    groups=layer.get("groups", 1))


def linear(layer, x, p, state, training):
    return F.linear(x[0], p["weight"], p.get("bias"))


def max_pool2d(layer, x, p, state, training):
    return F.max_pool2d(x[0], layer["kernel"],
                        stride=layer.get("stride", layer["kernel"]),
                        padding=layer.get("padding", 0),
                        ceil_mode=layer.get("ceil", False))


def avg_pool2d(layer, x, p, state, training):
    return F.avg_pool2d(x[0], layer["kernel"],
                        stride=layer.get("stride", layer["kernel"]),
                        padding=layer.get("padding", 0),
                        ceil_mode=layer.get("ceil", False),
                        count_include_pad=layer.get("count_include_pad", True))


def batch_norm(layer, x, p, state, training):
    return F.batch_norm(x[0], state["running_mean"], state["running_var"],
                        p["weight"], p["bias"], training=training,
                        momentum=layer.get("momentum", 0.1),
                        eps=layer.get("eps", 1e-5))


def lrn(layer, x, p, state, training):
    return F.local_response_norm(x[0], layer.get("size", 5),
                                 alpha=layer.get("alpha", 1e-4),
                                 beta=layer.get("beta", 0.75),
                                 k=layer.get("k", 1.0))


def gelu(layer, x, p, state, training):
    return F.gelu(x[0], approximate=layer.get("approximate", "none"))


def layer_norm(layer, x, p, state, training):
    return F.layer_norm(x[0], x[0].shape[-1:], p["weight"], p["bias"],
                        eps=layer.get("eps", 1e-5))


def attention(layer, x, p, state, training):
    heads = layer["heads"]
    n, t, width = x[0].shape
    # Each [N, heads, T, D / heads].
    q, k, v = (part.reshape(n, t, heads, width // 3 // heads).transpose(1, 2)
               for part in x[0].chunk(3, dim=-1))
    scores = q @ k.transpose(-1, -2) / (width // 3 // heads) ** 0.5
    if layer.get("causal", False):
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    y = torch.softmax(scores, dim=-1) @ v
    return y.transpose(1, 2).reshape(n, t, width // 3)


def slice_(layer, x, p, state, training):
    begin = layer.get("begin", 0)
    return x[0].narrow(layer.get("axis", 0) + 1, begin, layer["end"] - begin)


def pad(layer, x, p, state, training):
    # PyTorch's list begins with the last dimension.
    sizes = [n for pair in zip(layer["before"], layer["after"]) for n in pair]
    return F.pad(x[0], [n for i in range(len(sizes) - 2, -1, -2)
                        for n in sizes[i:i + 2]])


def transpose(layer, x, p, state, training):
    return x[0].permute(0, *(axis + 1 for axis in layer["axes"]))


def lstm(layer, x, p, state, training):
    # A state has h of each layer, then c of each; PyTorch's come apart, with
    # the layers in front.
    layers, hidden = layer.get("num_layers", 1), layer["hidden_size"]
    initial = x[1] if len(x) > 1 else x[0].new_zeros(x[0].shape[0], 2 * layers,
                                                     hidden)
    h, c = initial.transpose(0, 1).split(layers)
    y, h, c = torch._VF.lstm(x[0], (h.contiguous(), c.contiguous()),
                             list(p.values()), True, layers, 0.0, training,
                             False, True)
    if not layer.get("return_state", False):
        return y
    return torch.cat([y, h.transpose(0, 1), c.transpose(0, 1)], 1)


def softmax_cross_entropy(layer, x, p, state, training):
    targets = x[1].flatten()
    logits = x[0].flatten(0, -2)
    loss = F.cross_entropy(logits, targets, reduction="none")
    counts = targets != -100
    right = (logits.argmax(-1) == targets) & counts
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    top5 = (order[:, :5] == targets[:, None]).any(-1) & counts
    columns = [loss, counts, right, top5]
    return torch.stack([column.double().reshape(len(x[1]), -1).sum(1)
                        for column in columns], 1)


FORWARD = {
    "conv2d": conv2d,
    "linear": linear,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "global_avg_pool2d": lambda layer, x, *_: F.adaptive_avg_pool2d(x[0], 1),
    "flatten": lambda layer, x, *_: torch.flatten(x[0], 1),
    "relu": lambda layer, x, *_: torch.relu(x[0]),
    "tanh": lambda layer, x, *_: torch.tanh(x[0]),
    "sigmoid": lambda layer, x, *_: torch.sigmoid(x[0]),
    "add": lambda layer, x, *_: sum(x[1:], x[0]),
    "concat": lambda layer, x, *_: torch.cat(x, layer.get("axis", 0) + 1),
    "gelu": gelu,
    "embedding": lambda layer, x, p, *_: F.embedding(x[0], p["weight"]),
    "position_embedding": lambda layer, x, p, *_: x[0] + p["weight"],
    "layer_norm": layer_norm,
    "attention": attention,
    "slice": slice_,
    "pad": pad,
    "transpose": transpose,
    "reshape": lambda layer, x, *_: x[0].reshape(-1, *layer["shape"]),
    "lstm": lstm,
    "batch_norm": batch_norm,
    "lrn": lrn,
    "softmax_cross_entropy": softmax_cross_entropy,
}


# Tensors ------------------------------------------------------------------

def uniform(rng, shape, low=-2.0, high=2.0):
    """Random tensor with values of 3 decimals."""
    count = 1
    for n in shape:
        count *= n
    values = [round(rng.uniform(low, high), 3) for _ in range(count)]
    return torch.tensor(values, dtype=torch.double).reshape(shape)


def given(shape, values):
    """Tensor with the given values; labels if they are integers."""
    labels = all(isinstance(v, int) for v in values)
    dtype = torch.long if labels else torch.double
    return torch.tensor(values, dtype=dtype).reshape(shape)


def integers(shape, period):
    """Tensor with the whole numbers -1, 0, 1 in a pattern with many ties."""
    count = torch.Size(shape).numel()
    return given(shape, [float(i * i % period % 3 - 1) for i in range(count)])


def exact(t):
    """JSON form of an input: its values as they are (+ 0.0: no -0.0)."""
    if t.dtype == torch.long:
        return {"shape": list(t.shape), "dtype": "i32",
                "values": t.flatten().tolist()}
    return {"shape": list(t.shape),
            "values": [v + 0.0 for v in t.detach().flatten().tolist()]}


def rounded(t):
    """JSON form of a result, with 9 significant digits."""
    return {"shape": list(t.shape),
            "values": [0.0 if abs(v) < 1e-14 else float(f"{v:.9g}")
                       for v in t.detach().flatten().tolist()]}


def pair(value):
    return value if isinstance(value, list) else [value, value]


def make_params(rng, layer, x):
    """Random parameters and state for a layer with input x."""
    kind = layer["type"]
    if kind == "conv2d":
        k = layer["out_channels"]
        c = x.shape[1] // layer.get("groups", 1)
        params = {"weight": uniform(rng, [k, c, *pair(layer["kernel"])], -1, 1),
                  "bias": uniform(rng, [k], -1, 1)}
    elif kind == "linear":
        k = layer["out_features"]
        params = {"weight": uniform(rng, [k, x.shape[-1]], -1, 1),
                  "bias": uniform(rng, [k], -1, 1)}
    elif kind == "batch_norm":
        c = x.shape[1]
        return ({"weight": uniform(rng, [c], 0.5, 1.5),
                 "bias": uniform(rng, [c], -1, 1)},
                {"running_mean": uniform(rng, [c], -1, 1),
                 "running_var": uniform(rng, [c], 0.5, 1.5)})
    elif kind == "lstm":
        hidden = layer["hidden_size"]
        params = {}
        for i in range(layer.get("num_layers", 1)):
            inputs = x.shape[-1] if i == 0 else hidden
            for name, shape in [("weight_ih", [4 * hidden, inputs]),
                                ("weight_hh", [4 * hidden, hidden]),
                                ("bias_ih", [4 * hidden]),
                                ("bias_hh", [4 * hidden])]:
                params[f"{name}_l{i}"] = uniform(rng, shape, -1, 1)
    elif kind == "embedding":
        params = {"weight": uniform(rng, [layer["num_embeddings"],
                                          layer["embedding_dim"]])}
    elif kind == "position_embedding":
        params = {"weight": uniform(rng, list(x.shape[1:]))}
    elif kind == "layer_norm":
        params = {"weight": uniform(rng, [x.shape[-1]], 0.5, 1.5),
                  "bias": uniform(rng, [x.shape[-1]], -1, 1)}
    else:
        return {}, {}
    if not layer.get("bias", True):
        del params["bias"]
    return params, {}


# Cases --------------------------------------------------------------------

def run(name, kind, inputs, training=True, **keys):
    """Compute one case. Inputs are tensors, or shapes to fill at random."""
    rng = random.Random(name)
    layer = {"name": "l", "type": kind, **keys}
    x = [t if torch.is_tensor(t) else uniform(rng, t) for t in inputs]
    params, state = make_params(rng, layer, x[0])
    case = {"name": name, "layer": layer, "training": training,
            "inputs": [exact(t) for t in x],
            "params": {key: exact(t) for key, t in params.items()}}
    if state:
        case["state"] = {key: exact(t) for key, t in state.items()}

    for t in x + list(params.values()):
        t.requires_grad_(t.is_floating_point())
    y = FORWARD[kind](layer, x, params, state, training)
    case["output"] = rounded(y)
    if kind == "softmax_cross_entropy":
        case["grad_output"] = None
        (layer.get("weight", 1.0) * y[:, 0].sum()
         / x[1].numel()).backward()
    else:
        grad = uniform(rng, list(y.shape), -1, 1)
        case["grad_output"] = exact(grad)
        y.backward(grad)
    case["input_grads"] = [None if t.grad is None else rounded(t.grad)
                           for t in x]
    case["param_grads"] = {key: rounded(t.grad) for key, t in params.items()}
    if state:
        case["state_after"] = {key: rounded(t) for key, t in state.items()}
    return case


def conv_cases():
    def conv(name, shape, out_channels, kernel, **keys):
        return run("conv2d_" + name, "conv2d", [shape],
                   out_channels=out_channels, kernel=kernel, **keys)

    yield conv("3x3", [2, 3, 5, 5], 4, 3)
    yield conv("3x3_padding", [2, 2, 4, 4], 3, 3, padding=1)
    yield conv("no_bias", [2, 2, 4, 5], 3, 3, bias=False)
    yield conv("batch_1", [1, 2, 5, 4], 2, 3, padding=1)
    yield conv("1x1", [2, 3, 3, 4], 5, 1)
    yield conv("1x1_stride", [2, 3, 5, 4], 2, 1, stride=2)
    yield conv("1x1_padding", [1, 2, 2, 3], 2, 1, padding=1)
    yield conv("1x1_image_1x1", [3, 4, 1, 1], 5, 1)
    yield conv("stride_padding", [2, 3, 7, 7], 2, 3, stride=2, padding=1)
    # The last row and column are in no window.
    yield conv("stride_unused_edge", [1, 2, 6, 6], 2, 3, stride=2)
    yield conv("stride_over_kernel", [2, 2, 8, 7], 2, 2, stride=3)
    yield conv("whole_image", [3, 2, 3, 4], 4, [3, 4])
    yield conv("1x3", [2, 2, 3, 5], 2, [1, 3], padding=[0, 1])
    yield conv("non_square", [2, 2, 6, 5], 3, [3, 2], stride=[2, 1],
               padding=[1, 0])
    yield conv("kernel_over_image", [1, 2, 3, 2], 2, 5, padding=2)
    yield conv("padding_over_kernel", [1, 1, 3, 3], 2, 2, padding=3, stride=2)
    yield conv("7x7_stride_padding", [1, 3, 9, 8], 2, 7, stride=2, padding=3)
    yield conv("dilation", [2, 2, 6, 6], 2, 3, dilation=2, padding=2)
    yield conv("dilation_non_square", [1, 2, 5, 8], 2, [2, 3], dilation=[3, 2],
               stride=[1, 2], padding=[0, 1])
    yield conv("groups", [2, 4, 4, 4], 6, 3, groups=2, padding=1)
    yield conv("groups_stride_dilation", [1, 4, 7, 6], 4, [3, 2], groups=2,
               stride=2, dilation=[2, 1], padding=1, bias=False)
    yield conv("depthwise", [2, 3, 4, 5], 3, 3, groups=3, padding=1)
    yield conv("depthwise_multiplier", [1, 3, 5, 5], 6, 3, groups=3, stride=2,
               padding=1)


def linear_cases():
    def linear(name, shape, out_features, **keys):
        return run("linear_" + name, "linear", [shape],
                   out_features=out_features, **keys)

    yield linear("basic", [4, 5], 3)
    yield linear("no_bias", [3, 4], 6, bias=False)
    yield linear("batch_1", [1, 7], 2)
    yield linear("3d", [2, 3, 4], 5)


def pool_cases():
    def pool(kind, name, x, kernel, **keys):
        return run(kind + "_" + name, kind, [x], kernel=kernel, **keys)

    for kind in "max_pool2d", "avg_pool2d":
        yield pool(kind, "2x2", [2, 2, 4, 6], 2)
        yield pool(kind, "2x3", [1, 2, 4, 6], [2, 3])
        yield pool(kind, "padding", [2, 2, 5, 4], 3, stride=2, padding=1)
        yield pool(kind, "non_square", [1, 2, 6, 7], [3, 2], stride=[1, 2],
                   padding=[1, 0])
        # The stride leaves gaps between the windows, and an edge.
        yield pool(kind, "stride_over_kernel", [1, 2, 7, 6], 2, stride=3)
        yield pool(kind, "ceil", [2, 2, 6, 5], 3, stride=2, ceil=True)
        # Windows that would start past the image, in the padding or beyond,
        # are left out: rounding up alone would give 2 by 2 outputs, then 3
        # by 2; there are 1 by 1 and 2 by 1.
        yield pool(kind, "ceil_drop", [1, 2, 4, 5], [2, 3], stride=[4, 5],
                   ceil=True)
        yield pool(kind, "ceil_drop_padding", [1, 2, 4, 4], 2,
                   stride=[3, 5], padding=1, ceil=True)
        # The last windows reach beyond the padding as well.
        yield pool(kind, "ceil_padding", [2, 1, 6, 6], 3, stride=3, padding=1,
                   ceil=True)

    # Ties: the first maximum of the window in row-major order has the
    # gradient.
    yield pool("max_pool2d", "ties", integers([1, 2, 5, 5], 7), 3, stride=1)
    yield pool("max_pool2d", "ties_padding", integers([1, 2, 5, 6], 11), 3,
               stride=2, padding=1)
    yield pool("max_pool2d", "ties_all", given([1, 1, 4, 4], [1.5] * 16), 2,
               stride=1)
    # Padding is not a maximum, even when all of the values are negative.
    yield pool("max_pool2d", "negative_padding",
               given([1, 1, 3, 3], [-1.0 - 0.5 * (i * 4 % 9)
                                    for i in range(9)]), 2, padding=1)

    for name, keys in [("padding", {}), ("ceil_padding", {"ceil": True})]:
        yield pool("avg_pool2d", name + "_not_counted", [2, 1, 6, 6], 3,
                   stride=3, padding=1, count_include_pad=False, **keys)
    yield pool("avg_pool2d", "non_square_not_counted", [1, 2, 5, 6], [3, 4],
               stride=[2, 3], padding=[1, 2], ceil=True,
               count_include_pad=False)
    yield pool("avg_pool2d", "non_square_counted", [1, 2, 5, 6], [3, 4],
               stride=[2, 3], padding=[1, 2], ceil=True,
               count_include_pad=True)

    yield run("global_avg_pool2d", "global_avg_pool2d", [[2, 3, 3, 4]])


def elementwise_cases():
    yield run("flatten", "flatten", [[2, 3, 2, 2]])
    yield run("relu", "relu", [[2, 2, 3, 3]])
    # The gradient at exactly 0 is 0.
    yield run("relu_zeros", "relu", [given([2, 4], [0.0, 1.0, 0.0, -1.0,
                                                    -0.001, 0.0, 0.001, 2.0])])
    yield run("tanh", "tanh", [[2, 2, 3, 2]])
    yield run("sigmoid", "sigmoid", [[2, 2, 3, 2]])
    saturated = [-1000.0, -100.0, -20.0, -5.0, 0.0, 5.0, 20.0, 100.0, 1000.0]
    yield run("tanh_saturated", "tanh", [given([1, 9], saturated)])
    yield run("sigmoid_saturated", "sigmoid", [given([1, 9], saturated)])
    yield run("add_2", "add", [[2, 2, 3, 2]] * 2)
    yield run("add_3", "add", [[3, 4]] * 3)
    yield run("concat_2", "concat", [[2, 1, 2, 3], [2, 3, 2, 3]])
    yield run("concat_3", "concat", [[2, 2, 2, 2], [2, 1, 2, 2], [2, 3, 2, 2]])
    yield run("concat_2d", "concat", [[3, 2], [3, 4]])


def norm_cases():
    def norm(name, x, training, **keys):
        return run("batch_norm_" + name, "batch_norm", [x], training, **keys)

    for mode, training in [("training", True), ("evaluation", False)]:
        yield norm(mode, [3, 2, 3, 4], training)
        yield norm(mode + "_2d", [6, 3], training)
        yield norm(mode + "_keys", [2, 3, 2, 3], training, eps=0.01,
                   momentum=0.3)
    yield norm("training_batch_1", [1, 2, 3, 3], True)
    # A mean that is large beside the deviation, which loses precision if the
    # variance is computed from the mean of the squares.
    yield norm("training_mean", uniform(random.Random("mean"), [2, 2, 3, 3],
                                        9.0, 11.0), True)
    # A constant channel: the variance is 0, and eps all that is divided by.
    yield norm("training_constant", given([2, 1, 2, 2], [0.5] * 8), True,
               eps=0.01)

    def lrn(name, shape, **keys):
        return run("lrn_" + name, "lrn", [shape], **keys)

    yield lrn("default", [2, 7, 2, 2])
    yield lrn("alpha", [2, 7, 2, 2], alpha=2.0)
    yield lrn("size_3", [2, 5, 2, 3], size=3, alpha=1.0, k=2.0)
    yield lrn("size_over_channels", [2, 3, 2, 2], size=7, alpha=0.5)
    yield lrn("beta", [1, 6, 2, 2], size=5, alpha=1.0, beta=0.5, k=0.5)


def sequence_cases():
    def embedding(name, shape, values, **keys):
        return run("embedding_" + name, "embedding", [given(shape, values)],
                   **keys)

    # Rows that are read more than once, and one that is not.
    yield embedding("basic", [2, 4], [4, 0, 4, 1, 2, 4, 1, 1],
                    num_embeddings=6, embedding_dim=3)
    yield embedding("scalar", [3], [1, 0, 1], num_embeddings=2,
                    embedding_dim=5)
    yield embedding("3d", [1, 2, 3], [0, 2, 1, 2, 0, 0], num_embeddings=3,
                    embedding_dim=1)
    yield run("position_embedding", "position_embedding", [[3, 4, 2]])
    yield run("position_embedding_1", "position_embedding", [[2, 1, 5]])

    yield run("layer_norm", "layer_norm", [[2, 3, 7]])
    yield run("layer_norm_2d", "layer_norm", [[4, 5]], eps=0.01)
    yield run("layer_norm_image", "layer_norm", [[2, 2, 3, 4]])
    yield run("layer_norm_mean", "layer_norm",
              [uniform(random.Random("mean"), [2, 3, 9], 9.0, 11.0)])
    yield run("layer_norm_constant", "layer_norm", [given([2, 3], [0.5] * 6)],
              eps=0.01)

    tails = [-40.0, -9.0, -5.5, -3.0, -0.75, 0.0, 1e-3, 3.0, 5.5, 9.0, 40.0]
    for approximate in "none", "tanh":
        yield run("gelu_" + approximate, "gelu", [[2, 3, 4]],
                  approximate=approximate)
        yield run("gelu_tails_" + approximate, "gelu", [given([1, 11], tails)],
                  approximate=approximate)

    def attention(name, shape, **keys):
        return run("attention_" + name, "attention", [shape], **keys)

    for causal in False, True:
        name = "causal" if causal else "all"
        yield attention(name, [2, 5, 12], heads=2, causal=causal)
        yield attention(name + "_1_head", [2, 3, 9], heads=1, causal=causal)
        yield attention(name + "_heads_of_1", [1, 4, 9], heads=3,
                        causal=causal)
        yield attention(name + "_1_step", [2, 1, 6], heads=1, causal=causal)
    yield run("attention_large", "attention",
              [uniform(random.Random("large"), [1, 4, 6], -30.0, 30.0)],
              heads=1, causal=True)

    yield run("slice", "slice", [[2, 5, 3]], begin=1, end=4)
    yield run("slice_axis_1", "slice", [[2, 3, 4]], axis=1, end=1)
    yield run("slice_last", "slice", [[1, 2, 3, 4]], axis=2, begin=3, end=4)
    yield run("slice_1d", "slice", [[3, 6]], begin=2, end=5)
    yield run("pad", "pad", [[2, 2, 3]], before=[1, 0], after=[0, 2])
    yield run("pad_1d", "pad", [[3, 2]], before=[3], after=[1])
    yield run("pad_image", "pad", [[1, 2, 3, 2]], before=[0, 1, 2],
              after=[1, 1, 0])
    yield run("transpose", "transpose", [[2, 3, 4]], axes=[1, 0])
    yield run("transpose_image", "transpose", [[2, 2, 3, 4]], axes=[1, 2, 0])
    yield run("transpose_same", "transpose", [[2, 3, 2]], axes=[0, 1])
    yield run("reshape", "reshape", [[2, 3, 4]], shape=[2, 1, 6])
    yield run("reshape_scalar", "reshape", [[3, 1]], shape=[])
    yield run("concat_axis_1", "concat", [[2, 3, 2], [2, 3, 1], [2, 3, 4]],
              axis=1)
    yield run("concat_axis_2", "concat", [[2, 2, 3, 1], [2, 2, 3, 2]], axis=2)


def lstm_cases():
    def lstm(name, batch, steps, features, hidden, initial=False, **keys):
        inputs = [[batch, steps, features]]
        if initial:
            inputs.append([batch, 2 * keys.get("num_layers", 1), hidden])
        return run("lstm_" + name, "lstm", inputs, hidden_size=hidden, **keys)

    yield lstm("basic", 2, 5, 3, 4)
    yield lstm("batch_1", 1, 3, 2, 3)
    yield lstm("hidden_1", 3, 4, 2, 1)
    yield lstm("1_step", 2, 1, 3, 2)
    yield lstm("3_layers", 2, 4, 3, 2, num_layers=3)
    yield lstm("initial", 2, 3, 2, 3, initial=True)
    yield lstm("final", 2, 3, 2, 3, return_state=True)
    yield lstm("states", 3, 4, 2, 3, initial=True, num_layers=2,
               return_state=True)
    yield lstm("states_1_step", 1, 1, 4, 2, initial=True, num_layers=2,
               return_state=True)


def loss_cases():
    def loss(name, x, labels, shape=None, **keys):
        return run("softmax_cross_entropy_" + name, "softmax_cross_entropy",
                   [x, given(shape or [len(labels)], labels)], **keys)

    yield loss("basic", [4, 5], [3, 0, 4, 3])
    yield loss("batch_1", [1, 3], [1])
    yield loss("weight", [3, 4], [0, 3, 2], weight=0.3)
    yield loss("equal_logits", given([2, 4], [0.5] * 8), [1, 3])
    yield loss("large_logits",
               given([4, 3], [1000.0, 999.5, 998.0, -1000.0, -1001.0, -1000.0,
                              1000.0, 0.0, -1000.0, 0.0, -1000.0, 1000.0]),
               [1, 0, 2, 2], weight=0.3)
    yield loss("tokens", [2, 3, 7], [3, 0, 6, 1, 1, 5], [2, 3])
    yield loss("tokens_2d", [2, 2, 3, 4], [3, 0, 1, 2, 1, 0, 0, 2, 3, 3, 1, 0],
               [2, 2, 3], weight=0.3)
    yield loss("ignored", [3, 4, 9], [8, -100, 3, 0, -100, -100, 2, 7,
                                      -100, -100, -100, -100], [3, 4])
    yield loss("ignored_labels", [4, 6], [5, -100, 0, -100], weight=2.0)
    yield loss("top5_ties", given([6, 7], [2.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0] * 6),
               [0, 1, 2, 4, 5, 6])


def main():
    cases = [case for group in (conv_cases, linear_cases, pool_cases,
                                elementwise_cases, norm_cases,
                                sequence_cases, lstm_cases,
                                loss_cases)
             for case in group()]
    assert len({case["name"] for case in cases}) == len(cases)
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False)
                       for case in cases)
    version = json.dumps(torch.__version__)
    sys.stdout.write(f'{{"torch":{version},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
