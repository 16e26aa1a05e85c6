"""pd-profile --network on the virtual cluster, whose rates are known. PD_PROFILE names the program. Needs root."""
import json
import os
import unittest

from script_test import SCRIPTS, ScriptTest, require_lab, run

PREFIX = "pdnet"
NETLAB = SCRIPTS / "netlab"


def netlab(*arguments):
    return run(NETLAB, *arguments, env={**os.environ, "NETLAB_PREFIX": PREFIX, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


class NetworkTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(netlab, "down")

    def measure(self, hosts, rate, *words):
        up = netlab("up", hosts, rate)
        self.assertEqual(up.returncode, 0, up.stderr)
        path = self.folder / "cluster.json"
        done = netlab("run", hosts, *words, os.environ["PD_PROFILE"], "--network", "-o", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(path.read_text(encoding="utf-8")), done.stderr

    def assert_near(self, level, bytes_per_s):
        # Headers take 4 to 5 %; the rest is for machines that do other things too.
        self.assertGreater(level["bandwidth_bytes_per_s"], 0.75 * bytes_per_s)
        self.assertLess(level["bandwidth_bytes_per_s"], 1.05 * bytes_per_s)

    def test_the_rate_of_the_links_is_found_with_both_directions_busy(self):
        for rate in (100, 1000):
            cluster, table = self.measure(2, f"{rate}mbit")
            self.assertEqual([level["workers"] for level in cluster["levels"]], [2], table)
            self.assert_near(cluster["levels"][0], rate * 1e6 / 8)
            self.assertIn("between hosts", table)

    def test_pairs_that_exchange_at_once_do_not_share_a_link(self):
        cluster, table = self.measure(4, "50mbit")
        self.assertEqual([level["workers"] for level in cluster["levels"]], [4], table)
        self.assert_near(cluster["levels"][0], 50e6 / 8)


if __name__ == "__main__":
    require_lab()
    unittest.main()
