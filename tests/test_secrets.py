"""Passwords from files and commands: their changes reach new servers, and a source that fails or hangs
delays only those who need it."""

import http.server
import json
import os
import re
import socket
import struct
import threading
import time
import urllib.parse

import pytest

from harness import machine, wire
from harness import postgres as pg

from test_own_file import who, with_file, write

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


@pytest.fixture(scope="module")
def strict(system_programs, scratch):
    """A cluster that asks everybody but its superuser for a password."""
    cluster = pg.Postgres(system_programs, scratch, "secrets")
    cluster.sql("create database shop")
    for role in ("app", "owner"):
        cluster.sql(f"create role {role} login")
    cluster.write_hba("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256",
                      "local all all trust")
    cluster.reload()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(strict):
    """The same, with the first passwords."""
    for role in ("app", "owner"):
        strict.sql(f"alter role {role} password 'first'")
    return strict


APP = '[users]\napp.password = "app"\n'


def shop(password, more=""):
    return f'[databases.shop]\nSERVER\nserver_user = "owner"\nserver_password = {password}\n{more}\n{APP}'


def program(howdah, text):
    """A program beside the log that Howdah may run."""
    path = write(howdah, "token", "#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def from_program(make_howdah, cluster, text, more="", password=None, **settings):
    """A Howdah whose server_password a program prints."""
    howdah = with_file(make_howdah, cluster, shop('"none"'), start=False, **settings)
    path = program(howdah, text)
    with open(howdah.ini_path) as file:
        own = file.read()
    command = password or f"{{ command = [{json.dumps(path)}, \"an arg\"] }}"
    write(howdah, "howdah.toml", own.replace('"none"', command + "\n" + more))
    howdah.start()
    return howdah


def change(cluster, howdah, role, word):
    """A new password in PostgreSQL, and no server that has logged in with the old one."""
    cluster.sql(f"alter role {role} password '{word}'")
    howdah.console("RECONNECT")


def secrets(howdah):
    """The rows of SHOW SECRETS."""
    return howdah.console("SHOW SECRETS")


def test_a_file_behind_links_is_looked_at(make_howdah, cluster):
    """Kubernetes replaces a link to a folder. Servers that have logged in stay."""
    howdah = with_file(make_howdah, cluster, shop('{ file = "mount/word" }'), start=False)
    for name in ("one", "two"):
        os.mkdir(os.path.join(howdah.folder, name))
        machine.hand_over(os.path.join(howdah.folder, name))
    write(howdah, "one/word", "first\n")
    write(howdah, "two/word", "second\n")
    os.mkdir(os.path.join(howdah.folder, "mount"))
    data = os.path.join(howdah.folder, "mount", "..data")
    os.symlink("../one", data)
    os.symlink("..data/word", os.path.join(howdah.folder, "mount", "word"))
    howdah.start()
    pid = who(howdah, "app", password="app", query="select pg_backend_pid()")
    os.symlink("../two", data + "_new")
    os.replace(data + "_new", data)
    machine.wait_until(lambda: secrets(howdah)[0]["generation"] == "2", "the new text")
    assert who(howdah, "app", password="app", query="select pg_backend_pid()") == pid
    change(cluster, howdah, "owner", "second")
    assert who(howdah, "app", password="app") == "owner"
    row = secrets(howdah)[0]
    assert (row["used_by"], row["last_error"]) == ("database shop", None)
    assert row["source"].endswith("mount/word") and row["logins"] == "2"


def test_a_command_is_run_again_when_its_password_is_refused(make_howdah, cluster):
    """The client notices nothing of a rotation."""
    howdah = from_program(make_howdah, cluster, 'echo "$1" >&2; cat "$(dirname "$0")/word"; exit 0\n', more="")
    write(howdah, "word", "first\n")
    machine.wait_until(lambda: secrets(howdah)[0]["last_error"] is not None or
                       secrets(howdah)[0]["generation"] != "0", "the first answer")
    assert who(howdah, "app", password="app") == "owner"
    write(howdah, "word", '{"password": "second", "expires_at": "2099-01-01T00:00:00Z"}')
    change(cluster, howdah, "owner", "second")
    assert who(howdah, "app", password="app") == "owner"
    row = secrets(howdah)[0]
    assert int(row["expires"]) > 1e9 and row["source"].startswith("command /")
    log = howdah.log()
    assert "second" not in log and "an arg" not in log


def test_a_command_ends_with_howdah(make_howdah, cluster):
    """A program that runs when the process ends does not live on."""
    howdah = from_program(make_howdah, cluster, "echo $$ >pid; sleep 500 & wait\n")
    path = os.path.join(howdah.folder, "pid")
    machine.wait_until(lambda: os.path.exists(path) and open(path).read().endswith("\n"), "the program")
    group = int(open(path).read())
    os.killpg(group, 0)
    howdah.stop()

    def is_gone():
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        # Who was killed may wait for its new parent.
        states = states_of(group)
        return all(state == "Z" for state in states)

    machine.wait_until(is_gone, "the program to end")


def states_of(group):
    """The states of the processes of a group."""
    states = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            states.append(fields[0])
    return states


def test_a_command_that_fails_is_said_once_and_its_end_too(make_howdah, cluster):
    """Clients get the source's error, without what the program printed."""
    howdah = from_program(make_howdah, cluster,
                          'echo hidden; echo "first line" >&2; printf "no \\033token\\n" >&2; exit 3\n')
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="app")
    assert error.value.code == "08006"
    assert "exit status: 3: no \\u{1b}token" in error.value.text, error.value.text
    program(howdah, "echo first\n")
    machine.wait_until(lambda: secrets(howdah)[0]["last_error"] is None, "the next try")
    assert who(howdah, "app", password="app") == "owner"
    howdah.wait_for_log("gives a password again")
    log = howdah.log()
    assert "hidden" not in log and "first line" not in log
    assert len(re.findall(r"WARNING command /\S*/token: exit status", log)) == 1


