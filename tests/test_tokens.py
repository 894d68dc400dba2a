"""Clients with tokens of an identity provider: HBA methods jwt and oauth."""

import base64
import contextlib
import http.server
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import time

import psycopg
import pytest

from harness import machine, wire
from harness.programs import built

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]

ISSUER = "https://id.example"
OPTIONS = f'issuer={ISSUER} scope="openid pg" audience=pg'


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """An identity provider: RSA keys by id, and tokens signed with them."""

    def __init__(self, folder):
        self.folder = folder
        self.ids = []

    def key(self, name):
        return os.path.join(self.folder, f"{name}.pem")

    def add_key(self, name):
        subprocess.run(["openssl", "genrsa", "-out", self.key(name), "2048"], check=True, capture_output=True)
        self.ids.append(name)

    def set(self):
        """The JWK Set."""
        keys = []
        for name in self.ids:
            shown = subprocess.run(["openssl", "rsa", "-in", self.key(name), "-modulus", "-noout"],
                                   check=True, capture_output=True, text=True).stdout
            modulus = bytes.fromhex(shown.strip().partition("=")[2])
            keys.append({"kty": "RSA", "kid": name, "use": "sig", "n": encoded(modulus), "e": "AQAB"})
        return json.dumps({"keys": keys})

    def token(self, user="ann", key=None, **more):
        """A token; claims that are None are left out."""
        claims = {"iss": ISSUER, "aud": "pg", "sub": user, "exp": int(time.time()) + 300, "scope": "openid pg", **more}
        claims = {name: value for name, value in claims.items() if value is not None}
        name = key or self.ids[0]
        text = ".".join(encoded(json.dumps(part).encode())
                        for part in ({"alg": "RS256", "typ": "JWT", "kid": name}, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key(name)],
                                   input=text.encode(), check=True, capture_output=True).stdout
        return f"{text}.{encoded(signature)}"


@pytest.fixture(scope="module")
def provider(scratch):
    provider = Provider(machine.folder(scratch, "provider"))
    for name in ("one", "two"):
        provider.add_key(name)
    return provider


@pytest.fixture
def with_rule(make_howdah, postgres, provider):
    """Starts a Howdah with this rule for its clients; all its servers log in as postgres."""
    def make(rule, address="all", maps="", **options):
        target = f"host={postgres.host} port={postgres.port} dbname=postgres user=postgres"
        howdah = make_howdah(start=False, databases={"*": target, "postgres": target, "a.roles": target}, **options)
        keys = os.path.join(howdah.folder, "keys.json")
        howdah._write_file(keys, provider.set())
        hba, ident = (os.path.join(howdah.folder, name) for name in ("hba.conf", "ident.conf"))
        howdah._write_file(hba, "host pgbouncer admin 127.0.0.1/32 trust\n"
                           f"host all all {address} {rule.replace('KEYS', keys)}\nlocal all all trust\n")
        howdah._write_file(ident, maps)
        howdah.write(auth_type="hba", auth_hba_file=hba, auth_ident_file=ident)
        return howdah.start()
    return make


def sasl(howdah, message, mechanism=b"OAUTHBEARER", user="ann"):
    """A client that has sent its first message of OAUTHBEARER."""
    client = howdah.raw()
    client.send(wire.startup(user=user, database="postgres"))
    offer = client.read()
    assert (offer.tag, offer.body) == ("R", struct.pack("!i", 10) + b"OAUTHBEARER\0\0")
    length = struct.pack("!i", -1 if message is None else len(message))
    client.send(wire.message("p", mechanism + b"\0" + length + (message or b"")))
    return client


def bearer(token):
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def fatal(client):
    """SQLSTATE and text of the error that ends a connection."""
    fields = client.read_until("E")[-1].fields()
    return fields["C"], fields["M"]


def test_a_token_as_password(with_rule, provider):
    """psycopg, which knows nothing of tokens, logs in as the token's user and as nobody else."""
    howdah = with_rule(f"jwt {OPTIONS} keys=KEYS")
    where = {"host": howdah.host, "port": howdah.port, "dbname": "postgres"}
    token = provider.token("ann")
    with psycopg.connect(**where, user="ann", password=token) as client:
        assert client.execute("select 1").fetchone() == (1,)
    for user, password in (("bob", token), ("ann", provider.token("ann", aud="other")), ("ann", token[:-8] + "AAAAAAAA"),
                           ("ann", "secret"), ("ann", provider.token("ann", exp=int(time.time()) - 60))):
        with pytest.raises(psycopg.OperationalError, match=f'JWT authentication failed for user "{user}"'):
            psycopg.connect(**where, user=user, password=password)
    howdah.wait_for_log(re.escape(f'token login: identity="ann" issuer="{ISSUER}"'))
    howdah.wait_for_log("it ended .* s ago")
    log = howdah.log()
    for why in ('the token\'s identity "ann" is not this user', "another audience", "its signature is wrong",
                "it has not three parts"):
        assert why in log, why
    assert not any(part in log for part in token.split("."))


