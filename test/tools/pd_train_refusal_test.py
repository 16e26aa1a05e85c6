"""What pd-train refuses, it refuses as a whole job, soon, in one line, and writes nothing."""

import json
import os
import shutil
import subprocess
import unittest

from train_case import ENVIRONMENT, PD_PARTITION, PD_PROFILE, PD_TRAIN, TrainCase, model, plan


class Flags(TrainCase):
    def setUp(self):
        super().setUp()
        self.plan = self.file("plan.json", plan())

    def alone(self, *args, **more):
        return self.execute([PD_TRAIN, *args], **more)

    # --check reads the same flags and files as a run, without the second that MPI needs to start.
    CHECK = ("--data", "synthetic", "--check")

    def test_numbers_are_strict(self):
        whole = ("epochs", "minibatches", "eval-every", "eval-minibatches", "threads", "seed", "log-every")
        real = ("lr", "momentum", "weight-decay", "target-accuracy", "stall-timeout")
        nonsense = ("nan", "inf", "0x10", "1e999", " 5", "5 ", "-1", "", "five", "1,5", "5s", "+5", "--lr")
        for flag in (*whole, *real):
            for text in (*nonsense, *(("2.5", "1e3", "9" * 20) if flag in whole else ("1e7 ", "0x1p3"))):
                with self.subTest(flag=flag, text=text):
                    done = self.alone(self.plan, *self.CHECK, f"--{flag}={text}")
                    self.check_refused(done, f"--{flag}")

    def test_numbers_out_of_range_and_unknown_words_are_refused_under_mpirun(self):
        for flag, text, *words in (("epochs", "0", "from 1"), ("target-accuracy", "1.5", "to 1"),
                                   ("device", "gpu", "expected one of", "cpu", ", timed"),
                                   ("device", "cuda:99", "\"cuda:99\""),
                                   ("schedule", "gpip", "1f1b", "\"gpip\""), ("progress", "often", "never"),
                                   ("lr", "0x10", "\"0x10\"")):
            with self.subTest(flag):
                self.refused(2, [self.plan, "--data", "synthetic", f"--{flag}", text], flag, *words)

    def test_an_output_never_overwrites_an_input_or_another_output(self):
        before = self.read(self.plan)
        for flags in (("--metrics", self.plan), ("--trace", self.plan), ("--metrics", "same", "--trace", "same")):
            with self.subTest(flags):
                self.refused(1, [self.plan, "--data", "synthetic", *flags], flags[-2], "another file")
        self.assertEqual(self.read(self.plan), before)

    def test_check_is_a_flag_and_no_key_of_a_config(self):
        config = self.file("config.json", {"check": True, "data": "synthetic"})
        self.refused(1, [self.plan, "--config", config], "/check", "unknown key")

    def test_unknown_flags_and_missing_arguments_have_status_2(self):
        train = [self.plan, "--data", "synthetic"]
        self.refused(2, [self.plan, "--dat", "synthetic"], "unknown flag --dat", "did you mean --data?")
        self.refused(2, [*train, "--epoch=3"], "unknown flag --epoch", "did you mean --epochs?")
        for args, *words in (([*train, "--xyzzy"], "unknown flag --xyzzy", "--help"), ([*train, "-z"], "-z"),
                             ([], "plan"), ([*train, "plan.json"], "plan.json"), ([*train, "--lr"], "--lr"),
                             ([self.plan], "--data", "nothing"), ([*train, "--lr", "1", "--lr", "2"], "--lr")):
            with self.subTest(args):
                self.check_refused(self.alone(*args), *words)

    def test_help_and_version_end_well_and_are_said_once(self):
        for args, word in ((["--help"], "Usage:"), (["--version"], "Open MPI"),
                           ([self.plan, "--check"], None)):
            done = self.run_train(3, *args)
            self.assertEqual(done.status, 0, done)
            if word:
                self.assertEqual(done.stdout.count(word), 1, done)
                self.assertEqual(done.stderr, "")
            else:
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("the plan is valid"), 1, done)
        help_text = self.alone("--help").stdout
        for word in ("exit status", "0 done", "1 failed", "2 bad input", "3 a target not reached", "--stall-timeout"):
            self.assertIn(word, help_text)

    def test_check_prints_ranks_memory_and_depth_and_trains_nothing(self):
        path = self.file("wide.json", plan(((2, 0), (1,), (4,))))
        done = self.alone(path, "--check")
        self.assertEqual((done.status, done.stdout), (0, ""), done)
        self.assertIn("mpirun -np 5", done.stderr)
        rows = [line.split() for line in done.stderr.splitlines() if line[:4].strip().isdigit()]
        # rank, stage, replica, in flight; ⌈(Σ of replicas from here on) / replicas⌉.
        shown = {int(row[0]): tuple(row[2:5]) for row in rows}
        self.assertEqual(shown[2], ("0", "0", "2"))
        self.assertEqual(shown[0], ("0", "1", "2"))
        self.assertEqual(shown[1], ("1", "0", "2"))
        self.assertEqual(shown[4], ("2", "0", "1"))
        self.assertEqual(shown[3], ("idle",))
        self.assertRegex(done.stderr, r"[kM]B")
        self.check_refused(self.alone(self.file("bad.json", plan(((0,), (0,)))), "--check"), "/stages/1/workers/0")

    def test_outputs_that_cannot_be_written_are_said_before_training(self):
        for flag in ("metrics", "trace", "checkpoint"):
            place = self.path("file", "below") if flag == "checkpoint" else self.path("none", "file")
            self.file("file", "")
            done = self.refused(2, [self.plan, "--data", "synthetic", f"--{flag}", place], f"--{flag}: ",
                                place)
            self.assertEqual(done.stdout, "")


