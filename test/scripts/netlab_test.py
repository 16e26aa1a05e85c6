"""The virtual cluster: made, used, measured, taken down. Needs root; its own prefix keeps others' labs safe."""
import concurrent.futures
import os
import sys
import unittest

from script_test import ROOT, SCRIPTS, ScriptTest, require_lab, run

NETLAB = SCRIPTS / "netlab"
DUPLEX = ROOT / "test" / "scripts" / "duplex.py"
MBIT = 200


def netlab(*arguments, prefix="pdtest"):
    return run(NETLAB, *arguments, env={**os.environ, "NETLAB_PREFIX": prefix})


def counters():
    lines = netlab("bytes").stdout.split("\n")[:-1]
    return {host: (int(sent), int(received)) for host, sent, received in map(str.split, lines)}


def address(host):
    line = netlab("status").stdout.split("\n")[host]
    return line.split()[1].split("/")[0]


class NetlabTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(netlab, "down")

    def up(self, hosts, rate):
        done = netlab("up", hosts, rate)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_mpirun_starts_one_process_on_each_host(self):
        self.up(3, f"{MBIT}mbit")
        done = netlab("run", 3, "sh", "-c", "echo $(hostname) $OMP_NUM_THREADS")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n")[:-1]), ["pdtest0 1", "pdtest1 1", "pdtest2 1"])

    def test_status_of_the_command_comes_through(self):
        self.up(2, "unlimited")
        self.assertEqual(netlab("run", 2, "sh", "-c", "exit 3").returncode, 3)
        self.assertEqual(netlab("exec", 1, "sh", "-c", "exit 4").returncode, 4)

    def test_rate_is_held_both_ways_at_once_and_counted(self):
        self.up(2, f"{MBIT}Mbps")
        before, seconds = counters(), 3
        listener = address(0)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ends = [pool.submit(netlab, "exec", host, sys.executable, DUPLEX, role, listener, seconds)
                    for host, role in enumerate(["listen", "connect"])]
            rates = [float(end.result().stdout) * 8 / 1e6 for end in ends]
        for rate in rates:  # payload: 4 % less than the wire carries
            self.assertGreater(rate, 0.90 * MBIT)
            self.assertLess(rate, 1.01 * MBIT)
        after = counters()
        for host in after:
            for direction in (0, 1):
                moved = (after[host][direction] - before[host][direction]) * 8 / 1e6
                self.assertGreater(moved, 0.9 * MBIT * seconds)
                self.assertLess(moved, 1.2 * MBIT * seconds)

    def test_an_unlimited_link_is_much_faster(self):
        self.up(2, "unlimited")
        listener = address(0)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ends = [pool.submit(netlab, "exec", host, sys.executable, DUPLEX, role, listener, 1)
                    for host, role in enumerate(["listen", "connect"])]
            for end in ends:
                self.assertGreater(float(end.result().stdout) * 8 / 1e6, 3 * MBIT)

    def test_down_twice_and_up_over_leftovers_are_fine(self):
        self.up(3, "unlimited")
        run("ip", "link", "del", "pdtestbr")  # what a crash may leave: hosts, but no switch
        self.up(2, "unlimited")
        self.assertEqual(len(counters()), 2)
        self.assertEqual(netlab("down").returncode, 0)
        self.assertEqual(netlab("down").returncode, 0)
        self.assertEqual(netlab("status").returncode, 1)
        self.assertNotIn("pdtest", run("ip", "link").stdout + run("ip", "netns").stdout)

    def test_two_labs_do_not_meet(self):
        self.addCleanup(netlab, "down", prefix="pdtestb")
        self.up(2, "unlimited")
        self.assertEqual(netlab("up", 2, "unlimited", prefix="pdtestb").returncode, 0)
        self.assertEqual(netlab("down", prefix="pdtestb").returncode, 0)
        self.assertEqual(netlab("run", 2, "hostname").returncode, 0)

    def test_a_lab_in_use_is_not_taken_away(self):
        self.up(1, "unlimited")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            sleeper = pool.submit(netlab, "exec", 0, "sleep", 60)
            while "processes 0" in netlab("status").stdout:
                pass
            refused = netlab("up", 1, "unlimited")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("in use", refused.stderr)
            self.assertEqual(netlab("down").returncode, 0)
            self.assertNotEqual(sleeper.result().returncode, 0)

    def test_bad_words_are_refused(self):
        for words in (["up", "0", "1gbit"], ["up", "2", "1"], ["up", "2", "-1gbit"], ["up", "2"],
                      ["run", "2", "hostname"], ["bytes"], ["sideways"], []):
            done = netlab(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr)
        self.assertEqual(netlab("up", "1", "1gbit", prefix="much-too-long").returncode, 2)


if __name__ == "__main__":
    require_lab()
    unittest.main()
