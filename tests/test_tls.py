"""TLS of clients and of servers: modes, certificates, channel binding, cancels, reload, bad input."""

import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

from harness import certificates, machine, wire
from harness.certificates import listener
from harness.load import Load
from harness.logins import refusal
from harness.scripted import ScriptedServer, answer, welcome
from harness.tls_clients import OpenSsl

pytestmark = pytest.mark.timeout(90)

MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
WITHOUT_TLS = {"disable", "allow", "prefer"}
PROTOCOL_VERSION = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@pytest.fixture(scope="module")
def site(authority):
    """The certificate of a listener for localhost."""
    return authority.issue()


@pytest.fixture(scope="module")
def other_authority(scratch):
    """One that nobody trusts."""
    return certificates.Authority(scratch, "stranger", subject="/CN=Stranger")


def trusting(authority, certificate=None, version=None, alpn=None):
    """An ssl.SSLContext that trusts an authority and checks the host's name."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(certificate.chain, certificate.key)
    if version:
        context.minimum_version = context.maximum_version = PROTOCOL_VERSION[version]
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


def psql(programs, howdah, password="secret", **keywords):
    """Runs the machine's psql with a connection string; gives exit code and output."""
    dsn = {"host": "localhost", "hostaddr": howdah.host, "port": howdah.port,
           "user": "scram_user", "dbname": "postgres", **keywords}
    text = " ".join(f"{key}='{value}'" for key, value in dsn.items())
    program = programs[min(programs)].path("psql")
    run = subprocess.run([program, "-XAtqc", "select 1", text], capture_output=True,
                         text=True, env={**os.environ, "PGPASSWORD": password}, timeout=30)
    return run.returncode, (run.stdout + run.stderr).strip()


# Clients: modes ---------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", MODES)
def test_every_mode(shared_howdah, authority, site, mode):
    """Who may come without TLS, with it, and with a certificate."""
    howdah = shared_howdah(**listener(site, authority, mode))
    if mode in WITHOUT_TLS:
        howdah.connect().close()
    else:
        assert refusal(howdah) == ("28000", "SSL required")
    if mode == "disable":
        with howdah.raw() as client:
            client.send(wire.ssl_request())
            assert client.read_bytes(1) == b"N"
            client.login()
        return
    own = authority.client("whoever")
    with howdah.connect(tls=trusting(authority, own)) as client:
        assert client.value("select 1") == "1"
    if mode.startswith("verify"):
        with pytest.raises((ssl.SSLError, ConnectionResetError, wire.Ended)):
            howdah.connect(tls=trusting(authority))
        howdah.wait_for_log("TLS handshake failed")
    else:
        howdah.connect(tls=trusting(authority)).close()


def test_no_tls_on_unix_sockets(shared_howdah, authority, site):
    """Nor is it demanded there."""
    howdah = shared_howdah(**listener(site, authority))
    with wire.Wire(howdah.socket_path) as client:
        client.send(wire.ssl_request())
        assert client.read_bytes(1) == b"N"
        client.login()
        assert client.value("select 1") == "1"


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_versions_in_the_console_and_the_log(shared_howdah, authority, site, version):
    """Version and cipher, as OpenSSL names them."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.connect(tls=trusting(authority, version=version)) as client:
        assert client.socket.version() == "TLSv" + version
        seen = client.socket.cipher()[0]
        rows = [row for row in howdah.console("SHOW CLIENTS") if row["tls"]]
        assert [row["tls"].split("/")[:2] for row in rows] == [[f"TLSv{version}", seen]], rows
        howdah.wait_for_log(f"login attempt: .* tls=TLSv{version}/{seen}")
        big = client.value("select repeat('x', 3000000)")
        assert len(big) == 3_000_000
        assert client.value(f"select length('{'y' * 2_000_000}')") == "2000000"


def test_required_protocols(make_howdah, authority, site):
    """client_tls_protocols."""
    howdah = make_howdah(**listener(site, authority, client_tls_protocols="tlsv1.3"))
    howdah.connect(tls=trusting(authority, version="1.3")).close()
    with pytest.raises(ssl.SSLError):
        howdah.connect(tls=trusting(authority, version="1.2"))


def test_suites(make_howdah, tls_postgres, authority, site):
    """Versions, ciphers and TLS 1.3's suites, on both sides."""
    suite, cipher = "TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"
    own = listener(site, authority, client_tls13_ciphers=suite, client_tls_ciphers=cipher)
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="require",
                         server_tls13_ciphers=suite, **own)
    for version, expected in (("1.2", cipher), ("1.3", suite)):
        with howdah.connect(tls=trusting(authority, version=version)) as client:
            assert client.socket.cipher()[0] == expected
            of_server = "select cipher from pg_stat_ssl where pid = pg_backend_pid()"
            assert client.value(of_server) == suite
    howdah.console("SET server_tls_protocols = 'tlsv1.2'")
    howdah.console(f"SET server_tls_ciphers = '{cipher}'")
    with howdah.connect(tls=trusting(authority)) as client:
        machine.wait_until(lambda: client.value(of_server) == cipher, "the other cipher")


def test_check_tells_what_is_in_force_instead(make_howdah, authority, site):
    """Where the library has no word for a setting; one that is nonsense is refused."""
    ciphers = "HIGH:!aNULL:@SECLEVEL=1"
    howdah = make_howdah(start=False, **listener(site, authority, client_tls_ciphers=ciphers))
    code, said = howdah.check()
    assert code == 0
    if "libssl" not in machine.run(["ldd", howdah.program], as_user=False):
        assert (f"WARNING client_tls_ciphers = {ciphers}: the TLS library does not know @SECLEVEL=1; "
                "in force: HIGH:!aNULL") in said, said
    ciphers = "ECDHE+AESGCM:NONSENSE:!MD5"
    howdah.write(client_tls_ciphers=ciphers, client_tls_ecdhcurve="X25519:nonsense:secp256r1")
    code, said = howdah.check()
    assert code == 0, said
    assert (f"WARNING client_tls_ciphers = {ciphers}: the TLS library does not know NONSENSE; in "
            "force: ECDHE+AESGCM:!MD5") in said, said
    assert ("WARNING client_tls_ecdhcurve = X25519:nonsense:secp256r1: the TLS library does not know "
            "nonsense; in force: X25519:P-256") in said, said
    howdah.write(client_tls_ciphers="NONSENSE")
    code, said = howdah.check()
    assert code == 1 and "failed to set ciphers: client_tls_ciphers = NONSENSE" in said, said


