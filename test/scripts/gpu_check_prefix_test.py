"""gpu-check --collect: a target configured and built from the folder alone, and mpirun moved with it."""
import os
import shutil
import subprocess
import sys
import unittest

from script_test import ROOT, SCRIPTS, ScriptTest, run, skip

sys.path.insert(0, str(SCRIPTS / "support"))
import prefix  # noqa: E402


class PrefixTest(ScriptTest):
    def test_the_collected_folder_is_enough_to_build_with(self):
        folder, build = self.folder / "collected", self.folder / "build"
        done = run(SCRIPTS / "gpu-check", "--collect", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        # Moved, as by a copy to another machine, and without a look at this one's /usr.
        moved = self.folder / "moved"
        folder.rename(moved)
        environment = prefix.environment(moved, os.environ)
        configured = subprocess.run(
            ["cmake", "-S", ROOT, "-B", build, "-DPD_WITH_CUDA=OFF", "-DPD_WITH_CPU=OFF",
             "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", *prefix.cmake_options(moved)],
            capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(configured.returncode, 0, configured.stderr)
        for line in (build / "CMakeCache.txt").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.split(":")[0] in ("ZLIB_LIBRARY_RELEASE", "ZLIB_INCLUDE_DIR", "fmt_DIR", "nlohmann_json_DIR",
                                      "CLI11_DIR", "Catch2_DIR", "MPI_mpi_LIBRARY", "MPI_CXX_HEADER_DIR",
                                      "MPIEXEC_EXECUTABLE"):
                self.assertTrue(value.startswith(str(moved)), line)
        built = subprocess.run(["cmake", "--build", build, "--target", "base_test", "-j2"], capture_output=True,
                               text=True, check=False, env=environment)
        self.assertEqual(built.returncode, 0, built.stdout)
        program = next(path for path in build.rglob("base_test") if path.is_file())
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, env=environment).stdout
        self.assertIn(str(moved), loaded)
        self.assertEqual(run(program, env=environment).returncode, 0)

        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        ranks = run("mpirun", "--oversubscribe", "-np", "2", "sh", "-c",
                    "echo rank $OMPI_COMM_WORLD_RANK of $(command -v mpirun)", env=environment)
        self.assertEqual(sorted(ranks.stdout.splitlines()),
                         [f"rank {rank} of {moved}/bin/mpirun" for rank in (0, 1)], ranks.stderr)

    def test_links_lead_to_files_inside(self):
        folder = self.folder / "collected"
        prefix.collect(folder)
        for path in folder.rglob("*"):
            self.assertTrue(path.exists(), f"{path} leads nowhere")
            self.assertIn(folder.resolve(), path.resolve().parents)


if __name__ == "__main__":
    for tool in ("dpkg", "cmake", "mpirun"):
        if shutil.which(tool) is None:
            skip(f"there is no {tool} here")
    absent = [package for package in prefix.PACKAGES if prefix.installed_files(package) is None]
    if absent:
        skip(f"packages are not installed: {' '.join(absent)}")
    unittest.main()
