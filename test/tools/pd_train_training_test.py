"""pd-train on plans of every shape: runs end, count each sample once, and agree with each other."""

import json
import math
import os
import re
import shutil
import unittest
import zlib

from train_case import PD_TRAIN, TrainCase, model, plan, replicated


def cluster(*workers):
    """Levels of so many workers, innermost first."""
    return {"format": "pipedream.cluster/1",
            "levels": [{"workers": w, "bandwidth_bytes_per_s": 1e9, "latency_ms": 0} for w in workers]}


class Schedules(TrainCase):
    def test_fewer_minibatches_than_stages_end_normally(self):
        for minibatches in (3, 1):
            done = self.train(plan(replicated(1, 1, 1, 1)), "--minibatches", str(minibatches), "--log-every", "1")
            self.assertEqual(len(done.events("train")), minibatches)
            self.assertEqual(done.events("end")[0]["epochs"], 1)

    def test_no_minibatches_are_refused(self):
        path = self.file("plan.json", plan())
        self.refused(2, [path, "--data", "synthetic", "--minibatches", "0"], "--minibatches", "found \"0\"")
        self.refused(2, [path, "--data", self.data(0, 20)], "data", status=2)

    def test_minibatches_that_replicas_do_not_divide_count_every_sample_once(self):
        # 43 samples in batches of 4: 11 minibatches, the last of 3. At learning rate 0 the mean loss of an epoch
        # is that of the test set, which is the same samples, in every epoch and on every plan.
        data = self.data(43, 0)
        for split in ("images-idx3", "labels-idx1"):
            with open(f"{data}/train-{split}-ubyte", "rb") as source:
                self.file(f"data/t10k-{split}-ubyte", source.read())
        evaluated = set()
        for replicas in ((1, 1), (2, 1), (1, 2), (3, 2), (2, 3), (5,)):
            with self.subTest(replicas):
                done = self.train(plan(replicated(*replicas), batch=4), "--epochs", "3", "--lr", "0", "--log-every",
                                  "1", data=data)
                for epoch in (1, 2, 3):
                    losses = [e["loss"] for e in done.events("train") if e["epoch"] == epoch]
                    self.assertEqual(len(losses), 11)
                    # One minibatch of the eleven is short, and stands last in every order.
                    mean = (4 * math.fsum(losses[:10]) + 3 * losses[10]) / 43
                    test = [e for e in done.events("eval") if e["epoch"] == epoch]
                    self.assertEqual(len(test), 1)
                    self.assertAlmostEqual(mean, test[0]["loss"], places=6)
                    evaluated.add(round(test[0]["loss"], 6))
        self.assertEqual(len(evaluated), 1, "the same weights and samples give another loss")

    def test_a_mean_over_several_minibatches_weighs_samples(self):
        one = self.train(plan(batch=32), "--lr", "0", "--log-every", "1", data=self.data(65, 1))
        many = self.train(plan(batch=32), "--lr", "0", data=self.data(65, 1))
        losses = [e["loss"] for e in one.events("train")]
        self.assertEqual(len(losses), 3)
        mean = (32 * losses[0] + 32 * losses[1] + losses[2]) / 65
        self.assertAlmostEqual(many.events("train")[0]["loss"], mean, places=9)

    def test_an_evaluation_of_some_minibatches_counts_these(self):
        for minibatches, samples in ((1, 8), (3, 24), (7, 50), (100, 50)):
            done = self.train(plan(replicated(2, 1), batch=8), "--lr", "0", "--eval-minibatches", str(minibatches),
                              "--minibatches", "2", data=self.data(80, 50))
            self.assertEqual(done.events("start")[0]["test_samples"], samples)
            right = done.events("eval")[0]["accuracy"] * samples
            self.assertAlmostEqual(right, round(right), places=6)

    def test_validation_sets_of_any_size_between_stretches_of_training(self):
        whole = self.train(plan(replicated(2, 1), batch=8), "--lr", "0", data=self.data(80, 50)).events("eval")[0]
        for samples in (0, 1, 7, 50):
            done = self.train(plan(replicated(2, 1), batch=8), "--lr", "0", "--eval-every", "3", "--epochs", "2",
                              data=self.data(80, samples))
            evaluations = done.events("eval")
            self.assertEqual([(e["epoch"], e["minibatch"]) for e in evaluations],
                             [] if samples == 0 else [(e, m) for e in (1, 2) for m in (3, 6, 9, 10)])
            self.assertEqual([e["minibatch"] for e in done.events("train")], [10, 10])
            self.assertEqual(len({(e["loss"], e["accuracy"]) for e in evaluations}), min(samples, 1))
            if samples == 50:
                self.assertAlmostEqual(evaluations[0]["loss"], whole["loss"], places=6)
            if samples > 0:
                correct = evaluations[0]["accuracy"] * samples
                self.assertAlmostEqual(correct, round(correct), places=6)

    def test_large_messages_and_eager_limits_of_256_bytes_do_not_deadlock(self):
        tcp = ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_eager_limit", "256", "--mca",
               "btl_tcp_rndv_eager_limit", "256")
        shared = ("--mca", "btl", "vader,self", "--mca", "btl_vader_eager_limit", "256")
        wide = model(channels=512)  # 64 × 512 × 8 × 8 floats: messages of 8 MB before pool1
        data = self.data(192, 64)
        for mpi in (tcp, shared):
            big = self.train(plan(batch=64, net=wide, cuts=("relu1",)), data=data, mpi=mpi)
            self.assertGreater(big.events("end")[0]["workers"][1]["bytes_received"], 3 * 8 << 20)
            self.train(plan(replicated(2, 1, 1), batch=4), data=data, mpi=mpi)

    def test_residual_edges_over_one_border_and_over_two(self):
        net = model()
        net["layers"][1:2] = [{"name": "relu1", "type": "relu"},
                              {"name": "conv2", "type": "conv2d", "out_channels": 4, "kernel": 3, "padding": 1},
                              {"name": "bn", "type": "batch_norm"},
                              {"name": "add", "type": "add", "inputs": ["bn", "relu1"]}]
        first = [self.train(plan(workers, net=net, cuts=cuts), "--minibatches", "4", "--lr", "0", "--log-every",
                            "1").losses()
                 for workers, cuts in ((((0,),), ("none",)), (((0,), (1,)), ("conv2",)),
                                       (((0,), (1,), (2,)), ("conv2", "add")))]
        # Test losses are of running statistics, which follow the same minibatches on every plan.
        self.assertEqual(first[0], first[1])
        self.assertEqual(first[0], first[2])


