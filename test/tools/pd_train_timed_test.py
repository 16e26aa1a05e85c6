"""pd-train --device timed: a plan rehearsed with the times of its profile."""

import unittest

from train_case import TrainCase, model, plan


def costs(forward_ms, backward_ms, update_ms=0.0):
    return [{"name": layer["name"], "inputs": layer.get("inputs", []), "forward_ms": forward_ms,
             "backward_ms": backward_ms, "update_ms": update_ms, "activation_bytes": 4096,
             "parameter_bytes": 8192 if layer["name"] in ("conv1", "fc1", "fc2") else 0}
            for layer in model()["layers"]]


class Timed(TrainCase):
    def timed(self, document, *args, **more):
        return self.train(document, "--device", "timed", "--minibatches", "20", *args, data="synthetic", **more)

    def test_a_worker_computes_for_the_times_of_its_layers(self):
        document = plan(((0,),), layers=costs(1.0, 2.0, 0.5))
        worker = self.timed(document).events("end")[0]["workers"][0]
        # Eight layers of 3 ms, three updates of 0.5 ms. A timer is never early; a busy machine is late.
        self.assertGreaterEqual(worker["measured"]["compute_ms"], 8 * 3 + 3 * 0.5 - 0.1)
        self.assertLess(worker["measured"]["compute_ms"], 3 * (8 * 3 + 3 * 0.5))

    def test_nothing_is_evaluated_and_memory_is_what_the_process_takes(self):
        large = costs(0.1, 0.2)
        for layer in large:
            layer["activation_bytes"] = 64 << 20
        done = self.timed(plan(layers=large))
        self.assertEqual(done.events("eval"), [])
        for worker in done.events("end")[0]["workers"]:
            self.assertGreater(worker["base_memory_bytes"], 0)
        aimed = self.timed(plan(layers=large), "--target-accuracy", "0.5")  # as a config for training may
        self.assertIn("evaluates nothing: the target is left out", aimed.stderr)

    def test_a_plan_without_a_model_is_rehearsed_and_not_trained(self):
        document = plan(layers=costs(0.1, 0.2))
        del document["model"]
        done = self.timed(document)
        table = done.stderr[done.stderr.index("done:"):]
        self.assertNotIn("     memory", table)
        self.assertIn("no memory: device timed computes nothing", table)
        end = done.events("end")[0]
        # A minibatch's one tensor over the border, and its gradient: 4096 bytes and a header each way.
        for worker in end["workers"]:
            self.assertAlmostEqual(worker["measured"]["bytes_sent"], 4096, delta=400)
        refused = self.train(document, status=2)
        self.assertIn("only rehearsed with --device timed", refused.stderr)

    def test_layers_that_compute_are_refused_on_it_and_a_plan_without_costs_too(self):
        refused = self.timed(plan(), status=2)
        self.assertIn("expected a plan with the costs of its layers", refused.stderr)


if __name__ == "__main__":
    unittest.main()