def test_oldest_version(make_howdah, authority, site):
    """TLS 1.2 is the least that is spoken unless told otherwise, and lists name what they mean."""
    howdah = make_howdah(**listener(site, authority, client_tls_protocols="secure",
                                    client_tls_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    with howdah.connect(tls=trusting(authority, version="1.2")) as client:
        assert client.socket.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


# Clients: certificates --------------------------------------------------------------------------

KINDS = {
    "rsa": {"kind": "rsa"}, "rsa4096": {"kind": "rsa4096"}, "ecdsa": {},
    "ed25519": {"kind": "ed25519"}, "pkcs1": {"kind": "rsa", "pkcs1": True},
    "sec1": {"pkcs1": True}, "v1": {"version": 1, "names": (), "kind": "rsa"},
    "cn": {"names": ()}, "sha384": {"digest": "-sha384"},
}


@pytest.mark.one_driver
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_certificates(make_howdah, programs, authority, kind):
    """Every kind serves libpq with verify-full, and the channel is bound."""
    certificate = authority.issue(**KINDS[kind])
    howdah = make_howdah(auth_type="scram-sha-256", secrets={"scram_user": "secret"},
                         **listener(certificate, authority))
    said = psql(programs, howdah, sslmode="verify-full", sslrootcert=authority.certificate,
                channel_binding="require")
    assert said == (0, "1")


SERVERS_KINDS = {
    "ed25519": {"kind": "ed25519"}, "rsa4096": {"kind": "rsa4096"},
    # Copied from page to page; not for TLS 1.3, if it comes to that.
    "no signatures": {"kind": "rsa", "key_usage": "keyEncipherment,dataEncipherment"},
}


@pytest.mark.one_driver
@pytest.mark.parametrize("kind", SERVERS_KINDS)
def test_kinds_of_servers_certificates(make_howdah, own_postgres, authority, kind):
    """PostgreSQL is reached by the default settings and by verify-full, and no client is told of a
    second attempt; nor do cancel requests miss it."""
    own_postgres.use_tls(authority.issue(**SERVERS_KINDS[kind]))
    for mode in ("prefer", "verify-full"):
        howdah = make_howdah(postgres=own_postgres, server_tls_sslmode=mode,
                             server_tls_ca_file=authority.certificate)
        with howdah.connect() as client:
            assert client.value("select ssl from pg_stat_ssl where pid = pg_backend_pid()") == "t"
            client.send(wire.query("select pg_sleep(60)"))
            machine.wait_until(lambda: own_postgres.value(
                "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'") == "1",
                "the query")
            client.cancel()
            cancelled = [got for got in client.read_until() if got.tag == "E"]
            assert cancelled[0].fields()["C"] == "57014"
        howdah.stop()


def test_certificate_without_signatures_and_no_tls_1_2(make_howdah, own_postgres, authority):
    """Where TLS 1.2 is switched off, TLS 1.3 is all there is: each login says what is wrong with the
    certificate, with a library that minds."""
    own_postgres.use_tls(authority.issue(**SERVERS_KINDS["no signatures"]))
    howdah = make_howdah(postgres=own_postgres, server_tls_sslmode="require", server_login_retry=0,
                         server_tls_protocols="tlsv1.3", query_wait_timeout=2)
    if "libssl" in machine.run(["ldd", howdah.program], as_user=False):
        with howdah.connect() as client:
            assert client.value("select 1") == "1"
        return
    for _ in range(2):
        mark = howdah.log_mark()
        with howdah.raw() as client:
            client.send(wire.startup(user="postgres", database="postgres"))
            assert client.read_until("E")
        howdah.wait_for_log("not for digital signatures", since=mark)


def test_client_signs_by_ed25519(make_howdah, programs, authority):
    """A client's certificate may be of this kind, too."""
    howdah = make_howdah(read_driver=False, secrets={"scram_user": "secret"},
                         **listener(authority.issue(), authority, "verify-full", auth_type="cert"))
    for user in (authority.issue(subject="/CN=scram_user", names=(), kind=kind)
                 for kind in ("ed25519", "ecdsa", "rsa")):
        assert psql(programs, howdah, sslmode="verify-full", sslrootcert=authority.certificate,
                    sslcert=user.chain, sslkey=user.key) == (0, "1")


@pytest.mark.parametrize("ciphers", ["DEFAULT@SECLEVEL=1", "HIGH:!aNULL:@SECLEVEL=1", "Secure"])
def test_openssls_lists_of_ciphers(make_howdah, programs, authority, ciphers):
    """As PgBouncer's users have them; what the library has no word for is left out."""
    howdah = make_howdah(client_tls_ciphers=ciphers, server_tls_ciphers=ciphers,
                         auth_type="scram-sha-256", secrets={"scram_user": "secret"},
                         **listener(authority.issue(), authority))
    said = psql(programs, howdah, sslmode="verify-full", sslrootcert=authority.certificate)
    assert said == (0, "1")


def test_signed_by_ed25519(make_howdah, programs, scratch):
    """No hash is defined for such a certificate: the channel can't be bound, which is not
    offered, so that who does not insist gets in."""
    edward = certificates.Authority(scratch, "edward", subject="/CN=Edward", kind="ed25519")
    howdah = make_howdah(auth_type="scram-sha-256", secrets={"scram_user": "secret"},
                         **listener(edward.issue(digest=None), edward))
    trusted = {"sslmode": "verify-full", "sslrootcert": edward.certificate}
    assert psql(programs, howdah, channel_binding="prefer", **trusted) == (0, "1")
    code, text = psql(programs, howdah, channel_binding="require", **trusted)
    assert code != 0 and "did not offer" in text, text


def test_signed_by_rsa_pss(make_howdah, programs, scratch):
    """The hash that binds the channel is among the signature's parameters."""
    pss = certificates.Authority(scratch, "pss", subject="/CN=PSS", kind="rsa")
    howdah = make_howdah(auth_type="scram-sha-256", secrets={"scram_user": "secret"},
                         **listener(pss.issue(digest="-sha384", padding="pss"), pss))
    said = psql(programs, howdah, sslmode="verify-full", sslrootcert=pss.certificate,
                channel_binding="require")
    assert said == (0, "1")


def test_chain_with_an_intermediate(make_howdah, programs, scratch, authority):
    """The whole chain is shown: clients need the root only. Client certificates may have one,
    too."""
    between = certificates.Authority(scratch, "between", above=authority, subject="/CN=Between")
    howdah = make_howdah(read_driver=False, secrets={"scram_user": "secret"},
                         **listener(between.issue(), authority, "verify-full", auth_type="cert"))
    own = between.client("scram_user")
    with howdah.connect(user="scram_user", tls=trusting(authority, own)) as client:
        assert client.value("select current_user") == "scram_user"


@pytest.mark.parametrize("sslmode", ["require", "verify-ca", "verify-full"])
def test_libpq(shared_howdah, authority, other_authority, site, sslmode):
    """psycopg in its modes; who expects another authority or name goes away."""
    howdah = shared_howdah(**listener(site, authority))
    where = {"hostaddr": howdah.host, "port": howdah.port, "user": "postgres",
             "dbname": "postgres", "sslmode": sslmode}
    trusted = {"sslrootcert": authority.certificate}
    with psycopg.connect(host="localhost", **where, **trusted) as connection:
        assert connection.execute("select %s", ["ü"]).fetchone() == ("ü",)
        assert connection.pgconn.ssl_in_use
    if sslmode == "verify-full":
        with pytest.raises(psycopg.OperationalError, match="does not match"):
            psycopg.connect(host="other.host", **where, **trusted)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(host="localhost", sslrootcert=other_authority.certificate, **where)
    howdah.connect(tls=trusting(authority)).close()


@pytest.mark.parametrize("wrong", ["stranger", "expired"])
def test_wrong_certificates_of_clients(shared_howdah, authority, other_authority, site, wrong):
    """They are refused, whatever the mode, and nobody else minds."""
    own = (other_authority.client("postgres") if wrong == "stranger"
           else authority.client("postgres", days=-1))
    howdah = shared_howdah(**listener(site, authority, "verify-full"))
    good = howdah.connect(tls=trusting(authority, authority.client("postgres")))
    with pytest.raises((ssl.SSLError, ConnectionResetError, wire.Ended)):
        howdah.connect(tls=trusting(authority, own))
    howdah.wait_for_log("certificate verify failed")
    assert good.value("select 1") == "1"


# Clients: logins by certificate -----------------------------------------------------------------

def test_auth_type_cert(make_howdah, authority, site):
    """The certificate names the user, by its common name or an alternative one."""
    howdah = make_howdah(read_driver=False,
                         secrets={"scram_user": "secret", "plain_user": "secret"},
                         **listener(site, authority, "verify-full", auth_type="cert"))
    own = authority.client("scram_user")
    with howdah.connect(user="scram_user", tls=trusting(authority, own)) as client:
        assert client.value("select current_user") == "scram_user"
    both = authority.issue(subject="/CN=somebody", names=("DNS:plain_user", "DNS:scram_user"))
    howdah.connect(user="plain_user", tls=trusting(authority, both)).close()
    failed = ("28000", "certificate authentication failed")
    # Of several common names the first one counts, as to PostgreSQL.
    two = trusting(authority, authority.issue(subject="/CN=scram_user/CN=plain_user", names=()))
    howdah.connect(user="scram_user", tls=two).close()
    assert refusal(howdah, user="plain_user", tls=two) == failed
    assert refusal(howdah, user="plain_user", tls=trusting(authority, own)) == failed
    howdah.wait_for_log("TLS certificate name mismatch")
    unknown = authority.client("unknown")
    assert refusal(howdah, user="unknown", tls=trusting(authority, unknown)) == failed


def test_certificates_by_rules(make_howdah, scratch, authority, site):
    """cert with maps and clientname, clientcert besides a password, hostssl and hostnossl."""
    folder = machine.folder(scratch, "tls-hba")
    rules, maps = (os.path.join(folder, name) for name in ("hba", "ident"))
    with open(rules, "w") as file:
        file.write("local all all trust\n"
                   "hostssl all plain_user all cert map=m\n"
                   "hostssl all md5_user all cert map=dn clientname=DN\n"
                   "hostssl all scram_user all scram-sha-256 clientcert=verify-full\n"
                   "hostssl all limited all trust clientcert=verify-ca\n"
                   "hostssl other postgres all trust\n"
                   "hostnossl postgres postgres all trust\n")
    with open(maps, "w") as file:
        file.write("m boss plain_user\ndn \"CN=boss,O=Org\" md5_user\n")
    users = ("plain_user", "md5_user", "scram_user", "limited")
    howdah = make_howdah(secrets=dict.fromkeys(users, "secret"), auth_type="hba",
                         auth_hba_file=machine.hand_over(rules),
                         auth_ident_file=machine.hand_over(maps),
                         **listener(site, authority, "allow"))
    boss = trusting(authority, authority.issue(subject="/O=Org/CN=boss", names=()))
    own = trusting(authority, authority.client("scram_user"))
    no_certificate = trusting(authority)
    for user in ("plain_user", "md5_user", "limited"):
        howdah.connect(user=user, database="postgres", tls=boss).close()
    howdah.connect(user="scram_user", database="postgres", password="secret", tls=own).close()
    howdah.connect(user="postgres", database="other", tls=no_certificate).close()
    howdah.connect(user="postgres", database="postgres").close()

    failed = ("28000", "certificate authentication failed")
    missing = ("28000", "connection requires a valid client certificate")
    nothing = ("28000", "no pg_hba.conf entry")
    for user, database, context, said in [
            ("plain_user", "postgres", own, failed), ("md5_user", "postgres", own, failed),
            ("plain_user", "postgres", no_certificate, failed),
            ("scram_user", "postgres", boss, failed),
            ("scram_user", "postgres", no_certificate, missing),
            ("limited", "postgres", no_certificate, missing),
            ("plain_user", "postgres", None, nothing), ("postgres", "other", None, nothing),
            ("postgres", "postgres", no_certificate, nothing)]:
        seen = refusal(howdah, user=user, database=database, password="secret", tls=context)
        assert seen == said, (user, database)
    # A certificate spares no password.
    assert refusal(howdah, user="scram_user", database="postgres", password="wrong",
                   tls=own)[0] == "28P01"


# Clients: channel binding -----------------------------------------------------------------------

@pytest.fixture
def scram_howdah(shared_howdah, authority, site):
    """Asks for SCRAM over TLS."""
    return shared_howdah(secrets={"scram_user": "secret"}, auth_type="scram-sha-256",
                         **listener(site, authority, "prefer"))


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_channel_binding_by_libpq(scram_howdah, programs, authority, version):
    """channel_binding=require, by psql and by psycopg's libpq."""
    bound = {"sslmode": "verify-full", "sslrootcert": authority.certificate,
             "channel_binding": "require", "ssl_min_protocol_version": "TLSv" + version,
             "ssl_max_protocol_version": "TLSv" + version}
    assert psql(programs, scram_howdah, **bound) == (0, "1")
    psycopg.connect(host="localhost", hostaddr=scram_howdah.host, port=scram_howdah.port,
                    user="scram_user", password="secret", dbname="postgres", **bound).close()
    assert psql(programs, scram_howdah, sslmode="require", channel_binding="disable") == (0, "1")
    code, text = psql(programs, scram_howdah, sslmode="disable", channel_binding="require")
    assert code != 0 and "channel binding required" in text
    assert psql(programs, scram_howdah, password="wrong", sslmode="require",
                channel_binding="require")[0] != 0


@pytest.mark.parametrize("bound, header, binding, said", [
    (True, None, None, None),
    (False, None, None, None),
    (False, b"y,,", None, ("28000", "SCRAM channel binding negotiation error")),
    (True, None, b"\xab" * 32, ("28000", "SCRAM channel binding check failed")),
    (True, b"n,,", None, ("08P01", "malformed SCRAM message")),
    (True, b"p=tls-unique,,", None, ("08P01", "unsupported SCRAM channel-binding type")),
])
def test_what_clients_say_of_the_binding(scram_howdah, authority, bound, header, binding, said):
    """As PostgreSQL: who says that nothing was offered has somebody in between."""
    with scram_howdah.raw().start_tls(trusting(authority)) as client:
        client.send(wire.startup("scram_user", "postgres"))
        offer = client.read()
        assert offer.body[4:] == b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"
        scram = wire.Scram("secret", (binding or client.binding) if bound else None, header)
        client.send(scram.first())
        got = client.read()
        if got.tag == "R":
            client.send(scram.final(got.body[4:]))
            got = client.read()
        if said is None:
            assert got.tag == "R"
            scram.verify(got.body[4:])
        else:
            assert (got.fields()["C"], got.fields()["M"]) == said
            assert client.ends()


def test_keys_pass_through(make_howdah, own_postgres, authority, site):
    """Where only SCRAM secrets are known, the client's keys open PostgreSQL, bound or not."""
    own_postgres.sql("create role keyed login password 'secret'")
    own_postgres.use_tls(site, hba=["host all keyed all scram-sha-256", "host all all all trust"])
    for server_mode in ("disable", "require"):
        howdah = make_howdah(postgres=own_postgres, auth_type="scram-sha-256",
                             server_tls_sslmode=server_mode,
                             secrets={"keyed": own_postgres.secret("keyed")},
                             **listener(site, authority, "prefer"))
        for context in (trusting(authority), None):
            howdah.console("RECONNECT")
            with howdah.connect(user="keyed", database="postgres", password="secret",
                                tls=context) as client:
                assert client.value("select current_user") == "keyed"
                in_use = client.value("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
                assert in_use == ("t" if server_mode == "require" else "f")


# Clients: how TLS begins ------------------------------------------------------------------------

@pytest.mark.parametrize("alpn", ["postgresql", None, "http/1.1"])
def test_direct_tls(shared_howdah, authority, site, alpn):
    """TLS without SSLRequest, for who says what it wants to speak."""
    howdah = shared_howdah(**listener(site, authority))
    context = trusting(authority, alpn=alpn)
    if alpn == "postgresql":
        with howdah.raw().start_tls(context, direct=True) as client:
            assert client.socket.selected_alpn_protocol() == "postgresql"
            client.login()
            assert client.value("select 1") == "1"
        return
    with pytest.raises((ssl.SSLError, ConnectionResetError, wire.Ended)):
        with howdah.raw().start_tls(context, direct=True) as client:
            client.login()
    howdah.wait_for_log("TLS handshake failed")


def test_alpn_behind_an_sslrequest(shared_howdah, authority, site):
    """Is answered if it is the right one."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.raw().start_tls(trusting(authority, alpn="postgresql")) as client:
        assert client.socket.selected_alpn_protocol() == "postgresql"
        client.login()


def test_direct_tls_by_libpq(shared_howdah, authority, site):
    """sslnegotiation=direct."""
    howdah = shared_howdah(**listener(site, authority))
    with psycopg.connect(host="localhost", hostaddr=howdah.host, port=howdah.port,
                         user="postgres", dbname="postgres", sslnegotiation="direct",
                         sslmode="verify-full", sslrootcert=authority.certificate) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("mode", ["disable", "require"])
def test_smuggled_bytes(shared_howdah, authority, site, mode):
    """What comes behind an SSLRequest, before our answer, was put there by somebody in between."""
    howdah = shared_howdah(**listener(site, authority, mode))
    with howdah.raw() as client:
        client.send(wire.ssl_request() + wire.startup())
        got = client.read_to_end()
        assert [message.fields()["C"] for message in got] == ["08P01"], got
        assert "unencrypted data" in got[0].fields()["M"]


def test_tls_within_tls(shared_howdah, authority, site):
    """An SSLRequest inside TLS is no version of the protocol."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.raw().start_tls(trusting(authority)) as client:
        client.send(wire.ssl_request())
        assert client.read().fields()["C"] == "0A000"
        assert client.ends()


# Clients: cancels -------------------------------------------------------------------------------

@pytest.mark.parametrize("carried", ["clear", "tls", "direct"])
def test_cancels(shared_howdah, postgres, authority, site, carried):
    """A cancel request is taken in clear text and over TLS, under every mode."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.connect(tls=trusting(authority)) as client:
        client.send(wire.query("select pg_sleep(30)"))
        postgres.wait_for_sleepers()
        with howdah.raw() as other:
            if carried != "clear":
                context = trusting(authority, alpn="postgresql")
                other.start_tls(context, direct=carried == "direct")
            other.send(wire.cancel_request(client.pid, client.key))
            assert other.ends()
        fields = [got.fields() for got in client.read_until("Z") if got.tag == "E"]
        assert [field["C"] for field in fields] == ["57014"]


def last_words(howdah, context, *words):
    """The last flight of a handshake, these words and FIN reach Howdah all at once."""
    raw = howdah.raw()
    raw.send(wire.ssl_request())
    assert raw.read_bytes(1) == b"S"
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for _ in range(8):
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            raw.send(outgoing.read())
            incoming.write(raw.socket.recv(65536))
        except ssl.SSLCertVerificationError:
            break
    for word in words:
        tls.write(word)
    howdah.signal(signal.SIGSTOP)
    try:
        raw.send(outgoing.read())
        raw.socket.shutdown(socket.SHUT_WR)
    finally:
        howdah.signal(signal.SIGCONT)
    return raw


def test_a_cancel_with_the_end_of_its_connection(shared_howdah, postgres, authority, site):
    """As tokio-postgres sends it: the request and FIN right behind the handshake."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.connect(tls=trusting(authority)) as client:
        client.send(wire.query("select pg_sleep(30)"))
        postgres.wait_for_sleepers()
        request = wire.cancel_request(client.pid, client.key)
        with last_words(howdah, trusting(authority, version="1.3"), request):
            fields = [got.fields() for got in client.read_until("Z") if got.tag == "E"]
        assert [field["C"] for field in fields] == ["57014"]


def test_a_refusal_with_the_end_of_its_connection(make_howdah, authority, other_authority, site):
    """A client that does not trust us says so, and is gone: the log has its reason."""
    howdah = make_howdah(**listener(site, authority))
    with last_words(howdah, trusting(other_authority, version="1.2")):
        howdah.wait_for_log("(?i)unknown.?ca")


# Clients: reload --------------------------------------------------------------------------------

def served(howdah):
    """The certificate that new clients are shown, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with howdah.raw().start_tls(context) as client:
        return client.socket.getpeercert(True)


def copied(certificate, folder):
    """The same in files of a test's own."""
    paths = []
    for path, name in zip(certificate, ("own.key", "own.crt")):
        own = os.path.join(folder, name)
        shutil.copy(path, own)
        paths.append(machine.hand_over(own))
    return certificates.Certificate(*paths)


def test_reload_of_certificates(make_howdah, scratch, authority):
    """New clients get the new certificate, live ones keep their session; a key that does not fit
    leaves the old pair in force."""
    folder = machine.folder(scratch, "reloaded")
    first, second, third = authority.issue(), authority.issue(kind="rsa"), authority.issue()
    files = copied(first, folder)
    howdah = make_howdah(**listener(files, authority))
    with howdah.connect(tls=trusting(authority)) as client:
        assert served(howdah) == first.der()
        copied(second, folder)
        howdah.console("RELOAD")
        machine.wait_until(lambda: served(howdah) == second.der(), "the second certificate")
        shutil.copy(third.chain, files.chain)
        try:
            howdah.console("RELOAD")
        except wire.Refused as refused:
            assert refused.code == "F0000"
        howdah.wait_for_log("TLS setup failed")
        assert served(howdah) == second.der()
        shutil.copy(third.key, files.key)
        howdah.console("RELOAD")
        machine.wait_until(lambda: served(howdah) == third.der(), "the third certificate")
        assert client.value("select 1") == "1"


@pytest.mark.one_driver
def test_replaced_files_are_noticed(make_howdah, scratch, authority):
    """Without a RELOAD; what does not fit changes nothing, and is told."""
    folder = machine.folder(scratch, "replaced")
    first, second = authority.issue(), authority.issue(kind="rsa")
    files = copied(first, folder)
    howdah = make_howdah(**listener(files, authority))
    with howdah.connect(tls=trusting(authority)) as client:
        shutil.copy(second.chain, files.chain)
        howdah.wait_for_log("TLS setup failed: .*does not fit", seconds=20)
        assert served(howdah) == first.der()
        shutil.copy(second.key, files.key)
        machine.wait_until(lambda: served(howdah) == second.der(), "the second certificate", 20)
        assert client.value("select 1") == "1"


def test_reload_with_unusable_certificates_changes_nothing(make_howdah, scratch, authority):
    """A file that asks for certificates instead of passwords: either both change, or nothing."""
    howdah = make_howdah(**listener(authority.issue(), authority, auth_type="scram-sha-256"))
    howdah.write(client_tls_sslmode="verify-full", client_tls_ca_file="/no/such/authority",
                 auth_type="trust")
    with pytest.raises(wire.Refused):
        howdah.console("RELOAD")
    howdah.wait_for_log("TLS setup failed")
    assert howdah.setting("auth_type") == "scram-sha-256"
    assert howdah.setting("client_tls_sslmode") == "require"


def test_endless_handshake(make_howdah, authority, site):
    """What comes before a handshake is done is bounded, and nobody else is disturbed."""
    howdah = make_howdah(**listener(site, authority))
    with howdah.raw() as stranger:
        stranger.send(struct.pack("!ii", 8, 80877103))
        assert stranger.socket.recv(1) == b"S"
        # One message of a handshake of 16 MB, in records that are well-formed.
        record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16380)
        try:
            for _ in range(100):
                stranger.socket.sendall(record)
            while stranger.socket.recv(1000):
                pass
        except ConnectionError:
            pass
        howdah.wait_for_log("TLS error|handshake")
    with howdah.connect(tls=trusting(authority)) as client:
        assert client.value("select 1") == "1"


def test_set(make_howdah, authority, other_authority, site):
    """SET of single files, as PgBouncer's users do it: the old pair serves until both fit."""
    howdah = make_howdah(**listener(site, authority))
    new = other_authority.issue()
    with wire.connect(howdah.socket_path, user="admin", database="pgbouncer",
                      password="secret") as console:
        got = console.ask(wire.query(f"SET client_tls_key_file = '{new.key}'"))
        notices = [message.fields()["M"] for message in got if message.tag == "N"]
        assert len(notices) == 1 and "TLS setup failed" in notices[0], got
        assert "does not fit" in notices[0]
    assert served(howdah) == site.der()
    howdah.console(f"SET client_tls_cert_file = '{new.chain}'")
    machine.wait_until(lambda: served(howdah) == new.der(), "the new certificate")
    howdah.console("SET client_tls_sslmode = disable")
    howdah.connect().close()


# Clients: sessions that are resumed ---------------------------------------------------------------

def comes_again(howdah, context, session=None, **options):
    """A client's SSL session, and whether it was resumed from an earlier one."""
    client = howdah.raw().start_tls(context, session=session)
    with client:
        client.login(**options)
        assert client.value("select 1") == "1"
        return client.socket.session, client.socket.session_reused


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_resumption(make_howdah, authority, site, version):
    """By any worker, with the channel bound, after a takeover, too; not once the certificate or a
    setting of TLS has changed."""
    howdah = make_howdah(workers=2, auth_type="scram-sha-256", secrets={"scram_user": "secret"},
                         **listener(site, authority))
    context = trusting(authority, version=version)
    who = {"user": "scram_user", "database": "postgres", "password": "secret"}
    session, reused = comes_again(howdah, context, **who)
    assert not reused
    for _ in range(8):
        session, reused = comes_again(howdah, context, session, **who)
        assert reused
    clients = howdah.console("SHOW TLS")[0]
    assert (clients["resumed"], clients["failed"]) == ("8", "0"), clients
    take_over(howdah)
    session, reused = comes_again(howdah, context, session, **who)
    assert reused
    howdah.console("SET client_tls_ciphers = 'HIGH'")
    machine.wait_until(lambda: not comes_again(howdah, context, session, **who)[1],
                       "a full handshake")
    session, _ = comes_again(howdah, context, **who)
    assert comes_again(howdah, context, session, **who)[1]
    other = authority.issue()
    howdah.write(client_tls_cert_file=other.chain, client_tls_key_file=other.key)
    howdah.reload()
    machine.wait_until(lambda: not comes_again(howdah, context, session, **who)[1],
                       "a full handshake")


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_no_resumption_with_certificates(shared_howdah, authority, site, version):
    """Who shows a certificate shows it each time."""
    howdah = shared_howdah(**listener(site, authority, "verify-full"))
    context = trusting(authority, authority.client("postgres"), version=version)
    session, _ = comes_again(howdah, context)
    assert not session.has_ticket
    assert not comes_again(howdah, context, session)[1]


def goes_along(howdah):
    """Skips the rest where clients with TLS stay with their process: OpenSSL's sessions do."""
    if "libssl" in machine.run(["ldd", howdah.program], as_user=False):
        pytest.skip("this build is by OpenSSL, whose sessions do not travel")
    return howdah


def test_takeover_by_openssl(make_howdah, authority, site):
    """Its sessions stay, and the log says so."""
    howdah = make_howdah(**listener(site, authority))
    if "libssl" not in machine.run(["ldd", howdah.program], as_user=False):
        pytest.skip("this build is by AWS-LC")
    with howdah.connect(tls=trusting(authority)) as client:
        old = take_over(howdah, wait=False)
        howdah.wait_for_log("clients with TLS stay here until they leave")
        assert client.value("select 'stays'") == "stays"
        with howdah.connect(tls=trusting(authority)) as other:
            assert other.value("select 'new'") == "new"
    assert old.wait(30) == 0, howdah.said()


def take_over(howdah, wait=True):
    """A successor takes over from the process."""
    mark, old = howdah.log_mark(), howdah.child
    with open(os.path.join(howdah.folder, "stderr"), "a") as errors:
        howdah.child = howdah.spawn("-R", "--quiet", howdah.ini_path, stdin=subprocess.DEVNULL,
                                    stdout=errors, stderr=errors)
    howdah.wait_for_log("process up", since=mark, seconds=30)
    if wait:
        assert old.wait(30) == 0, howdah.said()
    return old


class Piecemeal:
    """In place of an ssl.SSLContext: what is said can be sealed apart from being sent."""

    def __init__(self, context):
        self.context = context

    def wrap_socket(self, raw, server_hostname, session=None):
        return PiecemealSocket(raw, self.context, server_hostname)


class PiecemealSocket:
    """TLS over a socket, which does nothing by itself."""

    def __init__(self, raw, context, name):
        self.raw, self.inbound, self.outbound = raw, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.inbound, self.outbound, server_hostname=name)
        self._carry(self.tls.do_handshake)

    def __getattr__(self, name):
        return getattr(self.raw, name)

    def _carry(self, call):
        while True:
            try:
                result = call()
                self.raw.sendall(self.outbound.read())
                return result
            except ssl.SSLWantReadError:
                self.raw.sendall(self.outbound.read())
                data = self.raw.recv(65536)
                if not data:
                    raise ssl.SSLEOFError() from None
                self.inbound.write(data)

    def getpeercert(self, binary_form):
        return self.tls.getpeercert(binary_form)

    def recv(self, size):
        return self._carry(lambda: self.tls.read(size))

    def seal(self, data):
        """The record of these bytes."""
        self.tls.write(data)
        return self.outbound.read()

    def sendall(self, data):
        self.raw.sendall(self.seal(data))


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_takeover_takes_tls_clients(make_howdah, tls_postgres, authority, site, version):
    """With what they have sent of a record, and all that is known of their sessions; those in
    transactions and those that are slow to read follow later."""
    howdah = goes_along(make_howdah(
        postgres=tls_postgres, server_tls_sslmode="require", pool_mode="transaction",
        **listener(site, authority)))
    context = trusting(authority, version=version)
    large = "select repeat('l', 3000000)"
    with howdah.connect(tls=context) as idle, howdah.connect(tls=Piecemeal(context)) as halved, \
            howdah.connect(tls=context) as inside, howdah.connect(tls=context) as slow:
        idle.ask(wire.parse("select 'kept'", "mine"), wire.sync())
        shown = {row["port"]: row["tls"] for row in howdah.console("SHOW CLIENTS")}
        inside.rows("begin")
        slow.send(wire.query("select repeat('s', 1000) from generate_series(1, 30000)"))
        record = halved.socket.seal(wire.query("select 'halved'"))
        for at, part in enumerate([record[:3], record[3:20]]):
            halved.socket.raw.sendall(part)
            # Whoever speaks later is heard later.
            assert idle.value(f"select {at}") == str(at)
        old = take_over(howdah, wait=False)
        halved.socket.raw.sendall(record[20:])
        assert halved.read_until()[1].row() == [b"halved"]
        got = idle.ask(wire.bind("mine"), wire.execute(), wire.sync())
        assert [m.row() for m in got if m.tag == "D"] == [[b"kept"]]
        for client in (idle, halved):
            assert len(client.value(large)) == 3_000_000
            assert client.value(f"select length('{'q' * 500_000}')") == "500000"
        ours = {row["port"]: row["tls"] for row in howdah.console("SHOW CLIENTS")}
        for client in (idle, halved):
            port = str(client.socket.getsockname()[1])
            assert ours[port] == shown[port] and f"TLSv{version}" in ours[port]
        assert old.poll() is None
        inside.rows("commit")
        assert sum(m.tag == "D" for m in slow.read_until()) == 30_000
        assert old.wait(30) == 0, howdah.said()
        for client in (inside, slow):
            assert len(client.value(large)) == 3_000_000
        take_over(howdah)
        assert halved.value("select 'again'") == "again"
        idle.send(wire.terminate())
        assert idle.ends()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_takeover_into_stricter_settings(make_howdah, tls_postgres, mode):
    """Servers in clear text are replaced where the new process demands TLS, as by RELOAD."""
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="disable", pool_mode=mode)
    with howdah.connect() as client:
        assert client.rows(IN_USE)[0][0] == "f"
        howdah.write(server_tls_sslmode="require")
        take_over(howdah)
        if mode == "session":
            # Who has a server to itself keeps it to the end.
            assert client.rows(IN_USE)[0][0] == "f"
    with howdah.connect() as client:
        assert client.rows(IN_USE)[0][0] == "t"


