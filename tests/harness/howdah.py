"""A running Howdah (or PgBouncer, to compare) in front of a PostgreSQL."""

import contextlib
import os
import re
import signal
import subprocess
import threading

from . import machine, wire

ADMIN = "admin"
PASSWORD = "secret"  # of every user in the user file, unless a test says otherwise


def quote(text):
    """A word of the user file."""
    return '"' + text.replace('"', '""') + '"'


def ini(sections):
    """The text of an ini file: {section: {key: value}}."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {value}" for key, value in keys.items())
        lines.append("")
    return "\n".join(lines)


class Howdah:
    """One process with its ini, user file and log in a folder of its own."""

    def __init__(self, program, scratch, name, postgres=None, driver="auto", workers=1,
                 databases=None, users=None, hosts=None, maps=None, secrets=None, start=True,
                 files=None, **settings):
        """databases, users, hosts: entries of these sections. maps: sections of sharded databases.
        secrets: the user file, {user: secret}. settings: keys of [pgbouncer]; the value None leaves a
        key out. files: descriptor limit."""
        self.program = program
        self.is_pgbouncer = "pgbouncer" in os.path.basename(program)
        self.postgres = postgres
        self.driver = driver
        self.host = "127.0.0.1"
        self.port = machine.free_port()
        self.files = files
        self.console_context = None  # the ssl.SSLContext of the console's connections, if any
        self.child = None
        self.folder = machine.folder(scratch, name)
        self.ini_path = os.path.join(self.folder, "pgbouncer.ini")
        self.users_path = os.path.join(self.folder, "userlist.txt")
        self.log_path = os.path.join(self.folder, "log")
        if databases is None:
            target = f"host={postgres.host} port={postgres.port}" if postgres else ""
            databases = {"*": target}
        own = {} if self.is_pgbouncer else {"workers": workers, "io_driver": driver}
        self.sections = {
            "databases": databases,
            "users": users or {},
            "hosts": hosts or {},
            **(maps or {}),
            "pgbouncer": {
                "listen_addr": self.host,
                "listen_port": self.port,
                "unix_socket_dir": self.folder,
                "auth_type": "trust",
                "auth_file": self.users_path,
                "admin_users": ADMIN,
                "logfile": self.log_path,
                "pool_mode": "transaction",
                "ignore_startup_parameters": "extra_float_digits",
                "server_login_retry": "0.2",
                **own,
                **settings,
            },
        }
        self.secrets = {"postgres": PASSWORD, ADMIN: PASSWORD, **(secrets or {})}
        self.write()
        if start:
            self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def write(self, **changes):
        """Writes both files anew, after changes of [pgbouncer] settings."""
        self.sections["pgbouncer"].update(changes)
        sections = {name: {key: value for key, value in keys.items() if value is not None}
                    for name, keys in self.sections.items() if keys or name not in ("users", "hosts")}
        self._write_file(self.ini_path, ini(sections))
        self._write_file(self.users_path, "".join(
            f"{quote(user)} {quote(secret)}\n" for user, secret in self.secrets.items()))

    def _write_file(self, path, text):
        with open(path, "w", errors="surrogateescape") as file:
            file.write(text)
        machine.hand_over(path)

    def spawn(self, *arguments, **popen):
        """Starts the program with these arguments, as the unprivileged user."""
        program = machine.readable_copy(self.program, os.path.dirname(self.folder))
        # Howdah refuses variables that it does not know, and this one is ours.
        popen.setdefault("env", {name: value for name, value in os.environ.items()
                                 if name != "HOWDAH_LOAD"})
        return machine.spawn([program, *arguments], files=self.files, cwd=self.folder, **popen)

    def start(self):
        """Starts the process and waits until it accepts connections."""
        with open(os.path.join(self.folder, "stderr"), "a") as errors:
            self.child = self.spawn("--quiet", self.ini_path, stdin=subprocess.DEVNULL,
                                    stdout=errors, stderr=errors)
        machine.wait_until(self._listens, f"the pooler to listen; its log is {self.log_path}")
        return self

    def _listens(self):
        if self.child.poll() is not None:
            why = self.said() or self.check()[1]
            raise RuntimeError(f"ended at once with {self.child.returncode}:\n{why}")
        try:
            if self.sections["pgbouncer"].get("unix_socket_dir"):
                wire.Wire(self.socket_path).close()
            wire.Wire(self.address).close()
            return True
        except OSError:
            return False

    def said(self):
        """What came on standard output and error, and the log."""
        with open(os.path.join(self.folder, "stderr"), errors="replace") as file:
            return file.read() + self.log()

    def run_to_end(self, *arguments, **popen):
        """Runs the program with arguments of its own; gives exit code and all it said."""
        child = self.spawn(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, **popen)
        try:
            output, _ = child.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            raise AssertionError(f"did not end: {arguments}\n{output}") from None
        return child.returncode, output

    def check(self):
        """`--check` on the ini file: exit code and output."""
        return self.run_to_end("--check", self.ini_path)

    def stop(self, how=signal.SIGQUIT):
        """Ends the process."""
        if self.child:
            machine.end(self.child, how)
            self.child = None

    def running(self):
        """Whether the process still runs."""
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        """Sends a signal."""
        self.child.send_signal(number)

    def wait(self, seconds=30):
        """Waits until the process ends by itself; gives its exit code."""
        code = self.child.wait(seconds)
        self.child = None
        return code

    def begin_takeover(self, **changes):
        """Starts a successor, after changes of settings; gives the process that is taken over from."""
        old = self.child
        self.write(**changes)
        with open(os.path.join(self.folder, "stderr"), "a") as errors:
            self.child = self.spawn("-R", "--quiet", self.ini_path, stdin=subprocess.DEVNULL,
                                    stdout=errors, stderr=errors)
        return old

    def take_over(self, **changes):
        """A successor takes over, and the old process ends."""
        mark = self.log_mark()
        old = self.begin_takeover(**changes)
        assert old.wait(30) == 0, self.said()
        self.wait_for_log("process up", since=mark, seconds=30)

    # Clients

    @property
    def address(self):
        """Where TCP clients connect."""
        return (self.host, self.port)

    @property
    def socket_path(self):
        """Where clients of the unix socket connect."""
        return os.path.join(self.folder, f".s.PGSQL.{self.port}")

    def connect(self, user="postgres", database="postgres", **options):
        """A raw client, logged in."""
        return wire.connect(self.address, user=user, database=database, **options)

    def raw(self, **options):
        """A raw client that has sent nothing yet."""
        return wire.Wire(self.address, **options)

    def url(self, database="postgres", user="postgres"):
        """For drivers."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    # Console

    @property
    def _console_address(self):
        """The unix socket, where TLS may be demanded of everybody else and we have none."""
        tls = self.sections["pgbouncer"].get("client_tls_sslmode")
        return self.socket_path if tls and not self.console_context else self.address

    def console(self, command, user=ADMIN):
        """Runs one console command on a connection of its own; gives rows as dictionaries."""
        with wire.connect(self._console_address, user=user, database="pgbouncer",
                          password=self.secrets[ADMIN], tls=self.console_context) as client:
            return console_rows(client, command)

    @contextlib.contextmanager
    def shuffled(self):
        """Clients at rest go to random workers all the time."""
        over = threading.Event()

        def shuffle():
            while not over.wait(0.005):
                with contextlib.suppress(OSError, wire.Ended, wire.Refused):
                    self.console("SHUFFLE")
        thread = threading.Thread(target=shuffle)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def setting(self, key):
        """A value of SHOW CONFIG."""
        return next(row["value"] for row in self.console("SHOW CONFIG") if row["key"] == key)

    def pool(self, database="postgres", user="postgres"):
        """The row of SHOW POOLS_EXTENDED, numbers as numbers; None where there is no such pool."""
        for row in self.console("SHOW POOLS_EXTENDED"):
            if (row["database"], row["user"]) == (database, user):
                return {key: int(value) if (value or "").isdigit() else value
                        for key, value in row.items()}
        return None

    def wait_for_pool(self, database="postgres", user="postgres", **expected):
        """Waits until columns of the pool's row have these values, and gives the row."""
        def reached():
            row = self.pool(database, user)
            return row and all(row[key] == value for key, value in expected.items()) and row
        return machine.wait_until(reached, f"pool {database}/{user} to have {expected}")

    # Log

    def log(self):
        """All that was logged."""
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def log_mark(self):
        """A position in the log: what comes later is what follows it."""
        return len(self.log())

    def wait_for_log(self, pattern, since=0, seconds=40):
        """Waits until the log has a match of a regular expression; gives the match."""
        try:
            return machine.wait_until(
                lambda: re.search(pattern, self.log()[since:]), pattern, seconds)
        except TimeoutError:
            raise AssertionError(
                f"no line of the log matches {pattern!r}:\n{self.log()[since:]}") from None

    def wait_for_lines(self, pattern, count, since=0):
        """Waits until the log has at least so many matches of a regular expression (a thread of its
        own writes the log); gives how many there are."""
        def found():
            seen = len(re.findall(pattern, self.log()[since:]))
            return seen >= count and seen
        return machine.wait_until(found, f"{count} matches of {pattern!r} in {self.log_path}")

    def paused(self):
        """Whether a PAUSE of everything has begun, on all workers."""
        if {"key": "paused", "value": "yes"} not in self.console("SHOW STATE"):
            return False
        self.console("SHOW POOLS")  # Every worker is asked, behind the order.
        return True

    def reload(self):
        """RELOAD by the console."""
        return self.console("RELOAD")


def console_rows(client, command):
    """Runs a console command on an open client; rows as dictionaries, errors raised."""
    names, rows, problem = [], [], None
    for got in client.ask(wire.query(command)):
        if got.tag == "T":
            names = column_names(got)
        elif got.tag == "D":
            values = [None if value is None else value.decode() for value in got.row()]
            rows.append(dict(zip(names, values, strict=True)))
        elif got.tag == "E":
            problem = wire.Refused(got.fields())
    if problem:
        raise problem
    return rows


def column_names(description):
    """The column names of a RowDescription."""
    names, at = [], 2
    while at < len(description.body):
        end = description.body.index(b"\0", at)
        names.append(description.body[at:end].decode())
        at = end + 1 + 18
    return names