def test_oauthbearer(with_rule, provider):
    """At once, or after an empty challenge; a refused token is confirmed before the end."""
    howdah = with_rule(f"oauth {OPTIONS} keys=KEYS")
    good = bearer(provider.token())
    with sasl(howdah, good) as client:
        assert client.read().body == struct.pack("!i", 0)
        client.read_until("Z")
        assert client.value("select 1") == "1"
    with sasl(howdah, None) as client:
        assert client.read().body == struct.pack("!i", 11)
        client.send(wire.message("p", good))
        client.read_until("Z")
    with sasl(howdah, bearer(provider.token(scope="openid"))) as client:
        answer = json.loads(client.read().body[4:])
        assert answer == {"status": "invalid_token", "scope": "openid pg",
                          "openid-configuration": f"{ISSUER}/.well-known/openid-configuration"}
        client.send(wire.message("p", b"\x01"))
        assert fatal(client) == ("28000", 'OAuth bearer authentication failed for user "ann"')
    howdah.wait_for_log("the scope pg is not in it")


def test_discovery_makes_no_noise(with_rule, provider):
    """A client without a token learns where to get one; that is no failed login, and needs no server."""
    howdah = with_rule(f"oauth {OPTIONS} keys=/gone")
    mark = howdah.log_mark()
    for _ in range(3):
        with sasl(howdah, b"n,,\x01auth=\x01\x01") as client:
            assert client.read().body[4:].startswith(b'{ "status": "invalid_token"')
            client.send(wire.message("p", b"\x01"))
            assert fatal(client)[0] == "28000"
            assert client.ends()
    said = [line for line in howdah.log()[mark:].splitlines() if "login attempt" not in line]
    assert not [line for line in said if "OAuth" in line or "closing" in line or "WARNING" in line], said


@pytest.mark.parametrize("message, code", [
    (b"", "08P01"), (b"p=x,,\x01auth=\x01\x01", "08P01"), (b"n,a=ann,\x01auth=\x01\x01", "0A000"),
    (b"n,,\x01auth=x", "08P01"), (b"n,,\x01auth=\x01auth=\x01\x01", "08P01"), (b"n,,\x01auth=\0\x01\x01", "08P01"),
    (b"n,,\x01auth=\x01\x01more", "08P01"),
])
def test_malformed_exchanges(shared_rule, message, code):
    with sasl(shared_rule, message) as client:
        assert fatal(client)[0] == code
        assert client.ends()


@pytest.fixture
def shared_rule(with_rule):
    return with_rule(f"oauth {OPTIONS} keys=KEYS")


def test_large_and_unknown_messages(shared_rule, provider):
    with sasl(shared_rule, b"n,,\x01auth=", mechanism=b"SCRAM-SHA-256") as client:
        assert fatal(client)[0] == "08P01"
    with sasl(shared_rule, bearer("a" * 60_000)) as client:
        assert client.read().body[:4] == struct.pack("!i", 11)
    with sasl(shared_rule, bearer("a" * 70_000)) as client:
        assert fatal(client)[0] == "08P01"


def test_roles_and_maps(with_rule, provider):
    """The roles of a token go through a map; the database's name is put in after the path is split,
    and only if the configuration names it."""
    rule = f"jwt {OPTIONS} keys=KEYS roles=access.{{database}}.roles map=m"
    howdah = with_rule(rule, maps="m writers app_write\nm readers app_read\n")
    where = {"host": howdah.host, "port": howdah.port}
    token = provider.token(access={"postgres": {"roles": ["readers"]}, "a": {"roles": {"roles": ["writers"]}},
                                   "template1": {"roles": ["readers"]}})
    psycopg.connect(**where, dbname="postgres", user="app_read", password=token).close()
    for database, user in (("postgres", "app_write"), ("postgres", "readers"), ("a.roles", "app_write"),
                           ("template1", "app_read")):
        with pytest.raises(psycopg.OperationalError, match="JWT authentication failed"):
            psycopg.connect(**where, dbname=database, user=user, password=token)


def test_keys_in_a_file_rotate(with_rule, provider):
    """A new key is good within seconds, and a withdrawn one is not."""
    howdah = with_rule(f"jwt {OPTIONS} keys=KEYS")
    third = Provider(provider.folder)
    third.add_key("three")

    def enters(token):
        try:
            howdah.connect(user="ann", password=token).close()
            return True
        except wire.Refused:
            return False

    assert enters(provider.token()) and not enters(third.token())
    howdah._write_file(os.path.join(howdah.folder, "keys.json"), third.set())
    machine.wait_until(lambda: enters(third.token()), "the new key")
    assert not enters(provider.token())


