"""What pd-train writes: metrics, traces, statuses, and the resolved config."""

import json
import unittest

from train_case import PD_PARTITION, TrainCase, model, plan, replicated, strict_json

METRICS = {
    "start": {"event", "plan_digest", "config_digest", "binary_digest", "hosts", "devices", "threads", "seed",
              "effective_batch"},
    "train": {"event", "epoch", "minibatch", "loss", "samples_per_s", "time_s"},
    "eval": {"event", "epoch", "minibatch", "loss", "accuracy", "time_s", "train_time_s"},
    "end": {"event", "reached", "target_accuracy", "time_to_accuracy_s", "epochs", "accuracy",
            "predicted_minibatch_ms", "minibatch_ms", "workers"}}


class Metrics(TrainCase):
    def test_standard_output_holds_json_lines_only_and_a_file_the_same(self):
        document = plan(replicated(2, 1))
        args = ("--minibatches", "25", "--epochs", "2", "--eval-every", "10")
        out = self.train(document, *args, "--progress", "always")
        path = self.path("metrics.jsonl")
        file = self.train(document, *args, "--metrics", path, metrics=path)
        self.assertEqual(file.stdout, "")
        self.assertEqual(out.losses(), file.losses())
        for done in (out, file):
            events = done.events()
            for event in events:
                self.assertEqual(next(iter(event)), "event")
                self.assertLessEqual(METRICS[event["event"]], set(event))
            self.assertEqual([(e["event"], e["minibatch"]) for e in events[1:-1]], 2 * [
                ("train", 10), ("eval", 10), ("train", 20), ("eval", 20), ("train", 25), ("eval", 25)])
            times = [e["time_s"] for e in events[1:]]
            self.assertEqual(times, sorted(times))
            # Evaluation and saving are not in train_time_s.
            for e in done.events("eval"):
                self.assertLess(0, e["train_time_s"])
                self.assertLess(e["train_time_s"], e["time_s"])
            end = events[-1]
            self.assertEqual((end["reached"], end["target_accuracy"], end["time_to_accuracy_s"], end["epochs"]),
                             (False, None, None, 2))
            self.assertEqual(end["accuracy"], done.events("eval")[-1]["accuracy"])
            self.assertEqual([(w["rank"], w["stage"]) for w in end["workers"]], [(0, 0), (1, 0), (2, 1)])
            for w in end["workers"]:
                for key in ("compute_ms", "bytes_sent", "bytes_received", "peak_memory_bytes", "base_memory_bytes"):
                    self.assertGreater(w[key], 0)
                self.assertAlmostEqual(w["measured"]["bytes_sent"], w["bytes_sent"] / 50)
                self.assertIsNone(w["predicted"])
            sent, received = (sum(w[k] for w in end["workers"]) for k in ("bytes_sent", "bytes_received"))
            self.assertAlmostEqual(sent, received, delta=0.01 * sent)

    def test_time_to_accuracy_is_the_training_time_of_the_evaluation_that_reached_it(self):
        document = plan()
        done = self.train(document, "--target-accuracy", "0.9", "--epochs", "5", "--eval-every", "20", "--lr", "0.05")
        evaluations, end = done.events("eval"), done.events("end")[0]
        self.assertGreaterEqual(evaluations[-1]["accuracy"], 0.9)
        for e in evaluations[:-1]:
            self.assertLess(e["accuracy"], 0.9)
        self.assertTrue(end["reached"])
        self.assertAlmostEqual(end["time_to_accuracy_s"], evaluations[-1]["train_time_s"], places=3)
        self.assertIn("target reached after", done.stderr)
        missed = self.train(document, "--target-accuracy", "1", "--lr", "0", "--minibatches", "2", status=3)
        self.assertIn("target not reached", missed.stderr)
        end = missed.events("end")[0]
        self.assertEqual((end["reached"], end["time_to_accuracy_s"]), (False, None))

    def test_progress(self):
        document = plan()
        never = self.train(document, "--progress", "never", "--minibatches", "40")
        auto = self.train(document, "--minibatches", "40")
        always = self.train(document, "--progress", "always", "--minibatches", "40")
        for done in (never, auto):  # standard error is no terminal here
            self.assertNotRegex(done.stderr, r"ETA|\r|\x1b")
        self.assertRegex(always.stderr, r"epoch 1/1  minibatch \d+/40  loss \d.* samples/s  ETA \d+:\d\d\n")
        self.assertNotRegex(always.stderr, r"\x1b")

    def test_the_trace_loads_and_its_slices_lie_in_order_on_one_clock(self):
        path = self.path("trace.json")
        done = self.train(plan(replicated(2, 1)), "--minibatches", "12", "--epochs", "2", "--trace", path)
        with open(path, encoding="utf-8") as file:
            events = strict_json(file.read())
        names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        self.assertEqual(names, {"rank 0: stage 0 replica 0", "rank 1: stage 0 replica 1", "rank 2: stage 1 replica 0"})
        slices = [e for e in events if e["ph"] == "X"]
        for rank in (0, 1, 2):  # one after the other on the computing track
            track = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["pid"] == rank and e["tid"] == 0)
            self.assertGreater(len(track), 24)
            for before, after in zip(track, track[1:]):
                self.assertLessEqual(before[1], after[0] + 1e-3)

        def find(kind, minibatch, stage):
            return [e for e in slices if e["name"] == f"{kind} {minibatch}" and e["tid"] == 0 and
                    (e["pid"] == 2) == (stage == 1)]
        for minibatch in range(1, 25):
            (first,), (second,) = find("forward", minibatch, 0), find("forward", minibatch, 1)
            (last,), (back,) = find("backward", minibatch, 1), find("backward", minibatch, 0)
            self.assertEqual(first["pid"], (minibatch - 1) % 12 % 2)
            self.assertEqual(back["pid"], first["pid"])
            # Ranks of one machine share a clock; the estimate of the offset may err by a round trip.
            ends = [first["ts"], second["ts"], last["ts"], back["ts"]]
            for before, after in zip(ends, ends[1:]):
                self.assertLess(before, after + 200)
        self.assertEqual(len({e["name"] for e in slices if e["name"].startswith("evaluation forward")}), 32)
        self.assertEqual(done.events("end")[0]["epochs"], 2)


