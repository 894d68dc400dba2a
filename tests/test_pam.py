"""Logins by PAM: the real libpam, with service files of the tests' own in /etc/pam.d.

Only root may write there; without that, and where a file of PgBouncer's service is there already,
tests are skipped. The modules of the services run programs of ours (pam_exec), as the
unprivileged user.
"""

import os

import pytest

from harness import logins, machine, wire
from harness.logins import refusal
from test_takeover import take_over

FOLDER = "/etc/pam.d"
FAILED = ("28000", "PAM authentication failed")
EMPTY = ("28P01", "empty password returned by client")
CONSOLE_RULE = "host pgbouncer admin 127.0.0.1/32 trust"

pytestmark = [
    pytest.mark.one_driver,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not os.access(FOLDER, os.W_OK),
                       reason=f"only root may write a PAM service into {FOLDER}"),
]

# What pam_exec runs. `slow` waits for as long as a file is there.
CHECK = """#!/bin/sh
read -r password
echo "$PAM_SERVICE $PAM_TYPE $PAM_USER $PAM_RHOST" >>{folder}/asked
case $PAM_USER in
  slow) while [ -e {folder}/wait ]; do sleep 0.05; done ;;
  nobody) exit 1 ;;
esac
[ "$password" = "secret" ]
"""


class Service:
    """A service file, and what its modules read and write."""

    def __init__(self, folder, name):
        self.name = name
        self.folder = folder
        self.path = os.path.join(FOLDER, name)
        for file, text in (("check", CHECK.format(folder=folder)), ("locked", "locked\n"),
                           ("asked", "")):
            path = os.path.join(folder, file)
            with open(path, "w") as out:
                out.write(text)
            os.chmod(path, 0o755)
            machine.hand_over(path)
        # Never replaces what is there.
        with open(self.path, "x") as out:
            out.write(f"auth required pam_exec.so quiet expose_authtok {folder}/check\n"
                      f"account required pam_listfile.so item=user sense=deny onerr=fail "
                      f"file={folder}/locked\n")

    def asked(self):
        """A line for each question: service, type, user and address."""
        with open(os.path.join(self.folder, "asked")) as file:
            return file.read().splitlines()

    def block(self):
        """From now on, the user `slow` has to wait."""
        machine.hand_over(self._touch("wait"))

    def _touch(self, name):
        path = os.path.join(self.folder, name)
        with open(path, "w"):
            return path

    def release(self):
        """Undoes `block`."""
        path = os.path.join(self.folder, "wait")
        if os.path.exists(path):
            os.remove(path)

    def remove(self):
        """Leaves nothing in the system's folder, and nobody waiting."""
        self.release()
        os.remove(self.path)


@pytest.fixture
def service(scratch, request):
    """A service with a name that nobody else has."""
    name = f"howdah-test-{os.getpid()}"
    folder = machine.folder(scratch, f"pam{abs(hash(request.node.name)) % 10**8}")
    made = Service(folder, name)
    yield made
    made.remove()


@pytest.fixture
def with_rules(make_howdah, postgres):
    """Starts a Howdah with these rules; all its databases log in as postgres."""
    def make(*rules, **options):
        target = f"host={postgres.host} port={postgres.port} dbname=postgres user=postgres"
        howdah = make_howdah(start=False, databases={"*": target}, **options)
        howdah._write_file(os.path.join(howdah.folder, "hba.conf"),
                           "\n".join([CONSOLE_RULE, *rules, ""]))
        howdah.write(auth_type="hba", auth_hba_file=os.path.join(howdah.folder, "hba.conf"))
        return howdah.start()
    return make


def test_by_rules(with_rules, service):
    """Right, wrong and empty passwords, an unknown user, and one whose account is locked."""
    howdah = with_rules(f"host all all all pam pamservice={service.name}")
    with howdah.connect(user="ann", password="secret") as client:
        assert client.value("select 1") == "1"
    assert service.asked() == [f"{service.name} auth ann 127.0.0.1"]
    assert refusal(howdah, user="ann", password="wrong") == FAILED
    assert refusal(howdah, user="nobody", password="secret") == FAILED
    howdah.wait_for_log(r"pam_authenticate\(\) failed: ")
    howdah.wait_for_log(r"closing because: PAM authentication failed \(age")
    mark = howdah.log_mark()
    assert refusal(howdah, user="locked", password="secret") == FAILED
    howdah.wait_for_log(r"pam_acct_mgmt\(\) failed: ", mark)
    before = service.asked()
    assert refusal(howdah, user="ann", password="") == EMPTY
    assert service.asked() == before, "PAM is not asked about an empty password"