class Pages(http.server.BaseHTTPRequestHandler):
    """What an issuer serves: pages by path; an int is a status, a text with http a redirect."""

    def do_GET(self):
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path, 404)
        self.send_response(page if isinstance(page, int) else 302 if page.startswith("http") else 200)
        if not isinstance(page, int) and page.startswith("http"):
            self.send_header("location", page)
        self.end_headers()
        if not isinstance(page, int):
            self.wfile.write(page.encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(pages, certificate=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.pages, server.asked = pages, []
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.chain, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_keys_by_https(with_rule, provider, authority):
    """Found by discovery; one fetch serves all; who can't be trusted gives none."""
    pages = {}
    with served(pages, authority.issue()) as server:
        issuer = f"https://localhost:{server.server_port}"
        about = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        pages.update({"/.well-known/openid-configuration": json.dumps(about), "/keys": provider.set()})
        rule = f"jwt issuer={issuer} audience=pg"
        howdah = with_rule(rule, https_ca_file=authority.certificate)
        token = provider.token(iss=issuer)
        for _ in range(3):
            howdah.connect(user="ann", password=token).close()
        assert server.asked == ["/.well-known/openid-configuration", "/keys"]
        for name, page, why in (("https_ca_file", None, "TLS: "), ("/keys", f"{issuer}/other", "redirects are not"),
                                ("/keys", 503, "it answers 503"), ("/keys", "x" * 1_100_000, "larger than 1 MB"),
                                ("/.well-known/openid-configuration",
                                 json.dumps({**about, "issuer": "https://other"}), "it describes another issuer")):
            old = pages.get(name)
            if page is not None:
                pages[name] = page
            other = with_rule(rule, **({} if page is None else {"https_ca_file": authority.certificate}))
            with pytest.raises(wire.Refused):
                other.connect(user="ann", password=token)
            other.wait_for_log(re.escape(f"no keys of the issuer: {issuer}") + ".*" + re.escape(why))
            if page is not None:
                pages[name] = old


def test_no_token_in_the_open(with_rule, provider):
    """Over a network without TLS the login ends before a token is asked for."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
    except OSError:
        pytest.skip("this machine has no address but loopback")
    howdah = with_rule(f"jwt {OPTIONS} keys=KEYS", listen_addr=f"127.0.0.1,{address}")
    with pytest.raises(wire.Refused) as error:
        wire.connect((address, howdah.port), user="ann", database="postgres", password=provider.token())
    assert error.value.code == "28000" and "tokens are taken over TLS only" in error.value.text


@pytest.mark.timeout(240, func_only=True)
@pytest.mark.parametrize("name", ["pgjdbc", "pgx", "node-postgres"])
def test_drivers_send_a_token_as_password(with_rule, provider, name):
    howdah = with_rule(f"jwt {OPTIONS} keys=KEYS", admin_users="admin, ann")
    program = built(name)
    lines = program.run_to_end(howdah.host, howdah.port, "ann", provider.token(), "pgbouncer",
                               command=[*program.console, "lists"])
    assert lines[-1] == "end 1"


def test_clients_end_with_their_tokens(with_rule, provider):
    """An idle client at once, also one that a successor has taken over; one in a transaction after that."""
    howdah = with_rule(f"jwt {OPTIONS} keys=KEYS leeway=0 end_with_token=1")
    token = provider.token(exp=int(time.time()) + 6)
    idle, busy = (howdah.connect(user="ann", password=token) for _ in range(2))
    assert busy.ask(wire.query("begin"))
    mark = howdah.log_mark()
    old = howdah.begin_takeover()
    howdah.wait_for_log("process up", since=mark, seconds=30)
    ended = ("57P01", "the token of the login has ended")
    assert fatal(idle) == ended and idle.ends()
    assert busy.value("select 1") == "1"
    busy.send(wire.query("commit"))
    assert [message.tag for message in busy.read_until("Z")] == ["C", "Z"]
    assert fatal(busy) == ended and busy.ends()
    assert old.wait(30) == 0


@pytest.mark.parametrize("rule, said", [
    (f"oauth {OPTIONS} validator=x", "there are no libraries that check tokens"),
    (f"oauth {OPTIONS} delegate_ident_mapping=1", "is not supported"),
    (f"jwt issuer={ISSUER}", "tokens need audience="),
    (f"jwt {OPTIONS} algorithms=HS256", "signatures by HS256 are not taken"),
    (f"jwt {OPTIONS} keys=http://id.example/keys", "neither a path nor an https address"),
])
def test_rules_that_are_refused(make_howdah, rule, said):
    howdah = make_howdah(start=False)
    hba = os.path.join(howdah.folder, "hba.conf")
    howdah._write_file(hba, f"host all all all {rule}\n")
    howdah.write(auth_type="hba", auth_hba_file=hba)
    code, output = howdah.check()
    assert code == 1 and said in output, output


def test_auth_type_and_options(make_howdah, postgres, provider, scratch):
    """Without rules: auth_type, and the same options in auth_oauth_options."""
    keys = os.path.join(provider.folder, "all.json")
    with open(keys, "w") as file:
        file.write(provider.set())
    machine.hand_over(keys)
    target = f"host={postgres.host} port={postgres.port} dbname=postgres user=postgres"
    howdah = make_howdah(databases={"*": target}, auth_type="jwt", read_driver=False,
                         auth_oauth_options=f"{OPTIONS} keys={keys}")
    howdah.connect(user="ann", password=provider.token()).close()
    code, output = howdah.run_to_end("--check", howdah.ini_path)
    assert code == 0, output
    howdah.write(auth_oauth_options="issuer=x")
    code, output = howdah.check()
    assert code == 1 and re.search(r"auth_oauth_options: tokens need audience=", output), output