class Documents(TrainCase):
    BAD = {  # name: (change of a text, words of the refusal)
        "empty": (lambda text: "", ["empty file"]),
        "blank": (lambda text: " \n", ["empty file"]),
        "cut": (lambda text: text[:-7], ["not JSON", "line"]),
        "brackets": (lambda text: "[" * 500_000, ["bracket", "deep"]),
        "braces": (lambda text: '{"a":' * 500_000, ["deep"]),
        "junk": (lambda text: "\x7fELF\x01\x00\x02\x03" * 50, ["not JSON"]),
        "two": (lambda text: text + text, ["not JSON"]),
        "array": (lambda text: "[" + text + "]", ["an object"]),
        "null": (lambda text: "null", ["null"]),
        "number": (lambda text: "7", ["an object"]),
    }

    def plan_with(self, change):
        document = plan()
        change(document)
        return document

    def refused_plan(self, content, *words, name="bad.json"):
        path = self.file(name, content)
        self.check_refused(self.execute([PD_TRAIN, path, "--check"]), f"{name}: ", *words)

    def test_plans_that_are_no_documents(self):
        good = json.dumps(plan())
        for name, (change, words) in self.BAD.items():
            with self.subTest(name):
                words = [] if name in ("brackets", "braces") else words
                self.refused_plan(change(good), *words)
        self.check_refused(self.execute([PD_TRAIN, self.folder, "--check"]), "directory")
        self.check_refused(self.execute([PD_TRAIN, self.path("none.json"), "--check"]), "none.json")
        with open(self.path("binary"), "wb") as out:
            out.write(bytes(range(256)) * 100)
        self.check_refused(self.execute([PD_TRAIN, self.path("binary"), "--check"]), "not JSON")
        self.check_refused(self.execute([PD_TRAIN, "-", "--check"], stdin="{"), "standard input")

    def test_plans_with_values_that_make_no_sense(self):
        good = json.dumps(plan())
        for old, new, *words in (
                ('"batch_size": 32', '"batch_size": "32"', "/batch_size", "\"32\""),
                ('"batch_size": 32', '"batch_size": null', "/batch_size", "null"),
                ('"batch_size": 32', '"batch_size": 2.5', "/batch_size", "2.5"),
                ('"batch_size": 32', '"batch_size": 32.0', "/batch_size"),
                ('"batch_size": 32', '"batch_size": 1e309', ""),
                ('"batch_size": 32', '"batch_size": NaN', "not JSON"),
                ('"batch_size": 32', '"batch_size": 0', "/batch_size", "found 0"),
                ('"batch_size": 32', '"batch_size": -32', "/batch_size", "found -32"),
                ('"batch_size": 32', '"batch_size": 99999999999999999999999', "/batch_size"),
                ('"batch_size": 32', '"batch_size": 32, "batch_size": 32', "duplicate key"),
                ('"batch_size": 32', '"batchsize": 32', "did you mean \"batch_size\"?"),
                ('"batch_size": 32, ', '', "batch_size"),
                ('"workers": [1]', '"workers": [1.5]', "/stages/1/workers/0", "1.5"),
                ('"workers": [1]', '"workers": ["1"]', "/stages/1/workers/0"),
                ('"workers": [1]', '"workers": [-1]', "/stages/1/workers/0", "-1"),
                ('"workers": [1]', '"workers": [0]', "/stages/1/workers/0", "worker 0"),
                ('"workers": [1]', '"workers": []', "/stages/1/workers"),
                ('"workers": [1]', '"workers": 1', "/stages/1/workers"),
                ('"workers": [1]', '"workers": [1], "in_flight": 0', "/stages/1/in_flight"),
                ('"workers": [1]', '"workers": [1], "inflight": 2', "did you mean \"in_flight\"?"),
                ('"fc1", "relu2"', '"fc1", "flatten", "relu2"', "flatten"),
                ('"fc1", "relu2"', '"fc1"', "relu2"),
                ('"fc1", "relu2"', '"relu2", "fc1"', "order"),
                ('"fc1", "relu2"', '"fc11", "relu2"', "did you mean \"fc1\"?"),
                ('"out_features": 10', '"out_features": 0', "/model/layers/6/out_features"),
                ('"kernel": 3', '"kernel": 33', "/model/layers/0"),
                ('"format": "pipedream.plan/1"', '"format": "pipedream.plan/2"', "/format", "pipedream.plan/1"),
                ('"format": "pipedream.plan/1", ', '', "format")):
            with self.subTest(new):
                self.assertEqual(good.count(old), 1, old)
                self.refused_plan(good.replace(old, new), *words)
        self.refused_plan(self.plan_with(lambda p: p["stages"].reverse()), "stage")
        self.refused_plan(self.plan_with(lambda p: p["stages"].insert(1, {"layers": [], "workers": [2]})),
                          "/stages/1/layers")
        self.refused_plan(self.plan_with(lambda p: p.update(stages=[])), "/stages")
        self.refused_plan(self.plan_with(lambda p: p.pop("model")), "model")

    def test_configs(self):
        path = self.file("plan.json", plan())

        def refused(content, *words):
            config = self.file("config.json", content)
            self.check_refused(self.execute([PD_TRAIN, path, "--check", "--config", config]), "config.json", *words)

        for name, (change, words) in self.BAD.items():
            with self.subTest(name):
                refused(change('{"lr": 0.1}'), *([] if name in ("brackets", "braces") else words))
        for text, *words in (('{"learning_rate": 0.1}', "/learning_rate", "unknown key"),
                             ('{"epoch": 1}', "did you mean \"epochs\"?"),
                             ('{"epochs": "1"}', "/epochs", "\"1\""), ('{"epochs": 2.5}', "/epochs", "2.5"),
                             ('{"epochs": null}', "/epochs", "null"), ('{"lr": NaN}', "not JSON"),
                             ('{"lr": 1e309}',), ('{"lr": -0.1}', "/lr", "-0.1"),
                             ('{"lr": 0.1, "lr": 0.1}', "lr"), ('{"data": ""}', "/data"),
                             ('{"lr_scaling": "liner"}', "lr_scaling", "linear"),
                             ('{"progress": "often"}', "progress", "never"),
                             ('{"lr_schedule": {"type": "stepp"}}', "/lr_schedule/type", "step"),
                             ('{"lr_schedule": {"type": "step", "gama": 1}}', "/lr_schedule/gama"),
                             ('{"format": "pipedream.plan/1"}', "/format")):
            with self.subTest(text):
                refused(text, *words)
        self.refused(2, [path, "--data", "synthetic", "--config", self.path("none.json")], "none.json")

    def test_a_refusal_under_mpirun_is_said_once_and_leaves_nothing(self):
        path = self.file("plan.json", json.dumps(plan()).replace('"batch_size"', '"batchsize"'))
        before = sorted(os.listdir(self.folder))
        self.refused(3, [path, "--data", "synthetic", "--metrics", self.path("m"), "--trace", self.path("t"),
                         "--checkpoint", self.path("c")], "plan.json: /batchsize: unknown key")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_other_tools_refuse_the_same_documents(self):
        profile = {"format": "pipedream.profile/1", "batch_size": 64, "layers": [
            {"name": "fc", "inputs": [], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 10,
             "parameter_bytes": 10}]}
        tools = [([PD_PARTITION], ["-n", "1"], profile)]
        if PD_PROFILE:
            tools.append(([PD_PROFILE], ["--minibatches", "1", "--warmup", "0"], model()))
        for program, args, document in tools:
            out = self.path("out.json")
            # What begins like neither of its two kinds of file.
            other = {} if program != [PD_PARTITION] else dict.fromkeys(("junk", "null", "number"), ["found neither"])
            for name, (change, words) in self.BAD.items():
                with self.subTest(program=program, name=name):
                    path = self.file("bad.json", change(json.dumps(document)))
                    done = self.execute([*program, path, *args, "-o", out])
                    self.assertEqual((done.status, done.stdout), (2, ""), done)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done)
                    for word in ["bad.json", *([] if name in ("brackets", "braces") else other.get(name, words))]:
                        self.assertIn(word, done.stderr)
                    self.assertFalse(os.path.exists(out))
            done = self.execute([*program, self.folder, *args])
            self.assertEqual(done.status, 2, done)
            self.assertIn("directory", done.stderr)


