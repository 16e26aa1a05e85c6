"""pd-train --device cuda on the emulated GPU: delays of streams never change what is computed."""

import os
import unittest

from train_case import ENVIRONMENT, TrainCase, plan, replicated

SEEDS = int(os.environ.get("PD_SEEDS", "20"))


def sequence_model():
    """Each layer of networks for sequences, small."""
    return {"format": "pipedream.model/1", "name": "sequence",
            "inputs": [{"name": "text", "shape": [6], "dtype": "i32"}, {"name": "target", "shape": [6], "dtype": "i32"}],
            "layers": [{"name": "embedding", "type": "embedding", "inputs": ["text"], "num_embeddings": 9,
                        "embedding_dim": 8},
                       {"name": "positions", "type": "position_embedding"},
                       {"name": "norm", "type": "layer_norm"},
                       {"name": "qkv", "type": "linear", "out_features": 24},
                       {"name": "attention", "type": "attention", "heads": 2, "causal": True},
                       {"name": "sum", "type": "add", "inputs": ["attention", "positions"]},
                       {"name": "gelu", "type": "gelu"},
                       {"name": "dropout", "type": "dropout", "p": 0.2},
                       {"name": "later", "type": "pad", "before": [1, 0], "after": [0, 0]},
                       {"name": "lstm", "type": "lstm", "hidden_size": 8, "num_layers": 2},
                       {"name": "across", "type": "transpose", "axes": [1, 0]},
                       {"name": "last6", "type": "slice", "axis": 1, "begin": 1, "end": 7},
                       {"name": "back", "type": "transpose", "axes": [1, 0]},
                       {"name": "logits", "type": "linear", "out_features": 9},
                       {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["logits", "target"]}]}


class Emulated(TrainCase):
    def losses(self, document, data, device, seed=0):
        ENVIRONMENT.update(CUDA_EMULATOR_SEED=str(seed), CUDA_EMULATOR_DELAY_US="20")
        done = self.train(document, "--device", device, "--epochs", "2", "--eval-every", "3", "--log-every", "1",
                          data=data, timeout=600)  # sanitizers are slow
        return done.losses()

    def check(self, document, data):
        first = self.losses(document, data, "cuda")
        oracle = self.losses(document, data, "ref")
        self.assertEqual(len(first), len(oracle))
        for ours, theirs in zip(first, oracle):
            self.assertEqual(ours[:3], theirs[:3])
            self.assertAlmostEqual(ours[3], theirs[3], delta=1e-4 * max(1, abs(theirs[3])))
        for seed in range(1, SEEDS):
            self.assertEqual(self.losses(document, data, "cuda", seed), first, f"seed {seed}")

    # More samples than minibatches need, and a short last one.

    def test_every_seed_of_delays_trains_the_same_numbers_near_those_of_the_oracle(self):
        for replicas in ((2,), (2, 1)):
            self.check(plan(replicated(*replicas), batch=8), self.data(35, 9))

    def test_every_seed_of_delays_trains_a_network_for_sequences_the_same(self):
        for name, samples in (("train", 35), ("test", 9)):
            text = "".join("abcdefgh "[i * i % 31 % 9] for i in range(6 * samples + 1))
            self.file(f"text/{name}.txt", text)
        for replicas, cuts in (((2,), ()), ((2, 1), ("dropout",))):
            self.check(plan(replicated(*replicas), batch=8, net=sequence_model(), cuts=cuts), self.path("text"))


if __name__ == "__main__":
    unittest.main()
