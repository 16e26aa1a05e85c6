"""What the tests of the scripts share. A test program ends with status 77 when it cannot run here."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"
SKIPPED = 77


def run(*command, **options):
    """Runs a command and gives its CompletedProcess with text of both outputs."""
    words = [str(word) for word in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False, **options)


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pd-scripts-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def require_lab():
    """Ends the program where no virtual cluster can be made."""
    if os.geteuid() != 0:
        skip("the virtual cluster needs root")
    if run("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; command -v tc").returncode != 0:
        skip("the virtual cluster needs iproute2")
    if run("unshare", "--net", "true").returncode != 0:
        skip("this machine does not let us make networks")
