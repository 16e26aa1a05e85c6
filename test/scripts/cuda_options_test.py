"""cmake/cuda.cmake: what PD_WITH_CUDA and the options of GPU architectures mean, in a project of nothing else."""
import re
import shutil
import unittest

from script_test import ROOT, ScriptTest, run, skip

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(options LANGUAGES CXX)
if(NOT DEFINED PD_WITH_CUDA)
  set(PD_WITH_CUDA AUTO)
endif()
include({ROOT}/cmake/cuda.cmake)
message(STATUS "PD_WITH_CUDA=${{PD_WITH_CUDA}} PD_CUDA=${{PD_CUDA}}")
"""
ON = ("ON", "on", "True", "yes", "Y", "1")
OFF = ("OFF", "off", "False", "NO", "n", "0")


class CudaOptionsTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", PROJECT)

    def configure(self, *options):
        done = run("cmake", "-S", self.folder, "-B", self.folder / "build", *options)
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)

    def test_yes_and_no_may_be_said_in_cmakes_words(self):
        for word in OFF:
            self.assertIn("PD_WITH_CUDA=OFF PD_CUDA=OFF", self.configure(f"-DPD_WITH_CUDA={word}")[1], word)
        # Without an architecture each ON ends before nvcc is looked for.
        for word in ON:
            status, text = self.configure(f"-DPD_WITH_CUDA={word}", "-DPD_CUDA_ARCHITECTURES=")
            self.assertNotEqual(status, 0)
            self.assertIn("PD_CUDA_ARCHITECTURES: expected GPU architectures", text, word)

    def test_another_word_is_refused(self):
        for word in ("maybe", "", "2"):
            status, text = self.configure(f"-DPD_WITH_CUDA={word}")
            self.assertNotEqual(status, 0)
            self.assertIn(f"PD_WITH_CUDA: expected AUTO, ON, OFF or EMULATED, found {word}", text)

    def test_cmakes_own_option_counts_where_ours_is_not_given(self):
        status, text = self.configure()
        if "PD_CUDA=ON" not in text:
            self.skipTest("there is no CUDA with cuDNN here")
        self.assertIn("for 80-real;86-real;89-real;90-real;100-real;120", text)
        self.assertIn("for 90 ", self.configure("-DCMAKE_CUDA_ARCHITECTURES=90")[1])
        self.assertIn("for 80 ", self.configure("-DCMAKE_CUDA_ARCHITECTURES=80")[1])
        self.assertIn("for 89-real ", self.configure("-DPD_CUDA_ARCHITECTURES=89-real")[1])
        status, text = self.configure("-UPD_CUDA_ARCHITECTURES", "-DCMAKE_CUDA_ARCHITECTURES=")
        self.assertNotEqual(status, 0)
        self.assertIn("PD_CUDA_ARCHITECTURES: expected GPU architectures", text)


if __name__ == "__main__":
    if shutil.which("cmake") is None:
        skip("there is no cmake here")
    unittest.main()
