"""The machines of `./prove` that are written in Python. Each ends with a line of JSON."""

import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))


def built(debug):
    """Builds Howdah and its load; the folder of their programs."""
    # As `./test` builds: with fewer, cargo would build what they share with other features again.
    words = ["--workspace"] if debug else ["--release", "-p", "howdah-daemon", "-p", "howdah-load"]
    subprocess.run(["cargo", "build", "--quiet", "--locked", *words], cwd=ROOT, check=True)
    return os.path.join(TARGET, "debug" if debug else "release")


def tell(machine, ok, **figures):
    """The last line of a machine; its exit code."""
    print(json.dumps({"machine": machine, "ok": ok, **figures}), flush=True)
    return 0 if ok else 1
