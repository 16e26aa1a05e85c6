"""bench-tta's own logic, on stand-ins for the programs: the grid, the choice, the table and the files."""
import json
import shutil
import unittest
import xml.etree.ElementTree

from script_test import SCRIPTS, ScriptTest, run, skip

PROFILE = """#!/usr/bin/env python3
import sys
text = '{"levels": [{"workers": 2, "bandwidth_bytes_per_s": 6.25e7, "latency_ms": 0.125}]}'
open(sys.argv[sys.argv.index("-o") + 1], "w").write(text if "--network" in sys.argv else "{}")
"""
PARTITION = """#!/usr/bin/env python3
import json, sys
strategy = sys.argv[sys.argv.index("--strategy") + 1]
stages = [{"layers": ["a", "b"], "workers": [0, 1]}] if strategy == "data-parallel" else [
    {"layers": ["a"], "workers": [0]}, {"layers": ["b"], "workers": [1]}]
json.dump({"strategy": strategy, "stages": stages, "command": " ".join(sys.argv)}, open(sys.argv[sys.argv.index("-o") + 1], "w"))
"""
# Each evaluation is a second of training apart at lr 0.1 on a pipeline; data parallelism takes four times as
# long, lr 0.2 twice as long, and lr 0.3 fails. A sample sends 1000 bytes, starting 5000.
TRAIN = """#!/usr/bin/env python3
import json, os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] != "0": sys.exit(0)
def option(name, default=None): return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
plan, lr, target = json.load(open(sys.argv[1])), float(option("--lr")), option("--target-accuracy")
if lr == 0.3: print("pd-train: minibatch 7: loss is not finite", file=sys.stderr); sys.exit(1)
if lr == 0.4: print("pd-train: --lr: no", file=sys.stderr); sys.exit(2)
step = {0.1: 1, 0.2: 2}[lr] * (4 if len(plan["stages"]) == 1 else 1)
out = open(option("--metrics"), "w", buffering=1)
def say(**event): out.write(json.dumps(event) + "\\n")
reached = None
if target:
    for i in range(1, 6):
        say(event="eval", epoch=1, minibatch=10 * i, accuracy=0.5 + 0.1 * i, train_time_s=step * i)
        if 0.5 + 0.1 * i >= float(target): reached = step * i; break
        if lr == 0.2: time.sleep(0.5)
count = int(option("--minibatches", 100))
say(event="end", reached=reached is not None, target_accuracy=float(target or 0), time_to_accuracy_s=reached,
    accuracy=0.9, minibatch_ms=100 * step, workers=[{"rank": 0, "bytes_sent": 5000 + count * 8 * 1000}])
sys.exit(3 if target and reached is None else 0)
"""


class BenchTtaTest(ScriptTest):
    def setUp(self):
        super().setUp()
        for name, text in (("pd-profile", PROFILE), ("pd-partition", PARTITION), ("pd-train", TRAIN)):
            self.write(f"bin/{name}", text).chmod(0o755)
        self.model = self.write("toy.json", "{}")
        self.out = self.folder / "out"

    def bench(self, *options):
        return run(SCRIPTS / "bench-tta", "--local", "--rate", "unlimited", "--batch", 8, "--model", self.model,
                   "--data", "synthetic", "--bin", self.folder / "bin", "--out", self.out, *options)

    def results(self):
        facts = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        return {result["strategy"]: result for result in facts["results"]}

    def test_each_strategy_is_judged_by_its_best_learning_rate(self):
        done = self.bench("--lrs", "0.2,0.1,0.3", "--target", "0.79", "--minibatches", "10")
        self.assertEqual(done.returncode, 0, done.stderr)
        pipeline, parallel = self.results()["pipeline"], self.results()["data-parallel"]
        self.assertEqual((pipeline["lr"], pipeline["time_to_accuracy_s"]), (0.1, 3))
        self.assertEqual((parallel["lr"], parallel["time_to_accuracy_s"]), (0.1, 12))
        self.assertEqual(pipeline["speedup_over_data_parallel"], 4)
        self.assertEqual(pipeline["samples_per_s"], 80)
        self.assertEqual(pipeline["bytes_per_sample"], 1000)  # the 5000 of the start left out
        self.assertEqual(pipeline["plan"], "1-1, cut before b")
        self.assertEqual(len(pipeline["runs"]), 3)
        self.assertIn("loss is not finite", pipeline["runs"][2]["outcome"])
        self.assertIn("4.00", done.stdout)
        self.assertIn(f"training pipeline at lr 0.1, at most 5 epochs; log in {self.out}/pipeline-lr0.1.log",
                      done.stderr)
        xml.etree.ElementTree.parse(self.out / "accuracy.svg")

    def test_a_run_later_than_the_best_is_stopped(self):
        done = self.bench("--lrs", "0.1,0.2", "--target", "0.99", "--minibatches", "0", "--strategies", "pipeline")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second = self.results()["pipeline"]["runs"]
        self.assertEqual(first["time_to_accuracy_s"], 5)
        self.assertIn("later than the best", second["outcome"])

    def test_a_target_out_of_reach_is_reported_with_the_best_accuracy(self):
        done = self.bench("--lrs", "0.1", "--target", "1", "--minibatches", "0", "--strategies", "data-parallel")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNotNone(self.results()["data-parallel"]["accuracy"])

    def test_samples_only_measures_no_accuracy(self):
        done = self.bench("--samples-only", "--minibatches", "10", "--lrs", "0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.results()["pipeline"]["speedup_over_data_parallel"], 4)
        self.assertFalse((self.out / "accuracy.svg").exists())

    def test_what_pd_train_refuses_ends_the_comparison(self):
        done = self.bench("--lrs", "0.4", "--minibatches", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("pd-train: --lr: no", done.stderr)

    def test_missing_paths_are_refused_before_profiling(self):
        for flag in ("--config", "--data", "--model", "--profile"):
            done = self.bench(flag, "/nowhere")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{flag}: /nowhere: no such", done.stderr)
            self.assertNotIn("profiling", done.stderr)

    def test_bad_usage_is_refused(self):
        for options in (["--lrs", "0"], ["--lrs", "nan"], ["--strategies", "magic"], ["--hosts", "0"],
                        ["--rate", "5"], ["--rate", "1gbit"], ["--bin", "/nowhere"],
                        ["--samples-only", "--minibatches", "0"]):
            done = self.bench(*options)
            self.assertEqual(done.returncode, 2, (options, done.stderr))

    def test_a_measured_network_is_what_plans_are_for(self):
        done = self.bench("--bandwidth", "measured", "--strategies", "pipeline", "--lrs", "0.1", "--minibatches", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(facts["planned_for"], "62.5 MB/s each way, 0.12 ms, as measured")
        plan = json.loads((self.out / "pipeline.plan.json").read_text(encoding="utf-8"))
        self.assertIn(f"--cluster {self.out / 'cluster.json'}", plan["command"])
        self.assertNotIn("--bandwidth", plan["command"])


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        skip("there is no mpirun here")
    unittest.main()