def test_a_successor_opens_as_many_servers_with_tls(make_howdah, tls_postgres):
    """Without a client that asks for one."""
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="require")
    with howdah.connect() as one, howdah.connect() as two:
        for client in (one, two):
            client.rows("begin")
        for client in (one, two):
            client.rows("commit")
        before = {row["remote_pid"] for row in howdah.console("SHOW SERVERS")}
        take_over(howdah)

        def opened():
            rows = howdah.console("SHOW SERVERS")
            return len(rows) == 2 and all(row["state"] == "idle" for row in rows)
        machine.wait_until(opened, "two servers of the successor")
        after = {row["remote_pid"] for row in howdah.console("SHOW SERVERS")}
        assert len(before) == 2 and not before & after
        assert one.value("select pg_backend_pid()") in after


def test_takeover_of_tls_clients_that_fails_late(make_howdah, tls_postgres, authority, site):
    """What was packed is unpacked where it came from, and servers with TLS were never closed."""
    howdah = goes_along(make_howdah(
        postgres=tls_postgres, server_tls_sslmode="require", workers=2,
        **listener(site, authority)))
    with howdah.connect(tls=trusting(authority)) as client:
        pid = client.value("select pg_backend_pid()")
        config = os.path.join(howdah.folder, "other.ini")
        text = open(howdah.ini_path).read()
        text = text.replace("listen_addr = 127.0.0.1", f"listen_addr = 127.0.0.3, {machine.NO_HOST}")
        howdah._write_file(config, text)
        code, said = howdah.run_to_end("-R", config)
        assert code == 1 and machine.NO_HOST in said + howdah.log()
        howdah.wait_for_log("a new process did not take over")
        assert client.value("select repeat('b', 100000)") == "b" * 100_000
        assert client.value("select pg_backend_pid()") == pid
        take_over(howdah)
        assert client.value("select 1") == "1"


