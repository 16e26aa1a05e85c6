"""Runs pd-partition as users do: python3 pd_partition_test.py PROGRAM"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None


def layer(name, inputs, ms, activation, parameters):
    return {"name": name, "inputs": inputs, "forward_ms": ms, "backward_ms": 2 * ms,
            "activation_bytes": activation, "parameter_bytes": parameters}


def profile():
    """Two convolution-like layers, then two of many weights: a pipeline beats data parallelism."""
    return {"format": "pipedream.profile/1", "batch_size": 64, "layers": [
        layer("conv1", ["image"], 5, 400_000, 1_000), layer("conv2", ["conv1"], 5, 100_000, 2_000),
        layer("fc1", ["conv2"], 4, 10_000, 9_000_000), layer("fc2", ["fc1", "label"], 4, 4, 3_000_000)]}


class PdPartition(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.profile = self.file("profile.json", json.dumps(profile()))

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def run_tool(self, *args, stdin=""):
        return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=60,
                              check=False)

    def refused(self, args, *words, stdin="", status=2):
        done = self.run_tool(*args, stdin=stdin)
        self.assertEqual(done.returncode, status, done)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("pd-partition: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def plan(self, *args, stdin=""):
        done = self.run_tool(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_plan_goes_to_standard_output_and_table_to_standard_error(self):
        plan, table = self.plan(self.profile, "-n", "2", "--bandwidth", "1Gbps")
        self.assertEqual(next(iter(plan)), "format")
        self.assertEqual([s["layers"] for s in plan["stages"]], [["conv1", "conv2"], ["fc1", "fc2"]])
        self.assertEqual([s["workers"] for s in plan["stages"]], [[0], [1]])
        self.assertEqual(plan["command"], f"pd-partition {self.profile} -n 2 --bandwidth 1Gbps")
        for word in ("conv1", "fc2", "data parallel", "model parallel", "one worker", "bound by", "in flight"):
            self.assertIn(word, table)

    def test_standard_input_quiet_and_output_file(self):
        path = os.path.join(self.folder.name, "plan.json")
        done = self.run_tool("-", "-n", "2", "--bandwidth", "1Gbps", "--quiet", "-o", path,
                             stdin=json.dumps(profile()))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        with open(path, encoding="utf-8") as plan:
            self.assertEqual(json.load(plan)["format"], "pipedream.plan/1")

    def test_twice_the_same_command_gives_the_same_bytes(self):
        args = (self.profile, "-n", "5", "--bandwidth", "300Mbps", "--quiet")
        self.assertEqual(self.run_tool(*args).stdout, self.run_tool(*args).stdout)

    def test_strategies(self):
        args = (self.profile, "-n", "3", "--bandwidth", "1Gbps", "--strategy")
        plan, _ = self.plan(*args, "data-parallel")
        self.assertEqual([s["workers"] for s in plan["stages"]], [[0, 1, 2]])
        straight, _ = self.plan(*args, "straight")
        self.assertEqual({len(s["workers"]) for s in straight["stages"]}, {1})
        model_parallel, _ = self.plan(*args, "model-parallel")
        self.assertEqual([s["layers"] for s in straight["stages"]],
                         [s["layers"] for s in model_parallel["stages"]])
        self.assertEqual([s.get("in_flight", 1) for s in model_parallel["stages"]][0], 1)

    def test_idle_workers_are_said_and_are_part_of_the_world(self):
        plan, table = self.plan(self.profile, "-n", "9", "--bandwidth", "1Gbps", "--strategy", "straight")
        self.assertIn("workers stay idle", table)
        self.assertEqual(len(plan["predicted"]["memory_bytes"]), 9)
        self.assertEqual(plan["cluster"]["levels"][0]["workers"], 9)

    def test_an_enormous_and_an_unlimited_bandwidth_balance(self):
        for bandwidth in ("1e30B/s", "unlimited"):
            plan, _ = self.plan(self.profile, "-n", "4", "--bandwidth", bandwidth)
            self.assertAlmostEqual(plan["predicted"]["minibatch_ms"], 54 / 4)

    def test_one_worker_needs_no_bandwidth(self):
        plan, _ = self.plan(self.profile, "-n", "1")
        self.assertEqual(len(plan["stages"]), 1)
        self.assertAlmostEqual(plan["predicted"]["minibatch_ms"], 54)

    def test_cluster_file(self):
        cluster = {"format": "pipedream.cluster/1", "memory_bytes": 10**9, "levels": [
            {"workers": 2, "bandwidth_bytes_per_s": 1.25e8, "latency_ms": 0.1}]}
        path = self.file("cluster.json", json.dumps(cluster))
        plan, _ = self.plan(self.profile, "--cluster", path)
        self.assertEqual(plan["cluster"], cluster)
        self.refused([self.profile, "--cluster", path, "-n", "2"], "both")
        self.refused([self.profile, "--cluster", path, "--bandwidth", "1Gbps"], "--bandwidth")
        self.refused([self.profile, "--cluster", self.profile], "/format")

    def test_cuts_and_replicas(self):
        plan, _ = self.plan(self.profile, "-n", "4", "--bandwidth", "1Gbps", "--cut-after", "conv1",
                            "--cut-after", "fc1", "--replicas", "1,1,2")
        self.assertEqual([s["layers"] for s in plan["stages"]], [["conv1"], ["conv2", "fc1"], ["fc2"]])
        self.assertEqual([s["workers"] for s in plan["stages"]], [[0], [1], [2, 3]])

    def test_machines_and_speeds(self):
        cluster = {"format": "pipedream.cluster/1", "speeds": [1, 1, 0.5, 2], "levels": [
            {"workers": 2, "bandwidth_bytes_per_s": 1.25e9, "latency_ms": 0.01},
            {"workers": 2, "bandwidth_bytes_per_s": 1.25e8, "latency_ms": 0.1}]}
        plan, table = self.plan(self.profile, "--cluster", self.file("cluster.json", json.dumps(cluster)))
        self.assertEqual(plan["cluster"], cluster)
        self.assertIn("2 at 1.25 GB/s x 2 at 125 MB/s", table)
        for key in ("compute_ms", "idle_share", "bytes_sent", "bytes_received", "memory_bytes"):
            self.assertEqual(len(plan["predicted"][key]), 4)

    def test_simulated_run_and_its_trace(self):
        path = os.path.join(self.folder.name, "trace.json")
        _, table = self.plan(self.profile, "-n", "3", "--bandwidth", "1Gbps", "--strategy", "straight",
                             "--simulate", "20", "--trace", path)
        self.assertIn("simulated from a cold start: 20 minibatches", table)
        with open(path, encoding="utf-8") as trace:
            events = json.load(trace)
        forwards = [e for e in events if e.get("cat") == "forward"]
        self.assertEqual(len(forwards), 20 * len({e["pid"] for e in forwards}))
        self.assertEqual({e["tid"] for e in events if e["ph"] == "X"}, {0, 1})

    def test_explanation_and_picture(self):
        path = os.path.join(self.folder.name, "plan.svg")
        _, table = self.plan(self.profile, "-n", "4", "--bandwidth", "1Gbps", "--explain", "--picture", path)
        for words in ("if there were", "links of 2.5 Gbit/s", "one worker more", "instead", "straight"):
            self.assertIn(words, table)
        with open(path, encoding="utf-8") as picture:
            self.assertIn("<svg", picture.read())

    def test_published_text_profiles(self):
        text = ("node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
                "activation_size=0.0, parameter_size=0.000\n"
                "node2 -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, "
                "activation_size=4000.000, parameter_size=8000.000\n"
                "node3 -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, "
                "activation_size=4000.000, parameter_size=8000.000\n"
                "\tnode1 -- node2\n\tnode2 -- node3\n")
        path = self.file("two.graph.txt", text)
        plan, _ = self.plan(path, "-b", "32", "-n", "2", "--bandwidth", "1Gbps")
        self.assertEqual(plan["batch_size"], 32)
        self.assertEqual(len(plan["layers"]), 2)
        done = self.run_tool(path, "-b", "32", "--convert")
        self.assertEqual(json.loads(done.stdout)["format"], "pipedream.profile/1")
        self.refused([path, "-n", "2", "--bandwidth", "1Gbps"], "two.graph.txt", "batch")

    def test_bandwidths_that_make_no_sense_are_refused(self):
        for text in ("0", "0bps", "-1Gbps", "nan", "NaNGbps", "1e309bps", "1e309", "25Gb", "10", "0x10Gbps",
                     "10 Gbps", "Gbps", "infbps", "1e-3bps", "+5Gbps"):
            with self.subTest(text):
                self.refused([self.profile, "-n", "2", f"--bandwidth={text}"], "--bandwidth: expected ",
                             f"found \"{text}\"")

    def test_other_flags_that_make_no_sense_are_refused(self):
        two = [self.profile, "-n", "2", "--bandwidth", "1Gbps"]
        self.refused([self.profile], "-n or --cluster", "neither")
        self.refused([self.profile, "-n", "2"], "--bandwidth is needed")
        for workers in ("0", "-1", "2.5", "0x2", "nan", "two", "99999999999999999999", "1e3"):
            self.refused([self.profile, f"-n={workers}", "--bandwidth", "1Gbps"], "-n: expected an integer")
        for memory in ("16", "0GB", "-1GB", "nanGB", "1e309GB", "16Gb"):
            self.refused([*two, f"--memory={memory}"], "--memory")
        self.refused([*two, "--memory", ""], "--memory", "expected a value, found an empty one")
        self.refused([*two, "--strategy", "straigt"], "did you mean \"straight\"?")
        self.refused([*two, "--cost-model", "exact"], "runtime, arxiv")
        self.refused([*two, "--schedule", "gpipe"], "--schedule", "1f1b")
        for count in ("0", "-1", "2.5", "100001"):
            self.refused([*two, f"--simulate={count}"], "--simulate: expected an integer")
        self.refused([*two, "--trace", "trace.json"], "--trace: expected beside --simulate")
        self.refused([*two, "--simulate", "9", "--trace", "-"], "--trace: expected a file")
        self.refused([*two, "--simulate", "9", "--trace", self.profile], "--trace")
        self.refused([*two, "--cut-after", "conv3"], "--cut-after", "did you mean \"conv1\"?")
        self.refused([*two, "--cut-after", "conv1", "--strategy", "data-parallel"], "--cut-after")
        for replicas in ("0", "1,", ",1", "1;1", "2.5", "1x", "x2", "1x0", "1x9999"):
            self.refused([*two, f"--replicas={replicas}"], "--replicas: expected", f"found \"{replicas}\"")
        self.refused([*two, "--replicas", "2,1"], "--replicas")
        self.refused([*two, "--replicas", "2", "--strategy", "straight"], "--replicas")
        self.refused([*two, "-b", "64"], "-b")
        self.refused([self.profile, "--convert"], "--convert")
        self.refused([self.profile, "--convert", "--picture", "x.svg"], "--convert", "--picture")
        self.refused([], "profile")

    def test_no_plan_fits_the_memory(self):
        args = [self.profile, "-n", "2", "--bandwidth", "1Gbps", "--memory"]
        self.refused([*args, "1MB"], "no plan fits 1.00 MB a worker", "the tightest layer is \"fc1\"",
                     "the nearest limit that works: --memory ")
        self.refused([*args, "1B"], "no plan fits 1 B a worker")
        least = self.run_tool(*args, "1MB").stderr.strip().rsplit(" ", 1)[1]
        self.plan(*args, least)
        number, unit = least[:-2], least[-2:]  # "36.05MB": one less in the last digit is too little
        digits = str(int(number.replace(".", "")) - 1)
        less = digits[:number.index(".")] + "." + digits[number.index("."):] if "." in number else digits
        self.refused([*args, less + unit], "no plan fits")

    def test_files_that_make_no_sense_are_refused_and_leave_nothing(self):
        two = ["-n", "2", "--bandwidth", "1Gbps"]
        bad = profile()
        bad["layers"][1]["forward_ms"] = -5
        path = self.file("bad.json", json.dumps(bad))
        out = os.path.join(self.folder.name, "plan.json")
        self.refused([path, *two, "-o", out], f"{path}: /layers/1/forward_ms: expected a number", "found -5")
        self.assertFalse(os.path.exists(out))
        bad["layers"][1]["forward_ms"] = 5
        bad["layers"][1]["froward_ms"] = 5
        self.refused(["-", *two], "did you mean \"forward_ms\"?", stdin=json.dumps(bad))
        self.refused([self.file("empty.json", ""), *two], "empty file")
        self.refused([self.file("cut.json", json.dumps(profile())[:-9]), *two], "not JSON")
        self.refused([self.file("deep.json", "[" * 500_000), *two], "deep.json")
        self.refused([self.folder.name, *two], "directory")
        self.refused([os.path.join(self.folder.name, "none.json"), *two], "none.json")

    def test_an_output_that_cannot_be_written_is_refused_before_planning(self):
        nothing = os.path.join(self.folder.name, "none", "file")
        two = [self.profile, "-n", "2", "--bandwidth", "1Gbps", "--simulate", "9"]
        for flag in ("-o", "--picture", "--trace"):
            with self.subTest(flag):  # one line: no table of a plan that is then lost
                self.refused([*two, flag, nothing], f"{flag}: {nothing}: cannot create")
                self.refused([*two, flag, self.folder.name], f"{flag}: {self.folder.name}", "found a directory")
        kept = self.file("kept.json", "kept")
        self.refused([*two, "-o", kept, "--picture", nothing], "--picture")
        with open(kept, encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["kept.json", "profile.json"])

    def test_outputs_are_other_files_than_inputs_and_each_other(self):
        two = [self.profile, "-n", "2", "--bandwidth", "1Gbps", "--simulate", "9"]
        one = os.path.join(self.folder.name, "one.json")
        again = os.path.join(self.folder.name, ".", "one.json")
        self.refused([*two, "-o", self.profile], f"-o: expected another file than the profile {self.profile}")
        self.refused([*two, "-o", one, "--picture", one], f"--picture: expected another file than -o's {one}")
        self.refused([*two, "--trace", one, "--picture", again], f"--picture: expected another file than --trace's {one}",
                     f"found {again}")
        self.run_tool(*two, "-o", os.devnull, "--picture", os.devnull, "--quiet")
        cluster = self.file("cluster.json", json.dumps({"format": "pipedream.cluster/1", "levels": [
            {"workers": 2, "bandwidth_bytes_per_s": 1e9, "latency_ms": 0}]}))
        self.refused([self.profile, "--cluster", cluster, "-o", cluster], f"-o: expected another file than the cluster")

    def test_a_byte_order_mark_is_passed_over_and_utf_16_refused(self):
        two = ["-n", "2", "--bandwidth", "1Gbps"]
        mark = "\ufeff"
        plan, _ = self.plan(self.file("marked.json", mark + json.dumps(profile())), *two)
        self.assertEqual(len(plan["layers"]), 4)
        cluster = {"format": "pipedream.cluster/1", "levels": [
            {"workers": 2, "bandwidth_bytes_per_s": 1e9, "latency_ms": 0}]}
        self.plan(self.profile, "--cluster", self.file("cluster.json", mark + json.dumps(cluster)))
        text = ("node2 -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4.0, "
                "parameter_size=8.0\n")
        self.plan(self.file("marked.graph.txt", mark + text), "-b", "8", "-n", "1")
        wide = os.path.join(self.folder.name, "wide.json")
        with open(wide, "w", encoding="utf-16") as file:
            json.dump(profile(), file)
        self.refused([wide, *two], "expected UTF-8, found UTF-16")

    def test_b_beside_a_damaged_profile_tells_of_the_damage(self):
        two = ["-n", "2", "--bandwidth", "1Gbps", "-b", "64"]
        self.refused([self.file("cut.json", json.dumps(profile())[:-9]), *two], "cut.json: not JSON")
        self.refused([self.file("cut.graph.txt", "de2 -- Linear -- forward_compute_time=1.0\n"), *two],
                     "cut.graph.txt: expected a profile/1 file, or a text profile", "nodeN")

    def test_help_has_examples_and_version_names_the_libraries(self):
        text = self.run_tool("--help").stdout
        for words in ("examples:", "exit status: 0 done", "--bandwidth RATE"):
            self.assertIn(words, text)
        version = self.run_tool("--version")
        self.assertEqual(version.returncode, 0)
        self.assertIn("nlohmann", version.stdout)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