def test_many_waiting_clients_make_one_call(make_howdah, cluster):
    """Who waits for a first password is served when it comes."""
    howdah = from_program(
        make_howdah, cluster,
        'cd "$(dirname "$0")"; echo x >> calls; while [ ! -e go ]; do sleep 0.1; done; echo first\n', workers=2)
    served = []
    waiting = [threading.Thread(target=lambda: served.append(who(howdah, "app", password="app")))
               for _ in range(20)]
    for client in waiting:
        client.start()
    howdah.wait_for_pool("shop", "owner", cl_waiting=20)
    reasons = {row["wait_reason"] for row in howdah.console("SHOW CLIENTS_EXTENDED") if row["database"] == "shop"}
    assert reasons == {"secret"}
    write(howdah, "go", "")
    for client in waiting:
        client.join(30)
    assert served == ["owner"] * 20
    with open(os.path.join(howdah.folder, "calls")) as file:
        assert file.read() == "x\n"
    assert "no password" not in howdah.log()


def test_either_of_two_passwords(make_howdah, cluster):
    """Clients use either, servers the first, and after a refusal the other one."""
    text = '[databases.shop]\nSERVER\n[users]\napp.password = ["first", "second"]\n'
    howdah = with_file(make_howdah, cluster, text)
    for word in ("first", "second"):
        assert who(howdah, "app", password=word) == "app"
    change(cluster, howdah, "app", "second")
    assert who(howdah, "app", password="first") == "app"
    change(cluster, howdah, "app", "third")
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="first")
    assert error.value.code == "28P01"


def test_the_password_of_a_user_comes_from_a_program(make_howdah, cluster):
    """Clients are told if it is not there. Servers use it as one that is fetched, at each of two hosts."""
    hosts = f'host = "127.0.0.1:{cluster.port},localhost:{cluster.port}"'
    howdah = with_file(make_howdah, cluster, f'[databases.shop]\n{hosts}\n[users]\napp.password = "none"\n',
                       start=False)
    path = program(howdah, "exit 3\n")
    with open(howdah.ini_path) as file:
        own = file.read()
    write(howdah, "howdah.toml", own.replace('"none"', f"{{ command = [{json.dumps(path)}] }}"))
    howdah.start()
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="first")
    assert error.value.code == "57P03"
    program(howdah, "echo first\n")
    machine.wait_until(lambda: secrets(howdah)[0]["last_error"] is None, "the next try")
    assert who(howdah, "app", password="first") == "app"
    program(howdah, "echo second\n")
    change(cluster, howdah, "app", "second")
    assert who(howdah, "app", password="first") == "app", "the client was let in before the refusal"
    with pytest.raises(wire.Refused) as error:
        who(howdah, "app", password="first")
    assert error.value.code == "28P01"
    assert who(howdah, "app", password="second") == "app"