def test_takeover_to_where_tls_is_switched_off(make_howdah, authority, site):
    """Sessions live on, as by a RELOAD."""
    howdah = goes_along(make_howdah(**listener(site, authority)))
    with howdah.connect(tls=trusting(authority)) as client:
        howdah.write(client_tls_sslmode="disable")
        take_over(howdah)
        assert client.value("select 1") == "1"
        with pytest.raises(wire.Ended):
            howdah.connect(tls=trusting(authority))


def test_takeover_leaves_sessions_behind_whose_server_speaks_tls(make_howdah, tls_postgres):
    """The keys of a server's TLS session do not travel: in session mode its client stays on the old
    process, with all that the session has, and the old process ends with it."""
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="require", pool_mode="session")
    with howdah.connect() as client:
        assert client.rows(IN_USE)[0][0] == "t"
        client.rows("create temp table mine as select 'kept' as word")
        old = take_over(howdah, wait=False)
        with howdah.connect() as newcomer:
            assert newcomer.rows(IN_USE)[0][0] == "t"
        assert client.value("select word from mine") == "kept"
        assert old.poll() is None
    assert old.wait(30) == 0, howdah.said()


def takeover_version():
    """The version of what processes hand to each other."""
    source = Path(__file__).parent.parent / "crates/pooler/src/parcel/mod.rs"
    return re.search(r"^pub const VERSION: u32 = (\d+);", source.read_text(), re.M)[1]