class Data(TrainCase):
    def setUp(self):
        super().setUp()
        self.plan = self.file("plan.json", plan(((1,), (0,)), batch=8))

    def test_damaged_data_is_refused_by_the_rank_that_reads_it(self):
        folder = self.data(40, 10)
        images = f"{folder}/train-images-idx3-ubyte"
        with open(images, "r+b") as file:
            file.truncate(os.path.getsize(images) - 1)
        self.refused(2, [self.plan, "--data", folder], "rank 1", "train-images-idx3-ubyte")

    def test_labels_outside_the_classes_are_refused_with_the_sample(self):
        labels = [i % 10 for i in range(40)]
        labels[23] = 10
        self.refused(2, [self.plan, "--data", self.data(40, 10, labels=labels)], "rank 1", "23", "10")

    def test_data_of_another_shape_than_the_model_and_none_at_all_are_refused(self):
        wide = self.file("wide.json", plan(net=model(shape=(1, 9, 8))))
        self.refused(2, [wide, "--data", self.data(40, 10)], "8")
        self.refused(2, [self.plan, "--data", self.path("none")], "none", "synthetic")
        os.makedirs(self.path("hollow"))
        self.refused(2, [self.plan, "--data", self.path("hollow")], "an empty directory")

    def test_a_target_without_test_samples_is_refused(self):
        self.refused(2, [self.plan, "--data", self.data(40, 0), "--target-accuracy", "0.5"], "--target-accuracy",
                     "test samples")