def test_a_successor_has_passwords_before_it_takes_over(make_howdah, cluster):
    """-R: the new process asks first."""
    howdah = from_program(make_howdah, cluster, "sleep 0.3; echo first\n")
    assert who(howdah, "app", password="app") == "owner"
    old, howdah.child = howdah.child, howdah.spawn("-R", "--quiet", howdah.ini_path)
    assert old.wait(30) == 0, howdah.said()
    mark = howdah.log_mark()
    howdah.console("RECONNECT")
    assert who(howdah, "app", password="app") == "owner"
    assert "no password" not in howdah.log()[mark:]


@pytest.mark.parametrize("mode, who_else", [(0o775, "a group"), (0o757, "everybody")])
def test_what_others_may_change_is_not_run(make_howdah, cluster, mode, who_else):
    """Neither a program nor a configuration with commands."""
    howdah = from_program(make_howdah, cluster, "echo first\n")
    os.chmod(os.path.join(howdah.folder, "token"), mode)
    howdah.reload()
    machine.wait_until(lambda: who_else in (secrets(howdah)[0]["last_error"] or ""), "the refusal")
    os.chmod(howdah.ini_path, mode)
    code, said = howdah.run_to_end("--check", howdah.ini_path)
    assert code == 1 and f"has commands for passwords, and {who_else} may change it" in said


class Metadata(http.server.BaseHTTPRequestHandler):
    """The metadata service of a machine (IMDSv2): credentials that end soon, other ones each time."""

    def do_PUT(self):
        self.answer("session" if self.headers["x-aws-ec2-metadata-token-ttl-seconds"] else None)

    def do_GET(self):
        asked = self.headers["x-aws-ec2-metadata-token"] == "session"
        roles = "/latest/meta-data/iam/security-credentials/"
        if self.path == roles:
            return self.answer("app role\n" if asked else None)
        self.server.calls += 1
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4))
        found = asked and self.path == roles + "app%20role"
        self.answer(json.dumps({"Code": "Success", "AccessKeyId": f"ASIA{self.server.calls}", "Token": "s/e",
                                "SecretAccessKey": "hidden", "Expiration": end}) if found else None)

    def answer(self, text):
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_):
        pass


def passwords(listener, count):
    """What a PostgreSQL that asks for passwords in clear text gets. It lets nobody in."""
    got = []
    while len(got) < count:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            length = stream.read(4)
            if not length:
                continue  # Howdah has looked whether anybody is there.
            startup = stream.read(struct.unpack("!i", length)[0] - 4)
            if startup == struct.pack("!i", 80877103):
                connection.sendall(b"N")
                stream.read(struct.unpack("!i", stream.read(4))[0] - 4)
            connection.sendall(b"R\0\0\0\x08\0\0\0\x03")
            if stream.read(1) == b"p":
                got.append(stream.read(struct.unpack("!i", stream.read(4))[0] - 4).rstrip(b"\0").decode())
            connection.sendall(wire.message("E", b"SFATAL\0VFATAL\0C28P01\0Mno\0\0"))
    return got


