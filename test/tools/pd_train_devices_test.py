"""pd-train on machines with GPUs, some and none (emulated): what it takes, tells and refuses."""

import unittest

from train_case import PD_TRAIN, TrainCase, model, plan, replicated


def device_lines(done):
    return [line.split() for line in done.stderr.splitlines() if line[:4].strip().isdigit()]


class Devices(TrainCase):
    SHORT = ("--data", "synthetic", "--minibatches", "4", "--log-every", "1")

    def variables(self, **variables):
        return [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]

    def job(self, document, *ranks, args=SHORT, device="cuda"):
        """A job whose ranks have these environments."""
        path = self.file("plan.json", document)
        command = []
        for variables in ranks:
            command += [":"] if command else self.command(1)[:-3]
            command += ["-np", "1", *self.variables(**variables), PD_TRAIN, path, *args, "--device", device]
        return self.execute(command)

    NO_GPU = {"CUDA_EMULATOR_DEVICES": "0"}

    def test_replicas_on_a_gpu_and_a_processor_are_refused_and_stages_are_not(self):
        done = self.job(plan(replicated(2)), {}, self.NO_GPU, device="auto")
        self.check_refused(done, "stage 0", "rank 0 on ", "(cuda:0 CUDA emulator 0)", "rank 1 on ", "(cpu", "--device")
        done = self.job(plan(replicated(1, 1)), {}, self.NO_GPU, device="auto")
        self.assertEqual(done.status, 0, done)
        self.assertIn("device auto: cpu and cuda\n", done.stderr)
        self.assertEqual(done.events("start")[0]["devices"], ["cuda", "cpu"])

    def test_a_device_with_the_memory_that_check_prints_trains_and_with_less_does_not(self):
        document = plan(((0,), (1,)), net=model(hidden=64))
        done = self.job(document, {"CUDA_EMULATOR_DEVICES": "2"}, {"CUDA_EMULATOR_DEVICES": "2"})
        self.assertEqual(done.status, 0, done)
        workers = done.events("end")[0]["workers"]
        path = self.file("plan.json", document)
        checked = device_lines(self.execute([PD_TRAIN, path, "--check", "--device", "cuda"]))
        for worker, row in zip(workers, checked):
            self.assertGreater(worker["base_memory_bytes"], 4 << 20)  # cuBLAS's workspace
            self.assertEqual(worker["measured"]["memory_bytes"], worker["peak_memory_bytes"])
            # As printed: three digits.
            printed = float(row[5]) * {"kB": 1e3, "MB": 1e6}[row[6]]
            self.assertAlmostEqual(worker["peak_memory_bytes"], printed, delta=0.006 * printed)
        memory = [worker["peak_memory_bytes"] for worker in workers]
        for less, status in ((0, 0), (1, 1)):
            done = self.job(document, {"CUDA_EMULATOR_MEMORY": memory[0] - less, "CUDA_EMULATOR_DEVICES": "2"},
                            {"CUDA_EMULATOR_MEMORY": memory[1], "CUDA_EMULATOR_DEVICES": "2"})
            self.assertEqual(done.status, status, done)
        self.assertRegex(done.said[0], r"^pd-train: rank 0 \(\S+, cuda:0 CUDA emulator 0\): cannot allocate \d+ bytes")

    def test_check_lists_the_devices_that_a_run_takes_and_warns_where_they_are_shared(self):
        path = self.file("plan.json", plan(((0, 1), (2,))))
        for devices, names, warnings in ((3, ["cuda:0", "cuda:1", "cuda:2"], 0),
                                         (2, ["cuda:0", "cuda:1", "cuda:0"], 1)):
            done = self.execute(["env", f"CUDA_EMULATOR_DEVICES={devices}", PD_TRAIN, path, "--check",
                                 "--device", "cuda"])
            self.assertEqual(done.status, 0, done)
            self.assertEqual([row[row.index("CUDA") - 1] for row in device_lines(done)], names, done)
            self.assertEqual(done.stderr.count("ranks 0, 2 on machine 0 share one GPU"), warnings, done)

    def test_auto_says_why_it_takes_no_gpu_where_cuda_fails(self):
        for broken, said in ((self.NO_GPU, ""), ({"CUDA_EMULATOR_FAIL_AT": "1"}, "; rank 0 cannot use CUDA: ")):
            done = self.job(plan(((0,),)), broken, device="auto")
            self.assertEqual(done.status, 0, done)
            self.assertRegex(done.stderr, rf"device auto: cpu{said}{'.' if said else ''}")
            self.assertEqual("cannot use CUDA" in done.stderr, bool(said), done)

    def test_a_layer_that_a_gpu_cannot_do_is_refused_by_model_and_name(self):
        net = model()
        net["layers"].insert(2, {"name": "norm1", "type": "lrn", "size": 17})
        for done in (self.job(plan(replicated(2), net=net), {}, {}),
                     self.execute([PD_TRAIN, self.path("plan.json"), "--check", "--device", "cuda"])):
            self.check_refused(done, 'model "small": layer "norm1": lrn: size is 17', "at most 15")

    def test_an_error_of_a_device_names_rank_host_and_gpu(self):
        for rank in (0, 1):
            ranks = [{}, {}]
            ranks[rank] = {"CUDA_EMULATOR_FAIL_AT": "600"}
            done = self.job(plan(replicated(1, 1)), *ranks, args=("--data", "synthetic", "--epochs", "50"))
            self.assertEqual(done.status, 1, done)
            ours = [line for line in done.said if "failed" in line or "error" in line.lower()]
            self.assertRegex("\n".join(ours), rf"(?m)^pd-train: rank {rank} \(\S+, cuda:0 CUDA emulator 0\): \w+: ")

    def test_a_single_rank_ends_without_the_words_of_an_aborted_job(self):
        path = self.file("plan.json", plan(((0,),)))
        done = self.execute(["env", "CUDA_EMULATOR_FAIL_AT=600", PD_TRAIN, path, "--data", "synthetic",
                             "--epochs", "50", "--device", "cuda"])
        self.assertEqual(done.status, 1, done)
        self.assertNotIn("MPI_ABORT", done.stderr)
        self.assertRegex(done.said[-1], r"^pd-train: \w+: .+")


if __name__ == "__main__":
    unittest.main()
