"""What happens to a run when something happens to one of its ranks: it ends, soon, and says why."""

import os
import signal
import time
import unittest

from train_case import PD_TRAIN, TrainCase, model, plan, replicated, strict_json

END_S = 10  # a job whose rank dies has ended by then


class Faults(TrainCase):
    LONG = ("--data", "synthetic", "--epochs", "500", "--log-every", "1")
    TRAINING = r'"minibatch":20'

    def begin(self, document, *args, ranks):
        job = self.start(ranks, self.file("plan.json", document), *self.LONG, *args)
        self.wait_for(self.TRAINING)
        return job

    def check_metrics(self, done):
        """Each line is whole, whatever became of the run."""
        self.assertTrue(done.stdout.endswith("\n"))
        self.assertGreater(len(done.events("train")), 0)
        self.assertEqual(done.events("end"), [])

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for rank in (0, 1):
            trace = self.path("trace.json")
            job = self.begin(plan(replicated(1, 1)), "--trace", trace, "--eval-every", "5", ranks=2)
            self.signal(rank, signal.SIGKILL)
            done = self.wait(job, END_S)
            self.assertNotEqual(done.status, 0)
            self.assertRegex(done.stderr, rf"rank {rank} .*signal 9 \(Killed\)")
            self.assertEqual([line for line in done.said if "stalled" in line or "not finite" in line], [], done)
            self.check_metrics(done)
            # A trace cut short still loads: its format leaves the last bracket out.
            slices = [e for e in strict_json(self.read("trace.json").rstrip(",\n ") + "]") if e["ph"] == "X"]
            self.assertGreater(len(slices), 20)

    def test_a_rank_that_stays_stopped_ends_the_job_after_the_timeout(self):
        job = self.begin(plan(replicated(1, 1, 1)), "--stall-timeout", "3", ranks=3)
        self.signal(1, signal.SIGSTOP)
        self.wait_for(r"waiting for [12] s", "err", 8)
        done = self.wait(job, 3 + END_S)
        self.assertEqual(done.status, 1, done)
        stalls = [line for line in done.said if "stalled" in line]
        # Half the time-out, then the end; each names who waits, at what, for whom: rank 1 may have
        # stopped before it took what was sent to it.
        for rank, stage, received in ((0, 0, "gradients"), (2, 2, "inputs")):
            self.assertRegex("\n".join(stalls),
                             rf"(rank {rank}: )?warning: stalled: stage {stage} replica 0: waiting for [12] s to "
                             rf"(receive {received} of minibatch \d+ from|send .* of minibatch \d+ to) rank 1")
        self.assertRegex("\n".join(stalls), r"stalled: .* (from|to) rank 1; giving up")
        self.assertNotIn("rank 1: stalled", done.stderr, "the rank that was stopped itself has waited for nobody")
        self.check_metrics(done)

    def test_an_idle_rank_0_notices_that_the_only_worker_is_stopped(self):
        job = self.begin(plan(((1,),)), "--stall-timeout", "3", ranks=2)
        self.signal(1, signal.SIGSTOP)
        done = self.wait(job, 3 + END_S)
        self.assertEqual(done.status, 1, done)
        self.assertRegex("\n".join(done.said), r"stalled: .* receive the loss from rank 1; giving up")

    def test_a_reader_of_metrics_that_goes_away_is_said(self):
        pipe = self.path("metrics")
        os.mkfifo(pipe)
        job = self.start(2, self.file("plan.json", plan(replicated(1, 1))), *self.LONG, "--metrics", pipe)
        with open(pipe, encoding="utf-8") as reader:
            reader.readline()
        done = self.wait(job, END_S)
        self.assertEqual(done.status, 1, done)
        self.assertIn("cannot write: Broken pipe", done.said[-1])

    def test_a_rank_that_goes_on_lets_the_run_go_on_to_the_same_result(self):
        args = ("--device", "ref", "--minibatches", "300", "--epochs", "2", "--data", "synthetic", "--log-every", "1",
                "--stall-timeout", "4")
        document = plan(replicated(2, 1))
        undisturbed = self.train(document, *args[:6], "--log-every", "1").losses()
        for rank in (0, 2):
            job = self.start(3, self.path("plan.json"), *args)
            self.wait_for(self.TRAINING)
            self.signal(rank, signal.SIGSTOP)
            self.wait_for(f"waiting for 2 s .*(from|to) rank {rank}", "err", 8)
            self.signal(rank, signal.SIGCONT)
            done = self.wait(job, 60)
            self.assertEqual(done.status, 0, done)
            self.assertEqual(done.losses(), undisturbed)

    def test_all_ranks_stopped_longer_than_the_timeout_go_on(self):
        # As a laptop that sleeps: nobody has waited for anybody.
        job = self.start(2, self.file("plan.json", plan()), "--data", "synthetic", "--stall-timeout", "2",
                         "--log-every", "1", "--epochs", "3")
        self.wait_for(self.TRAINING)
        for rank in (0, 1):
            self.signal(rank, signal.SIGSTOP)
        time.sleep(5)
        for rank in (0, 1):
            self.signal(rank, signal.SIGCONT)
        done = self.wait(job, 60)
        self.assertEqual(done.status, 0, done)

    def test_a_rank_without_memory_ends_the_job_and_says_so(self):
        # fc1 of rank 1: 2 GB of weights alone, where the process may have 1.5 GB. (CUDA takes far more addresses.)
        document = plan(net=model(channels=512, hidden=65536))
        wrapper = self.file("limit.sh", '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && ulimit -v 1500000\nexec "$@"\n')
        path = self.file("plan.json", document)
        done = self.execute(self.command(2, path, "--data", "synthetic", "--device", "ref",
                                         program=["sh", wrapper, PD_TRAIN]))
        self.assertEqual(done.status, 1, done)
        self.assertLess(done.seconds, END_S)
        self.assertRegex("\n".join(done.said), r"rank 1 \(\S+, ref\): cannot allocate \d+ bytes of memory")
        self.assertEqual(len(done.said), 1, done)

    def test_a_full_disk_ends_the_job_and_is_named(self):
        path = self.file("plan.json", plan())
        for flag in ("--metrics", "--trace"):
            done = self.run_train(2, path, "--data", "synthetic", "--minibatches", "5", flag, "/dev/full")
            self.assertEqual(done.status, 1, done)
            self.assertLess(done.seconds, END_S)
            said = [line for line in done.said if "/dev/full" in line]
            self.assertEqual(len(said), 1, done)
            self.assertIn("No space left on device", said[0])

    def test_a_disk_that_fills_up_while_training_ends_the_job_with_whole_lines(self):
        path = self.file("plan.json", plan())
        # A file may grow to 8 blocks of 512 bytes; the signal for it is ignored, as on a full disk.
        wrapper = self.file("limit.sh", "trap '' XFSZ\nulimit -f 8\nexec \"$@\"\n")
        metrics = self.path("metrics")
        done = self.execute(self.command(2, path, *self.LONG, "--metrics", metrics,
                                         program=["sh", wrapper, PD_TRAIN]))
        self.assertEqual(done.status, 1, done)
        self.assertRegex("\n".join(done.said), r"metrics: cannot write: File too large")
        self.assertGreater(os.path.getsize(metrics), 3000)

    def test_a_checkpoint_that_cannot_be_written_is_said_and_the_run_goes_on(self):
        path = self.file("plan.json", plan(replicated(1, 1)))
        self.file("saved/epoch-000001", "in the way")
        done = self.run_train(2, path, "--data", "synthetic", "--minibatches", "3", "--epochs", "2", "--checkpoint",
                              self.path("saved"))
        self.assertIn("no checkpoint of epoch 1", done.stderr)
        self.assertEqual(len(done.events("end")), 1)
        self.assertTrue(os.path.exists(self.path("saved", "epoch-000002", "manifest.json")))
        self.assertEqual(done.status, 1, "a run that lost a checkpoint has not done all it was told to")


if __name__ == "__main__":
    unittest.main()