class Workers(TrainCase):
    def test_wherever_the_stages_run_the_losses_are_the_same(self):
        args = ("--minibatches", "12", "--log-every", "1", "--epochs", "2")
        plain = self.train(plan(replicated(2, 1)), *args)
        self.assertEqual(len(plain.losses()), 26)
        for name, document in {
                "replicas in another order": plan(((2, 0), (1,))),
                "input stage last": plan(((2, 1), (0,))),
                "rank 0 idle": plan(((1, 2), (3,))),
                "idle workers at the end": plan(((0, 1), (2,)), cluster=cluster(5)),
                "all but the first and second": plan(((4, 2), (3,)), cluster=cluster(5))}.items():
            with self.subTest(name):
                done = self.train(document, *args)
                self.assertEqual(done.losses(), plain.losses())
                used = {w for s in document["stages"] for w in s["workers"]}
                for worker in done.events("end")[0]["workers"]:
                    self.assertEqual(worker["stage"] is not None, worker["rank"] in used)

    def test_machines_of_several_workers_sum_inside_first(self):
        def run(workers, *levels):
            done = self.train(plan((workers,), cluster=cluster(*levels)), "--minibatches", "12", "--log-every", "1")
            return done.losses()
        flat = run((0, 1, 2, 3), 4)
        self.assertEqual(run((0, 1, 2, 3), 1, 4), flat)
        self.assertEqual(run((0, 2, 1, 3), 2, 2), flat)  # a machine's replicas stand apart
        self.assertNotEqual(run((0, 1, 2, 3), 2, 2), flat)

    def test_the_same_plan_twice_gives_the_same_losses_and_another_seed_others(self):
        for replicas in ((1, 1), (2, 2)):
            args = (plan(replicated(*replicas)), "--minibatches", "15", "--log-every", "1")
            first, second = self.train(*args), self.train(*args)
            self.assertEqual(first.losses(), second.losses())
            self.assertNotEqual(first.losses(), self.train(*args, "--seed", "2").losses())

    def test_at_learning_rate_0_every_plan_says_the_same_in_every_epoch(self):
        args = ("--lr", "0", "--minibatches", "6", "--log-every", "1", "--epochs", "2")
        losses = [self.train(plan(workers), *args).losses()
                  for workers in (replicated(1), replicated(1, 1), replicated(2, 1), replicated(1, 1, 1, 1))]
        for other in losses[1:]:
            self.assertEqual(losses[0], other)
        trained = [e for e in losses[0] if e[0] == "train"]
        self.assertNotEqual([e[3] for e in trained[:6]], [e[3] for e in trained[6:]], "each epoch has its own order")

    def test_the_number_of_ranks_is_what_the_plan_needs(self):
        path = self.file("plan.json", plan(replicated(1, 2, 1)))
        for ranks in (1, 3, 6):
            self.refused(ranks, [path, "--data", "synthetic"], "needs 4 workers", f"started with {ranks}",
                         "mpirun -np 4")

    def test_only_the_input_stage_needs_data(self):
        data = self.data(64, 10)
        hidden = self.path("elsewhere")
        self.file("plan.json", plan(((1,), (0,)), batch=8))
        # Each rank starts in a folder of its own; the data is in that of rank 1 only.
        wrapper = self.file("wrapper.sh", f"""mkdir -p {hidden}$OMPI_COMM_WORLD_RANK
            cd {hidden}$OMPI_COMM_WORLD_RANK
            [ "$OMPI_COMM_WORLD_RANK" = "$READER" ] && ln -sfn {data} data
            exec "$@" """)
        done = {}
        for reader in (1, 0):
            command = self.command(2, self.path("plan.json"), "--data", "data", mpi=("-x", f"READER={reader}"),
                                   program=["sh", wrapper, PD_TRAIN])
            done[reader] = self.execute(command)
            for rank in (0, 1):
                shutil.rmtree(f"{hidden}{rank}")
        self.assertEqual(done[1].status, 0, done[1])
        self.assertEqual(len(done[1].events("eval")), 1)
        self.check_refused(done[0], "rank 1", "data", "nothing of that name")