def test_takeover_by_another_library(make_howdah, system_programs, authority, site):
    """What the one has packed the other can't read: clients with TLS stay, and the log says so."""
    howdah = goes_along(make_howdah(**listener(site, authority)))
    order = f'TAKEOVER "{takeover_version()} Other 1.0"'
    with howdah.connect(tls=trusting(authority)) as client:
        child = machine.spawn(
            [system_programs.path("psql"), "-h", howdah.folder, "-p", str(howdah.port),
             "-U", "pgbouncer", "-d", "pgbouncer", "-c", order],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        child.communicate(timeout=30)
        howdah.wait_for_log("clients with TLS stay here until they leave")
        howdah.wait_for_log("a new process did not take over")
        howdah.wait_for_log("those of the new process by Other 1.0")
        assert client.value("select 1") == "1"


# Clients: what is told ----------------------------------------------------------------------------

def test_show_tls(make_howdah, authority, site):
    """Modes, when certificates expire, and how handshakes went."""
    howdah = make_howdah(**listener(site, authority))
    howdah.connect(tls=trusting(authority)).close()
    with pytest.raises((ssl.SSLError, ConnectionResetError, wire.Ended)):
        with howdah.raw().start_tls(trusting(authority), direct=True) as client:
            client.login()
    howdah.wait_for_log("TLS handshake failed")
    clients, servers = howdah.console("SHOW TLS")
    assert (clients["side"], clients["sslmode"], clients["certificate"]) == (
        "clients", "require", site.chain)
    assert clients["days_left"] in ("29", "30") and clients["expires"].endswith("UTC"), clients
    assert (clients["handshakes"], clients["resumed"], clients["failed"]) == ("1", "0", "1")
    assert (servers["sslmode"], servers["certificate"], servers["expires"]) == ("prefer", None, None)


@pytest.mark.parametrize("version, group", [("1.3", "X25519"), ("1.2", "prime256v1")])
def test_groups(make_howdah, authority, site, version, group):
    """The key exchange's group stands behind the cipher, as in PgBouncer."""
    howdah = make_howdah(**listener(site, authority, client_tls_ecdhcurve=group))
    with howdah.connect(tls=trusting(authority, version=version)):
        seen = [row["tls"] for row in howdah.console("SHOW CLIENTS") if row["tls"]]
        assert [tls.split("/")[2] for tls in seen] == [f"ECDH={group}"], seen
        howdah.wait_for_log(f"login attempt: .* tls=.*/ECDH={group}")


def test_modes_of_clients_by_database(make_howdah, postgres, authority, site):
    """A database may demand more than the others, or less."""
    at = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={
        "open": f"{at} client_tls_sslmode=allow", "usual": at,
        "closed": f"{at} client_tls_sslmode=verify-full"}, **listener(site, authority))
    plain, tls = None, trusting(authority)
    certified = trusting(authority, authority.client("postgres"))
    required, missing = ("28000", "SSL required"), (
        "28000", "connection requires a valid client certificate")
    for database, context, said in [
            ("open", plain, None), ("open", tls, None), ("usual", plain, required),
            ("usual", tls, None), ("closed", plain, required), ("closed", tls, missing),
            ("closed", certified, None)]:
        if said:
            assert refusal(howdah, database=database, tls=context) == said, database
        else:
            howdah.connect(database=database, tls=context).close()


def test_a_database_wants_tls_where_there_is_none(make_howdah):
    """--check names it."""
    howdah = make_howdah(start=False, databases={"d": "host=h client_tls_sslmode=require"})
    code, output = howdah.check()
    assert code == 1 and "client_tls_sslmode of database d wants TLS" in output, output


# Clients: long streams ----------------------------------------------------------------------------

def test_keys_are_updated_after_a_takeover(make_howdah, authority, site):
    """In both directions, also when one update was asked for and not answered before."""
    howdah = goes_along(make_howdah(**listener(site, authority)))
    with OpenSsl(howdah, authority, "-tls1_3") as client:
        client.shake_hands().login().update()
        client.ask("select repeat('k', 50000)")
        for both in (True, False, True):
            client.update()
            take_over(howdah)
            client.ask("select repeat('k', 50000)")
            client.update(both)
            client.ask("select repeat('k', 50000)")
        assert client.seen.count(b"k") > 7 * 50_000


# Clients: bad input -----------------------------------------------------------------------------

