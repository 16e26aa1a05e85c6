"""Every shipped network: profiled, planned for 2 and 4 workers, and trained on two stages.

The test takes those that need seconds. All, with times and memory in a table on standard error:

    PD_NETWORKS=all PD_TRAIN=… PD_PARTITION=… PD_PROFILE=… python3 pd_networks_test.py
"""

import json
import os
import re
import sys
import time

from train_case import MPIRUN, PD_PARTITION, PD_PROFILE, PD_TRAIN, TrainCase, unittest

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")
ALL = sorted(name[:-len(".json")] for name in os.listdir(MODELS) if name.endswith(".json"))
SMALL = ["even", "gpt_mini", "inception", "lenet", "lstm_lm", "resnet_cifar"]
MINIBATCHES = 3


def chosen():
    asked = os.environ.get("PD_NETWORKS", "")
    return ALL if asked == "all" else asked.split() or SMALL


class Networks(TrainCase):
    def done(self, *command):
        result = self.execute(list(command), timeout=1800)
        self.assertEqual(result.status, 0, result)
        return result

    def plan(self, profile, model, workers, *more):
        """Plans, and finds every layer in one stage."""
        path = self.path("plan.json")
        self.done(PD_PARTITION, profile, "-n", str(workers), "--bandwidth", "10Gbps", *more, "-o", path)
        stages = json.loads(self.read(path))["stages"]
        self.assertEqual(sorted(layer for s in stages for layer in s["layers"]),
                         sorted(layer["name"] for layer in model["layers"]))
        self.assertLessEqual(sum(len(s["workers"]) for s in stages), workers)
        return path

    def counted(self, plan):
        """What pd-train counts for each worker, by rank, in bytes."""
        table = self.done(PD_TRAIN, plan, "--check", "--device", "cpu").stderr
        rows = re.findall(r"^ *(\d+) +\S+ +\d+ +\d+ +\d+ +([\d.]+) (k?M?G?B) ", table, re.MULTILINE)
        units = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
        return {int(rank): float(amount) * units[unit] for rank, amount, unit in rows}

    def test_the_memory_of_workers_is_predicted_as_pd_train_counts_it(self):
        # Where several stages read one tensor, as inception's branches, some gradients are left out.
        for name, most in (("lenet", 1.05), ("resnet_cifar", 1.05), ("inception", 1.2)):
            path, profile = os.path.join(MODELS, name + ".json"), self.path("profile.json")
            with open(path, encoding="utf-8") as file:
                model = json.load(file)
            self.done(PD_PROFILE, path, "-b", "32", "--minibatches", "1", "--warmup", "1", "--device", "cpu",
                      "-o", profile)
            refused = self.execute([PD_PARTITION, profile, "-n", "4", "--bandwidth", "10Gbps", "--memory", "100kB"])
            least = re.search(r"that works: --memory (\S+)$", refused.stderr.strip())[1]
            for args in (["--replicas", "4"], ["--replicas", "1x4"], ["--memory", least]):
                plan = self.plan(profile, model, 4, *args)
                document = json.loads(self.read(plan))
                recomputes = any(stage.get("recompute") for stage in document["stages"])
                self.assertEqual(recomputes, args[0] == "--memory", document["stages"])
                counted = self.counted(plan)
                self.assertGreater(len(counted), 0)
                for rank, memory in counted.items():
                    share = memory / document["predicted"]["memory_bytes"][rank]
                    self.assertTrue(0.85 < share < most, (name, args, rank, share))

    def check(self, name):
        path = os.path.join(MODELS, name + ".json")
        with open(path, encoding="utf-8") as file:
            model = json.load(file)
        profile, metrics = self.path("profile.json"), self.path("metrics.jsonl")
        profiled = self.done(PD_PROFILE, path, "-b", "2", "--minibatches", "3", "--warmup", "1", "--device", "cpu",
                             "-o", profile)
        self.plan(profile, model, 4)
        self.plan(profile, model, 2)
        plan = self.plan(profile, model, 2, "--replicas", "1,1")
        start = time.monotonic()
        trained = self.execute([MPIRUN, "--oversubscribe", "-np", "2", PD_TRAIN, plan, "--data", "synthetic",
                                "--device", "cpu", "--lr", "1e-4", "--log-every", "1", "--eval-minibatches", "1",
                                "--minibatches", str(MINIBATCHES), "--metrics", metrics], timeout=1800, metrics=metrics)
        self.assertEqual(trained.status, 0, trained)
        losses = [event["loss"] for event in trained.events("train")]
        self.assertEqual(len(losses), MINIBATCHES)
        workers = trained.events("end")[0]["workers"]
        self.assertEqual([w["stage"] for w in workers], [0, 1])
        memory = [w["peak_memory_bytes"] for w in workers]
        self.assertLess(sum(memory), 24e9)
        self.assertTrue(all(w["compute_ms"] > 0 for w in workers))
        print(f"{name:20} profiled {profiled.seconds:6.1f} s, trained {time.monotonic() - start:6.1f} s, "
              f"{trained.events('end')[0]['minibatch_ms']:8.1f} ms a minibatch, peak "
              + " + ".join(f"{m / 1e9:.2f}" for m in memory) + f" GB, losses {losses}", file=sys.stderr)

    def test_networks_are_profiled_planned_and_trained_on_two_stages(self):
        for name in chosen():
            with self.subTest(network=name):
                self.check(name)


if __name__ == "__main__":
    unittest.main()
