"""Clients of other hands: OpenSSL's s_client and GnuTLS's gnutls-cli in their options, with every kind
of key and certificate, chains, renegotiation, and sessions that are resumed."""

import os

import pytest

from harness import certificates, machine
from harness.certificates import listener
from harness.tls_clients import GnuTls, OpenSsl

pytestmark = pytest.mark.timeout(90)

CLIENTS = {"openssl": OpenSsl, "gnutls": GnuTls}
# Each library's word for a version alone, and for one cipher in it.
ONLY = {
    "openssl": {"1.2": ["-tls1_2"], "1.3": ["-tls1_3"]},
    "gnutls": {version: [f"--priority=NORMAL:-VERS-ALL:+VERS-TLS{version}"]
               for version in ("1.2", "1.3")},
}


@pytest.fixture(params=CLIENTS)
def library(request):
    """Each of the two."""
    return request.param


@pytest.fixture(scope="module")
def site(authority):
    """The certificate of a listener for localhost."""
    return authority.issue()


@pytest.fixture
def howdah(shared_howdah, authority, site):
    """Whose clients have TLS."""
    return shared_howdah(**listener(site, authority))


def converses(client, howdah):
    """Logs in, asks for much and for little, and goes as it came."""
    client.shake_hands().login()
    client.ask("select 'short ' || 6 * 7")
    assert b"short 42" in client.seen, client.text()
    before = client.seen.count(b"k")
    client.ask("select repeat('k', 100000)")
    assert client.seen.count(b"k") - before >= 100_000
    client.leave()
    howdah.wait_for_pool("postgres", "postgres", cl_active=0, sv_active=0)


# Options ----------------------------------------------------------------------------------------