def test_each_login_signs_a_token_of_its_own(make_howdah, cluster, monkeypatch):
    """aws-rds: credentials come from the machine's role and are renewed before their end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.calls = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        host = "db.c1.eu-west-1.rds.amazonaws.com"
        text = (f'[databases.shop]\nhost = "127.0.0.1"\nport = {port}\nserver_user = "own er"\n'
                f'server_password = {{ source = "aws-rds", sign_host = "{host}" }}\n{APP}')
        howdah = with_file(make_howdah, cluster, text)
        machine.wait_until(lambda: server.calls > 1, "renewed credentials")
        tokens = []
        reader = threading.Thread(target=lambda: tokens.extend(passwords(listener, 2)))
        reader.start()
        with pytest.raises(wire.Refused) as error:
            who(howdah, "app", password="app")
        assert error.value.code == "28P01"
        reader.join(30)
    assert len(tokens) == 2, "one, and another when that was refused"
    for token in tokens:
        assert token.startswith(f"{host}:{port}/?Action=connect&DBUser=own%20er&X-Amz-Algorithm=AWS4-HMAC-SHA256"
                                "&X-Amz-Credential=ASIA"), token
        assert re.search(r"%2Feu-west-1%2Frds-db%2Faws4_request&.*&X-Amz-Security-Token=s%2Fe&X-Amz-Signature=\w{64}$",
                         token), token
    row = secrets(howdah)[0]
    assert row["source"] == "aws-rds" and int(row["generation"]) > 1
    assert "hidden" not in howdah.log() and "X-Amz" not in howdah.log()
    server.shutdown()


class Clouds(http.server.BaseHTTPRequestHandler):
    """The metadata services of Azure and Google, and Entra's tokens for pods."""

    def do_GET(self):
        azure = self.headers["metadata"] == "true" and self.path == (
            "/metadata/identity/oauth2/token?api-version=2018-02-01"
            "&resource=https%3A%2F%2Fossrdbms-aad.database.windows.net&client_id=7-f")
        google = self.headers["metadata-flavor"] == "Google" and \
            self.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        self.answer({"access_token": "entra", "expires_in": "3599"} if azure else
                    {"access_token": "google", "expires_in": 3599} if google else None)

    def do_POST(self):
        asked = urllib.parse.parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        right = self.path == "/tenant/oauth2/v2.0/token" and asked == {
            "grant_type": ["client_credentials"], "client_id": ["7-f"], "client_assertion": ["pod.token"],
            "scope": ["https://ossrdbms-aad.database.windows.net/.default"],
            "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]}
        self.answer({"access_token": "pod", "expires_in": 3599} if right else None)

    def answer(self, found):
        self.send_response(200 if found else 400)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("source, token", [
    ('{ source = "azure", client_id = "7-f" }', "entra"), ('{ source = "azure" }', "pod"),
    ('{ source = "google" }', "google"),
])
def test_tokens_of_clouds(make_howdah, cluster, monkeypatch, tmp_path, source, token):
    """They come from the machine's metadata service, or from Entra for a pod, and are the password."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Clouds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://{address}")
    monkeypatch.setenv("GCE_METADATA_HOST", address)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = (f'[databases.shop]\nhost = "127.0.0.1"\nport = {listener.getsockname()[1]}\nserver_user = "owner"\n'
                f'server_password = {source}\n{APP}')
        howdah = with_file(make_howdah, cluster, text, start=False)
        if token == "pod":
            for name, value in (("CLIENT_ID", "7-f"), ("TENANT_ID", "tenant"), ("AUTHORITY_HOST", f"http://{address}/"),
                                ("FEDERATED_TOKEN_FILE", write(howdah, "pod", "pod.token\n"))):
                monkeypatch.setenv(f"AZURE_{name}", value)
        howdah.start()
        got = []
        reader = threading.Thread(target=lambda: got.extend(passwords(listener, 2)))
        reader.start()
        with pytest.raises(wire.Refused):
            who(howdah, "app", password="app")
        reader.join(30)
    assert got == [token, token], "asked anew when it was refused"
    row = secrets(howdah)[0]
    assert row["source"] == source.split('"')[1] and int(row["expires"]) > 3500
    server.shutdown()


@pytest.mark.parametrize("value, remedy", [
    ('{ source = "gcp" }', 'unknown source "gcp": there are aws-rds, azure, google, vault, files and commands'),
    ('{ source = "vault", path = "kv/x" }', "a path of Vault is database/creds/ROLE"),
    ('{ command = ["token"] }', "begins with the whole path of a program"),
    ('{ command = ["/bin/a", 1] }', "must be an array of texts"),
    ('{ source = "aws-rds", regoin = "x" }', "aws-rds has no option regoin"),
    ('{ url = "x" }', '{ command = ["/PROGRAM"] }'),
    ('{ source = "aws-rds" }\nhost = "db.example"', "tokens go to PostgreSQL in clear text"),
])
def test_what_no_source_is(make_howdah, cluster, value, remedy):
    text = shop(value).replace("SERVER\n", "" if "host =" in value else "SERVER\n")
    howdah = with_file(make_howdah, cluster, text, start=False)
    code, said = howdah.run_to_end("--check", howdah.ini_path)
    assert code == 1 and remedy in said, said
