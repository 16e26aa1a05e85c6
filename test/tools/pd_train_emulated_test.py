"""pd-train --device cuda on the emulated GPU: delays of streams never change what is computed."""

import os
import unittest

from train_case import ENVIRONMENT, TrainCase, plan, replicated

SEEDS = int(os.environ.get("PD_SEEDS", "20"))


class Emulated(TrainCase):
    def losses(self, document, device, seed=0):
        ENVIRONMENT.update(CUDA_EMULATOR_SEED=str(seed), CUDA_EMULATOR_DELAY_US="20")
        # More samples than minibatches need, and a short last one.
        done = self.train(document, "--device", device, "--epochs", "2", "--eval-every", "3", "--log-every", "1",
                          data=self.data(35, 9), timeout=600)  # sanitizers are slow
        return done.losses()

    def test_every_seed_of_delays_trains_the_same_numbers_near_those_of_the_oracle(self):
        for replicas in ((2,), (2, 1)):
            document = plan(replicated(*replicas), batch=8)
            first = self.losses(document, "cuda")
            oracle = self.losses(document, "ref")
            self.assertEqual(len(first), len(oracle))
            for ours, theirs in zip(first, oracle):
                self.assertEqual(ours[:3], theirs[:3])
                self.assertAlmostEqual(ours[3], theirs[3], delta=1e-4 * max(1, abs(theirs[3])))
            for seed in range(1, SEEDS):
                self.assertEqual(self.losses(document, "cuda", seed), first, f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