def half_way(raw, context):
    """The first flight of each side, and half of the client's second."""
    raw.send(wire.ssl_request())
    assert raw.read_bytes(1) == b"S"
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    raw.send(outgoing.read())
    while not outgoing.pending:
        incoming.write(raw.socket.recv(65536))
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
    last = outgoing.read()
    raw.send(last[:len(last) // 2])
    return raw


def test_stalled_handshakes(make_howdah, authority, site):
    """Who begins and says no more is closed after client_login_timeout; others are served."""
    howdah = make_howdah(**listener(site, authority))
    stalled = [half_way(howdah.raw(), trusting(authority, version=version))
               for version in ("1.2", "1.3")]
    # One whose session stands, and who says nothing in it.
    stalled.append(howdah.raw().start_tls(trusting(authority)))
    stalled = [howdah.raw() for _ in range(4)] + stalled
    hello = client_hello(trusting(authority))
    stalled[0].send(wire.ssl_request())
    stalled[1].send(wire.ssl_request())
    stalled[2].send(hello[:3])
    stalled[3].send(hello)
    for client in stalled[:2]:
        assert client.read_bytes(1) == b"S"
    stalled[1].send(hello[:-5])
    with howdah.connect(tls=trusting(authority)) as client:
        assert client.value("select 1") == "1"
    howdah.console("SET client_login_timeout = 1")
    for client in stalled:
        with client:
            until_closed(client.socket)
    howdah.wait_for_log("client_login_timeout")


def test_many_stalled_handshakes(make_howdah, authority, site):
    """As many as may be under way on a worker keep it waiting: who comes then waits, until those
    that have had two seconds are given up. Who has said nothing yet keeps nobody."""
    howdah = make_howdah(workers=1, client_login_timeout=60, **listener(site, authority))
    hello = client_hello(trusting(authority))
    given_up = "abandoned: other handshakes were waiting"
    with howdah.connect(tls=trusting(authority)) as client:
        stalled = [howdah.raw() for _ in range(1010)]
        for other in stalled:
            other.send(wire.ssl_request())
        for other in stalled:
            assert other.read_bytes(1) == b"S"
        howdah.connect(tls=trusting(authority)).close()
        assert given_up not in howdah.log()
        # Nor does a part of the first message, however it comes.
        for other in stalled:
            other.send(hello[:-9])
            other.send(hello[-9:-5])
        howdah.connect(tls=trusting(authority)).close()
        assert given_up not in howdah.log()
        for other in stalled:
            other.send(hello[-5:])
        newcomer = howdah.connect(tls=trusting(authority))
        assert newcomer.value("select 'new'") == client.value("select 'new'")
        howdah.wait_for_lines(given_up, 10)
        newcomer.close()
        for other in stalled:
            other.close()
    with howdah.connect(tls=trusting(authority)) as client:
        assert client.value("select 'after'") == "after"


def client_hello(context):
    """The first bytes that a client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def until_closed(connection):
    """Everything that comes until the other side closes."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_half_a_record_moves(make_howdah, authority, site, version):
    """What has come of a record goes with its client from worker to worker, byte by byte."""
    howdah = make_howdah(workers=2, pool_spread="always", default_pool_size=8,
                         **listener(site, authority))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = trusting(authority, version=version)
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def moves():
        howdah.console("SHUFFLE")
        return sum(int(row["moves_in"]) for row in howdah.console("SHOW WORKERS"))

    with howdah.raw() as client:
        client.send(wire.ssl_request())
        assert client.read_bytes(1) == b"S"

        def until_done(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    client.send(outgoing.read())
                    incoming.write(client.socket.recv(65536))

        def answer():
            received = b""
            while not received.endswith(b"Z\0\0\0\x05I"):
                received += until_done(lambda: session.read(65536))
            return received

        until_done(session.do_handshake)
        session.write(wire.startup())
        client.send(outgoing.read())
        answer()
        for turn in range(10):
            session.write(wire.query(f"select 'record {turn}'"))
            record = outgoing.read()
            for part in (record[:3], record[3:40]):
                client.send(part)
                before = moves()
                machine.wait_until(lambda before=before: moves() > before, "a move")
            client.send(record[40:])
            assert f"record {turn}".encode() in answer()


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\n\r\n", "zeros": bytes(100), "ones": b"\xff" * 100,
    "a start-up packet": wire.startup(), "an alert": bytes.fromhex("15030300020228"),
    "data too early": bytes.fromhex("170303000568656c6c6f"),
    "a record too long": b"\x16\x03\x01\xff\xff" + bytes(70000),
    "an empty record": bytes.fromhex("1603010000") * 50,
    "a hello that is none": b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c" + b"\x5a" * 44,
    "a hello cut off": b"\x16\x03\x01\x00\x05\x01\x00\xff\xff\xff",
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("direct", [False, True])
def test_garbage(shared_howdah, authority, site, what, direct):
    """What is no handshake ends that connection, and no other."""
    howdah = shared_howdah(client_login_timeout="3", **listener(site, authority))
    if direct and GARBAGE[what][0] != 0x16:
        pytest.skip("that is no TLS at all")
    with howdah.connect(tls=trusting(authority)) as other, howdah.raw() as client:
        if not direct:
            client.send(wire.ssl_request())
            assert client.read_bytes(1) == b"S"
        try:
            client.send(GARBAGE[what])
        except ConnectionError:
            pass
        until_closed(client.socket)
        assert other.value("select 1") == "1"


@pytest.mark.parametrize("what", [
    b"\x17\x03\x03\x00\x20" + bytes(32), b"\x17\x03\x03\xff\xff" + bytes(70000),
    b"\x15\x03\x03\x00\x02\x02\x28", wire.query("select 1")],
    ids=["sealed by nobody", "a record too long", "an alert in clear text", "clear text"])
def test_garbage_in_a_session(shared_howdah, authority, site, what):
    """So does a record that was not sealed with the session's keys; its transaction is undone."""
    howdah = shared_howdah(**listener(site, authority))
    with howdah.connect(tls=trusting(authority)) as client:
        client.rows("begin")
        client.rows("create table garbled (x int)")
        bare = socket.socket(fileno=os.dup(client.socket.fileno()))
        with bare:
            bare.settimeout(wire.SECONDS)
            try:
                bare.sendall(what)
            except ConnectionError:
                pass
            until_closed(bare)
    howdah.wait_for_pool("postgres", "postgres", cl_active=0,
                         sv_active=0)
    with howdah.connect(tls=trusting(authority)) as client:
        assert client.value("select to_regclass('garbled') is null") == "t"


@pytest.mark.parametrize("how", ["close_notify", "half closed", "cut off", "reset"])
def test_ends(shared_howdah, authority, site, how):
    """Whichever way a client goes, its server comes back, and the log is not alarmed."""
    howdah = shared_howdah(**listener(site, authority))
    client = howdah.connect(tls=trusting(authority))
    assert client.value("select 1") == "1"
    mark = len(howdah.log())
    if how == "close_notify":
        client.send(wire.terminate())
        assert client.socket.unwrap().fileno() >= 0
    elif how == "half closed":
        client.send(wire.query("select 42"), wire.terminate())
        os_socket = socket.socket(fileno=os.dup(client.socket.fileno()))
        os_socket.shutdown(socket.SHUT_WR)
        os_socket.close()
        until_closed(client.socket)
    elif how == "cut off":
        client.send(wire.query("select pg_sleep(0.2)"))
        client.close()
    else:
        client.abort()
    howdah.wait_for_pool("postgres", "postgres", cl_active=0,
                         sv_active=0)
    said = howdah.log()[mark:]
    assert " WARNING " not in said and "TLS" not in said, said


def test_we_say_goodbye(make_howdah, authority, site):
    """A close_notify comes before the end, as libraries that check it want."""
    howdah = make_howdah(**listener(site, authority))
    context = trusting(authority)
    client = howdah.raw()
    client.socket.settimeout(wire.SECONDS)
    client.send(wire.ssl_request())
    assert client.read_bytes(1) == b"S"
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost",
                                        suppress_ragged_eofs=False)
    client.login()
    client.send(wire.terminate())
    assert client.socket.recv(100) == b""


def thread_names(howdah):
    """Of the process."""
    tasks = f"/proc/{howdah.child.pid}/task"
    return {open(f"{tasks}/{task}/comm").read().strip() for task in os.listdir(tasks)}


@pytest.mark.parametrize("kind, elsewhere", [("rsa", True), ("rsa4096", True), ("ecdsa", False)])
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_rsa_keys_sign_elsewhere(make_howdah, authority, kind, elsewhere, version):
    """On a thread of the worker's own. Who says more meanwhile, or leaves, is met as otherwise."""
    howdah = make_howdah(workers=2, **listener(authority.issue(kind=kind), authority))
    context = trusting(authority, version=version)
    hello = client_hello(context)
    problems = []

    def work():
        try:
            for _ in range(4):
                with howdah.connect(tls=context, seconds=60) as client:
                    assert client.value("select 'in'") == "in"
        except Exception as problem:  # noqa: BLE001 - told below
            problems.append(repr(problem))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for more in (b"", b"\x16\x03\x01\x00\x01\x00", bytes(30)) * 10:
        with howdah.raw() as stranger:
            stranger.send(wire.ssl_request())
            assert stranger.read_bytes(1) == b"S"
            stranger.send(hello + more)
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert ("handshakes" in thread_names(howdah)) == elsewhere
    howdah.wait_for_pool("postgres", "postgres", cl_active=0, sv_active=0)


def test_many_clients_at_once(shared_howdah, authority, site):
    """Handshakes beside each other, and what is sent in small pieces."""
    howdah = shared_howdah(workers=2, **listener(site, authority))
    problems = []

    def work(number):
        try:
            with howdah.connect(tls=trusting(authority), seconds=60) as client:
                for _ in range(20):
                    text = wire.query(f"select {number}, repeat('z', {number * 700})")
                    for at in range(0, len(text), 11):
                        client.send(text[at:at + 11])
                    row = next(got.row() for got in client.read_until("Z") if got.tag == "D")
                    assert row == [str(number).encode(), b"z" * (number * 700)]
        except Exception as problem:  # noqa: BLE001 - told below
            problems.append(repr(problem))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


# Servers ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tls_postgres(system_programs, scratch, authority, site):
    """A cluster with TLS."""
    from harness import postgres as pg

    cluster = pg.Postgres(system_programs, scratch, "tlspg")
    # A cluster that was used before is started again.
    cluster.sql("drop role if exists by_password, by_cert; "
                "create role by_password login password 'secret'; create role by_cert login")
    cluster.use_tls(site, authority.certificate, hba=[
        "hostssl all by_cert all cert", "host all by_password all scram-sha-256",
        "host all all all trust"])
    yield cluster
    cluster.stop()


IN_USE = "select ssl, version from pg_stat_ssl where pid = pg_backend_pid()"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_to_servers(shared_howdah, postgres, tls_postgres, authority, mode):
    """With a server that has TLS, and one that has none."""
    entry = "host={0.host} port={0.port} dbname=postgres".format
    by_name = f"host=localhost port={tls_postgres.port} dbname=postgres"
    howdah = shared_howdah(
        server_tls_sslmode=mode, server_tls_ca_file=authority.certificate,
        databases={"tls": by_name, "address": entry(tls_postgres), "clear": entry(postgres)})
    for database in ("tls", "address"):
        with howdah.connect(database=database) as client:
            in_use, version = client.rows(IN_USE)[0]
            assert in_use == ("f" if mode == "disable" else "t")
            if mode != "disable":
                shown = [row["tls"] for row in howdah.console("SHOW SERVERS")
                         if row["database"] == database]
                assert shown and all(text.startswith(version + "/") for text in shown)
    if mode in WITHOUT_TLS:
        with howdah.connect(database="clear") as client:
            assert client.value("select 1") == "1"
    else:
        with howdah.raw() as client:
            client.send(wire.startup("postgres", "clear"))
            howdah.wait_for_log("clear/postgres@.*closing because: server refused SSL")


def test_modes_by_database(make_howdah, postgres, tls_postgres, authority):
    """The nearer one counts."""
    at = f"host={tls_postgres.host} port={tls_postgres.port} dbname=postgres"
    howdah = make_howdah(server_tls_sslmode="require", databases={
        "as_globally": at, "none": f"{at} sslmode=disable", "full": f"{at} sslmode=verify-full"},
        server_tls_ca_file=authority.certificate)
    for database, in_use in (("as_globally", "t"), ("none", "f"), ("full", "t")):
        with howdah.connect(database=database) as client:
            assert client.rows(IN_USE)[0][0] == in_use


@pytest.mark.own
@pytest.mark.one_driver
def test_files_by_database(make_howdah, postgres, tls_postgres, authority, other_authority):
    """A database trusts its own authorities; a change of them replaces its servers."""
    at = f"host={tls_postgres.host} port={tls_postgres.port} dbname=postgres"
    trusted, strange = authority.certificate, other_authority.certificate
    howdah = make_howdah(server_tls_sslmode="verify-full", server_tls_ca_file=strange, databases={
        "usual": at, "own": f"{at} sslrootcert={trusted}", "changed": f"{at} sslrootcert={trusted}"})
    for database in ("own", "changed"):
        with howdah.connect(database=database) as client:
            assert client.rows(IN_USE)[0][0] == "t"
    with howdah.raw() as client:
        client.send(wire.startup("postgres", "usual"))
        howdah.wait_for_log("usual/postgres@.*TLS handshake failed")
    howdah.sections["databases"]["changed"] = f"{at} sslrootcert={strange}"
    howdah.write()
    mark = howdah.log_mark()
    howdah.reload()
    with howdah.raw() as client:
        client.send(wire.startup("postgres", "changed"))
        howdah.wait_for_log("changed/postgres@.*TLS handshake failed", since=mark)
    howdah.connect(database="own").close()
    howdah.sections["databases"]["changed"] = f"{at} sslcert={trusted}"
    howdah.write()
    with pytest.raises(wire.Refused):
        howdah.reload()
    howdah.wait_for_log("sslcert is set and sslkey is not", since=mark)


@pytest.mark.one_driver
@pytest.mark.parametrize("wrong", ["authority", "host", "expired"])
@pytest.mark.parametrize("mode", ["prefer", "require", "verify-ca", "verify-full"])
def test_wrong_certificates_of_servers(make_howdah, own_postgres, authority, other_authority, mode,
                                       wrong):
    """Each mode looks at what it says, and a failed handshake is never gone on from in clear."""
    certificate = authority.issue(days=-1) if wrong == "expired" else authority.issue()
    trusted = other_authority if wrong == "authority" else authority
    if wrong == "host":
        certificate = authority.issue(subject="/CN=elsewhere", names=("DNS:elsewhere",))
    own_postgres.use_tls(certificate)
    fine = not mode.startswith("verify") or (wrong == "host" and mode == "verify-ca")
    howdah = make_howdah(server_tls_sslmode=mode, server_tls_ca_file=trusted.certificate,
                         query_wait_timeout=30 if fine else 1, server_login_retry="0.2",
                         databases={"d": f"host=localhost port={own_postgres.port} "
                                         "dbname=postgres"})
    if fine:
        with howdah.connect(database="d") as client:
            assert client.rows(IN_USE)[0][0] == "t"
        return
    with pytest.raises((wire.Refused, wire.Ended)):
        howdah.connect(database="d")
    why = ("not present in server certificate|certificate verify failed" if wrong == "host"
           else "certificate verify failed")
    howdah.wait_for_log(f"TLS handshake failed: .*({why})")
    assert int(own_postgres.value("select count(*) from pg_stat_activity "
                                  "where backend_type = 'client backend'")) == 1


def test_the_systems_authorities(make_howdah, tls_postgres, authority, other_authority, monkeypatch):
    """Without server_tls_ca_file they count, from where the library looks for them."""
    at = f"host=localhost port={tls_postgres.port} dbname=postgres"
    for trusted, known in ((authority, True), (other_authority, False)):
        monkeypatch.setenv("SSL_CERT_FILE", trusted.certificate)
        howdah = make_howdah(server_tls_sslmode="verify-full",
                             query_wait_timeout=30 if known else 2, databases={"d": at})
        if known:
            with howdah.connect(database="d") as client:
                assert client.rows(IN_USE)[0][0] == "t"
        else:
            with pytest.raises(wire.Refused) as refused:
                howdah.connect(database="d")
            assert "certificate verify failed" in refused.value.fields["D"]


def test_servers_behind_unix_sockets(make_howdah, tls_postgres):
    """There is no TLS, whatever the mode, as with libpq."""
    howdah = make_howdah(server_tls_sslmode="verify-full", databases={
        "d": f"host={tls_postgres.socket_folder} port={tls_postgres.port} dbname=postgres"})
    with howdah.connect(database="d") as client:
        assert client.rows(IN_USE)[0][0] == "f"


def test_our_certificate(make_howdah, tls_postgres, authority):
    """PostgreSQL's method cert, with our certificate."""
    own = authority.client("by_cert")
    at = f"host={tls_postgres.host} port={tls_postgres.port} dbname=postgres user=by_cert"
    howdah = make_howdah(server_tls_sslmode="verify-full", server_tls_key_file=own.key,
                         server_tls_cert_file=own.chain, databases={"d": at},
                         server_tls_ca_file=authority.certificate)
    with howdah.connect(database="d") as client:
        assert client.value("select current_user") == "by_cert"


def test_channel_binding_to_servers(make_howdah, tls_postgres, authority):
    """It is bound where PostgreSQL offers that, unless told otherwise."""
    at = (f"host={tls_postgres.host} port={tls_postgres.port} dbname=postgres user=by_password "
          "password=secret")
    howdah = make_howdah(server_tls_sslmode="require", databases={
        "must": f"{at} channel_binding=require", "may": at,
        "not": f"{at} channel_binding=disable",
        "clear": f"{at} channel_binding=require sslmode=disable"})
    for database in ("must", "may", "not"):
        with howdah.connect(database=database) as client:
            assert client.value("select current_user") == "by_password"
    assert refusal(howdah, database="clear") == (
        "08P01", "server login failed: channel binding is required")


@pytest.mark.parametrize("offered, setting, header", [
    (b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0", "prefer", b"SCRAM-SHA-256-PLUS\0"),
    (b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0", "disable", b"SCRAM-SHA-256\0"),
    (b"SCRAM-SHA-256\0\0", "prefer", b"SCRAM-SHA-256\0"),
])
def test_what_we_say_of_the_binding(make_howdah, authority, site, offered, setting, header):
    """PLUS where it is offered; else `y`, so that PostgreSQL finds out who took the offer away."""
    said = []
    flag = {b"SCRAM-SHA-256-PLUS\0": b"p=tls-server-end-point,,"}.get(
        header, b"n,," if setting == "disable" else b"y,,")

    def script(peer):
        secure(peer, site)
        peer.startup()
        peer.send(wire.message("R", struct.pack("!i", 10) + offered))
        said.append(peer.read().body)

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="require", databases={
            "d": f"host={server.host} port={server.port} user=x password=secret "
                 f"channel_binding={setting}"})
        with howdah.raw() as client:
            client.send(wire.startup("postgres", "d"))
            machine.wait_until(lambda: said, "the server to be told")
    assert said[0].startswith(header + said[0][len(header):][:4] + flag), said


def secure(peer, certificate, extra=b""):
    """The server's side of an SSLRequest and the handshake behind it."""
    packet = peer._exactly(8)
    assert packet == wire.ssl_request(), packet
    peer.send(b"S" + extra)
    if not extra:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate.chain, certificate.key)
        peer.socket = context.wrap_socket(peer.socket, server_side=True)


def test_smuggled_bytes_of_servers(make_howdah, site):
    """What comes behind a server's S, before the handshake, was put there by somebody in between
    and is never taken for PostgreSQL's."""
    said = []

    def script(peer):
        secure(peer, site, extra=welcome())
        said.append(until_closed(peer.socket))

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="require", query_wait_timeout="1",
                             databases={"d": f"host={server.host} port={server.port}"})
        with pytest.raises((wire.Refused, wire.Ended)):
            howdah.connect(database="d")
        howdah.wait_for_log("received unencrypted data after SSL response")
    assert b"user" not in said[0], said


@pytest.mark.parametrize("answer", [b"N", b"E", b"x", b""])
def test_answers_to_our_sslrequest(make_howdah, answer):
    """Only `N` is gone on from in clear text, and only where that is allowed."""
    said = []

    def script(peer):
        assert peer._exactly(8) == wire.ssl_request()
        peer.send(answer)
        if answer == b"N":
            peer.startup()
            peer.send(welcome())
            said.append("welcome")
            while peer.read().tag != "X":
                pass

    with ScriptedServer(script) as server:
        at = f"host={server.host} port={server.port}"
        howdah = make_howdah(server_tls_sslmode="prefer", query_wait_timeout="1",
                             databases={"may": at, "must": f"{at} sslmode=require"})
        with pytest.raises((wire.Refused, wire.Ended)):
            howdah.connect(database="must")
        assert not said
        if answer == b"N":
            howdah.console("SET query_wait_timeout = 30")
            howdah.connect(database="may").close()
        else:
            with pytest.raises((wire.Refused, wire.Ended)):
                howdah.connect(database="may")


@pytest.mark.parametrize("alpn", ["postgresql", None])
def test_direct_tls_to_servers(make_howdah, authority, site, alpn):
    """sslnegotiation=direct: the handshake is the first that is said, and the server must know
    what is spoken behind it."""
    agreed = []

    def script(peer):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(site.chain, site.key)
        if alpn:
            context.set_alpn_protocols([alpn])
        peer.socket = context.wrap_socket(peer.socket, server_side=True)
        agreed.append(peer.socket.selected_alpn_protocol())
        peer.startup()
        peer.send(welcome())
        while peer.read().tag != "X":
            pass

    with ScriptedServer(script) as server:
        howdah = make_howdah(
            server_tls_sslmode="verify-full", server_tls_ca_file=authority.certificate,
            query_wait_timeout=30 if alpn else 1, databases={
                "d": f"host=localhost port={server.port} sslnegotiation=direct"})
        if alpn:
            howdah.connect(database="d").close()
            assert agreed == [alpn]
        else:
            with pytest.raises((wire.Refused, wire.Ended)):
                howdah.connect(database="d")
            howdah.wait_for_log("without ALPN")


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_of_servers(make_howdah, postgres, what):
    """In place of a handshake: the login is refused with PostgreSQL's class of errors for that, and
    other databases are served."""
    def script(peer):
        assert peer._exactly(8) == wire.ssl_request()
        peer.send(b"S")
        # Behind our hello: what comes before that was smuggled.
        peer._exactly(5)
        try:
            peer.send(GARBAGE[what])
            peer.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        until_closed(peer.socket)

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="prefer", query_wait_timeout="1", databases={
            "d": f"host={server.host} port={server.port}",
            "other": f"host={postgres.host} port={postgres.port} dbname=postgres"})
        with howdah.connect(database="other") as other:
            # Who comes first waits as long as may be, and is told why in the end.
            with pytest.raises(wire.Refused) as refused:
                howdah.connect(database="d")
            detail = refused.value.fields["D"]
            why = re.search("TLS handshake failed: .|server conn crashed[?] .*closed", detail)
            assert why, detail
            # Who comes soon after a failed login is told at once. On a busy machine it may be later.
            def told_at_once():
                code, text = refusal(howdah, database="d")
                return code == "08006" and why.group() in text
            machine.wait_until(told_at_once, "the reason at once")
            assert other.value("select 1") == "1"


