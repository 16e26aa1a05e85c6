"""Runs pd-profile --network under mpirun, on one machine: python3 pd_profile_network_test.py; programs come from the
environment (PD_PROFILE, PD_PARTITION, MPIRUN)."""

import json
import os
import subprocess
import tempfile
import unittest

PROFILE, PARTITION, MPIRUN = (os.environ[name] for name in ("PD_PROFILE", "PD_PARTITION", "MPIRUN"))
CHAIN = {"format": "pipedream.profile/1", "batch_size": 4, "layers": [
    {"name": name, "inputs": [], "forward_ms": 5, "backward_ms": 5, "activation_bytes": 100, "parameter_bytes": 1000}
    for name in ("first", "second")]}


class PdProfileNetwork(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "cluster.json")
        self.profile = os.path.join(folder.name, "profile.json")

    def network(self, ranks, *words):
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run([MPIRUN, "--oversubscribe", "-np", str(ranks), PROFILE, "--network", *words],
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                              check=False)

    def test_ranks_of_one_machine_are_one_level_and_the_file_plans(self):
        done = self.network(2, "-o", self.out)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        with open(self.out, encoding="utf-8") as file:
            cluster = json.load(file)
        self.assertEqual(set(cluster), {"format", "levels", "memory_bytes"})
        self.assertEqual([level["workers"] for level in cluster["levels"]], [2])
        self.assertGreater(cluster["levels"][0]["bandwidth_bytes_per_s"], 1e7)
        self.assertLess(cluster["levels"][0]["latency_ms"], 100)
        self.assertEqual(done.stderr.count("1 host, 2 ranks each"), 1)
        with open(self.profile, "w", encoding="utf-8") as file:
            json.dump(CHAIN, file)
        plan = subprocess.run([PARTITION, self.profile, "--cluster", self.out, "--quiet"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertEqual(json.loads(plan.stdout)["cluster"], cluster)

    def test_without_o_the_file_is_all_of_standard_output(self):
        done = self.network(3, "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["levels"][0]["workers"], 3)

    def test_one_rank_has_no_network(self):
        done = self.network(1, "-o", self.out)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("pd-profile: expected two ranks or more, found 1", done.stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_flags_of_a_profile_do_not_go_with_network(self):
        for words in (["model.json"], ["-b", "2"], ["--threads", "2"], ["--device", "ref"]):
            done = subprocess.run([PROFILE, "--network", *words], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("--network", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def complaints(self, done):
        return [line for line in done.stderr.splitlines() if line.startswith("pd-profile")]

    def test_a_file_that_cannot_be_written_is_refused_once_before_measuring(self):
        nothing = os.path.join(self.out, "none", "cluster.json")
        done = self.network(2, "-o", nothing)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(self.complaints(done)), 1, done.stderr)
        self.assertIn(f"-o: {nothing}: cannot create", done.stderr)
        self.assertNotIn("both ways", done.stderr)

    def test_bad_usage_is_said_once(self):
        for words in (["--thread", "2"], ["model.json"]):
            done = self.network(3, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertEqual(len(self.complaints(done)), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
