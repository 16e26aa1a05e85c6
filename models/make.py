#!/usr/bin/env python3
"""Writes the models here that are too long to write by hand.

    python3 models/make.py            writes them
    python3 models/make.py --check    says which are not current; exit status 1 if any

Layers bear the names of the modules that torchvision, or the network's authors, gave them, so that a
checkpoint's tensors have the names of a PyTorch state_dict. Where each network comes from, and where it
differs: docs/networks.md.
"""

import json
import math
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Network:
    """A model as it is being written: each method adds a layer and returns its name."""

    def __init__(self, name, **inputs):
        """Inputs: NAME=(shape, dtype)."""
        self.name = name
        self.inputs = inputs
        self.layers = []

    def add(self, name, kind, *inputs, **keys):
        layer = {"name": name, "type": kind}
        if inputs and (not self.layers or list(inputs) != [self.layers[-1]["name"]]):
            layer["inputs"] = list(inputs)
        self.layers.append({**layer, **keys})
        return name

    def conv_bn(self, name, x, channels, kernel, conv="conv", bn="bn", relu="relu", bn_keys=None, **keys):
        """Convolution without bias, batch norm, and ReLU where it has a name."""
        y = self.add(f"{name}.{conv}", "conv2d", x, out_channels=channels, kernel=kernel, bias=False, **keys)
        y = self.add(f"{name}.{bn}", "batch_norm", y, **(bn_keys or {}))
        return self.add(f"{name}.{relu}", "relu", y) if relu else y

    def text(self):
        def entry(name, shape, dtype):
            return {"name": name, "shape": shape, **({"dtype": dtype} if dtype != "f32" else {})}

        def lines(items):
            return ",\n".join("    " + json.dumps(item) for item in items)
        inputs = [entry(name, *spec) for name, spec in self.inputs.items()]
        return (f'{{\n  "format": "pipedream.model/1",\n  "name": {json.dumps(self.name)},\n'
                f'  "inputs": [\n{lines(inputs)}\n  ],\n  "layers": [\n{lines(self.layers)}\n  ]\n}}\n')


def image_inputs(size, channels=3):
    return {"image": ([channels, size, size], "f32"), "label": ([], "i32")}


def normal(deviation, bias=True):
    """The key `init`: weights normal, biases 0."""
    weight = {"normal": float(f"{deviation:.4g}")}
    return {"weight": weight, "bias": {"constant": 0}} if bias else {"weight": weight}


def he(out_channels, kernel, bias=False):
    """He et al., 2015, by the outputs' fan, as torchvision initialises."""
    return normal(math.sqrt(2 / (out_channels * kernel * kernel)), bias)


# Images -------------------------------------------------------------------

def vgg16():
    """Simonyan and Zisserman, arXiv 1409.1556, configuration D; torchvision's vgg16."""
    net = Network("vgg16", **image_inputs(224))
    x, index = "image", 0
    for channels in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if channels:
            x = net.add(f"features.{index}", "conv2d", x, out_channels=channels, kernel=3, padding=1,
                        init=he(channels, 3, bias=True))
            x = net.add(f"features.{index + 1}", "relu", x)
            index += 2
        else:
            x = net.add(f"features.{index}", "max_pool2d", x, kernel=2)
            index += 1
    x = net.add("flatten", "flatten", x)
    for index in (0, 3):
        x = net.add(f"classifier.{index}", "linear", x, out_features=4096, init=normal(0.01))
        x = net.add(f"classifier.{index + 1}", "relu", x)
        x = net.add(f"classifier.{index + 2}", "dropout", x)
    x = net.add("classifier.6", "linear", x, out_features=1000, init=normal(0.01))
    net.add("loss", "softmax_cross_entropy", x, "label")
    return net


def alexnet():
    """Krizhevsky, arXiv 1404.5997 ("one weird trick"), without groups; torchvision's alexnet."""
    net = Network("alexnet", **image_inputs(224))
    x = net.add("features.0", "conv2d", "image", out_channels=64, kernel=11, stride=4, padding=2)
    x = net.add("features.1", "relu", x)
    x = net.add("features.2", "max_pool2d", x, kernel=3, stride=2)
    x = net.add("features.3", "conv2d", x, out_channels=192, kernel=5, padding=2)
    x = net.add("features.4", "relu", x)
    x = net.add("features.5", "max_pool2d", x, kernel=3, stride=2)
    for index, channels in ((6, 384), (8, 256), (10, 256)):
        x = net.add(f"features.{index}", "conv2d", x, out_channels=channels, kernel=3, padding=1)
        x = net.add(f"features.{index + 1}", "relu", x)
    x = net.add("features.12", "max_pool2d", x, kernel=3, stride=2)
    x = net.add("flatten", "flatten", x)
    for index in (0, 3):
        x = net.add(f"classifier.{index}", "dropout", x)
        x = net.add(f"classifier.{index + 1}", "linear", x, out_features=4096)
        x = net.add(f"classifier.{index + 2}", "relu", x)
    x = net.add("classifier.6", "linear", x, out_features=1000)
    net.add("loss", "softmax_cross_entropy", x, "label")
    return net


