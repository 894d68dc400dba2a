"""Programs in several languages that use PostgreSQL's drivers: how each is built and run."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(HERE, "drivers")
BUILT = os.path.join(os.path.dirname(HERE), "target", "drivers")
BUILD_SECONDS = 1200  # packages are fetched over the network, on machines that do other things, too


class Missing(Exception):
    """A tool is not on this machine."""


class NotBuilt(Exception):
    """A program could not be built; the text has what the tool said."""


@dataclass
class Program:
    """A workload in the folder tests/drivers/NAME.

    It is built in a copy of that folder below target/drivers, where packages may also be
    downloaded, and again only when a file of it has changed.
    """

    name: str
    run: list  # the command, in the folder of the copy
    build: list = field(default_factory=list)  # the command that makes it
    tools: tuple = ()  # what must be on PATH
    packages: str = ""  # where its packages come from
    console: list = field(default_factory=list)  # the command that reads the console
    shards: list = field(default_factory=list)  # the command for a database that may be sharded
    binds: bool = True  # SCRAM with a bound channel is among what it can
    finds: list = field(default_factory=list)  # the command that fails where a library is missing

    @property
    def source(self):
        """Its folder in the project."""
        return os.path.join(SOURCES, self.name)

    @property
    def folder(self):
        """Where it is built and run."""
        return os.path.join(BUILT, self.name)

    def files(self):
        """Its tracked files, relative to its folder."""
        found = []
        for folder, inner, files in os.walk(self.source):
            inner[:] = [name for name in inner if name not in ("__pycache__", "target")]
            found += [os.path.relpath(os.path.join(folder, file), self.source) for file in files]
        return sorted(found)

    def fingerprint(self):
        """What the copy must have been built from."""
        digest = hashlib.sha256(repr(self.build).encode())
        for file in self.files():
            with open(os.path.join(self.source, file), "rb") as opened:
                digest.update(f"\n{file}\n".encode() + opened.read())
        return digest.hexdigest()

    def make(self):
        """Builds it, unless that is done."""
        for tool in self.tools:
            if not shutil.which(tool):
                raise Missing(f"{tool} is missing, which {self.name}'s program needs")
        if self.finds and subprocess.run(self.finds, stdin=subprocess.DEVNULL,
                                         capture_output=True).returncode != 0:
            raise Missing(f"a library is missing, which {self.name}'s program needs: "
                          f"{' '.join(self.finds)} fails")
        os.makedirs(self.folder, exist_ok=True)
        # Tests in several processes may want it at the same time.
        with open(f"{self.folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._build()

    def _build(self):
        """Builds it, unless that is done; nobody else does meanwhile."""
        stamp = os.path.join(self.folder, ".built")
        wanted = self.fingerprint()
        if os.path.exists(stamp):
            with open(stamp) as file:
                if file.read() == wanted:
                    return
            os.remove(stamp)
        for file in self.files():
            target = os.path.join(self.folder, file)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(self.source, file), target)
        if self.build:
            done = subprocess.run(self.build, cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=BUILD_SECONDS)
            if done.returncode != 0:
                raise NotBuilt(f"{' '.join(self.build)} in {self.folder} failed; where its "
                               f"packages are not on this machine yet, it needs {self.packages}:\n"
                               f"{done.stdout[-4000:]}")
        with open(stamp, "w") as file:
            file.write(wanted)

    def start(self, host, port, user, password, database, command=None, authority=None):
        """Starts it, or another command of its folder, against a server; standard output and error
        are pipes. authority: the file of who has signed the server's certificate, which is
        verified then, and the channel bound."""
        server = {"PGHOST": host, "PGPORT": str(port), "PGUSER": user, "PGPASSWORD": password,
                  "PGDATABASE": database}
        if authority:
            server |= {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": authority,
                       "NODE_EXTRA_CA_CERTS": authority}
            if self.binds:
                server["PGCHANNELBINDING"] = "require"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        return subprocess.Popen(command or self.run, cwd=self.folder, env={**clean, **server}, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run_to_end(self, *server, command=None, authority=None):
        """Starts it as `start` does, and gives the lines it prints; the test fails if it hangs or
        fails."""
        child = self.start(*server, command, authority)
        try:
            output, errors = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            child.kill()
            output, errors = child.communicate()
            pytest.fail(f"{self.name} hangs after:\n{output[-4000:]}{errors}", pytrace=False)
        if child.returncode != 0:
            pytest.fail(f"{self.name} ended with {child.returncode}:\n{output[-4000:]}"
                        f"{errors[-4000:]}", pytrace=False)
        return output.splitlines()


PROGRAMS = {program.name: program for program in (
    Program("psycopg", [sys.executable, "workload.py"], console=[sys.executable, "console.py"],
            shards=[sys.executable, "shards.py"]),
    Program("asyncpg", [sys.executable, "workload.py"], console=[sys.executable, "console.py"],
            shards=[sys.executable, "shards.py"], binds=False),
    Program("node-postgres", ["node", "workload.mjs"], ["npm", "ci", "--silent"], ("node", "npm"),
            "the npm registry", ["node", "console.mjs"]),
    Program("postgres.js", ["node", "workload.mjs"], ["npm", "ci", "--silent"], ("node", "npm"),
            "the npm registry", binds=False),
    Program("pgx", ["built/workload"], ["go", "build", "-o", "built/", "./..."], ("go",),
            "the Go module proxy", ["built/console"], ["built/shards"]),
    Program("lib-pq", ["./workload"], ["go", "build", "-o", "workload", "."], ("go",),
            "the Go module proxy", binds=False),
    Program("tokio-postgres", ["target/debug/workload"], ["cargo", "build", "--quiet", "--locked"],
            ("cargo",), "crates.io"),
    Program("pgjdbc", ["java", "-cp", "target/classes:target/dependency/*", "Workload"],
            ["mvn", "-q", "-B", "compile", "dependency:copy-dependencies"], ("java", "mvn"),
            "Maven Central", ["java", "-cp", "target/classes:target/dependency/*", "Console"],
            ["java", "-cp", "target/classes:target/dependency/*", "Shards"]),
    Program("ruby-pg", ["ruby", "workload.rb"], tools=("ruby",), finds=["ruby", "-e", "require 'pg'"]),
)}

FRAMEWORKS = {program.name: program for program in (
    Program("django", [sys.executable, "workload.py"], shards=[sys.executable, "shards.py"]),
    Program("activerecord", ["ruby", "workload.rb"], tools=("ruby",), shards=["ruby", "shards.rb"],
            finds=["ruby", "-e", "require 'pg'; require 'active_record'"]),
)}


def built(name):
    """The program of this name, built; the test is skipped where its tools are missing."""
    program = (PROGRAMS | FRAMEWORKS)[name]
    try:
        program.make()
    except Missing as reason:
        pytest.skip(str(reason))
    except NotBuilt as problem:
        pytest.fail(str(problem), pytrace=False)
    return program
