"""scripts/setup says what is missing, and never installs under --check."""
import os
import shutil
import unittest

from script_test import SCRIPTS, ScriptTest, run

# What the script itself calls.
TOOLS = ["bash", "env", "dirname", "basename", "readlink", "sed", "cut", "paste", "id", "cat", "g++"]


class SetupTest(ScriptTest):
    def setUp(self):
        super().setUp()
        for tool in TOOLS:
            (self.folder / tool).symlink_to(shutil.which(tool))

    def setup_script(self, *arguments):
        # A copy whose PATH ends where ours says, not in /usr/sbin.
        return run("bash", SCRIPTS / "setup", *arguments, env={"PATH": str(self.folder)})

    def test_a_machine_without_apt_gets_the_list_of_what_is_missing(self):
        for arguments in ([], ["--check"]):
            done = self.setup_script(*arguments)
            self.assertEqual(done.returncode, 2)
            for package in ("cmake", "ninja-build", "openmpi-bin", "python3"):
                self.assertRegex(done.stderr, f"(?m)^  {package} ")
            self.assertIn("apt-get install ", done.stderr)
            self.assertNotIn("  g++ ", done.stderr)
        self.assertIn("no apt-get", self.setup_script().stderr)

    def test_check_installs_nothing(self):
        log = self.folder / "log"
        self.write("apt-get", f"#!/bin/sh\necho called >{log}\n").chmod(0o755)
        self.assertEqual(self.setup_script("--check").returncode, 2)
        self.assertFalse(log.exists())

    def test_an_apt_that_fails_ends_in_the_same_list(self):
        self.write("apt-get", "#!/bin/sh\nexit 100\n").chmod(0o755)
        self.write("sudo", '#!/bin/sh\nshift\nexec "$@"\n').chmod(0o755)
        (self.folder / "true").symlink_to(shutil.which("true"))
        done = self.setup_script()
        self.assertEqual(done.returncode, 2)
        self.assertIn("apt-get install failed; missing:", done.stderr)

    def test_where_all_is_there_it_is_silent(self):
        done = run(SCRIPTS / "setup", "--check", env=dict(os.environ))
        if done.returncode == 2:
            self.skipTest("packages are missing here")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_unknown_words_are_refused(self):
        self.assertEqual(self.setup_script("--chekc").returncode, 2)


if __name__ == "__main__":
    unittest.main()