def resnet50():
    """He et al., arXiv 1512.03385, with the stride in the 3×3 convolution; torchvision's resnet50."""
    net = Network("resnet50", **image_inputs(224))

    def conv_bn(name, x, channels, kernel, number, relu, **keys):
        return net.conv_bn(name, x, channels, kernel, conv=f"conv{number}", bn=f"bn{number}", relu=relu,
                           init=he(channels, kernel), **keys)

    x = net.add("conv1", "conv2d", "image", out_channels=64, kernel=7, stride=2, padding=3, bias=False,
                init=he(64, 7))
    x = net.add("bn1", "batch_norm", x)
    x = net.add("relu", "relu", x)
    x = net.add("maxpool", "max_pool2d", x, kernel=3, stride=2, padding=1)
    for stage, blocks, channels in ((1, 3, 64), (2, 4, 128), (3, 6, 256), (4, 3, 512)):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            shortcut = x
            x = conv_bn(name, x, channels, 1, 1, "relu1")
            x = conv_bn(name, x, channels, 3, 2, "relu2", stride=stride, padding=1)
            x = conv_bn(name, x, 4 * channels, 1, 3, None)
            if block == 0:
                shortcut = net.conv_bn(f"{name}.downsample", shortcut, 4 * channels, 1, conv="0", bn="1",
                                       relu=None, stride=stride, init=he(4 * channels, 1))
            x = net.add(f"{name}.add", "add", x, shortcut)
            x = net.add(f"{name}.relu", "relu", x)
    x = net.add("avgpool", "global_avg_pool2d", x)
    x = net.add("flatten", "flatten", x)
    x = net.add("fc", "linear", x, out_features=1000)
    net.add("loss", "softmax_cross_entropy", x, "label")
    return net