@pytest.mark.parametrize("how", ["cut off", "reset", "close_notify", "garbage", "a record too long"])
def test_servers_that_end(make_howdah, site, how):
    """In the middle of an answer: the client is told, whichever way it was, and takes nothing for
    whole."""
    def script(peer):
        secure(peer, site)
        peer.startup()
        peer.send(welcome())
        peer.read_query()
        whole = answer("half")
        peer.send(whole[:whole.index(b"C\0\0\0\x0d")])
        bare = socket.socket(fileno=os.dup(peer.socket.fileno()))
        with bare:
            if how == "close_notify":
                peer.socket.unwrap()
            elif how == "garbage":
                bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
                until_closed(bare)
            elif how == "a record too long":
                bare.sendall(b"\x17\x03\x03\xff\xff" + bytes(70000))
                until_closed(bare)
            elif how == "reset":
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.close()

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="require",
                             databases={"d": f"host={server.host} port={server.port}"})
        with howdah.connect(database="d") as client:
            client.send(wire.query("x"))
            got = client.read_to_end()
        assert not [message for message in got if message.tag == "C"], got
        assert got[-1].tag == "E" and got[-1].fields()["C"] == "08006", got
        if how in ("garbage", "a record too long"):
            howdah.wait_for_log("server TLS error")


