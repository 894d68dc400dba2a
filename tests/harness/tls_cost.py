"""What TLS costs Howdah and PgBouncer: memory of idle clients, processor time of logins and of
transactions, by the task clock of performance events. Run from the project's folder:

    PYTHONPATH=tests target/python/bin/python -m harness.tls_cost \\
        --pooler target/release/howdah --pooler /usr/sbin/pgbouncer memory logins transactions both

Poolers take turns, so that what else the machine does hits both. One worker; certificates are made
for the run; clients are pgbench, where sessions are resumed Python's ssl. Needs perf, and root or a
machine that lets its users count."""

import argparse
import os
import resource
import signal
import ssl
import statistics
import subprocess
import tempfile

from . import certificates, machine, postgres as pg, wire
from .howdah import Howdah

USER, PASSWORD = "bench", "secret"


class Clock:
    """Counts a process's task clock while it is entered."""

    def __init__(self, pid):
        self.pid = pid
        self.microseconds = None

    def __enter__(self):
        self.out = tempfile.NamedTemporaryFile("r")
        self.perf = subprocess.Popen(["perf", "stat", "-x", ",", "-o", self.out.name,
                                      "-e", "task-clock", "-p", str(self.pid)],
                                     start_new_session=True)
        machine.wait_until(self._counts, "perf to count")
        return self

    def _counts(self):
        """It has opened its counters: there is an event among its descriptors."""
        folder = f"/proc/{self.perf.pid}/fd"
        targets = []
        for name in os.listdir(folder):
            try:
                targets.append(os.readlink(f"{folder}/{name}"))
            except OSError:
                pass
        return any("perf_event" in target for target in targets)

    def __exit__(self, *_):
        self.perf.send_signal(signal.SIGINT)
        self.perf.wait()
        for line in self.out.read().splitlines():
            if "task-clock" in line:
                self.microseconds = float(line.split(",")[0]) * 1000


