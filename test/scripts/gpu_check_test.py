"""gpu-check on a machine without a GPU; and its own logic, on stand-ins for the driver and all programs."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from script_test import SCRIPTS, ScriptTest, run, skip

DRIVER = r"""
#include <cstdlib>
#include <cstring>
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { *count = std::atoi(std::getenv("GPUS")); return 0; }
int cuDeviceGet(int* device, int) { *device = 0; return 0; }
int cuDeviceGetName(char* name, int, int) { std::strcpy(name, "Stand-in"); return 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int) { *bytes = std::atoll(std::getenv("GPU_MEMORY")); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) { *value = attribute == 75 ? 9 : 0; return 0; }
int cuDriverGetVersion(int* version) { *version = 13010; return 0; }
}
"""
# Arguments go to a log.
CMAKE = """#!/bin/sh
echo "cmake $*" >> "$GPU_CHECK_LOG"
[ -z "$FAIL_BUILD" ] || [ "$1" != --build ] || { echo "ninja: build stopped"; exit 1; }
"""
CTEST = """#!/usr/bin/env python3
import os, sys
cases = os.environ["CTEST_CASES"]
open(sys.argv[sys.argv.index("--output-junit") + 1], "w").write(f"<testsuite>{cases}</testsuite>")
"""
MPIRUN = """#!/usr/bin/env python3
import json, os, sys
if "--version" in sys.argv: print("mpirun 4"); sys.exit(0)
stages = json.load(open(sys.argv[5]))["stages"]
assert int(sys.argv[3]) == sum(len(stage["workers"]) for stage in stages)
path = sys.argv[sys.argv.index("--metrics") + 1]
loss = 0.5 if "first" in path else float(os.environ.get("SECOND_LOSS", 0.5))
open(path, "w").write(json.dumps({"event": "train", "loss": loss}) + "\\n" + json.dumps({"event": "end"}) + "\\n")
"""
BENCH = """#!/usr/bin/env python3
import json, sys
assert sys.argv[sys.argv.index("--device") + 1] == "cuda"
rows = [{"layer": "conv", "what": what, "median_ms": ms, "least_ms": ms}
        for what, ms in (("forward", 1), ("backward data", 2), ("backward weights", 3))]