@pytest.mark.parametrize("stage", ["request", "hello", "flight"])
def test_servers_that_stall(make_howdah, site, stage):
    """server_connect_timeout holds for the handshake as well."""
    def script(peer):
        peer._exactly(8)
        if stage != "request":
            peer.send(b"S")
        if stage == "flight":
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(site.chain, site.key)
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            while not outgoing.pending:
                incoming.write(peer.socket.recv(65536))
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    pass
            flight = outgoing.read()
            peer.send(flight[:len(flight) // 2])
        until_closed(peer.socket)

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="require", server_connect_timeout="0.5",
                             query_wait_timeout="2",
                             databases={"d": f"host={server.host} port={server.port}"})
        with pytest.raises((wire.Refused, wire.Ended)):
            howdah.connect(database="d")
        howdah.wait_for_log("closing because: connect timeout")


def test_cancels_to_servers(make_howdah, tls_postgres):
    """Our cancel requests use TLS where the session does: here nothing else is let in."""
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="require")
    with howdah.connect() as client:
        client.send(wire.query("select pg_sleep(30)"))
        tls_postgres.wait_for_sleepers()
        client.cancel()
        fields = [got.fields() for got in client.read_until("Z") if got.tag == "E"]
        assert [field["C"] for field in fields] == ["57014"]


def test_cancels_go_by_tls(make_howdah, site):
    """A carrier of a cancel asks for TLS first."""
    first = []

    def script(peer):
        first.append(peer._exactly(8))
        peer.send(b"S")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(site.chain, site.key)
        peer.socket = context.wrap_socket(peer.socket, server_side=True)
        peer.startup()  # ends for a cancel request
        peer.send(welcome())
        assert peer.read_query() == "hang"
        machine.wait_until(lambda: len(first) > 1, "the cancel")
        peer.send(wire.message("E", b"SERROR\0C57014\0Mcancelled\0\0"), wire.message("Z", b"I"))
        peer.read_query()

    with ScriptedServer(script) as server:
        howdah = make_howdah(server_tls_sslmode="require",
                             databases={"d": f"host={server.host} port={server.port}"})
        with howdah.connect(database="d") as client:
            client.send(wire.query("hang"))
            howdah.wait_for_pool("d", "postgres", sv_active=1)
            client.cancel()
            fields = [got.fields() for got in client.read_until("Z") if got.tag == "E"]
            assert [field["C"] for field in fields] == ["57014"]
    assert first == [wire.ssl_request()] * 2


def test_changed_settings_replace_servers(make_howdah, tls_postgres, authority):
    """Servers of before go as they come back; the client's session lives on."""
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="disable")
    with howdah.connect() as client:
        assert client.rows(IN_USE)[0][0] == "f"
        pid = client.value("select pg_backend_pid()")
        howdah.console("SET server_tls_sslmode = require")
        machine.wait_until(lambda: client.rows(IN_USE)[0][0] == "t", "a server with TLS")
        assert client.value("select pg_backend_pid()") != pid
        kept = client.value("select pg_backend_pid()")
        howdah.console("SET server_tls_sslmode = require")
        howdah.write(server_tls_sslmode="require")
        howdah.reload()
        assert client.value("select pg_backend_pid()") == kept


def test_changed_files_replace_servers(make_howdah, tls_postgres, scratch, authority):
    """So does another text in a file that servers are verified by, under the same name."""
    trusted = os.path.join(machine.folder(scratch, "trusted"), "authorities.pem")
    with open(authority.certificate, encoding="ascii") as own:
        text = own.read()
    with open(trusted, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(trusted, 0o644)
    howdah = make_howdah(postgres=tls_postgres, server_tls_sslmode="verify-ca",
                         server_tls_ca_file=trusted)
    with howdah.connect() as client:
        pid = client.value("select pg_backend_pid()")
        howdah.reload()
        assert client.value("select pg_backend_pid()") == pid
        with open(trusted, "a", encoding="ascii") as file:
            file.write(text)
        howdah.reload()
        machine.wait_until(lambda: client.value("select pg_backend_pid()") != pid,
                           "another server")


# Both -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("workers", [1, 2])
def test_tls_on_both_sides(make_howdah, tls_postgres, authority, site, workers):
    """Pipelines, COPY and large values, lent from worker to worker."""
    howdah = make_howdah(postgres=tls_postgres, workers=workers, default_pool_size="3",
                         server_tls_sslmode="verify-full",
                         server_tls_ca_file=authority.certificate, **listener(site, authority))
    problems = []

    def work(number):
        try:
            where = (f"host=localhost hostaddr={howdah.host} port={howdah.port} user=postgres "
                     f"dbname=postgres sslmode=verify-full sslrootcert={authority.certificate}")
            with psycopg.connect(where, autocommit=True) as connection:
                with connection.pipeline():
                    cursors = [connection.execute("select %s::int + 1", [n]) for n in range(50)]
                    assert [c.fetchone()[0] for c in cursors] == list(range(1, 51))
                big = "ä" * (200_000 + number)
                assert connection.execute("select %s", [big]).fetchone() == (big,)
                cursor = connection.cursor()
                with cursor.copy("copy (select g, repeat('c', 100) from "
                                 "generate_series(1, 20000) g) to stdout") as copy:
                    assert sum(len(data) for data in copy) > 2_000_000
        except Exception as problem:  # noqa: BLE001 - told below
            problems.append(repr(problem))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_load(make_howdah, tls_postgres, authority, site):
    """Every reply of forty clients over TLS is what PostgreSQL gives: errors, COPY, portals, large
    values, cancels, clients that leave in the middle."""
    howdah = make_howdah(postgres=tls_postgres, workers=2, max_client_conn="200",
                         default_pool_size="6", pin_limit="6", server_tls_sslmode="require",
                         **listener(site, authority))
    load = Load(howdah.address, (tls_postgres.host, tls_postgres.port), clients=40, seconds=5,
                tls=True)
    sums = load.result()
    assert sums["unexpected"] == 0 and sums["clean"], sums["said"]