class Ranks(TrainCase):
    def test_ranks_with_other_plans_seeds_or_programs_are_refused(self):
        first, second = self.file("a.json", plan()), self.file("b.json", plan(batch=16))
        other = self.path("pd-train-other")
        shutil.copy(PD_TRAIN, other)
        with open(other, "ab") as program:
            program.write(b"x")
        train = ["--data", "synthetic"]
        for one, two, word in (([PD_TRAIN, first, *train], [PD_TRAIN, second, *train], "other arguments"),
                               ([PD_TRAIN, first, *train], [PD_TRAIN, first, *train, "--seed", "2"], "other arguments"),
                               ([PD_TRAIN, first, *train], [other, first, *train], "another program")):
            with self.subTest(word):
                done = self.execute(self.command(1, *one[1:], program=one[:1]) + [":", "-np", "1", *two])
                self.check_refused(done, "rank 1", f"with {word} than rank 0")

    def test_replicas_on_processors_that_store_weights_in_other_orders_are_refused(self):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            if "avx512bw" not in file.read():
                self.skipTest("oneDNN has one order of weights for this processor")
        net = model(shape=(16, 8, 8), channels=32)
        for document, status in ((plan(((0, 1),), net=net), 2), (plan(((0,), (1,)), net=net), 0)):
            train = [PD_TRAIN, self.file("plan.json", document), "--data", "synthetic", "--minibatches", "2",
                     "--device", "cpu"]
            for words in ([], ["-x", "DNNL_MAX_CPU_ISA=AVX2"]):
                done = self.execute(self.command(1, *train[1:], mpi=words) +
                                    [":", "-np", "1", "-x", "DNNL_MAX_CPU_ISA=AVX2", *train])
                if words or status == 0:
                    self.assertEqual(done.status, 0, done)
                else:
                    self.check_refused(done, "stage 0", "rank 0 on ", "(cpu with AVX512_CORE", "rank 1 on ",
                                       "(cpu with AVX2)", "mpirun -x DNNL_MAX_CPU_ISA=")

    def test_one_rank_with_a_bad_flag_ends_the_job(self):
        path = self.file("a.json", plan())
        done = self.execute(self.command(1, path, "--data", "synthetic") +
                            [":", "-np", "1", PD_TRAIN, path, "--data", "synthetic", "--xyzzy"])
        self.assertNotEqual(done.status, 0, done)
        self.assertLess(done.seconds, 10)
        self.assertIn("pd-train: rank 1: unknown flag --xyzzy", done.stderr)

    def test_a_plan_through_a_pipe(self):
        with subprocess.Popen(["sh", "-c", "sleep 1; cat plan.json"], stdout=subprocess.PIPE, cwd=self.folder) as pipe:
            self.file("plan.json", plan())
            done = subprocess.run(self.command(2, "-", "--data", "synthetic", "--minibatches", "2"),
                                  stdin=pipe.stdout, capture_output=True, text=True, timeout=60, check=False,
                                  env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done)


if __name__ == "__main__":
    unittest.main()
