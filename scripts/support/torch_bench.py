#!/usr/bin/env python3
"""Usage: torch_bench.py MODEL [-b N] [--rounds N] [--device cuda] -o FILE

Times the layers of a model/1 file and a whole training step in PyTorch, in float32 without TF32, with
deterministic cuDNN algorithms, as bench/step_bench times ours: rows of layer, what, median_ms and least_ms.
"backward" is a layer's whole backward, its parameters' gradients included.
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F


def pooling(layer):
    return {"kernel_size": layer["kernel"], "stride": layer.get("stride", layer["kernel"]),
            "padding": layer.get("padding", 0), "ceil_mode": layer.get("ceil", False)}


def make_module(layer, shapes):
    """The module of a layer whose inputs have these shapes, minibatch first; None for those without parameters."""
    kind = layer["type"]
    if kind == "conv2d":
        return torch.nn.Conv2d(shapes[0][1], layer["out_channels"], layer["kernel"], layer.get("stride", 1),
                               layer.get("padding", 0), layer.get("dilation", 1), layer.get("groups", 1),
                               layer.get("bias", True))
    if kind == "linear":
        return torch.nn.Linear(shapes[0][-1], layer["out_features"], layer.get("bias", True))
    if kind == "batch_norm":
        make = torch.nn.BatchNorm2d if len(shapes[0]) == 4 else torch.nn.BatchNorm1d
        return make(shapes[0][1], layer.get("eps", 1e-5), layer.get("momentum", 0.1))
    return None


# Those without parameters.
FUNCTIONS = {
    "max_pool2d": lambda layer, x: F.max_pool2d(x[0], **pooling(layer)),
    "avg_pool2d": lambda layer, x: F.avg_pool2d(x[0], **pooling(layer),
                                                count_include_pad=layer.get("count_include_pad", True)),
    "global_avg_pool2d": lambda layer, x: x[0].mean((2, 3), keepdim=True),
    "relu": lambda layer, x: F.relu(x[0]),
    "tanh": lambda layer, x: torch.tanh(x[0]),
    "sigmoid": lambda layer, x: torch.sigmoid(x[0]),
    "flatten": lambda layer, x: x[0].flatten(1),
    "add": lambda layer, x: sum(x[1:], x[0]),
    "concat": lambda layer, x: torch.cat(x, 1),
    "dropout": lambda layer, x: F.dropout(x[0], layer.get("p", 0.5)),
    "lrn": lambda layer, x: F.local_response_norm(x[0], layer.get("size", 5), layer.get("alpha", 1e-4),
                                                  layer.get("beta", 0.75), layer.get("k", 1)),
    "softmax_cross_entropy": lambda layer, x: layer.get("weight", 1) * F.cross_entropy(x[0], x[1].long()),
}


class Stopwatch:
    """Times what the device does; on the CPU, what the host does."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def time_ms(self, work):
        if not self.on_gpu:
            begin = time.perf_counter()
            work()
            return (time.perf_counter() - begin) * 1000
        self.begin.record()
        work()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)


class Network:
    """A model/1 document in PyTorch."""

    def __init__(self, model, batch, device):
        self.model, self.modules, self.tensors = model, {}, {}
        for tensor in model["inputs"]:
            shape = [batch, *tensor["shape"]]
            labels = tensor.get("dtype") == "i32"
            self.tensors[tensor["name"]] = (torch.zeros(shape, dtype=torch.int32, device=device) if labels else
                                            torch.rand(shape, device=device))
        self.inputs = dict(self.tensors)
        before = model["inputs"][0]["name"]
        for layer in model["layers"]:
            layer.setdefault("inputs", [before])
            before = layer["name"]
            module = make_module(layer, [list(self.tensors[name].shape) for name in layer["inputs"]])
            if module is not None:
                self.modules[layer["name"]] = module.to(device)
            self.tensors[layer["name"]] = self.apply(layer, [self.tensors[name] for name in layer["inputs"]]).detach()
        self.parameters = [p for module in self.modules.values() for p in module.parameters()]

    def apply(self, layer, x):
        module = self.modules.get(layer["name"])
        return module(x[0]) if module is not None else FUNCTIONS[layer["type"]](layer, x)

    def loss(self):
        values, losses = dict(self.inputs), []
        for layer in self.model["layers"]:
            y = self.apply(layer, [values[name] for name in layer["inputs"]])
            values[layer["name"]] = y
            if layer["type"] == "softmax_cross_entropy":
                losses.append(y)
        return sum(losses[1:], losses[0])


def row(layer, what, times):
    return {"layer": layer, "what": what, "median_ms": statistics.median(times), "least_ms": min(times)}


def time_layer(network, layer, watch, rounds):
    x = [network.tensors[name].detach().clone() for name in layer["inputs"]]
    for tensor, name in zip(x, layer["inputs"]):
        if tensor.is_floating_point():
            tensor.requires_grad_(name not in network.inputs)
    wanted = [tensor for tensor in x if tensor.requires_grad]
    if layer["name"] in network.modules:
        wanted += list(network.modules[layer["name"]].parameters())
    forward, backward = [], []
    for turn in range(rounds + 2):
        y = network.apply(layer, x)
        took = watch.time_ms(lambda: network.apply(layer, x))
        if turn >= 2:
            forward.append(took)
        if not wanted:
            continue
        gradient = torch.ones_like(y)
        took = watch.time_ms(lambda: torch.autograd.grad(y, wanted, gradient))
        if turn >= 2:
            backward.append(took)
    rows = [row(layer["name"], "forward", forward)]
    return rows + ([row(layer["name"], "backward", backward)] if backward else [])


def time_step(network, watch, rounds):
    optimizer = torch.optim.SGD(network.parameters, lr=0.005, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        network.loss().backward()
        optimizer.step()

    for _ in range(12):
        step()
    return row("all", "step", [watch.time_ms(step) for _ in range(rounds)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-b", type=int, default=64, dest="batch")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", required=True, dest="output")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    device = torch.device(options.device)
    model = json.loads(pathlib.Path(options.model).read_text(encoding="utf-8"))
    network = Network(model, options.batch, device)
    watch = Stopwatch(device)
    rows = [line for layer in model["layers"] for line in time_layer(network, layer, watch, options.rounds)]
    rows.append(time_step(network, watch, options.rounds))
    pathlib.Path(options.output).write_text(
        json.dumps({"torch": torch.__version__, "device": str(device), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
