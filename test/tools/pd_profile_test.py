"""Runs pd-profile as users do: python3 pd_profile_test.py PD_PROFILE MODELS"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = MODELS = None
QUICK = ["-b", "2", "--minibatches", "2", "--warmup", "1"]
TIMES = ("forward_ms", "backward_ms", "update_ms", "forward_p90_ms", "backward_p90_ms")


class PdProfile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.lenet = os.path.join(MODELS, "lenet.json")

    def run_tool(self, *args, stdin="", program=None):
        return subprocess.run([program or PROGRAM, *args], input=stdin, capture_output=True, text=True,
                              timeout=120, check=False)

    def profile(self, *args, stdin=""):
        done = self.run_tool(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\r", done.stderr)  # no terminal, no progress
        return json.loads(done.stdout), done.stderr

    def refused(self, args, *words, stdin="", status=2):
        done = self.run_tool(*args, stdin=stdin)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("pd-profile: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def kinds(self):
        """The devices that the program says it has."""
        done = self.run_tool(self.lenet, "--device", "none")
        return done.stderr.strip().rpartition("expected one of ")[2].split(", ")

    def test_tf32_without_a_gpu_is_said_to_have_no_effect(self):
        _, said = self.profile(self.lenet, *QUICK, "--device", "cpu", "--tf32")
        self.assertEqual(said.count("warning: tf32: no GPU is used, so it has no effect"), 1, said)

    def test_profile_goes_to_standard_output_and_table_to_standard_error(self):
        profile, table = self.profile(self.lenet, *QUICK)
        self.assertEqual(next(iter(profile)), "format")
        self.assertEqual(set(profile), {"format", "batch_size", "minibatches", "device", "whole_ms", "layers",
                                        "model"})
        self.assertEqual((profile["batch_size"], profile["minibatches"]), (2, 2))
        kind = "cuda" if "cuda" in self.kinds() else "cpu"
        self.assertEqual((profile["device"]["kind"], profile["device"]["threads"]), (kind, 1))
        with open(self.lenet, encoding="utf-8") as model:
            self.assertEqual(profile["model"], json.load(model))
        for layer in profile["layers"]:
            image = layer["name"] in ("conv1", "pool1", "conv2", "pool2")  # oneDNN blocks their channels
            self.assertEqual("copy_bytes" in layer, kind == "cpu" and image, layer)
            self.assertEqual(set(layer) - {"copy_bytes"}, {"name", "inputs", "activation_bytes", "parameter_bytes",
                                          "stored_parameter_bytes", "stash_bytes", "workspace_bytes", *TIMES})
            self.assertIn(layer["name"], table)
        self.assertIn("sum of the layers", table)

    def test_standard_input_quiet_and_output_file(self):
        with open(self.lenet, encoding="utf-8") as model:
            text = model.read()
        path = os.path.join(self.folder.name, "profile.json")
        done = self.run_tool("-", *QUICK, "--device", "ref", "--quiet", "-o", path, stdin=text)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertTrue(all("warning" in line for line in done.stderr.splitlines()), done.stderr)
        with open(path, encoding="utf-8") as profile:
            self.assertEqual(json.load(profile)["device"]["kind"], "ref")
        self.assertEqual(os.listdir(self.folder.name), ["profile.json"])

    def test_all_but_the_times_is_the_same_each_time(self):
        def fixed():
            profile, _ = self.profile(self.lenet, *QUICK, "--seed", "7")
            del profile["whole_ms"]
            for layer in profile["layers"]:
                for key in TIMES:
                    del layer[key]
            return json.dumps(profile)
        self.assertEqual(fixed(), fixed())

    def test_a_model_too_large_for_the_memory_is_measured_in_pieces(self):
        profile, text = self.profile(self.lenet, *QUICK, "--memory", "8.3MB")
        self.assertNotIn("whole_ms", profile)
        self.assertIn("pieces", text)
        self.assertEqual(len(profile["layers"]), 9)
        self.refused([self.lenet, *QUICK, "--memory", "1MB", "--quiet"], "layer \"conv", "alone needs")
        huge = [self.lenet, "-b", "1000000000", "--quiet"]
        if "cuda" in self.kinds():
            self.refused(huge, "CUDA libraries take up to", status=1)
        else:
            self.refused(huge, "alone needs", "a smaller batch")

    def test_flags_that_make_no_sense_are_refused(self):
        for flag in ("-b", "--minibatches", "--threads"):
            for value in ("0", "-1", "2.5", "0x10", "nan", "many", "1e3", "", "99999999999999999999"):
                with self.subTest(flag=flag, value=value):
                    self.refused([self.lenet, f"{flag}={value}"], f"{flag}: ")
        self.refused([self.lenet, "--warmup=-1"], "--warmup: expected an integer")
        self.refused([self.lenet, "--seed=-1"], "--seed: expected an integer")
        self.refused([self.lenet, "--memory", "16"], "--memory: expected a size with a unit")
        gpu = "cuda" in self.kinds()
        for device in ("cuda:99",) if gpu else ("cuda", "cuda:99"):
            words = ("cuda:", "of this machine") if gpu else ("no CUDA", "cpu", "ref")
            self.refused([self.lenet, "--device", device], f"\"{device}\"", *words)
        self.refused([self.lenet, "--device", "gpu"], "\"gpu\"", "cpu", "ref")
        self.refused([self.lenet, "--device", "timed"], "\"timed\"", "expected one of")
        self.assertTrue({"ref64", "timed"}.isdisjoint(self.kinds()))
        self.refused([self.lenet, "--minibatch", "2"], "--minibatches")
        self.refused([self.lenet, self.lenet], "no more arguments")
        self.refused([], "MODEL")

    def test_files_that_make_no_sense_are_refused_and_leave_nothing(self):
        out = os.path.join(self.folder.name, "profile.json")
        self.refused([os.path.join(self.folder.name, "none.json"), "-o", out], "none.json", "No such file")
        self.refused([self.folder.name, "-o", out], "directory")
        self.refused(["-", "-o", out], "standard input", "an empty file")
        with open(self.lenet, encoding="utf-8") as model:
            text = model.read()
        self.refused(["-", "-o", out], "did you mean", stdin=text.replace("\"kernel\"", "\"kernal\"", 1))
        self.refused(["-", "-o", out], "not JSON", stdin=text[:-9])
        self.assertFalse(os.path.exists(out))
        nothing = os.path.join(self.folder.name, "none", "profile.json")
        self.refused([self.lenet, *QUICK, "-o", nothing], f"-o: {nothing}: cannot create")
        model = os.path.join(self.folder.name, "model.json")
        with open(model, "w", encoding="utf-8") as file:
            file.write(text)
        self.refused([model, *QUICK, "-o", model], "-o: expected another file than the model")

    def test_help_has_examples_and_version_names_the_libraries(self):
        self.assertIn("examples:", self.run_tool("--help").stdout)
        version = self.run_tool("--version")
        self.assertEqual(version.returncode, 0)
        for word in ("pd-profile", "oneDNN", "nlohmann"):
            self.assertIn(word, version.stdout)


if __name__ == "__main__":
    PROGRAM, MODELS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
