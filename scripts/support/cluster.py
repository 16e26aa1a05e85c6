"""Where the measuring scripts run their jobs: on the virtual cluster of scripts/netlab, or on this machine alone."""
import os
import pathlib
import signal
import subprocess
import time

NETLAB = str(pathlib.Path(__file__).resolve().parent.parent / "netlab")


class ClusterError(Exception):
    """The cluster cannot be made; `status` is the exit status that says so."""

    def __init__(self, text, status):
        super().__init__(text)
        self.status = status


def rate_bits_per_s(rate):
    """Bits per second, or None when unlimited. Throws ClusterError for what netlab does not understand."""
    if rate == "unlimited":
        return None
    done = subprocess.run([NETLAB, "rate", rate], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(done.stderr.strip(), done.returncode)
    return int(done.stdout)


class VirtualCluster:
    """Hosts of scripts/netlab, one worker each."""

    def __init__(self, hosts, rate):
        self.hosts, self.rate = hosts, rate
        self.place = f"{hosts} virtual hosts, {rate if rate == 'unlimited' else rate + ' each way'}"

    def __enter__(self):
        done = subprocess.run([NETLAB, "up", str(self.hosts), self.rate], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(done.stderr.strip(), done.returncode)
        return self

    def __exit__(self, *_):
        subprocess.run([NETLAB, "down"], stdin=subprocess.DEVNULL, check=False)

    def command(self, words):
        return [NETLAB, "run", str(self.hosts), *words]

    def wire_bytes(self):
        """Bytes that all hosts together have sent."""
        done = subprocess.run([NETLAB, "bytes"], capture_output=True, text=True, check=True)
        return sum(int(line.split()[1]) for line in done.stdout.splitlines())


class LocalMachine:
    """All workers on this machine; the network between them is its memory."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.place = f"{hosts} workers on this machine, unlimited network"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def command(self, words):
        # mpirun counts physical cores only, so without this it refuses a worker a hardware thread.
        spare = len(os.sched_getaffinity(0)) >= self.hosts
        room = "--use-hwthread-cpus" if spare else "--oversubscribe"
        return ["mpirun", "-np", str(self.hosts), "--bind-to", "none", room, *words]

    def wire_bytes(self):
        return None


def run_job(words, log_path, timeout_s, should_stop=lambda: False):
    """Runs a command with its output in a log; ends it when should_stop() or after the timeout.
    Gives its exit status, or the word "stopped" or "timeout"."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with open(log_path, "wb") as log:
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                               start_new_session=True)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                return job.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                if should_stop():
                    return "stopped"
                if time.monotonic() > deadline:
                    return "timeout"
    finally:
        end_job(job)


def end_job(job):
    """Asks mpirun to end its ranks, and insists after five seconds."""
    if job.poll() is not None:
        return
    os.kill(job.pid, signal.SIGTERM)
    try:
        job.wait(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