def test_no_such_service(with_rules):
    """Where no file has the service's rules, those of `other` hold, or none: nobody gets in."""
    howdah = with_rules("host all all all pam pamservice=howdah-test-nothing")
    assert refusal(howdah, user="ann", password="secret") == FAILED
    howdah.wait_for_log(r"pam_\w+\(\) failed: ")


@pytest.mark.both_drivers
def test_slow_module_delays_only_its_own(with_rules, service):
    """While some logins hang in a module, others go on; a client that leaves is forgotten; who
    stays gets in."""
    howdah = with_rules(f"host all all all pam pamservice={service.name}")
    service.block()
    waiting = [howdah.raw() for _ in range(8)]
    for client in waiting:
        client.send(wire.startup("slow", "postgres"))
        assert client.read().tag == "R"
        client.send(wire.password_message("secret"))
    machine.wait_until(lambda: len(service.asked()) == 8, "all of them to be in the module")
    with howdah.connect(user="ann", password="secret") as client:
        assert client.value("select 1") == "1"
    for client in waiting[1:]:
        client.close()
    lists = lambda: {row["list"]: row["items"] for row in howdah.console("SHOW LISTS")}
    machine.wait_until(lambda: int(lists()["login_clients"]) == 1, "those that left to be gone")
    service.release()
    assert waiting[0].read_until("Z")[0].tag == "R"
    assert waiting[0].value("select 1") == "1"
    waiting[0].close()


def test_many_at_once(with_rules, service):
    """More than there are threads: each gets its own verdict."""
    howdah = with_rules(f"host all all all pam pamservice={service.name}", workers=2)
    passwords = ["wrong", "secret"] * 30
    assert logins.at_once(howdah, passwords) == [FAILED[1], "in"] * 30


def test_auth_type_pam(make_howdah, scratch, own_postgres, request):
    """For everybody, by PgBouncer's service; the user file is not read, and the password given
    leads to PostgreSQL, too."""
    if os.path.exists(os.path.join(FOLDER, "pgbouncer")):
        pytest.skip("there is a PAM service pgbouncer, which is not ours to replace")
    service = Service(machine.folder(scratch, f"own{abs(hash(request.node.name)) % 10**8}"),
                      "pgbouncer")
    try:
        own_postgres.sql("create role ann login password 'secret'")
        own_postgres.write_hba("local all all trust", "host all ann 127.0.0.1/32 scram-sha-256",
                               "host all all 127.0.0.1/32 trust")
        own_postgres.reload()
        howdah = make_howdah(postgres=own_postgres, auth_type="pam", auth_file="/nonexistent")
        with howdah.connect(user="ann", password="secret") as client:
            assert client.value("select current_user") == "ann"
        assert refusal(howdah, user="ann", password="wrong") == FAILED
        assert "pgbouncer auth ann 127.0.0.1" in service.asked()
        assert "nonexistent" not in howdah.log()
    finally:
        service.remove()


@pytest.mark.both_drivers
def test_takeover(make_howdah, own_postgres, service):
    """Who is logged in by PAM stays so behind a successor, which asks nobody again; and it opens
    servers with the password that PAM has found right."""
    own_postgres.sql("create role ann login password 'secret'")
    own_postgres.write_hba("local all all trust", "host all ann 127.0.0.1/32 scram-sha-256",
                           "host all all 127.0.0.1/32 trust")
    own_postgres.reload()
    howdah = make_howdah(start=False, postgres=own_postgres, workers=2)
    rules = os.path.join(howdah.folder, "hba.conf")
    howdah._write_file(rules, f"{CONSOLE_RULE}\nlocal pgbouncer pgbouncer peer\n"
                              f"host all all all pam pamservice={service.name}\n")
    howdah.write(auth_type="hba", auth_hba_file=rules)
    howdah.start()
    with howdah.connect(user="ann", password="secret") as client:
        client.rows("set application_name to 'kept'")
        before = client.value("select pg_backend_pid()")
        take_over(howdah)
        assert client.value("show application_name") == "kept"
        assert client.value("select pg_backend_pid()") == before
        own_postgres.sql(f"select pg_terminate_backend({before})")
        howdah.wait_for_pool(user="ann", sv_idle=0, sv_used=0)
        assert client.value("select current_user") == "ann"
        assert client.value("select pg_backend_pid()") != before
        assert len(service.asked()) == 1
    assert refusal(howdah, user="ann", password="wrong") == FAILED
    with howdah.connect(user="ann", password="secret") as client:
        assert client.value("select 1") == "1"