class Costs:
    """One run."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        found = pg.installations()
        self.programs = pg.Programs(min(found), found[min(found)], scratch)
        self.postgres = pg.Postgres(self.programs, scratch, "postgresql", log_connections="off")
        authority = certificates.Authority(scratch, "authority")
        self.authority = authority
        self.sites = {kind: authority.issue(kind=kind) for kind in ("ecdsa", "rsa", "rsa4096")}
        self.postgres.use_tls(self.sites["ecdsa"])
        self.postgres.sql(f"create role {USER} superuser login password '{PASSWORD}'")
        machine.run([self.programs.path("pgbench"), "-i", "-q", "-h", self.postgres.socket_folder,
                     "-p", str(self.postgres.port), "-U", "postgres", "postgres"])
        self.poolers = dict(pair.split("=", 1) if "=" in pair else (os.path.basename(pair), pair)
                            for pair in options.poolers)

    def start(self, program, kind="ecdsa", auth="trust", servers="disable", **settings):
        """A pooler with a certificate of this kind."""
        site = self.sites[kind]
        return Howdah(program, self.scratch, "pooler", postgres=self.postgres,
                      secrets={USER: wire.scram_secret(PASSWORD)}, auth_type=auth,
                      client_tls_sslmode="require", client_tls_key_file=site.key,
                      client_tls_cert_file=site.chain, server_tls_sslmode=servers,
                      log_connections=0, log_disconnections=0,
                      max_client_conn=self.options.clients + 100, **settings)

    def pgbench(self, pooler, *arguments):
        """Runs it to its end over TLS."""
        machine.run([self.programs.path("pgbench"), "-n", "-S", *map(str, arguments), "-U", USER,
                     "-h", pooler.host, "-p", str(pooler.port), "postgres"],
                    env={**os.environ, "HOME": self.scratch, "PGSSLMODE": "require",
                         "PGPASSWORD": PASSWORD})

    def compare(self, title, poolers, count, work):
        """Each pooler does the work in turn; tells microseconds for each of `count`."""
        seen = {name: [] for name in poolers}
        for _ in range(self.options.rounds):
            for name, pooler in poolers.items():
                with Clock(pooler.child.pid) as clock:
                    work(pooler)
                seen[name].append(clock.microseconds / count)
        medians = {name: statistics.median(values) for name, values in seen.items()}
        last = list(medians)[-1]
        for name, median in medians.items():
            spread = " ".join(f"{value:.1f}" for value in seen[name])
            print(f"{title:42} {name:20} {median:9.1f} us  {median / medians[last]:5.2f}"
                  f"   ({spread})", flush=True)

    def with_all(self, work, **options):
        """Does the work with all poolers running."""
        poolers = {name: self.start(program, **options) for name, program in self.poolers.items()}
        try:
            work(poolers)
        finally:
            for pooler in poolers.values():
                pooler.stop()

    # What is measured ----------------------------------------------------------------------------

    def memory(self):
        """Resident memory of idle clients that have run one transaction."""
        count = self.options.clients
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the poolers' as well
        context = ssl.create_default_context(cafile=self.authority.certificate)
        for name, program in self.poolers.items():
            for kind, tls in (("plain", None), ("TLS", context)):
                pooler = self.start(program)
                if not tls:
                    pooler.stop()
                    pooler.write(client_tls_sslmode="disable")
                    pooler.start()
                try:
                    for _ in range(50):
                        self.one_client(pooler, tls).close()
                    before = resident(pooler)
                    clients = [self.one_client(pooler, tls) for _ in range(count)]
                    print(f"{'memory of an idle client, ' + kind:42} {name:20} "
                          f"{(resident(pooler) - before) / count:9.2f} KB", flush=True)
                    for client in clients:
                        client.close()
                finally:
                    pooler.stop()

    def one_client(self, pooler, context):
        """A client that has run a transaction."""
        client = wire.connect(pooler.address, user=USER, database="postgres", tls=context)
        assert client.value("select 1") == "1"
        return client

    def large(self):
        """The same with a key of 4,096 bits."""
        self.logins(kinds=["rsa4096"])

    def logins(self, kinds=("rsa", "ecdsa")):
        """A full handshake, a login by SCRAM and one small transaction."""
        clients, each = 4, self.options.logins // 4
        for kind in kinds:
            for pinned in ("TLSv1.3", "TLSv1.2"):
                def work(pooler, pinned=pinned):
                    os.environ["PGSSLMAXPROTOCOLVERSION"] = pinned
                    self.pgbench(pooler, "-C", "-c", clients, "-j", 1, "-t", each)
                    del os.environ["PGSSLMAXPROTOCOLVERSION"]
                self.with_all(lambda all, work=work, title=f"login, {kind}, {pinned}": self.compare(
                    title, all, clients * each, work), kind=kind, auth="scram-sha-256")

    def resumed(self):
        """Logins by SCRAM of a client that resumes its session, and of one that does not."""
        count = self.options.logins // 2
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            for resumes in (False, True):
                def work(pooler, resumes=resumes, version=version):
                    context = ssl.create_default_context(cafile=self.authority.certificate)
                    context.maximum_version = version
                    session, reused = None, 0
                    for _ in range(count):
                        client = wire.Wire(pooler.address)
                        client.start_tls(context, session=session)
                        client.login(USER, "postgres", PASSWORD)
                        client.value("select 1")
                        reused += client.socket.session_reused
                        session = client.socket.session if resumes else None
                        client.close()
                    assert not resumes or reused in (0, count - 1), reused
                    if resumes:
                        print(f"    resumed: {reused} of {count}")
                how = "resumed" if resumes else "full"
                self.with_all(lambda all, work=work, title=f"login, rsa, {version.name}, {how}":
                              self.compare(title, all, count, work),
                              kind="rsa", auth="scram-sha-256")

    def transactions(self, servers="disable"):
        """Transactions of clients that stay."""
        sides = "clients" if servers == "disable" else "both sides"
        each = self.options.transactions // self.options.busy

        def measure(poolers):
            for mode in ("simple", "extended", "prepared"):
                self.compare(f"transaction, TLS of {sides}, {mode}", poolers,
                             each * self.options.busy,
                             lambda pooler: self.pgbench(pooler, "-M", mode, "-c",
                                                         self.options.busy, "-j", 1, "-t", each))
        self.with_all(measure, servers=servers, max_prepared_statements=100)

    def both(self):
        """The same with TLS to PostgreSQL, too."""
        self.transactions(servers="require")


def resident(pooler):
    """Resident memory in KB."""
    with open(f"/proc/{pooler.child.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pooler", action="append", dest="poolers", required=True,
                        metavar="[NAME=]PROGRAM", help="the last is what ratios are to")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=10_000, help="idle ones")
    parser.add_argument("--busy", type=int, default=40, help="clients that run transactions")
    parser.add_argument("--logins", type=int, default=800)
    parser.add_argument("--transactions", type=int, default=40_000)
    parser.add_argument("what", nargs="+",
                        choices=["memory", "logins", "large", "resumed", "transactions", "both"])
    options = parser.parse_args()
    costs = Costs(options, machine.scratch("howdah-tls-"))
    try:
        for what in options.what:
            getattr(costs, what)()
    finally:
        costs.postgres.stop()


if __name__ == "__main__":
    main()
