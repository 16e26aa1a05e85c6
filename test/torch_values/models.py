#!/usr/bin/env python3
"""Reference values for the shipped networks: one forward and backward pass by PyTorch.

    python3 models.py > models.json
    python3 models.py NETWORK…        only these, to standard output

needs PyTorch and torchvision (tested with 2.15 and 0.29). The tests read only models.json.

The networks are torchvision's where it has them, else written in plain torch.nn below; never read from
models/. Their modules bear the names of our layers, so parameters are matched by name. All is computed
in double precision from values that are exact in f32.

Weights and inputs are not stored: element i of a tensor named N ("fc.weight", "image") is made from

    h(N, i) = mix(fnv1a64(N) + i), mix being splitmix64's
    u(N, i) = (h >> 40) · 2⁻²³ − 1, in [−1, 1)

    parameter of two or more dimensions   u · sqrt(6 / fan), fan = elements / first dimension
    "….weight" of one dimension           1 + u / 4      (normalisation)
    other parameters of one dimension     u / 10         (biases)
    f32 inputs                            u · sqrt(3)    (variance 1)
    i32 inputs                            h mod limit; in "target", where (h >> 32) mod 8 is 0: −100

in double arithmetic, and is then rounded to f32. Running statistics are new ones: 0 and 1.

Dropout is switched off (p = 0) and all else is in training mode: batch norm uses the minibatch's
statistics. The objective is Σ weight · (sum of the losses) / (samples · targets a sample) over the losses,
targets of −100 left out of the sum but not of the divisor.

The file is {"torch": VERSION, "networks": {NAME: NETWORK}}; a NETWORK has "batch", "loss" (the objective)
and "gradients": for each parameter its L2 norm, and four of its elements, [norm, [index, value]…]: the two
of largest magnitude and two at random places. Numbers have 9 significant digits. "f32_error" says how far
PyTorch's own pass in f32 is from these: the largest, over all parameters, of

    |norm' − norm| / norm   and   |value' − value| / (|value| + norm/√elements)

In deep networks that is much: a ReLU or a maximum whose inputs nearly tie falls the other way.
"""

import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MASK = (1 << 64) - 1


# Values -------------------------------------------------------------------