class Numbers(TrainCase):
    def test_effective_batch_and_learning_rate_of_each_stage_are_said(self):
        config = self.file("config.json", {"lr_scaling": "linear", "lr": 0.02})
        done = self.train(plan(replicated(2, 1)), "--minibatches", "2", "--config", config)
        self.assertEqual(done.events("start")[0]["effective_batch"], [64, 32])
        self.assertIn("pd-train: stage 0: effective batch 64, learning rate 0.04", done.said)
        self.assertIn("pd-train: stage 1: effective batch 32, learning rate 0.02", done.said)

    def test_a_loss_that_is_not_finite_ends_the_job_and_keeps_the_good_checkpoints(self):
        for workers in (((0,), (1,)), ((1,), (0,))):
            done = self.train(plan(workers), "--minibatches", "1", "--epochs", "40", "--lr", "1000", "--checkpoint",
                              self.path("saved"), status=1)
            reason = [line for line in done.said if "not finite" in line]
            self.assertEqual(len(reason), 1, done)
            self.assertIn("stage 1, replica 0", reason[0])
            self.assertEqual(done.events("end"), [])
            # The last checkpoint may be under way, all before it are whole; none is of weights whose
            # evaluation failed.
            good = len(done.events("eval"))
            self.assertGreater(good, 1)
            for epoch in range(1, good):
                self.check_checkpoint(epoch)
            self.assertFalse(os.path.exists(self.path("saved", f"epoch-{good + 1:06}")))
            shutil.rmtree(self.path("saved"))

    def check_checkpoint(self, epoch):
        folder = f"epoch-{epoch:06}"
        manifest = json.loads(self.read("saved", folder, "manifest.json"))
        self.assertEqual(manifest["epoch"], epoch)
        self.assertEqual(len(manifest["files"]), 2)
        names = set()
        for file in manifest["files"]:
            with open(self.path("saved", folder, file["name"]), "rb") as saved:
                content = saved.read()
            self.assertEqual(len(content), file["bytes"])
            self.assertEqual(f"{zlib.crc32(content):08x}", file["crc32"])
            length = int.from_bytes(content[:8], "little")
            names |= set(json.loads(content[8:8 + length]))
        layers = [f"{layer}.{p}" for layer in ("conv1", "fc1", "fc2") for p in ("weight", "bias")]
        self.assertEqual(names, {n + s for n in layers for s in ("", ".momentum")})

    def test_checkpoints_of_every_epoch_whichever_ranks_write_them(self):
        for workers in (((0,), (1,)), ((1, 0), (2,)), ((2,), (1,))):
            with self.subTest(workers):
                done = self.train(plan(workers), "--minibatches", "5", "--epochs", "3", "--checkpoint",
                                  self.path("saved"))
                self.assertEqual(len(done.events("end")), 1)
                for epoch in (1, 2, 3):
                    self.check_checkpoint(epoch)
                shutil.rmtree(self.path("saved"))


if __name__ == "__main__":
    unittest.main()