def resnet_cifar():
    """He et al., arXiv 1512.03385 §4.2: ResNet-20 for CIFAR-10, shortcuts without parameters (option A)."""
    net = Network("resnet_cifar", **image_inputs(32))
    x = net.add("conv1", "conv2d", "image", out_channels=16, kernel=3, padding=1, bias=False, init=he(16, 3))
    x = net.add("bn1", "batch_norm", x)
    x = net.add("relu1", "relu", x)
    for stage, channels in ((1, 16), (2, 32), (3, 64)):
        for block in range(3):
            name = f"layer{stage}.{block}"
            grows = stage > 1 and block == 0
            shortcut = x
            for number, stride in ((1, 2 if grows else 1), (2, 1)):
                x = net.conv_bn(name, x, channels, 3, conv=f"conv{number}", bn=f"bn{number}",
                                relu="relu1" if number == 1 else None, stride=stride, padding=1,
                                init=he(channels, 3))
            if grows:  # every second pixel, and zeros for the new channels
                shortcut = net.add(f"{name}.subsample", "max_pool2d", shortcut, kernel=1, stride=2)
                shortcut = net.add(f"{name}.shortcut", "pad", shortcut, before=[channels // 4, 0, 0],
                                   after=[channels // 4, 0, 0])
            x = net.add(f"{name}.add", "add", x, shortcut)
            x = net.add(f"{name}.relu2", "relu", x)
    x = net.add("avgpool", "global_avg_pool2d", x)
    x = net.add("flatten", "flatten", x)
    x = net.add("linear", "linear", x, out_features=10)
    net.add("loss", "softmax_cross_entropy", x, "label")
    return net


class Inception:
    """Szegedy et al., arXiv 1512.00567; torchvision's inception_v3. Each mixed block returns its concat."""

    def __init__(self, aux):
        self.net = Network("inception_v3" if aux else "inception_v3_noaux", **image_inputs(299))
        conv, net = self.conv, self.net
        x = conv("Conv2d_1a_3x3", "image", 32, 3, stride=2)
        x = conv("Conv2d_2a_3x3", x, 32, 3)
        x = conv("Conv2d_2b_3x3", x, 64, 3, padding=1)
        x = net.add("maxpool1", "max_pool2d", x, kernel=3, stride=2)
        x = conv("Conv2d_3b_1x1", x, 80, 1)
        x = conv("Conv2d_4a_3x3", x, 192, 3)
        x = net.add("maxpool2", "max_pool2d", x, kernel=3, stride=2)
        for name, features in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
            x = self.mixed_a(name, x, features)
        x = self.mixed_b("Mixed_6a", x)
        for name, channels in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
            x = self.mixed_c(name, x, channels)
        if aux:
            self.auxiliary(x)
        x = self.mixed_d("Mixed_7a", x)
        for name in ("Mixed_7b", "Mixed_7c"):
            x = self.mixed_e(name, x)
        x = net.add("avgpool", "global_avg_pool2d", x)
        x = net.add("dropout", "dropout", x)
        x = net.add("flatten", "flatten", x)
        x = net.add("fc", "linear", x, out_features=1000, init={"weight": {"normal": 0.1}})
        net.add("loss", "softmax_cross_entropy", x, "label")

    def conv(self, name, x, channels, kernel, **keys):
        return self.net.conv_bn(name, x, channels, kernel, bn_keys={"eps": 0.001}, **keys,
                                init={"weight": {"normal": 0.1}})

    def chain(self, name, x, *convs):
        """Convolutions in a row: (suffix, channels, kernel[, padding[, stride]])."""
        for suffix, channels, kernel, *rest in convs:
            x = self.conv(f"{name}.{suffix}", x, channels, kernel, **dict(zip(("padding", "stride"), rest)))
        return x

    def average(self, name, x, channels):
        y = self.net.add(f"{name}.branch_pool.pool", "avg_pool2d", x, kernel=3, stride=1, padding=1)
        return self.conv(f"{name}.branch_pool", y, channels, 1)

    def maximum(self, name, x):
        return self.net.add(f"{name}.branch_pool", "max_pool2d", x, kernel=3, stride=2)

    def mixed_a(self, name, x, features):
        return self.net.add(
            name, "concat",
            self.chain(name, x, ("branch1x1", 64, 1)),
            self.chain(name, x, ("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5, 2)),
            self.chain(name, x, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1),
                       ("branch3x3dbl_3", 96, 3, 1)),
            self.average(name, x, features))

    def mixed_b(self, name, x):
        return self.net.add(
            name, "concat",
            self.chain(name, x, ("branch3x3", 384, 3, 0, 2)),
            self.chain(name, x, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1),
                       ("branch3x3dbl_3", 96, 3, 0, 2)),
            self.maximum(name, x))

    def mixed_c(self, name, x, c7):
        wide, high = ([1, 7], [0, 3]), ([7, 1], [3, 0])
        return self.net.add(
            name, "concat",
            self.chain(name, x, ("branch1x1", 192, 1)),
            self.chain(name, x, ("branch7x7_1", c7, 1), ("branch7x7_2", c7, *wide), ("branch7x7_3", 192, *high)),
            self.chain(name, x, ("branch7x7dbl_1", c7, 1), ("branch7x7dbl_2", c7, *high),
                       ("branch7x7dbl_3", c7, *wide), ("branch7x7dbl_4", c7, *high),
                       ("branch7x7dbl_5", 192, *wide)),
            self.average(name, x, 192))

    def mixed_d(self, name, x):
        return self.net.add(
            name, "concat",
            self.chain(name, x, ("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3, 0, 2)),
            self.chain(name, x, ("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, [1, 7], [0, 3]),
                       ("branch7x7x3_3", 192, [7, 1], [3, 0]), ("branch7x7x3_4", 192, 3, 0, 2)),
            self.maximum(name, x))

    def mixed_e(self, name, x):
        def both(branch, y, left, right):
            return self.net.add(f"{name}.{branch}", "concat",
                                self.chain(name, y, (left, 384, [1, 3], [0, 1])),
                                self.chain(name, y, (right, 384, [3, 1], [1, 0])))
        one = self.chain(name, x, ("branch1x1", 320, 1))
        y = self.chain(name, x, ("branch3x3_1", 384, 1))
        three = both("branch3x3", y, "branch3x3_2a", "branch3x3_2b")
        y = self.chain(name, x, ("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3, 1))
        double = both("branch3x3dbl", y, "branch3x3dbl_3a", "branch3x3dbl_3b")
        return self.net.add(name, "concat", one, three, double, self.average(name, x, 192))

    def auxiliary(self, x):
        net, name = self.net, "AuxLogits"
        x = net.add(f"{name}.pool", "avg_pool2d", x, kernel=5, stride=3)
        x = self.chain(name, x, ("conv0", 128, 1), ("conv1", 768, 5))
        x = net.add(f"{name}.avgpool", "global_avg_pool2d", x)
        x = net.add(f"{name}.flatten", "flatten", x)
        x = net.add(f"{name}.fc", "linear", x, out_features=1000, init={"weight": {"normal": 0.001}})
        net.add(f"{name}.loss", "softmax_cross_entropy", x, "label", weight=0.4)


# Sequences ----------------------------------------------------------------

def s2vt(frames=80, words=20, vocabulary=13_000):
    """Venugopalan et al., arXiv 1505.00487: two stacked LSTMs read the frames, then write the words."""
    net = Network("s2vt", frames=([frames, 4096], "f32"), words=([words], "i32"), target=([words], "i32"))
    x = net.add("frame_embedding", "linear", "frames", out_features=500)
    x = net.add("frames_then_zeros", "pad", x, before=[0, 0], after=[words, 0])
    x = net.add("lstm1", "lstm", x, hidden_size=1000)
    y = net.add("word_embedding", "embedding", "words", num_embeddings=vocabulary, embedding_dim=500)
    y = net.add("zeros_then_words", "pad", y, before=[frames, 0], after=[0, 0])
    x = net.add("lstm1_and_words", "concat", x, y, axis=1)
    x = net.add("lstm2", "lstm", x, hidden_size=1000)
    x = net.add("decoded", "slice", x, begin=frames, end=frames + words)
    x = net.add("logits", "linear", x, out_features=vocabulary)
    net.add("loss", "softmax_cross_entropy", x, "target")
    return net


def lstm_lm(vocabulary=128, steps=64):
    """A language model of characters."""
    net = Network("lstm_lm", text=([steps], "i32"), target=([steps], "i32"))
    x = net.add("embedding", "embedding", "text", num_embeddings=vocabulary, embedding_dim=128)
    x = net.add("lstm1", "lstm", x, hidden_size=256)
    x = net.add("lstm2", "lstm", x, hidden_size=256)
    x = net.add("linear", "linear", x, out_features=vocabulary)
    net.add("loss", "softmax_cross_entropy", x, "target")
    return net


def gpt_mini(vocabulary=128, steps=64, width=128, heads=4, blocks=4):
    """nanoGPT at the size that its README trains on a processor; lm_head has weights of its own."""
    net = Network("gpt_mini", text=([steps], "i32"), target=([steps], "i32"))

    def linear(name, x, out, deviation=0.02, **keys):
        return net.add(name, "linear", x, out_features=out, **keys,
                       init=normal(deviation, bias=keys.get("bias", True)))

    x = net.add("transformer.wte", "embedding", "text", num_embeddings=vocabulary, embedding_dim=width,
                init={"weight": {"normal": 0.02}})
    x = net.add("transformer.wpe", "position_embedding", x, init={"weight": {"normal": 0.02}})
    residual = 0.02 / math.sqrt(2 * blocks)
    for block in range(blocks):
        name = f"transformer.h.{block}"
        y = net.add(f"{name}.ln_1", "layer_norm", x)
        y = linear(f"{name}.attn.c_attn", y, 3 * width)
        y = net.add(f"{name}.attn", "attention", y, heads=heads, causal=True)
        y = linear(f"{name}.attn.c_proj", y, width, residual)
        x = net.add(f"{name}.add_1", "add", x, y)
        y = net.add(f"{name}.ln_2", "layer_norm", x)
        y = linear(f"{name}.mlp.c_fc", y, 4 * width)
        y = net.add(f"{name}.mlp.gelu", "gelu", y)
        y = linear(f"{name}.mlp.c_proj", y, width, residual)
        x = net.add(f"{name}.add_2", "add", x, y)
    x = net.add("transformer.ln_f", "layer_norm", x)
    x = linear("lm_head", x, vocabulary, bias=False)
    net.add("loss", "softmax_cross_entropy", x, "target")
    return net


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(f"usage: make.py [--check], found {' '.join(arguments)}")
    stale = []
    for net in (vgg16(), alexnet(), resnet50(), resnet_cifar(), Inception(aux=True).net,
                Inception(aux=False).net, s2vt(), lstm_lm(), gpt_mini()):
        path = os.path.join(FOLDER, net.name + ".json")
        if arguments:
            if not os.path.exists(path) or open(path, encoding="utf-8").read() != net.text():
                stale.append(path)
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(net.text())
    for path in stale:
        print(f"{path}: not what make.py writes", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
