"""What the tests of pd-train share: models, plans, data, and runs under mpirun.

The programs come from the environment: PD_TRAIN, PD_PARTITION, and PD_PROFILE where it is built.
"""

import json
import math
import os
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

PD_TRAIN = os.environ.get("PD_TRAIN", "pd-train")
PD_PARTITION = os.environ.get("PD_PARTITION", "pd-partition")
PD_PROFILE = os.environ.get("PD_PROFILE", "")
MPIRUN = os.environ.get("MPIRUN", "mpirun")
REFUSAL_S = 10  # a job that is refused has ended by then

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CUTS = ("pool1", "fc1", "fc2")  # a layer that starts a stage, of model()


def model(shape=(1, 8, 8), channels=4, hidden=32):
    return {"format": "pipedream.model/1", "name": "small",
            "inputs": [{"name": "image", "shape": list(shape)}, {"name": "label", "shape": [], "dtype": "i32"}],
            "layers": [{"name": "conv1", "type": "conv2d", "inputs": ["image"], "out_channels": channels,
                        "kernel": 3, "padding": 1},
                       {"name": "relu1", "type": "relu"},
                       {"name": "pool1", "type": "max_pool2d", "kernel": 2},
                       {"name": "flatten", "type": "flatten"},
                       {"name": "fc1", "type": "linear", "out_features": hidden},
                       {"name": "relu2", "type": "relu"},
                       {"name": "fc2", "type": "linear", "out_features": 10},
                       {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc2", "label"]}]}


def plan(workers=((0,), (1,)), batch=32, net=None, cuts=None, **more):
    """A plan of len(workers) stages, cut before `cuts`."""
    net = net or model()
    cuts = cuts or {1: (), 2: ("fc1",), 3: ("pool1", "fc1"), 4: CUTS}[len(workers)]
    stages = [[]]
    for layer in net["layers"]:
        if layer["name"] in cuts:
            stages.append([])
        stages[-1].append(layer["name"])
    return {"format": "pipedream.plan/1", "batch_size": batch,
            "stages": [{"layers": s, "workers": list(w)} for s, w in zip(stages, workers)], "model": net, **more}


def replicated(*replicas):
    """The workers of stages with so many replicas, in plain order."""
    workers, first = [], 0
    for r in replicas:
        workers.append(list(range(first, first + r)))
        first += r
    return workers


def idx(dims, values):
    """An IDX file of bytes: http://yann.lecun.com/exdb/mnist."""
    return struct.pack(f">BBBB{len(dims)}I", 0, 0, 8, len(dims), *dims) + bytes(values)


def strict_json(text):
    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    return json.loads(text, parse_constant=refuse)


class Result:
    """A job that has ended."""

    def __init__(self, status, stdout, stderr, seconds, metrics=None):
        self.status, self.stdout, self.stderr, self.seconds = status, stdout, stderr, seconds
        self.metrics = stdout if metrics is None else metrics
        # Only our own lines: mpirun has its banner.
        self.said = [line for line in stderr.splitlines() if line.startswith("pd-train:")]

    def events(self, kind=None):
        lines = [strict_json(line) for line in self.metrics.splitlines()]
        return [e for e in lines if kind is None or e["event"] == kind]

    def losses(self):
        """All that a run says of the training itself: no times."""
        return [(e["event"], e["epoch"], e["minibatch"], e["loss"], e.get("accuracy"))
                for e in self.events() if e["event"] in ("train", "eval")]

    def __repr__(self):
        return f"status {self.status} after {self.seconds:.1f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class TrainCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def file(self, name, content):
        path = self.path(name)
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        if isinstance(content, str):
            content = content.encode()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(content)
        return path

    def read(self, *names):
        with open(self.path(*names), encoding="utf-8") as file:
            return file.read()

    def data(self, train, test, name="data", labels=None):
        """A folder of IDX files: 8×8 images that a model can tell apart, labels i mod 10."""
        for prefix, count in (("train", train), ("t10k", test)):
            given = labels if labels and prefix == "train" else [i % 10 for i in range(count)]
            pixels = bytearray()
            for i in range(count):
                pixels += bytes((17 * i + 40 * (p % 10 == i % 10) * 4 + p) % 256 for p in range(64))
            self.file(f"{name}/{prefix}-images-idx3-ubyte", idx((count, 8, 8), pixels))
            self.file(f"{name}/{prefix}-labels-idx1-ubyte", idx((count,), given))
        return self.path(name)

    def command(self, ranks, *args, mpi=(), program=None):
        return [MPIRUN, "--oversubscribe", *mpi, "-np", str(ranks), *(program or [PD_TRAIN]), *args]

    def execute(self, command, stdin="", timeout=60, metrics=None):
        start = time.monotonic()
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False,
                              env=ENVIRONMENT, cwd=self.folder)
        text = None
        if metrics and os.path.exists(metrics):
            with open(metrics, encoding="utf-8") as file:
                text = file.read()
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - start, text)

    def run_train(self, ranks, *args, **more):
        return self.execute(self.command(ranks, *args, mpi=more.pop("mpi", ()), program=more.pop("program", None)),
                            **more)

    def train(self, document, *args, status=0, ranks=None, data="synthetic", **more):
        """Trains a plan to its end."""
        if ranks is None:
            ranks = 1 + max(w for s in document["stages"] for w in s["workers"])
            if "cluster" in document:
                ranks = math.prod(level["workers"] for level in document["cluster"]["levels"])
        path = self.file("plan.json", document)
        done = self.run_train(ranks, path, "--data", data, *args, **more)
        self.assertEqual(done.status, status, done)
        return done

    def check_refused(self, done, *words, status=2, lines=1):
        """The job ended soon, with one line of ours, and no signal."""
        self.assertEqual(done.status, status, done)
        self.assertLess(done.seconds, REFUSAL_S, done)
        self.assertEqual(done.stdout, "", done)
        self.assertEqual(len(done.said), lines, done)
        self.assertNotRegex(done.stderr, r"exited on signal|Signal:|terminate called|what\(\)")
        for word in words:
            self.assertIn(word, done.said[0])

    def refused(self, ranks, args, *words, status=2, **more):
        done = self.run_train(ranks, *args, **more)
        self.check_refused(done, *words, status=status)
        return done

    # ---- A job that something happens to.

    def start(self, ranks, *args, mpi=()):
        """Starts a job whose ranks leave their process ids."""
        wrapper = self.file("rank.sh", 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"\nexec "$@"\n')
        with open(self.path("out"), "w", encoding="utf-8") as out, \
                open(self.path("err"), "w", encoding="utf-8") as err:
            # pylint: disable-next=consider-using-with
            job = subprocess.Popen(self.command(ranks, *args, mpi=mpi, program=["sh", wrapper, PD_TRAIN]),
                                   stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=ENVIRONMENT,
                                   cwd=self.folder)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        if job.poll() is None:
            for rank in range(8):
                if os.path.exists(self.path(f"rank.sh.{rank}")):
                    self.signal(rank, signal.SIGKILL)
            job.kill()
            job.wait()

    def signal(self, rank, number):
        try:
            os.kill(int(self.read(f"rank.sh.{rank}")), number)
        except ProcessLookupError:
            pass

    def wait_for(self, what, name="out", seconds=30):
        """Waits until the file `name` has text that the pattern `what` finds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.path.exists(self.path(name)) and re.search(what, self.read(name)):
                return
            time.sleep(0.02)
        self.fail(f"no {what} in {name}: {self.read(name)}\n{self.read('err')}")

    def wait(self, job, seconds):
        start = time.monotonic()
        status = job.wait(timeout=seconds)
        return Result(status, self.read("out"), self.read("err"), time.monotonic() - start)