ECDSA_CBC = "ECDHE-ECDSA-AES128-SHA"
# Options, and what the client is to say of the session.
OPENSSL = {
    "1.2": (["-tls1_2"], b"Protocol  : TLSv1.2"),
    "1.3": (["-tls1_3"], b"New, TLSv1.3"),
    "two protocols": (["-alpn", "http/1.1,postgresql"], b"ALPN protocol: postgresql"),
    "no ticket": (["-no_ticket", "-tls1_2"], b"Verify return code: 0"),
    "no ticket 1.3": (["-no_ticket", "-tls1_3"], b"Verify return code: 0"),
    "cipher": (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
               b"Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"),
    "cbc": (["-tls1_2", "-cipher", ECDSA_CBC], f"Cipher is {ECDSA_CBC}".encode()),
    "mac before": (["-tls1_2", "-cipher", ECDSA_CBC, "-no_etm"],
                   f"Cipher is {ECDSA_CBC}".encode()),
    "suite": (["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
              b"Cipher is TLS_CHACHA20_POLY1305_SHA256"),
    "curve": (["-curves", "P-384"], b"384"),
    "hello again": (["-tls1_3", "-curves", "X448:P-521:P-256"], b"New, TLSv1.3"),
    "signatures": (["-sigalgs", "ECDSA+SHA256"], b"Peer signing digest: SHA256"),
    "bugs": (["-bugs"], b"Verify return code: 0"),
    "no name": (["-noservername"], b"Verify return code: 0"),
    "small records": (["-max_send_frag", "512", "-split_send_frag", "512"],
                      b"Verify return code: 0"),
    "small records asked for": (["-maxfraglen", "512"], b"Verify return code: 0"),
    "status": (["-status"], b"OCSP response: no response sent"),
    "compression": (["-comp"], b"Compression: NONE"),
    "asked later": (["-enable_pha"], b"Verify return code: 0"),
    "old renegotiation": (["-legacy_renegotiation", "-tls1_2"],
                          b"Secure Renegotiation IS supported"),
    "protocols": (["-nextprotoneg", "postgresql", "-tls1_2"], b"Verify return code: 0"),
}


@pytest.mark.parametrize("name", OPENSSL)
def test_openssls_options(howdah, authority, name):
    """Behind an SSLRequest."""
    options, said = OPENSSL[name]
    with OpenSsl(howdah, authority, *options) as client:
        converses(client, howdah)
        assert said in client.seen, client.text()


GNUTLS_CBC = "--priority=NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-CBC"
GNUTLS = {
    "1.2": (ONLY["gnutls"]["1.2"], b"(TLS1.2"),
    "1.3": (ONLY["gnutls"]["1.3"], b"(TLS1.3"),
    "no ticket": (["--noticket", *ONLY["gnutls"]["1.2"]], b"(TLS1.2"),
    "cipher": (["--priority=NORMAL:-CIPHER-ALL:+CHACHA20-POLY1305"], b"(CHACHA20-POLY1305)"),
    "cbc": ([GNUTLS_CBC], b"AES-128-CBC"),
    "mac before": ([GNUTLS_CBC + ":%NO_ETM"], b"AES-128-CBC"),
    "group": (["--priority=NORMAL:-GROUP-ALL:+GROUP-SECP384R1"], b"SECP384R1"),
    "hello again": (["--single-key-share",
                     "--priority=NORMAL:-GROUP-ALL:+GROUP-FFDHE2048:+GROUP-SECP256R1"],
                    b"SECP256R1"),
    "record size": (["--recordsize=512"], b"Handshake was completed"),
    "heartbeat": (["--heartbeat"], b"Handshake was completed"),
    "compatible": (["--priority=NORMAL:%COMPAT"], b"Handshake was completed"),
    "no session hash": (["--priority=NORMAL:-VERS-TLS1.3:%NO_SESSION_HASH"],
                        b"Handshake was completed"),
}


@pytest.mark.parametrize("name", GNUTLS)
def test_gnutls_options(howdah, authority, name):
    """Behind an SSLRequest."""
    options, said = GNUTLS[name]
    with GnuTls(howdah, authority, *options) as client:
        converses(client, howdah)
        assert said in client.seen, client.text()


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_direct(howdah, authority, library, version):
    """TLS at once, with our protocol."""
    with CLIENTS[library](howdah, authority, *ONLY[library][version], direct=True) as client:
        converses(client, howdah)


REFUSED = {
    "another protocol": (OpenSsl, ["-alpn", "http/1.1"], False),
    "another protocol, direct": (OpenSsl, ["-alpn", "http/1.1"], True),
    "an old version": (OpenSsl, ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], False),
    "a fallback that need not be": (OpenSsl, ["-tls1_2", "-fallback_scsv"], False),
    "no cipher in common": (OpenSsl, ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], False),
    "no group in common": (OpenSsl, ["-tls1_2", "-curves", "brainpoolP256r1"], False),
    "no signature in common": (OpenSsl, ["-tls1_2", "-sigalgs", "RSA+SHA256"], False),
    "gnutls, another protocol": (GnuTls, ["--alpn=http/1.1"], False),
    "gnutls, an old version": (GnuTls, ["--priority=LEGACY:-VERS-ALL:+VERS-TLS1.1"], False),
    "gnutls, no cipher in common": (
        GnuTls, ["--priority=NORMAL:-CIPHER-ALL:+CAMELLIA-256-GCM:-VERS-TLS1.3"], False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(howdah, authority, name):
    """Client and log are told, and nobody else minds."""
    kind, options, direct = REFUSED[name]
    mark = howdah.log_mark()
    with OpenSsl(howdah, authority) as other:
        other.shake_hands().login()
        with kind(howdah, authority, *options, direct=direct) as client:
            # As the last one counts, another protocol takes ours' place.
            assert client.to_end() != 0
            assert b"lert" in client.seen, client.text()
        howdah.wait_for_log("TLS handshake failed", since=mark)
        other.ask("select 'not disturbed'")
        assert b"not disturbed" in other.seen


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_on_demand(shared_howdah, authority, site, version):
    """TLS 1.0 and 1.1 are spoken where the settings name them, and only there."""
    howdah = shared_howdah(**listener(site, authority, client_tls_protocols="all",
                                      client_tls_ciphers="DEFAULT@SECLEVEL=0"))
    with OpenSsl(howdah, authority, version, "-cipher", "DEFAULT@SECLEVEL=0") as client:
        converses(client, howdah)


def test_no_renegotiation(howdah, authority):
    """Nobody may shake hands anew; others are not disturbed."""
    with OpenSsl(howdah, authority) as other:
        other.shake_hands().login()
        with OpenSsl(howdah, authority, "-tls1_2") as client:
            client.shake_hands().login()
            client.say(b"R\n")
            client.to_end()
            said = bytes(client.seen).split(b"RENEGOTIATING")[1].lower()
            assert b"no renegotiation" in said, client.text()
        with GnuTls(howdah, authority, "--rehandshake", *ONLY["gnutls"]["1.2"]) as client:
            assert client.to_end() != 0
            assert b"ReHandshake was completed" not in client.seen, client.text()
        other.ask("select 'not disturbed'")
        assert b"not disturbed" in other.seen
    howdah.wait_for_pool("postgres", "postgres", cl_active=0, sv_active=0)


@pytest.mark.parametrize("both", [True, False])
def test_keys_are_updated(howdah, authority, both):
    """Again and again, between queries."""
    with OpenSsl(howdah, authority, "-tls1_3") as client:
        client.shake_hands().login()
        for turn in range(20):
            client.update(both)
            client.ask(f"select 'turn {turn}' || repeat('k', 50000)")
            assert f"turn {turn}".encode() in client.seen


# Sessions that are resumed ----------------------------------------------------------------------

@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_openssl_resumes(howdah, authority, scratch, version):
    """A session kept in a file; early data is not offered."""
    path = os.path.join(machine.folder(scratch, "session"), "session")
    only = ONLY["openssl"][version]
    with OpenSsl(howdah, authority, *only, "-sess_out", path) as client:
        converses(client, howdah)
    early = ["-early_data", path] if version == "1.3" else []
    with OpenSsl(howdah, authority, *only, "-sess_in", path, *early) as client:
        converses(client, howdah)
        assert f"Reused, TLSv{version}".encode() in client.seen, client.text()
        assert not early or b"Early data was not sent" in client.seen


def test_openssl_reconnects(howdah, authority):
    """Five times, each time with the session of before."""
    with OpenSsl(howdah, authority, "-tls1_2", "-reconnect", direct=True) as client:
        client.until(b"Reused, TLSv1.2", times=5)


def test_gnutls_resumes(howdah, authority):
    """Its second connection is the one that goes on. (By TLS 1.3 it waits for a ticket before it says
    anything, and AWS-LC sends that with its first words.)"""
    with GnuTls(howdah, authority, *ONLY["gnutls"]["1.2"], "--resume") as client:
        converses(client, howdah)
        assert b"*** This is a resumed session" in client.seen, client.text()


# Keys, certificates and chains ------------------------------------------------------------------

KINDS = {
    "rsa": {"kind": "rsa"}, "ecdsa": {}, "ed25519": {"kind": "ed25519"},
    "pkcs1": {"kind": "rsa", "pkcs1": True}, "sec1": {"pkcs1": True},
    "v1 rsa": {"version": 1, "names": (), "kind": "rsa"}, "v1 ecdsa": {"version": 1, "names": ()},
}


@pytest.mark.one_driver
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_certificates(make_howdah, authority, library, kind, version):
    """Ours, verified with the host's name."""
    howdah = make_howdah(**listener(authority.issue(**KINDS[kind]), authority))
    with CLIENTS[library](howdah, authority, *ONLY[library][version]) as client:
        converses(client, howdah)


def shows(library, certificate):
    """Options to show a client's certificate, with the chain behind it."""
    if library == "gnutls":
        return [f"--x509certfile={certificate.chain}", f"--x509keyfile={certificate.key}"]
    return ["-cert", certificate.chain, "-cert_chain", certificate.chain, "-key", certificate.key]


def by_certificate(make_howdah, authority, site):
    """A Howdah whose clients log in by certificate."""
    return make_howdah(read_driver=False, secrets={"scram_user": "secret"},
                       **listener(site, authority, "verify-full", auth_type="cert"))


@pytest.mark.one_driver
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_kinds_of_clients_certificates(make_howdah, authority, site, library, version):
    """Clients', as a login."""
    howdah = by_certificate(make_howdah, authority, site)
    for kind in KINDS.values():
        own = authority.issue(**{**kind, "subject": "/CN=scram_user", "names": ()})
        with CLIENTS[library](howdah, authority, *ONLY[library][version],
                              *shows(library, own)) as client:
            client.shake_hands().login("scram_user")
            client.ask("select 'I am ' || current_user")
            assert b"I am scram_user" in client.seen


@pytest.fixture(scope="module")
def far(authority, scratch):
    """An authority five signatures away from the root: GnuTLS's client takes files of six certificates."""
    last = authority
    for number in range(5):
        last = certificates.Authority(scratch, f"far{number}", above=last,
                                      subject=f"/CN=Between {number}")
    return last


def cut(certificate):
    """The same without what is behind the certificate itself."""
    with open(certificate.chain) as file:
        end = "-----END CERTIFICATE-----\n"
        first = file.read().split(end)[0] + end
    path = certificate.chain + ".cut"
    with open(path, "w") as file:
        file.write(first)
    return certificates.Certificate(certificate.key, machine.hand_over(path))


def test_long_chains(make_howdah, authority, far, library):
    """Of six certificates and a root, on both sides."""
    howdah = by_certificate(make_howdah, authority, far.issue())
    with CLIENTS[library](howdah, authority,
                          *shows(library, far.client("scram_user"))) as client:
        client.shake_hands().login("scram_user")


def test_chains_that_are_cut(make_howdah, authority, far, library):
    """Whoever misses a certificate refuses, and the log says so; nobody else minds."""
    howdah = make_howdah(**listener(cut(far.issue()), authority))
    with CLIENTS[library](howdah, authority) as client:
        assert client.to_end() != 0
    howdah.wait_for_log("TLS handshake failed|TLS error")
    howdah = by_certificate(make_howdah, authority, far.issue())
    own = far.client("scram_user")
    with CLIENTS[library](howdah, authority, *shows(library, own)) as other:
        other.shake_hands().login("scram_user")
        with CLIENTS[library](howdah, authority, *shows(library, cut(own))) as client:
            client.to_end()
            assert b"lert" in client.seen, client.text()
        howdah.wait_for_log("certificate verify failed: unable to get local issuer certificate")
        other.ask("select 'not disturbed'")
        assert b"not disturbed" in other.seen