rows.append({"layer": "all", "what": "step", "median_ms": 9, "least_ms": 9})
json.dump({"rows": rows}, open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""
# Finds an error unless failed calls are left to the tests.
SANITIZER = """#!/bin/sh
echo "compute-sanitizer $*" >> "$GPU_CHECK_LOG"
case "$*" in *"--report-api-errors no"*) ;; *) exit 86 ;; esac
"""
PASSED = '<testcase name="backend_test" time="1" status="run"/>'


class GpuCheckTest(ScriptTest):
    @classmethod
    def setUpClass(cls):
        cls.driver = pathlib.Path(tempfile.mkdtemp(prefix="pd-driver-"))
        cls.addClassCleanup(shutil.rmtree, cls.driver)
        (cls.driver / "driver.cc").write_text(DRIVER, encoding="utf-8")
        done = run("g++", "-shared", "-fPIC", cls.driver / "driver.cc", "-o", cls.driver / "libcuda.so.1")
        assert done.returncode == 0, done.stderr

    def stand_ins(self):
        for name, text in (("bin/cmake", CMAKE), ("bin/ctest", CTEST), ("bin/mpirun", MPIRUN),
                           ("build/backend_test", "#!/bin/sh\n$BACKEND_TEST\n"), ("build/step_bench", BENCH),
                           ("build/bin/pd-train", "#!/bin/sh\necho pd-train 0\n"),
                           ("build/bin/pd-profile", "#!/bin/sh\n$PD_PROFILE\n")):
            self.write(name, text).chmod(0o755)

    def check(self, *options, quick=True, **environment):
        base = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(self.driver), "GPUS": "1", "GPU_MEMORY": str(1 << 30), "GPU_CHECK_LOG": str(self.folder / "log"),
                "CTEST_CASES": PASSED, "BACKEND_TEST": "true", "PD_PROFILE": "true"}
        return run(SCRIPTS / "gpu-check", "--build", self.folder / "build", "-o", self.folder / "out.json",
                   *(["--quick"] if quick else []), *options, env={**base, **environment})

    def result(self):
        facts = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        return facts, {check["name"]: check for check in facts["checks"]}

    def test_without_a_gpu_it_says_so_in_one_line(self):
        self.stand_ins()
        done = self.check(GPUS="0")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "gpu-check: no GPU here: the driver sees none\n")
        self.assertFalse((self.folder / "log").exists())

    def test_a_machine_without_a_driver_has_no_gpu(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU here")
        done = run(SCRIPTS / "gpu-check", "--build", self.folder / "build", "-o", self.folder / "out.json")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Agpu-check: no GPU here: .*\n\Z")

    def test_what_passed_and_what_was_measured_is_in_the_json(self):
        self.stand_ins()
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        facts, checks = self.result()
        self.assertEqual(facts["format"], "pipedream.gpu-check/1")
        self.assertTrue(facts["passed"])
        self.assertEqual(facts["device"]["name"], "Stand-in")
        self.assertEqual(facts["device"]["compute_capability"], "9.0")
        for name in ("configure", "build", "device", "own kernels", "test backend_test", "pd-profile",
                     "pd-train plan 2, second run", "pd-train plan 2-1, second run", "bench mini"):
            self.assertEqual(checks[name]["status"], "passed", name)
        self.assertEqual(checks["more than 2^31 elements"]["status"], "skipped")
        self.assertIn("20 GiB", checks["more than 2^31 elements"]["reason"])
        times = {(row["layer"], row["what"]): row["median_ms"] for row in facts["figures"]}
        self.assertEqual(times["conv", "backward"], 5)
        self.assertEqual(times["all", "step"], 9)
        log = (self.folder / "log").read_text(encoding="utf-8")
        self.assertIn("-DPD_WITH_CUDA=ON", log)
        self.assertIn("-DPD_CUDA_ARCHITECTURES=90-real", log)
        self.assertIn("-DPD_WARNINGS_AS_ERRORS=OFF", log)

    def test_sanitizers_leave_failed_calls_to_the_tests_and_races_in_libraries_to_their_makers(self):
        self.stand_ins()
        self.write("bin/compute-sanitizer", SANITIZER).chmod(0o755)
        self.assertEqual(self.check(quick=False).returncode, 0)
        lines = (self.folder / "log").read_text(encoding="utf-8").splitlines()
        filtered = {line.split()[2]: "kns=_ZN2pd4cuda" in line for line in lines if line.startswith("compute-")}
        self.assertEqual(filtered, {"memcheck": False, "racecheck": True, "synccheck": True, "initcheck": False})

    def test_a_failed_build_ends_it_and_is_written_down(self):
        self.stand_ins()
        done = self.check(FAIL_BUILD="1")
        self.assertEqual(done.returncode, 1)
        facts, checks = self.result()
        self.assertFalse(facts["passed"])
        self.assertIn("ninja: build stopped", checks["build"]["reason"])
        self.assertNotIn("own kernels", checks)

    def test_programs_that_find_no_device_end_it_in_one_line(self):
        self.stand_ins()
        done = self.check(PD_PROFILE="eval echo 'pd-profile: device \"cuda\": no CUDA device: too old' && exit 2")
        self.assertEqual(done.returncode, 1)
        facts, checks = self.result()
        self.assertFalse(facts["passed"])
        self.assertEqual(checks["device"]["reason"],
                         'exit status 2: pd-profile: device "cuda": no CUDA device: too old')
        self.assertEqual([name for name in checks if name not in ("configure", "build", "cpu backend")], ["device"])
        self.assertEqual(sum("no CUDA device" in line for line in done.stderr.splitlines()), 1, done.stderr)

    def test_a_suite_that_left_the_cuda_kind_out_has_failed(self):
        self.stand_ins()
        case = ('<testcase name="backend_test" time="1" status="run">'
                "<system-out>SKIPPED: device cuda, in all suites: no CUDA device: driver too old</system-out></testcase>")
        done = self.check(CTEST_CASES=case)
        self.assertEqual(done.returncode, 1)
        self.assertIn("driver too old", self.result()[1]["test backend_test"]["reason"])
        for said, reason in (("No tests ran", "no test ran"),
                             ("SKIPPED: device cuda, in all suites", "skipped: device cuda, in all suites"),
                             ("SKIPPED: 17 GB are not to be had", "skipped: 17 GB are not to be had")):
            done = self.check(BACKEND_TEST=f"echo {said}", GPU_MEMORY=str(40 << 30))
            self.assertEqual(done.returncode, 1)
            for name in ("own kernels", "more than 2^31 elements"):
                self.assertEqual(self.result()[1][name]["status"], "failed", name)
                self.assertEqual(self.result()[1][name]["reason"], reason)

    def test_failed_and_skipped_tests_keep_their_reasons(self):
        self.stand_ins()
        cases = (PASSED + '<testcase name="a_test" time="1" status="fail"><failure/><system-out>3 != 4</system-out>'
                 '</testcase><testcase name="b_test" time="0" status="notrun"><skipped/>'
                 "<system-out>SKIPPED: no network</system-out></testcase>")
        done = self.check(CTEST_CASES=cases)
        self.assertEqual(done.returncode, 1)
        checks = self.result()[1]
        self.assertEqual((checks["test a_test"]["status"], checks["test a_test"]["reason"]), ("failed", "3 != 4"))
        self.assertEqual((checks["test b_test"]["status"], checks["test b_test"]["reason"]), ("skipped", "no network"))

    def test_two_runs_that_differ_are_a_failure(self):
        self.stand_ins()
        self.assertEqual(self.check(SECOND_LOSS="0.25").returncode, 1)
        self.assertEqual(self.result()[1]["pd-train plan 2, second run"]["reason"], "two runs gave different losses")

    def test_bad_usage_is_refused(self):
        for options in (["--prefix", "/nowhere"], ["--jobs", "0"], ["--collect", "a", "--prefix", "b"], ["--what"]):
            done = run(SCRIPTS / "gpu-check", *options)
            self.assertEqual(done.returncode, 2, (options, done.stderr))

    def test_collect_takes_no_folder_with_files_in_it(self):
        self.write("full/file", "")
        done = run(SCRIPTS / "gpu-check", "--collect", self.folder / "full")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected an empty or new folder", done.stderr)

    @unittest.skipIf(shutil.which("dpkg") is None, "there is no dpkg here")
    def test_a_folder_that_cannot_be_made_is_named(self):
        file = self.write("file", "")
        for option in ("--collect", "--build"):
            done = run(SCRIPTS / "gpu-check", option, file / "folder",
                       env={**os.environ, "LD_LIBRARY_PATH": str(self.driver), "GPUS": "1", "GPU_MEMORY": "1"})
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf"\Agpu-check: {file}[^ ]*: Not a directory\n\Z")


if __name__ == "__main__":
    if shutil.which("g++") is None:
        skip("there is no g++ here")
    unittest.main()