class Config(TrainCase):
    def test_flags_win_over_the_config_and_the_start_event_has_the_result(self):
        config = self.file("config.json", {"format": "pipedream.config/1", "epochs": 7, "lr": 0.5, "minibatches": 3,
                                           "momentum": 0.5, "data": "nowhere", "log_every": 1,
                                           "lr_schedule": {"type": "step", "epochs": 2, "gamma": 0.5}})
        done = self.train(plan(), "--config", config, "--epochs", "1", "--lr", "0.25")
        resolved = done.events("start")[0]["config"]
        self.assertEqual((resolved["epochs"], resolved["lr"], resolved["minibatches"], resolved["momentum"],
                          resolved["data"]), (1, 0.25, 3, 0.5, "synthetic"))
        self.assertEqual(resolved["lr_schedule"], {"type": "step", "epochs": 2, "gamma": 0.5})
        self.assertEqual(len(done.events("train")), 3)
        # The resolved config is a config: the same run again.
        again = self.train(plan(), "--config", self.file("resolved.json", resolved))
        self.assertEqual(again.losses(), done.losses())
        self.assertEqual(again.events("start")[0]["config_digest"], done.events("start")[0]["config_digest"])

    def test_one_config_and_seed_mean_the_same_weights_and_order_on_every_plan(self):
        args = ("--minibatches", "1", "--log-every", "1")
        first = {self.train(plan(w), *args).losses()[0] for w in (replicated(1), replicated(1, 1), replicated(1, 2))}
        self.assertEqual(len(first), 1)


class Plans(TrainCase):
    def test_a_plan_whose_costs_are_of_another_device_or_thread_count_is_said(self):
        document = plan()
        for device in (("cpu", 2), ("cuda", 1)):
            document["device"] = {"kind": device[0], "name": "X", "threads": device[1], "libraries": "y"}
            said = self.train(document, "--minibatches", "2", "--device", "cpu").said
            self.assertEqual(len([line for line in said if f"another device: {device[0]}" in line]), 1, said)

    def test_a_plan_whose_costs_are_of_another_batch_size_is_said(self):
        small = model()
        sizes = {"conv1": 256, "relu1": 256, "pool1": 64, "flatten": 64, "fc1": 32, "relu2": 32, "fc2": 10, "loss": 1}
        inputs = {layer["name"]: layer.get("inputs", []) for layer in small["layers"]}
        profile = {"format": "pipedream.profile/1", "batch_size": 32, "model": small, "layers": [
            {"name": name, "inputs": inputs[name], "forward_ms": 1, "backward_ms": 1,
             "activation_bytes": 4 * 32 * count, "parameter_bytes": 0} for name, count in sizes.items()]}
        made = self.execute([PD_PARTITION, self.file("profile.json", profile), "-n", "2", "--bandwidth", "1Gbps"])
        self.assertEqual(made.status, 0, made)
        document = json.loads(made.stdout)
        self.assertNotIn("costs are of another", self.train(document, "--minibatches", "2").stderr)
        document["batch_size"] = 16
        done = self.train(document, "--minibatches", "2")
        said = [line for line in done.said if "another batch size" in line]
        self.assertEqual(len(said), 1, done)
        self.assertIn("warning: ", said[0])
        self.assertGreater(done.events("end")[0]["predicted_minibatch_ms"], 0)

    def test_tf32_without_a_gpu_is_said_to_have_no_effect(self):
        done = self.train(plan(), "--device", "cpu", "--minibatches", "2", "--tf32")
        self.assertEqual(done.stderr.count("warning: tf32: no GPU is used, so it has no effect"), 1, done)

    def test_threads_and_usable_cores_are_printed_and_too_many_warned_about(self):
        done = self.train(plan(), "--device", "cpu", "--minibatches", "2", "--threads", "3",
                          mpi=("--bind-to", "core"))
        self.assertEqual(done.events("start")[0]["threads"], 3)
        for rank in (0, 1):
            self.assertRegex(done.stderr, rf"(?m)^ +{rank} .* 3 of 1 ")
            self.assertRegex(done.stderr, rf"warning: rank {rank} on \S+: 3 threads but 1 usable core: "
                                          r"mpirun --bind-to none")


if __name__ == "__main__":
    unittest.main()
