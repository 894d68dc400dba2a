"""The machine the tests run on: an unprivileged user, folders, ports, child processes, waiting."""

import atexit
import ctypes
import errno
import itertools
import os
import pwd
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# Howdah and PostgreSQL both refuse to run as root: as root, these users are tried in turn.
UNPRIVILEGED = ("postgres", "nobody")

# A name of no host. It has an empty label, so that the system says so without asking a name server.
NO_HOST = "no-such-host..invalid"


def unprivileged_user():
    """The account PostgreSQL and Howdah run under: ours, unless we are root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"running as root, and there is none of the users {UNPRIVILEGED}")


def hand_over(path):
    """Gives a file or folder to the unprivileged user."""
    user = unprivileged_user()
    if os.geteuid() == 0:
        os.chown(path, user.pw_uid, user.pw_gid)
    return path


def folder(parent, name):
    """A new folder of the unprivileged user below another; numbered if the name is taken."""
    for number in itertools.count(1):
        path = os.path.join(parent, name if number == 1 else f"{name}-{number}")
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return hand_over(path)


def scratch(prefix="howdah-"):
    """A fresh folder of the unprivileged user, removed when this process ends.

    Its path is short, because a unix socket's path holds 107 bytes at most.
    """
    path = hand_over(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def readable_copy(program, scratch):
    """A copy of a program below a folder which the unprivileged user can read."""
    into = os.path.join(scratch, "bin")
    if not os.path.exists(into):
        folder(scratch, "bin")
    copy = os.path.join(into, os.path.basename(program))
    if not os.path.exists(copy):
        shutil.copy2(program, copy)
        os.chmod(copy, 0o755)
    return copy


def spawn(argv, as_user=True, files=None, **popen):
    """Starts a child that ends when we end, however we end.

    as_user: as the unprivileged user, where we are root. files: its limit of open descriptors.
    It is a session of its own, so that Ctrl-C reaches it only through us.
    """
    drop = []
    if as_user and os.geteuid() == 0:
        user = unprivileged_user()
        drop = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def prepare():
        # A shell's background jobs ignore these, and children would inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "QUIT", *drop, "--", *argv],
        start_new_session=True,
        preexec_fn=prepare,
        **popen,
    )


def run(argv, as_user=True, **popen):
    """Runs a child to its end and gives its output; a failure shows what it said."""
    popen.setdefault("stdout", subprocess.PIPE)
    popen.setdefault("stderr", subprocess.STDOUT)
    popen.setdefault("stdin", subprocess.DEVNULL)
    child = spawn(argv, as_user=as_user, text=True, **popen)
    output, _ = child.communicate()
    if child.returncode != 0:
        said = "\n".join(output.splitlines()[:30])
        raise RuntimeError(f"{' '.join(argv)} ended with {child.returncode}:\n{said}")
    return output


def end(child, how=signal.SIGQUIT, seconds=30):
    """Ends a child we started and waits for it; kills it if it does not obey."""
    if child.poll() is None:
        child.send_signal(how)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
    return child.returncode


def _own_ports():
    """The ports of this process among those that share a run's tests, each once, then again.

    Below the range from which the kernel takes the ports of outgoing connections, so that none
    of our many clients gets one between a look at it and the listener's own bind.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % count
    size = 17_000 // count
    start = random.randrange(size)
    for at in itertools.count(start):
        yield 15_000 + number * size + at % size


_ports = _own_ports()


def free_port(host="127.0.0.1"):
    """A TCP port found free by binding it, which nobody else among the tests is given meanwhile."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = next(_ports)
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
                return port
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:
                    raise


def wait_until(condition, what, seconds=40.0):
    """Asks again and again until `condition()` gives something true, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain: {what}")
        select.select([], [], [], 0.005)


def io_uring_works():
    """Whether this machine lets a process have an io_uring (containers often do not)."""
    params = (ctypes.c_char * 120)()
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(425, 8, params)  # io_uring_setup has this number on every architecture
    if ring < 0:
        return False
    os.close(ring)
    return True


def resident_kib(pid):
    """Resident memory of a process, in KiB."""
    return _status(pid, "VmRSS")


def peak_resident_kib(pid):
    """The most resident memory a process ever had, in KiB."""
    return _status(pid, "VmHWM")


def _status(pid, key):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    raise KeyError(key)


def cpu_seconds(pid):
    """User and system time a process has used so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