def fnv1a64(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def hashes(name, count):
    z = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a64(name))
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(name, count):
    return (hashes(name, count) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


def exact(values, shape):
    """In double, rounded to what f32 holds."""
    return torch.from_numpy(values.astype(np.float32).astype(np.float64)).reshape(shape)


def parameter(name, shape):
    count = math.prod(shape)
    u = uniform(name, count)
    if len(shape) >= 2:
        return exact(u * math.sqrt(6 / (count // shape[0])), shape)
    return exact(1 + u / 4 if name.endswith("weight") else u / 10, shape)


def reals(name, shape):
    return exact(uniform(name, math.prod(shape)) * math.sqrt(3), shape)


def integers(name, shape, limit):
    h = hashes(name, math.prod(shape))
    values = (h % np.uint64(limit)).astype(np.int64)
    if name == "target":
        values[(h >> np.uint64(32)) % np.uint64(8) == 0] = -100
    return torch.from_numpy(values).reshape(shape)


def mean_loss(logits, target):
    """The divisor counts the targets of −100, too."""
    return F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="sum") / target.numel()


# Networks that torchvision does not have ------------------------------------

class Block(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if x.shape != y.shape:
            new = y.shape[1] - x.shape[1]
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, new // 2, new // 2))
        return torch.relu(y + x)


class ResNetCifar(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


class S2vt(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.frame_embedding = nn.Linear(4096, 500)
        self.word_embedding = nn.Embedding(vocabulary, 500)
        self.lstm1 = nn.LSTM(500, 1000, batch_first=True)
        self.lstm2 = nn.LSTM(1500, 1000, batch_first=True)
        self.logits = nn.Linear(1000, vocabulary)

    def forward(self, frames, words):
        x, w = self.frame_embedding(frames), self.word_embedding(words)
        x = torch.cat([x, torch.zeros_like(w)], 1)
        w = torch.cat([torch.zeros(*frames.shape[:2], 500, dtype=w.dtype), w], 1)
        x, _ = self.lstm1(x)
        x, _ = self.lstm2(torch.cat([x, w], 2))
        return self.logits(x[:, frames.shape[1]:])


class LstmLm(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 128)
        self.lstm1 = nn.LSTM(128, 256, batch_first=True)
        self.lstm2 = nn.LSTM(256, 256, batch_first=True)
        self.linear = nn.Linear(256, vocabulary)

    def forward(self, text):
        return self.linear(self.lstm2(self.lstm1(self.embedding(text))[0])[0])


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GptMini(nn.Module):
    def __init__(self, vocabulary, steps, width):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(steps, width),
            "h": nn.ModuleList(GptBlock(width, 4) for _ in range(4)), "ln_f": nn.LayerNorm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, text):
        x = self.transformer["wte"](text) + self.transformer["wpe"].weight
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


# Passes ---------------------------------------------------------------------

def torchvision(name, **keys):
    # pylint: disable-next=import-outside-toplevel
    import torchvision.models
    return getattr(torchvision.models, name)(**keys)


def dtype_of(net):
    return next(net.parameters()).dtype


def images(net, batch, size, classes=1000, auxiliary=0.0):
    def objective():
        y = net(reals("image", [batch, 3, size, size]).to(dtype_of(net)))
        label = integers("label", [batch], classes)
        if not auxiliary:
            return mean_loss(y, label)
        return mean_loss(y.logits, label) + auxiliary * mean_loss(y.aux_logits, label)
    return net, batch, objective


def sequences(net, batch, steps, vocabulary, **more):
    """`more`: f32 inputs before the tokens, NAME=shape. The tokens are `words` beside such, else `text`."""
    def objective():
        x = [reals(name, [batch, *shape]).to(dtype_of(net)) for name, shape in more.items()]
        x.append(integers("words" if more else "text", [batch, steps], vocabulary))
        return mean_loss(net(*x), integers("target", [batch, steps], vocabulary))
    return net, batch, objective


NETWORKS = {
    "alexnet": lambda: images(torchvision("alexnet"), 2, 224),
    "gpt_mini": lambda: sequences(GptMini(128, 64, 128), 2, 64, 128),
    # Three samples: the auxiliary head normalises over the minibatch alone.
    "inception_v3": lambda: images(torchvision("inception_v3", init_weights=False), 3, 299, auxiliary=0.4),
    "inception_v3_noaux": lambda: images(
        torchvision("inception_v3", init_weights=False, aux_logits=False), 2, 299),
    "lstm_lm": lambda: sequences(LstmLm(128), 2, 64, 128),
    "resnet50": lambda: images(torchvision("resnet50"), 2, 224),
    "resnet_cifar": lambda: images(ResNetCifar(), 2, 32, 10),
    "s2vt": lambda: sequences(S2vt(13000), 1, 20, 13000, frames=[80, 4096]),
    "vgg16": lambda: images(torchvision("vgg16", init_weights=False), 1, 224),
}


def number(value):
    return float(f"{value:.9g}")


def gradient(name, g):
    """[norm, [index, value]…]."""
    g = g.flatten()
    places = torch.topk(g.abs(), min(2, g.numel())).indices.tolist()
    places += [int(h % g.numel()) for h in hashes(name + " places", 2).tolist()]
    return [number(g.norm())] + [[i, number(g[i])] for i in sorted(set(places))]


def error(got, wanted):
    """As f32_error above; `got` is a tensor, `wanted` as gradient() writes it."""
    got = got.flatten().double()
    norm, *elements = wanted
    typical = norm / math.sqrt(got.numel())
    return max([abs(got.norm().item() - norm) / norm]
               + [abs(got[i].item() - value) / (abs(value) + typical) for i, value in elements])


def run(name):
    net, batch, objective = NETWORKS[name]()
    net.double().train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    for key, p in net.named_parameters():
        p.data = parameter(key, list(p.shape))
    loss = objective()
    loss.backward()
    gradients = {key: gradient(key, p.grad) for key, p in net.named_parameters()}
    net.zero_grad()
    net.float()
    objective().backward()
    worst = max(error(p.grad, gradients[key]) for key, p in net.named_parameters())
    return {"batch": batch, "loss": number(loss.item()), "f32_error": float(f"{worst:.3g}"), "gradients": gradients}


def main(names):
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        sys.exit(f"no network {unknown[0]}; there are {', '.join(NETWORKS)}")
    torch.set_num_threads(1)
    print(f'{{"torch": {json.dumps(torch.__version__)}, "networks": {{')
    names = names or list(NETWORKS)
    for name in names:
        print(name, file=sys.stderr)
        result = run(name)
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.pop("gradients").items()]
        print(f'{json.dumps(name)}: {json.dumps(result)[:-1]}, "gradients": {{')
        print(",\n".join(lines) + "}}" + ("," if name != names[-1] else ""))
    print("}}")


if __name__ == "__main__":
    main(sys.argv[1:])
