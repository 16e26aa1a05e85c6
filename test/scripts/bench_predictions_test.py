"""bench-predictions' own logic, on stand-ins for the programs and for the virtual cluster."""
import json
import unittest

from script_test import SCRIPTS, ScriptTest, run

PROFILE = """#!/usr/bin/env python3
import sys
open(sys.argv[sys.argv.index("-o") + 1], "w").write("{}")
"""
# Three replicas and one, or what --replicas says; a *.graph.txt becomes a profile of two layers.
PARTITION = """#!/usr/bin/env python3
import json, sys
def option(name, default=None): return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
if "--convert" in sys.argv:
    result = {"batch_size": int(option("-b")), "layers": [
        {"name": "a", "forward_ms": 1.5, "backward_ms": 3, "activation_bytes": 4000, "parameter_bytes": 30},
        {"name": "b", "forward_ms": 1, "backward_ms": 2, "activation_bytes": 8, "parameter_bytes": 0}]}
else:
    counts = [int(word) for word in option("--replicas", "3,1").split(",")]
    result = {"stages": [{"workers": [0] * count} for count in counts]}
json.dump(result, open(option("-o"), "w"))
"""
# Each run takes longer than the one before, the first 8 ms a minibatch where 10 were predicted.
TRAIN = """#!/usr/bin/env python3
import json, os, pathlib, sys
def option(name): return sys.argv[sys.argv.index(name) + 1]
runs = pathlib.Path(__file__).with_name("runs")
done = len(runs.read_text().splitlines()) if runs.exists() else 0
runs.open("a").write(" ".join(sys.argv) + "\\n")
share = {"compute_ms": 4, "idle_share": 0, "bytes_sent": 100, "bytes_received": 100, "memory_bytes": 1000}
workers = [{"rank": 0, "measured": share | {"bytes_sent": 300}, "predicted": share},
           {"rank": 1, "measured": share | {"memory_bytes": 900}, "predicted": share},
           {"rank": 2, "measured": share, "predicted": None}]
trained = min(int(option("--minibatches")), 100)  # of an epoch
end = {"event": "end", "predicted_minibatch_ms": 10, "minibatch_ms": 99, "steady_minibatch_ms": 8 + 3 * done,
       "train_time_s": trained * 0.099, "workers": workers}
open(option("--metrics"), "w").write(json.dumps(end) + "\\n")
"""
NETLAB = """#!/bin/sh
[ "$1" = run ] || exit 0
shift 2
exec "$@"
"""


class BenchPredictions(ScriptTest):
    def setUp(self):
        super().setUp()
        for name, text in (("pd-profile", PROFILE), ("pd-partition", PARTITION), ("pd-train", TRAIN)):
            self.write(f"bin/{name}", text).chmod(0o755)
        # A tree of its own, so that the virtual cluster is a stand-in, too.
        for path in ("bench-predictions", "support/bench.py", "support/cluster.py", "support/metrics.py"):
            self.write(f"scripts/{path}", (SCRIPTS / path).read_text(encoding="utf-8")).chmod(0o755)
        self.write("scripts/netlab", NETLAB).chmod(0o755)
        self.out = self.folder / "out"

    def bench(self, *options):
        return run(self.folder / "scripts" / "bench-predictions", "--bin", self.folder / "bin", "--out", self.out,
                   *options)

    def rows(self):
        return json.loads((self.out / "results.json").read_text(encoding="utf-8"))

    def test_each_row_is_measured_over_predicted(self):
        done = self.bench("--models", "toy", "--rates", "1gbit")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows()
        self.assertEqual([row["case"] for row in rows],
                         ["toy-auto-1gbit", "toy-data-parallel-1gbit", "toy-straight-1gbit"])
        self.assertEqual([row["time"] for row in rows], [0.8, 1.1, 1.4])
        self.assertEqual(rows[0]["bytes"], [2, 1])
        self.assertEqual(rows[0]["memory"], [1, 0.9])
        self.assertIn("Time: median error 20.0 %, largest 40.0 %", done.stdout)

    def test_the_median_of_repeated_runs_counts(self):
        done = self.bench("--models", "toy", "--rates", "1gbit", "--repeat", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows()[0]["time"], 1.1)

    def test_profiles_are_scaled_and_rounds_are_whole(self):
        done = self.bench("--timed", self.write("x.graph.txt", ""), "--plans", "3-1", "--rates", "1gbit", "--slow", 2,
                          "--shrink", 100, "--minibatches", 11, "--batch", 5)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = json.loads((self.out / "scaled.profile.json").read_text(encoding="utf-8"))
        self.assertEqual(profile["batch_size"], 5)
        self.assertEqual(profile["layers"][0], {"name": "a", "forward_ms": 3, "backward_ms": 6, "activation_bytes": 40,
                                                "parameter_bytes": 4})
        self.assertEqual(profile["layers"][1]["parameter_bytes"], 0)
        words = (self.folder / "bin" / "runs").read_text(encoding="utf-8")
        self.assertIn("--minibatches 9 ", words)
        self.assertIn("--device timed", words)

    def test_more_minibatches_than_an_epoch_has_are_refused(self):
        done = self.bench("--models", "toy", "--rates", "1gbit", "--minibatches", "103")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--minibatches: expected at most the 100 of an epoch, found 102", done.stderr)

    def test_bad_usage_is_refused(self):
        for options in (["--plans", "3-x"], ["--plans", "magic:4"], ["--bin", "/nowhere"],
                        ["--timed", "x.json", "--plans", "3-1", "--minibatches", "2"]):
            self.write("x.json", '{"layers": []}')
            words = [self.folder / word if word == "x.json" else word for word in options]
            done = self.bench("--models", "toy", "--rates", "1gbit", *words)
            self.assertEqual(done.returncode, 2, (options, done.stderr))


if __name__ == "__main__":
    unittest.main()
