"""What the measuring scripts share: errors for the user, and running the programs with their logs."""
import os
import pathlib
import subprocess

from cluster import run_job


class BenchError(Exception):
    """One line for the user, and the exit status that goes with it."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def last_line(text):
    """What the program said last, mpirun's banners aside."""
    lines = text.splitlines()
    ours = [line for line in lines if line.startswith("pd-")]
    return (ours or [line for line in lines if line.strip()] or ["nothing said"])[-1]


class Programs:
    """The built programs, and the folder for what they write."""

    def __init__(self, folder, out, timeout_s):
        self.folder, self.out, self.timeout_s = pathlib.Path(folder), pathlib.Path(out), timeout_s
        self.out.mkdir(parents=True, exist_ok=True)

    def path(self, name):
        path = self.folder / name
        if not os.access(path, os.X_OK):
            raise BenchError(f"{path}: no such program; run scripts/build first", 2)
        return path

    def tool(self, name, *words):
        """Runs a program here. Its tables and complaints go to standard error, unless it is told --quiet."""
        done = subprocess.run([str(self.path(name)), *map(str, words)], stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise BenchError(f"{name}: exit status {done.returncode}", done.returncode)

    def log(self, name):
        return self.out / f"{name}.log"

    def last_words(self, name):
        return last_line(self.log(name).read_text(encoding="utf-8", errors="replace"))

    def job(self, cluster, log, name, *words, should_stop=lambda: False):
        """Runs a program, one rank a host, with its output in a log; gives run_job's result."""
        command = cluster.command([str(self.path(name)), *map(str, words)])
        return run_job(command, self.log(log), self.timeout_s, should_stop)

    def measure_network(self, cluster, name):
        """What pd-profile measures of the hosts' links, as a cluster/1 file."""
        path = self.out / f"{name}.json"
        status = self.job(cluster, name, "pd-profile", "--network", "-o", path)
        if status != 0:
            raise BenchError(f"pd-profile --network: failed ({status}): {self.last_words(name)}")
        return path
