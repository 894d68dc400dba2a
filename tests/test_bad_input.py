"""What bad input gets: one clear error to the client, one line in the log, and nobody else notices.

The tables below are the agreement: text (a regular expression), SQLSTATE and log line of each.
PgBouncer's text where it has one; its SQLSTATE is nearly always 08P01, ours is PostgreSQL's own
where PostgreSQL has one for the case.
"""

import os
import re
import socket
import struct
import subprocess
from typing import Callable, NamedTuple

import pytest

from harness import machine, scripted, wire
from harness.wire import message, query, startup, untagged

pytestmark = pytest.mark.timeout(60)


class Bad(NamedTuple):
    """A row: what is done, and what it gets. text None: there is nobody to tell."""

    act: Callable
    text: str | None
    code: str | None
    log: str | None = None  # default: "closing because: " and the text
    settings: dict = {}
    severity: str = "FATAL"


def logged(text):
    """The log's text where PgBouncer's differs from what a client is told, which is PostgreSQL's."""
    for told, said in (("password authentication failed for user .*",
                        "(password|SASL) authentication failed"),
                       (r'role "nobody" does not exist', '"trust" authentication failed'),
                       (r'database "nowhere" does not exist', "no such database: nowhere"),
                       (r'permission denied for database "pgbouncer"', "not allowed")):
        text = text.replace(told, said)
    return text


LISTED = {
    "pool_mode": "transaction",
    "default_pool_size": 2,
    "client_login_timeout": 2,
    "databases": {},  # filled by `options`
}


def options(row, postgres):
    """The settings of the Howdah that a row needs."""
    target = f"host={postgres.host} port={postgres.port}"
    databases = {"postgres": target, "missing_there": f"{target} dbname=nowhere",
                 "forced": f"{target} dbname=postgres user=plain_user password=wrong",
                 "no_role": f"{target} dbname=postgres user=no_such_role"}
    secrets = {"postgres": "secret", "no_role": "x", "plain": "secret",
               "hashed": wire.md5_secret("hashed", "secret"),
               "salted": wire.scram_secret("secret", salt=b"0123456789abcdef")}
    return {**LISTED, "databases": databases, "secrets": secrets, **row.settings}


# Ways to act ------------------------------------------------------------------------------------

def first(*parts):
    """Sends these as the first bytes of a connection."""
    def act(howdah):
        with howdah.raw() as client:
            client.send(*parts)
            return client.read_to_end()
    return act


def then_leaves(*parts):
    """Sends these as the first bytes and closes its sending side."""
    def act(howdah):
        with howdah.raw() as client:
            client.send(*parts)
            client.socket.shutdown(socket.SHUT_WR)
            return client.read_to_end()
    return act


def after_n(*parts):
    """Sends an encryption request, takes the N, and sends the rest."""
    def act(howdah):
        with howdah.raw() as client:
            client.send(wire.ssl_request())
            assert client.read_bytes(1) == b"N"
            client.send(*parts)
            return client.read_to_end()
    return act


def session(*parts, user="postgres"):
    """Logs in, sends these, reads what comes up to the end."""
    def act(howdah):
        with howdah.connect(user=user, password="secret") as client:
            client.send(*parts)
            return client.read_to_end()
    return act


def session_leaves(*parts):
    """Logs in, sends these, and is gone."""
    def act(howdah):
        with howdah.connect() as client:
            client.send(*parts)
            client.socket.shutdown(socket.SHUT_WR)
            return client.read_to_end()
    return act


def login(user="postgres", database="postgres", password="secret", **keys):
    """A well-formed login which is to be refused."""
    def act(howdah):
        with howdah.raw() as client:
            with pytest.raises(wire.Refused) as refused:
                client.login(user, database, password, **keys)
            fields = refused.value.fields
            body = b"".join(k.encode() + v.encode() + b"\0" for k, v in fields.items()) + b"\0"
            return [wire.Message("E", body)] + client.read_to_end()
    return act


def first_query(**keys):
    """A login whose parameters PostgreSQL is told with the first query."""
    def act(howdah):
        with howdah.connect(**keys) as client:
            client.send(wire.query("select 1"))
            return client.read_to_end()
    return act


def asked(*parts, user="postgres"):
    """Sends a startup packet, takes the request for a password, and answers with these."""
    def act(howdah):
        with howdah.raw() as client:
            client.send(startup(user, "postgres"))
            assert client.read().tag == "R"
            client.send(*parts)
            return client.read_to_end()
    return act


def scram_final(change, user="plain"):
    """A SCRAM login whose last message is changed."""
    def act(howdah):
        with howdah.raw() as client:
            client.send(startup(user, "postgres"))
            client.read()
            scram = wire.Scram("secret")
            client.send(scram.first())
            challenge = client.read().body[4:]
            client.send(message("p", change(scram.final(challenge)[5:])))
            return client.read_to_end()
    return act


def scram_first(data, mechanism="SCRAM-SHA-256"):
    """A SCRAM login whose first message is this."""
    return asked(message("p", wire.cstr(mechanism) + struct.pack("!i", len(data)) + data),
                 user="plain")


def cancels(pid, key):
    """A cancel request; nothing is ever said to it."""
    return first(wire.cancel_request(pid, key))


def cancels_another(howdah):
    """A cancel request with the right process id of another client and a wrong key."""
    with howdah.connect() as other, howdah.raw() as client:
        client.send(wire.cancel_request(other.pid, bytes(b ^ 255 for b in other.key)))
        found = client.read_to_end()
        assert other.value("select 'not cancelled'") == "not cancelled"
        return found


# The tables -------------------------------------------------------------------------------------

# PostgreSQL closes without a word, too.
LENGTH = r"closing because: invalid length of startup packet.*"
LAYOUT = r"invalid startup packet layout.*"
# Of a length that can't be PostgreSQL tells the client nothing once it is logged in.
LENGTH_LOG = r"closing because: invalid message length.*"
BODY_LENGTH = r"invalid message length.*|bad pkt header.*"
TAG = r"invalid frontend message type {}"
EOF_LOG = r"closing because: client unexpected eof"

STARTUP = {
    "length 0": Bad(first(struct.pack("!i", 0)), None, None, LENGTH),
    "length 4": Bad(first(struct.pack("!i", 4)), None, None, LENGTH),
    "length 7": Bad(first(struct.pack("!i", 7)), None, None, LENGTH),
    "length -1": Bad(first(struct.pack("!i", -1)), None, None, LENGTH),
    "length of 10 KB and more": Bad(first(struct.pack("!ii", 10_005, 196608)), None, None, LENGTH),
    "length of 2 GB": Bad(first(struct.pack("!ii", 2**31 - 1, 196608)), None, None, LENGTH),
    "a TLS ClientHello": Bad(first(bytes.fromhex("1603010200010001fc0303") + bytes(500)), None,
                             None, "closing because: the client begins with TLS"),
    "an SSH banner": Bad(first(b"SSH-2.0-OpenSSH_9.6\r\n"), None, None, LENGTH),
    "zero bytes": Bad(first(bytes(64)), None, None, LENGTH),
    "protocol 2": Bad(first(startup(protocol=2 << 16)), "old V2 protocol not supported", "0A000"),
    "protocol 1": Bad(first(startup(protocol=1 << 16)), "unsupported frontend protocol 1.0.*",
                      "0A000"),
    "protocol 4": Bad(first(startup(protocol=4 << 16)), "unsupported frontend protocol 4.0.*",
                      "0A000"),
    "protocol 0": Bad(first(untagged(struct.pack("!i", 0))), "unsupported frontend protocol 0.0.*",
                      "0A000"),
    "no parameters at all": Bad(first(untagged(struct.pack("!i", 196608))), LAYOUT, "08P01"),
    "no closing zero": Bad(first(untagged(struct.pack("!i", 196608) + b"user\0postgres\0")),
                           LAYOUT, "08P01"),
    "a key without a value": Bad(first(untagged(struct.pack("!i", 196608) + b"user\0")), LAYOUT,
                                 "08P01"),
    "text that does not end": Bad(first(untagged(struct.pack("!i", 196608) + b"user\0post")),
                                  LAYOUT, "08P01"),
    "bytes behind the closing zero": Bad(
        first(untagged(struct.pack("!i", 196608) + b"user\0postgres\0\0more")), LAYOUT, "08P01"),
    "no user": Bad(first(startup(user=None, database="postgres")),
                   "no PostgreSQL user name specified in startup packet", "28000"),
    "an empty user": Bad(first(startup(user="", database="postgres")),
                         "no PostgreSQL user name specified in startup packet", "28000"),
    "a user name of 200 bytes": Bad(first(startup(user="u" * 200)), ".*user ?name too long", "08P01"),
    "a database name of 100 bytes": Bad(first(startup(database="d" * 100)),
                                        ".*database ?name too long", "08P01"),
    "a database name that is not UTF-8": Bad(
        first(untagged(struct.pack("!i", 196608) + b"user\0postgres\0database\0\xff\0\0")),
        'invalid byte sequence for encoding "UTF8" in the database name', "22021"),
    "a user name that is not UTF-8": Bad(
        first(untagged(struct.pack("!i", 196608) + b"user\0caf\xe9\0database\0postgres\0\0")),
        'invalid byte sequence for encoding "UTF8" in the user name', "22021"),
    "an unknown parameter": Bad(first_query(colour="red"),
                                'unrecognized configuration parameter "colour"', "42704",
                                "closing because: invalid server parameter"),
    "options of an unknown form": Bad(
        login(options="--what -B 5"),
        "unsupported options startup parameter: only '-c config=val' and '--config=val' are "
        "allowed", "08P01"),
    "an unknown setting in options": Bad(
        first_query(options="-c colour=red"),
        'unrecognized configuration parameter "colour"', "42704",
        "closing because: invalid server parameter"),
    "a bad replication value": Bad(login(replication="perhaps"),
                                   "invalid value for parameter \"replication\": .*", "08P01|22023"),
    "an SSLRequest with a body": Bad(first(untagged(struct.pack("!i", wire.SSL_CODE) + b"x")),
                                     LAYOUT, "08P01"),
    "a query behind an SSLRequest": Bad(first(wire.ssl_request(), startup()),
                                        "received unencrypted data after SSL request", "08P01"),
    "bytes behind a GSSENCRequest": Bad(
        first(wire.gssenc_request(), b"x"),
        "received unencrypted data after GSS.*request", "08P01"),
    "rubbish after N": Bad(after_n(b"rubbish!"), None, None, LENGTH),
    "a cancel request without a key": Bad(first(untagged(struct.pack("!ii", wire.CANCEL_CODE, 1))),
                                          LAYOUT, "08P01"),
    "a cancel request with a key of 300 bytes": Bad(cancels(1, bytes(300)), LAYOUT, "08P01"),
    "a cancel request of nobody": Bad(cancels(123456, b"keys"), None, None,
                                      "cancel request"),
    "a cancel request with a long key of nobody": Bad(cancels(1, b"k" * 32), None, None,
                                                      "cancel request"),
    "a cancel request with another's wrong key": Bad(cancels_another, None, None,
                                                     "cancel request"),
    "nothing, and silence": Bad(first(), "client_login_timeout", "57014",
                                settings={"tcp_defer_accept": 0}),
    "half a length, and silence": Bad(first(b"\0\0"), "client_login_timeout", "57014"),
    "half a startup packet, and silence": Bad(first(startup()[:20]), "client_login_timeout",
                                              "57014"),
    "half a startup packet, then gone": Bad(then_leaves(startup()[:20]), None, None, EOF_LOG),
    "an encryption request, and silence": Bad(after_n(), "client_login_timeout", "57014"),
    "an unknown database": Bad(login(database="nowhere"), 'database "nowhere" does not exist', "3D000"),
    "an unknown user": Bad(login(user="nobody"), 'role "nobody" does not exist', "28000"),
    "the console for everybody": Bad(login(database="pgbouncer", user="plain"),
                                     "permission denied for database \"pgbouncer\"", "42501"),
}

LIMITS = {
    "max_client_conn": Bad(
        login(), r"no more connections allowed \(max_client_conn\)", "53300",
        settings={"max_client_conn": 1}),
    "max_db_client_connections": Bad(
        login(), r"client connections exceeded \(max_db_client_connections\)", "53300",
        settings={"max_db_client_connections": 1}),
    "max_user_client_connections": Bad(
        login(), r"client connections exceeded \(max_user_client_connections\)", "53300",
        settings={"max_user_client_connections": 1}),
}

MD5 = {"auth_type": "md5"}
PLAIN = {"auth_type": "plain"}
SCRAM = {"auth_type": "scram-sha-256"}
PASSWORD = "password authentication failed for user .*"
SASL = "password authentication failed for user .*"
EXPECTED = ".*(expected password response|expected SASL response|before the end of the login).*"

PASSWORDS = {
    "md5, wrong, stored plain": Bad(login(user="plain", password="wrong"), PASSWORD, "28P01",
                                    settings=MD5),
    "md5, wrong, stored md5": Bad(login(user="hashed", password="wrong"), PASSWORD, "28P01",
                                  settings=MD5),
    "md5, wrong, stored SCRAM": Bad(login(user="salted", password="wrong"), SASL, "28P01",
                                    settings=MD5),
    "md5, empty": Bad(login(user="plain", password=""), PASSWORD, "28P01", settings=MD5),
    "md5, unknown user": Bad(login(user="nobody"), PASSWORD, "28P01", settings=MD5),
    "md5, the plain text sent": Bad(asked(wire.password_message("secret"), user="plain"), PASSWORD,
                                    "28P01", settings=MD5),
    "md5, rubbish": Bad(asked(message("p", b"\xff" * 50 + b"\0"), user="plain"), PASSWORD, "28P01",
                        settings=MD5),
    "plain, wrong": Bad(login(user="plain", password="wrong"), PASSWORD, "28P01", settings=PLAIN),
    "plain, wrong, stored md5": Bad(login(user="hashed", password="wrong"), PASSWORD, "28P01",
                                    settings=PLAIN),
    "plain, wrong, stored SCRAM": Bad(login(user="salted", password="wrong"), PASSWORD, "28P01",
                                      settings=PLAIN),
    "plain, unknown user": Bad(login(user="nobody"), PASSWORD, "28P01", settings=PLAIN),
    "plain, not ended by zero": Bad(asked(message("p", b"secret"), user="plain"),
                                    PASSWORD + "|invalid.*", "28P01|08P01", settings=PLAIN),
    "SCRAM, wrong, stored plain": Bad(login(user="plain", password="wrong"), SASL, "28P01",
                                      settings=SCRAM),
    "SCRAM, wrong, stored SCRAM": Bad(login(user="salted", password="wrong"), SASL, "28P01",
                                      settings=SCRAM),
    "SCRAM, stored md5": Bad(login(user="hashed"), SASL, "28P01", ".*(MD5|md5).*", settings=SCRAM),
    "SCRAM, unknown user": Bad(login(user="nobody"), SASL, "28P01", settings=SCRAM),
    "SCRAM, unknown user and database": Bad(login(user="nobody", database="nowhere"), SASL, "28P01",
                                            settings=SCRAM),
    "SCRAM, unknown mechanism": Bad(scram_first(b"n,,n=,r=abc", "SCRAM-MD5"),
                                    SASL + "|.*SASL.*mechanism.*", "28P01|08P01", settings=SCRAM),
    "SCRAM, rubbish": Bad(scram_first(b"\xff\xfe rubbish"), SASL + "|.*SCRAM.*", "28P01|08P01",
                          settings=SCRAM),
    "SCRAM, empty": Bad(scram_first(b""), SASL + "|.*SCRAM.*", "28P01|08P01", settings=SCRAM),
    "SCRAM, channel binding": Bad(scram_first(b"p=tls-server-end-point,,n=,r=abc"),
                                  SASL + "|malformed SCRAM message", "28P01|08P01", settings=SCRAM),
    "SCRAM, mandatory extension": Bad(scram_first(b"n,,m=x,n=,r=abc"), SASL + "|.*SCRAM.*",
                                      "28P01|08P01|0A000", settings=SCRAM),
    "SCRAM, a nonce of 60 KB": Bad(scram_first(b"n,,n=,r=" + b"r" * 60_000), SASL + "|.*",
                                   "28P01|08P01", settings=SCRAM),
    "SCRAM, a wrong length inside": Bad(
        asked(message("p", b"SCRAM-SHA-256\0" + struct.pack("!i", 2**31 - 1) + b"n,,"),
              user="plain"), SASL + "|.*", "28P01|08P01", settings=SCRAM),
    "SCRAM, another nonce": Bad(scram_final(lambda text: text.replace(b"r=", b"r=x")),
                                SASL + "|.*SCRAM.*", "28P01|08P01", settings=SCRAM),
    "SCRAM, a false proof": Bad(scram_final(lambda text: text[:-12] + b"AAAAAAAAAAA="), SASL,
                                "28P01", settings=SCRAM),
    "SCRAM, a proof too short": Bad(scram_final(lambda text: text.split(b",p=")[0] + b",p=AAAA"),
                                    SASL + "|.*SCRAM.*", "28P01|08P01", settings=SCRAM),
    "SCRAM, no proof": Bad(scram_final(lambda text: text.split(b",p=")[0]), SASL + "|.*SCRAM.*",
                           "28P01|08P01", settings=SCRAM),
    "a query in place of the password": Bad(asked(query("select 1")), EXPECTED, "08P01",
                                            settings=MD5),
    "an unknown message in place of the password": Bad(asked(message("!", b"x")),
                                                       EXPECTED + "|" + TAG.format(33), "08P01",
                                                       settings=SCRAM),
    "a password of 1 MB": Bad(asked(wire.password_message("x" * 1_000_000)), BODY_LENGTH,
                              "08P01", settings=PLAIN),
    "a password of a false length": Bad(asked(b"p" + struct.pack("!i", 3)), BODY_LENGTH, "08P01",
                                        settings=PLAIN),
    "half a password, and silence": Bad(asked(wire.password_message("secret")[:7]),
                                        "client_login_timeout", "57014", settings=MD5),
    "half a SCRAM login, and silence": Bad(
        scram_first(b"n,,n=,r=abcdefgh"), "client_login_timeout", "57014", settings=SCRAM),
    "unknown database with the right password": Bad(
        login(user="salted", database="nowhere"), 'database "nowhere" does not exist', "3D000",
        settings=SCRAM),
}


SESSION = {
    "unknown message": Bad(session(message("!", b"x")), TAG.format(33), "08P01"),
    "message of type zero": Bad(session(message("\0")), TAG.format(0), "08P01"),
    "a server's message": Bad(session(message("Z", b"I")), TAG.format(90), "08P01"),
    "a password after login": Bad(session(wire.password_message("x")), TAG.format(112), "08P01"),
    "a startup packet after login": Bad(session(startup()), TAG.format(0), "08P01"),
    "an HTTP request after login": Bad(session(b"GET / HTTP/1.1\r\n\r\n"), TAG.format(71), "08P01"),
    "length 0": Bad(session(b"Q" + struct.pack("!i", 0)), None, None, LENGTH_LOG),
    "length 3": Bad(session(b"Q" + struct.pack("!i", 3)), None, None, LENGTH_LOG),
    "length -1": Bad(session(b"Q" + struct.pack("!i", -1)), None, None, LENGTH_LOG),
    "a Sync of 20 KB": Bad(session(message("S", bytes(20_000))), None, None, LENGTH_LOG),
    "an Execute of 1 GB": Bad(session(b"E" + struct.pack("!i", 2**30)), None, None, LENGTH_LOG),
    "a Parse of 2 GB": Bad(session(b"P" + struct.pack("!i", 2**31 - 1)), None, None, LENGTH_LOG),
    "a query of 2 GB": Bad(session(b"Q" + struct.pack("!i", 2**31 - 1)), None, None, LENGTH_LOG),
    "a query above max_packet_size": Bad(
        session(query("select '" + "x" * 9000 + "'")), BODY_LENGTH + "|.*too large.*|.*packet.*",
        "08P01", settings={"max_packet_size": 5000}),
    "half a header, then gone": Bad(session_leaves(b"Q\0\0"), None, None, EOF_LOG),
    "half a query, then gone": Bad(session_leaves(query("select 1")[:8]), None, None, EOF_LOG),
    "half a large query, then gone": Bad(
        session_leaves(query("select '" + "x" * 900_000 + "'")[:500_000]), None, None, EOF_LOG),
    "half a pipeline, then gone": Bad(
        session_leaves(wire.parse("select 1"), wire.bind(), wire.execute()[:4]), None, None,
        EOF_LOG),
    "half a query, and silence": Bad(
        session(query("select 1")[:8]), "client_idle_timeout", "57P05",
        settings={"client_idle_timeout": 1}),
    "unknown message on the console": Bad(
        lambda howdah: console_bytes(howdah, message("!", b"x")),
        "unsupported packet type for admin console: 33", "08P01", severity="ERROR"),
    "a transaction block in statement mode": Bad(
        session(query("begin")), "transaction blocks not allowed in statement pooling mode",
        "0A000", settings={"pool_mode": "statement"}),
}


def console_bytes(howdah, *parts):
    """Sends bytes on the console and reads up to its end."""
    with howdah.connect(user="admin", database="pgbouncer", password="secret") as client:
        client.send(*parts)
        return client.read_to_end()


SERVERS = {
    "a database PostgreSQL does not know": Bad(
        login(database="missing_there"), 'database "nowhere" does not exist', "3D000",
        'server login failed: FATAL database "nowhere" does not exist'),
    "a role PostgreSQL does not know": Bad(
        login(database="no_role"), 'role "no_such_role" does not exist', "28000",
        'server login failed: FATAL role "no_such_role" does not exist'),
}

TABLE = {
    **{f"startup: {name}": row for name, row in STARTUP.items()},
    **{f"limit: {name}": row for name, row in LIMITS.items()},
    **{f"login: {name}": row for name, row in PASSWORDS.items()},
    **{f"session: {name}": row for name, row in SESSION.items()},
    **{f"server: {name}": row for name, row in SERVERS.items()},
}


def test_table_is_long():
    """As many rows as were promised."""
    assert len(TABLE) >= 60


@pytest.mark.parametrize("name", TABLE)
def test_bad_input(shared_howdah, postgres, name):
    """One error, one line in the log, and a second client that notices nothing."""
    row = TABLE[name]
    howdah = shared_howdah(**options(row, postgres))
    with howdah.connect(password="secret") as witness:
        statements = row.settings.get("pool_mode") != "statement"
        if statements:
            witness.rows("begin; set local application_name to 'witness'")
        mark = howdah.log_mark()
        messages = row.act(howdah)
        check_told(row, messages)
        log = row.log or f"closing because: ({logged(row.text)})"
        howdah.wait_for_log(log, since=mark)
        if statements:
            assert witness.value("show application_name") == "witness"
            witness.rows("commit")
        assert witness.value("select 'undisturbed'") == "undisturbed"
    # Once the witness has left, where a limit is in force.
    machine.wait_until(lambda: answers(howdah), "a newcomer to be served")


def check_told(row, messages):
    """The last words to the client: one FATAL with code and text, or nothing at all."""
    errors = [got.fields() for got in messages if got.tag == "E"]
    if row.text is None:
        assert errors == []
        return
    assert len(errors) == 1, messages
    error = errors[0]
    assert re.fullmatch(row.text, error["M"]), error
    assert error["C"] in row.code.split("|"), error
    assert error["S"] == error["V"] == row.severity, error
    assert messages[-1].tag == "E", messages


# PostgreSQL that is not there, or not itself ----------------------------------------------------

def hangs_up(peer):
    """Closes after the startup packet."""
    peer.startup()


def talks_rubbish(peer):
    """Answers the startup packet with something else."""
    peer.startup()
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    peer.read()


def asks_for_gss(peer):
    """Wants a login we have not."""
    peer.startup()
    peer.send(scripted.authentication(7))
    peer.read()


def refuses_without_code(peer):
    """Refuses the login with an error that has no SQLSTATE."""
    peer.startup()
    peer.send(scripted.error("FATAL", None, "go away"))


def refuses(peer):
    """Refuses the login."""
    peer.startup()
    peer.send(scripted.error("FATAL", "53300", "sorry, too many clients already"))


def bad_lengths(peer):
    """Sends a message of a false length."""
    peer.startup()
    peer.send(b"R" + struct.pack("!i", 2))
    peer.read()


def bad_scram(peer):
    """Offers mechanisms nobody knows."""
    peer.startup()
    peer.send(scripted.authentication(10, b"ROT13\0\0"))
    peer.read()


SERVER_LOGINS = {
    "hangs up": (hangs_up, ".*", "08006|57P03"),
    "talks rubbish": (talks_rubbish, ".*", "08006|08P01"),
    "asks for GSS": (asks_for_gss, ".*", "08006|08P01|28000|0A000"),
    "refuses without SQLSTATE": (refuses_without_code, ".*go away.*", "08P01|XX000"),
    "refuses": (refuses, ".*sorry, too many clients already.*", "53300"),
    "false length": (bad_lengths, ".*", "08006|08P01"),
    "unknown SASL": (bad_scram, ".*", "08006|08P01|28000|0A000"),
}


@pytest.mark.parametrize("name", SERVER_LOGINS)
def test_server_login_fails(make_howdah, postgres, name):
    """What a PostgreSQL that cannot be logged into gets a client, which need not wait long."""
    script, text, code = SERVER_LOGINS[name]
    with scripted.ScriptedServer(script) as broken:
        howdah = make_howdah(client_login_timeout=3, databases={
            "broken": f"host={broken.host} port={broken.port} user=postgres password=x",
            "postgres": f"host={postgres.host} port={postgres.port}"})
        with howdah.connect() as witness:
            mark = howdah.log_mark()
            messages = login(database="broken")(howdah)
            check_told(Bad(None, text, code), messages)
            howdah.wait_for_log(r"S-\S*: broken/postgres@\S+ .*(failed|closing because)", since=mark)
            assert witness.value("select 'undisturbed'") == "undisturbed"


def test_server_refuses_connections(make_howdah, postgres):
    """Nobody listens at the server's port."""
    port = machine.free_port()
    howdah = make_howdah(client_login_timeout=3, databases={
        "gone": f"host=127.0.0.1 port={port}",
        "postgres": f"host={postgres.host} port={postgres.port}"})
    with howdah.connect() as witness:
        messages = login(database="gone")(howdah)
        check_told(Bad(None, r".*(connect failed|server down).*", "08006|08P01|08001"), messages)
        howdah.wait_for_log("closing because: connect failed")
        assert witness.value("select 1") == "1"


def dies_in_query(peer):
    """Closes in the middle of a row."""
    peer.startup()
    peer.send(scripted.welcome())
    peer.read_query()
    peer.send(scripted.answer("half a row")[:60])


def dies_before_reply(peer):
    """Closes instead of answering a query."""
    peer.startup()
    peer.send(scripted.welcome())
    peer.read_query()


def rubbish_in_query(peer):
    """Answers a query with something that is no message."""
    peer.startup()
    peer.send(scripted.welcome())
    peer.read_query()
    peer.send(b"\x01\x02\x03\x04\x05\x06\x07\x08")
    peer.read()


def terminated(peer):
    """An administrator ends the session in the middle of a query."""
    peer.startup()
    peer.send(scripted.welcome())
    peer.read_query()
    peer.send(scripted.error("FATAL", "57P01",
                             "terminating connection due to administrator command"))


SERVER_FAULTS = {
    "dies before its reply": (dies_before_reply, "server conn crashed.*|server closed.*",
                              "08P01|08006"),
    "sends rubbish": (rubbish_in_query, ".*", "08P01|08006"),
    "is terminated": (terminated, "terminating connection due to administrator command", "57P01"),
}


@pytest.mark.parametrize("name", SERVER_FAULTS)
def test_server_fails_in_a_query(make_howdah, postgres, name):
    """A server that breaks while it works: its client is told, others are not."""
    script, text, code = SERVER_FAULTS[name]
    with scripted.ScriptedServer(script) as broken:
        howdah = make_howdah(databases={
            "broken": f"host={broken.host} port={broken.port}",
            "postgres": f"host={postgres.host} port={postgres.port}"})
        with howdah.connect() as witness, howdah.connect(database="broken") as client:
            client.send(query("select 1"))
            check_told(Bad(None, text, code), client.read_to_end())
            howdah.wait_for_log(r"S-\S*: broken/postgres@\S+ closing because")
            assert witness.value("select 1") == "1"


def test_server_dies_in_mid_message(make_howdah, postgres):
    """Half a message was passed on: nothing may be put behind it, so the client is just closed."""
    with scripted.ScriptedServer(dies_in_query) as broken:
        howdah = make_howdah(databases={"broken": f"host={broken.host} port={broken.port}"})
        with howdah.connect(database="broken") as client:
            client.send(query("select 1"))
            whole = scripted.answer("half a row")[:60]
            received = bytearray()
            try:
                while data := client.socket.recv(4096):
                    received += data
            except ConnectionResetError:
                pass
            # All of the half message, or nothing of it.
            messages, rest = wire.split_messages(bytes(received))
            if rest:
                assert whole.startswith(bytes(received))
            else:
                assert [got.tag for got in messages][:1] == ["T"]


def test_server_talks_while_idle(make_howdah):
    """A server that says something unasked is not given to the next client."""
    def script(peer):
        peer.startup()
        peer.send(scripted.welcome())
        peer.read_query()
        # The reply, and a second one that nobody asked for.
        peer.send(scripted.answer("right"), scripted.answer("stray"))
        peer.read_query()
        peer.send(scripted.answer("late"))

    with scripted.ScriptedServer(script) as server:
        howdah = make_howdah(default_pool_size=1, databases={
            "odd": f"host={server.host} port={server.port}"})
        with howdah.connect(database="odd") as client:
            assert client.value("select 1") == "right"
        howdah.wait_for_log(r"S-\S*: odd/postgres@\S+ closing because")
        with howdah.connect(database="odd") as client:
            assert client.value("select 1") == "right"


def test_full_descriptor_table(make_howdah, postgres):
    """When descriptors run out, those who are in work on, and newcomers come in afterwards."""
    howdah = make_howdah(files=64, max_client_conn=1000, tcp_defer_accept=0)
    with howdah.connect() as witness:
        assert witness.value("select 1") == "1"
        crowd = [howdah.raw() for _ in range(80)]
        howdah.wait_for_log("(?i)too many open files")
        assert witness.value("select 'undisturbed'") == "undisturbed"
        for client in crowd:
            client.close()
        machine.wait_until(lambda: answers(howdah), "a newcomer to be served")
        assert witness.value("select 'still'") == "still"


def test_room_for_all_descriptors_from_the_start(make_howdah, postgres):
    """The kernel's table of descriptors is as large as it will have to be before anybody comes: when
    it grows under several threads, whoever opens a descriptor waits for that."""
    def room(howdah):
        with open(f"/proc/{howdah.child.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("FDSize:"))
    assert room(make_howdah(max_client_conn=3000)) >= 3000
    assert room(make_howdah(max_client_conn=3000, files=2048)) == 2048


@pytest.mark.parametrize("workers", [1, 2])
def test_newcomers_leave_descriptors_to_servers(make_howdah, postgres, workers):
    """Newcomers to a pool without servers take all descriptors they can get: servers are opened
    nevertheless, and all are served, one after the other, long before logins time out."""
    howdah = make_howdah(files=44, max_client_conn=1000, default_pool_size=6, workers=workers,
                         tcp_defer_accept=0)
    warning = howdah.wait_for_log(r"(\d+) are kept for servers, and who comes when there are about "
                                  r"(\d+) clients waits").groups()
    kept, clients = map(int, warning)
    assert kept >= 6 and clients >= 6, warning
    crowd = [howdah.raw() for _ in range(60)]
    howdah.wait_for_log("accept.. failed: Too many open files")
    for client in crowd:
        client.send(wire.startup(user="postgres", database="postgres") + wire.query("select 1"))
    for client in crowd:
        assert "D" in [got.tag for got in client.read_until("Z") + client.read_until("Z")]
        client.close()
    assert "connect failed" not in howdah.log()
    # The console, too, is back, and what names and files need.
    assert howdah.reload() == []


def test_no_descriptor_for_a_server(make_howdah, postgres):
    """That descriptors run out for a server is logged as the reason. Who waits for it waits on, and
    is served when some have come free."""
    howdah = make_howdah(files=64, max_client_conn=1000, tcp_defer_accept=0, server_login_retry=1,
                         default_pool_size=20, max_db_connections=4)
    assert howdah.wait_for_log(r"(\d+) are kept for servers").group(1) == "4"
    # What is kept is settled at the start: servers that a RELOAD allows take their chance.
    howdah.write(max_db_connections=0)
    howdah.reload()
    mark = howdah.log_mark()
    clients = [howdah.connect() for _ in range(14)]
    crowd = [howdah.raw() for _ in range(80)]
    howdah.wait_for_log("accept.. failed: Too many open files", since=mark)
    for client in clients:
        client.send(wire.query("begin"))
    howdah.wait_for_log("connect failed: .*Too many open files", since=mark)
    assert clients[0].read_until()[-1].tag == "Z"
    assert clients[0].value("select 'undisturbed'") == "undisturbed"
    for client in crowd:
        client.close()
    for client in clients[1:]:
        assert [got.tag for got in client.read_until()] == ["C", "Z"]


def answers(howdah):
    """Whether a newcomer is served."""
    try:
        with howdah.connect(password="secret", seconds=2) as client:
            return client.value("select 1") == "1"
    except (OSError, wire.Ended, wire.Refused):
        return False


# Config and user files --------------------------------------------------------------------------

INI = """[databases]
postgres = host=127.0.0.1 port=1
{databases}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
{settings}
"""
SETTINGS_LINE = 10  # where {settings} comes to stand
DATABASES_LINE = 3

# What is written at {settings}, and what --check must say about it.
BAD_SETTINGS = {
    "unknown key": ("colour = red", "colour"),
    "bad number": ("default_pool_size = many", "default_pool_size"),
    "negative number": ("default_pool_size = -5", "default_pool_size"),
    "number too large": ("listen_backlog = 99999999999999999999", "listen_backlog"),
    "bad port": ("listen_port = 70000", "listen_port"),
    "bad switch": ("log_connections = maybe", "log_connections"),
    "bad time": ("query_timeout = soon", "query_timeout"),
    "bad choice": ("pool_mode = carpool", "pool_mode"),
    "bad auth_type": ("auth_type = palm-reading", "auth_type"),
    "auth_type ldap, no options": ("auth_type = ldap", "auth_ldap_options"),
    "auth_type ldap, bad options": ("auth_type = ldap\nauth_ldap_options = x=y", "LDAP option"),
    "auth_type cert without TLS": ("auth_type = cert", "cert"),
    "TLS without a certificate": ("client_tls_sslmode = require", "client_tls_key_file"),
    "TLS, no such file": ("server_tls_sslmode = verify-full\nserver_tls_ca_file = /no/such",
                          "No such file or directory"),
    "TLS, no such version": ("server_tls_protocols = tlsv9", "invalid TLS protocol"),
    "TLS, no such mode": ("server_tls_sslmode = always", "server_tls_sslmode"),
    "no equals sign": ("pool_mode", "key = value"),
    "no key": ("= transaction", "key"),
    "unknown section": ("[elephants]\na = b", "elephants"),
    "broken section": ("[databases", "]"),
    "bad io_driver": ("io_driver = steam", "io_driver"),
    "bad workers": ("workers = -1", "workers"),
    "no such address": ("listen_addr = 127.0.0.1, 999.1.1.1", "999.1.1.1"),
    "a socket's path too long": ("unix_socket_dir = /tmp/" + "x" * 120, "unix socket path"),
    "no such user": ("user = nobody_of_that_name", "nobody_of_that_name"),
    "no folder for the log": ("logfile = /no/such/folder/log", "/no/such/folder/log"),
    "no folder for the pid file": ("pidfile = /no/such/folder/pid", "/no/such/folder/pid"),
    "no folder for the socket": ("unix_socket_dir = /no/such/folder", "/no/such/folder"),
    "a word nearly right": ("auth_type = scram", "did you mean scram-sha-256?"),
    "bytes that are no text": ("syslog_ident = caf\udce9", "UTF-8"),
    "user settings": ("[users]\nann = pool_mode=carpool", "pool_mode"),
    "unknown user setting": ("[users]\nann = colour=red", "colour"),
}

BAD_DATABASES = {
    "unknown key": ("x = colour=red", "colour"),
    "no value": ("x = host=", "host"),
    "no equals sign": ("x = host", "missing ="),
    "open quote": ("x = dbname='half", ""),
    "bad port": ("x = port=many", "port"),
    "bad pool size": ("x = pool_size=big", "pool_size"),
    "bad pool mode": ("x = pool_mode=carpool", "pool_mode"),
    "reserved name": ("pgbouncer = host=127.0.0.1", "pgbouncer"),
}

BAD_USERS = {
    "no quotes": "ann secret\n",
    "open quote": '"ann" "secret\n',
    "no secret": '"ann"\n',
    "name too long": '"' + "a" * 500 + '" "secret"\n',
}


def checked(make_howdah, settings="", databases="", users='"postgres" "secret"\n'):
    """Writes files by hand and runs --check; gives the Howdah, exit code and output."""
    howdah = make_howdah(start=False)
    howdah._write_file(howdah.users_path, users)
    howdah._write_file(howdah.ini_path, INI.format(
        port=howdah.port, users=howdah.users_path, settings=settings, databases=databases))
    code, said = howdah.check()
    return howdah, code, said


def refuses_to_start(howdah):
    """A start with the same files ends at once with a fault, and says something."""
    code, said = howdah.run_to_end(howdah.ini_path)
    assert code == 1, said
    assert said.strip()
    return said


def test_check_of_a_good_file(make_howdah):
    """--check says nothing bad about a good file."""
    _, code, said = checked(make_howdah)
    assert code == 0, said
    assert re.search(r": configuration OK: 1 database, 1 user, 2 files; up to 20 servers, \d+ descriptors\n",
                     said), said


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_setting(make_howdah, name):
    """--check names file, line and key, and the start is refused with the same words."""
    settings, word = BAD_SETTINGS[name]
    howdah, code, said = checked(make_howdah, settings=settings)
    assert code == 1, said
    line = SETTINGS_LINE + settings.count("\n")
    if "\n" in settings and "elephants" in settings:
        line = SETTINGS_LINE
    assert f"pgbouncer.ini:{line}" in said, said
    assert word in said
    assert word in refuses_to_start(howdah)


@pytest.mark.parametrize("name", BAD_DATABASES)
def test_bad_database(make_howdah, name):
    """The same for entries of [databases]."""
    entry, word = BAD_DATABASES[name]
    howdah, code, said = checked(make_howdah, databases=entry)
    assert code == 1, said
    assert f"pgbouncer.ini:{DATABASES_LINE}" in said, said
    assert word in said
    refuses_to_start(howdah)


@pytest.mark.parametrize("name", BAD_USERS)
def test_bad_user_file(make_howdah, name):
    """The same for the user file."""
    howdah, code, said = checked(make_howdah, users=BAD_USERS[name])
    assert code == 1, said
    assert "userlist.txt:1" in said, said


def test_check_reports_every_mistake(make_howdah):
    """All mistakes at once, in the order of their lines."""
    _, code, said = checked(make_howdah, settings="colour = red\npool_mode = carpool",
                            databases="x = shape=round", users="rubbish\n")
    assert code == 1
    words = ("shape", "colour", "carpool", "userlist.txt")
    errors = [line for line in said.splitlines() if line.startswith("ERROR")]
    assert [word for line in errors for word in words if word in line] == list(words)
    assert "  3 | x = shape=...\n    |     ^\n" in said, said
    assert "rubbish" not in said, "no line of this file is shown"


def test_check_lists_what_pgbouncer_refuses(make_howdah):
    """The way back: settings of our own, with their lines; and what need not stand there any more."""
    howdah = make_howdah(start=False, pin_limit=3, ignore_startup_parameters="search_path",
                         databases={"shop": "host=h sslmode=require"})
    code, said = howdah.check()
    assert code == 0, said
    way_back = said.split("PgBouncer 1.25.2 refuses")[1]
    ini = re.escape(howdah.ini_path)
    assert re.search(rf"\n  pin_limit +{ini}:\d+\n", way_back), said
    assert re.search(rf"\n  sslmode of shop in \[databases\] +{ini}:2\n", way_back), said
    assert "pool_mode" not in way_back
    assert re.search(r"HINT ignore_startup_parameters \(.*:\d+\) drops .*: search_path\.", said), said


def test_check_of_an_entry_names_each_word(make_howdah):
    """Every word that is wrong, with what would be right."""
    _, code, said = checked(make_howdah, databases="x = port=99999 pool_size=x foo=bar")
    assert code == 1
    errors = [line.split(" (")[0] for line in said.splitlines() if line.startswith("ERROR")]
    assert errors == ['ERROR database "x", port = 99999', 'ERROR database "x", pool_size = x',
                      'ERROR database "x", foo'], said
    assert "must be a port from 1 to 65535" in said


def test_check_looks_at_both_sides_of_tls(make_howdah):
    """What is wrong on one side does not hide the other."""
    settings = ("client_tls_sslmode = require\nclient_tls_key_file = /nope/key\n"
                "client_tls_cert_file = /nope/crt\nserver_tls_sslmode = verify-ca\n"
                "server_tls_ca_file = /nope/ca")
    _, code, said = checked(make_howdah, settings=settings)
    assert code == 1 and "/nope/crt" in said and "/nope/ca" in said, said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can check as root")
def test_check_as_root(make_howdah):
    """Who may read every file is told that the pooler may not."""
    howdah = make_howdah(start=False)
    told = subprocess.run([howdah.program, "--check", howdah.ini_path], capture_output=True, text=True)
    assert "WARNING this check ran as root" in told.stderr
    assert "root" not in howdah.check()[1]


def test_check_of_a_folder_that_the_unit_makes(make_howdah):
    """Below /run services' folders come and go with them."""
    _, code, said = checked(make_howdah, "unix_socket_dir = /run/howdah-of-nobody")
    assert code == 0 and "configuration OK" in said, said
    assert "WARNING unix_socket_dir /run/howdah-of-nobody is not there" in said
    assert checked(make_howdah, "unix_socket_dir = /run/howdah-of-nobody/below")[1] == 1


def test_check_reports_paths_beside_other_mistakes(make_howdah):
    """What can't be opened is found although the file has other mistakes, in the order of lines."""
    settings = "logfile = /no/such/folder/log\npool_mode = carpool\npidfile = /proc/nothing/pid"
    _, code, said = checked(make_howdah, settings=settings)
    assert code == 1
    found = re.findall(r"pgbouncer\.ini:(\d+)\)", said)
    assert found == [str(SETTINGS_LINE + n) for n in range(3)], said


@pytest.mark.parametrize("odd", [True, False])
def test_what_is_hardly_meant(make_howdah, odd):
    """--check and the start warn of a pooler that lets nobody in, and of key exchanges that there
    are not."""
    howdah = make_howdah(start=False, auth_type="md5", auth_file=None if odd else "users",
                         client_tls_dheparams="legacy" if odd else "auto")
    warnings = ["WARNING auth_type = md5 without auth_file or auth_user lets nobody in",
                "WARNING client_tls_dheparams = legacy: finite-field Diffie-Hellman is not offered"]
    howdah._write_file(os.path.join(howdah.folder, "users"), "")
    code, said = howdah.check()
    howdah.start()
    howdah.wait_for_log("process up")
    for text in warnings:
        assert (text in said) == (text in howdah.log()) == odd, (said, howdah.log())
    assert code == 0


def test_check_of_a_group(make_howdah):
    """A group that is not there: --check and the start say so."""
    settings = "unix_socket_group = nobodies_of_that_name"
    howdah, code, said = checked(make_howdah, settings=settings)
    assert code == 1 and f"pgbouncer.ini:{SETTINGS_LINE}" in said, said
    howdah._write_file(howdah.ini_path, f"[pgbouncer]\nunix_socket_dir = {howdah.folder}\n"
                       f"listen_port = {howdah.port}\n{settings}\n")
    assert "nobodies_of_that_name" in refuses_to_start(howdah)


def test_nowhere_to_listen(make_howdah):
    """Neither addresses nor a socket."""
    howdah, code, said = checked(make_howdah, settings="listen_addr =")
    assert code == 1 and f"pgbouncer.ini:{SETTINGS_LINE}" in said, said
    assert "nowhere to listen on" in said, said
    assert "nowhere to listen on" in refuses_to_start(howdah)


def test_files_in_latin1(make_howdah):
    """Comments may be in any encoding, as in PgBouncer; a user with such bytes is left out."""
    howdah = make_howdah(start=False)
    howdah.write()
    with open(howdah.ini_path, "ab") as file:
        file.write(b"; caf\xe9\n")
    with open(howdah.users_path, "ab") as file:
        file.write(b"; caf\xe9\n")
    assert howdah.check()[0] == 0
    with open(howdah.users_path, "ab") as file:
        file.write(b'"odd" "caf\xe9"\n"plain_user" "secret"\n')
    code, said = howdah.check()
    assert code == 1 and "userlist.txt:4" in said, said
    howdah.start()
    howdah.connect(user="plain_user").close()
    with pytest.raises(wire.Refused):
        howdah.connect(user="odd")


@pytest.mark.parametrize("left", ["", "[databases]\n"])
def test_empty_file_at_reload(make_howdah, left):
    """A file that was cut off takes no databases away: PgBouncer refuses it, too."""
    howdah = make_howdah(databases={"kept": "host=127.0.0.1"})
    howdah._write_file(howdah.ini_path, left)
    code, said = howdah.check()
    assert code == 1 and "main section missing from config file" in said, said
    with pytest.raises(wire.Refused) as refused:
        howdah.reload()
    assert refused.value.code == "F0000"
    assert "kept" in [row["name"] for row in howdah.console("SHOW DATABASES")]
    howdah.stop()
    assert "main section missing from config file" in refuses_to_start(howdah)


def test_missing_files(make_howdah):
    """No config file, no such file, an include that is missing or includes itself."""
    howdah = make_howdah(start=False)
    for arguments in ([], ["/nonexistent/pgbouncer.ini"], ["--check", "/nonexistent/x.ini"]):
        code, said = howdah.run_to_end(*arguments)
        assert code == 1, (arguments, said)
        assert said.strip()
    for text in ("%include /nonexistent/more.ini\n", f"%include {howdah.ini_path}\n"):
        howdah._write_file(howdah.ini_path, text)
        code, said = howdah.check()
        assert code == 1 and "include" in said or "more.ini" in said, said
    os.remove(howdah.ini_path)
    os.mkdir(howdah.ini_path)
    assert howdah.check()[0] == 1


def test_missing_user_file(make_howdah):
    """The user file named in the config does not exist."""
    howdah, code, said = checked(make_howdah)
    os.remove(howdah.users_path)
    code, said = howdah.check()
    assert code == 1 and "userlist.txt" in said, said


def test_broken_file_at_reload(make_howdah):
    """A reload with a mistake changes nothing and says so."""
    howdah = make_howdah(default_pool_size=7)
    with howdah.connect() as witness:
        howdah.write(default_pool_size="many")
        with pytest.raises(wire.Refused) as refused:
            howdah.reload()
        assert refused.value.code == "F0000"
        assert "RELOAD failed" in refused.value.text
        detail = refused.value.fields["D"]
        assert "default_pool_size" in detail and "must be an integer" in detail, detail
        assert re.search(r"pgbouncer\.ini:\d+", detail), detail
        howdah.wait_for_log(r"default_pool_size.*pgbouncer\.ini:\d+|pgbouncer\.ini:\d+.*default_pool_size")
        assert howdah.setting("default_pool_size") == "7"
        assert witness.value("select 1") == "1"
    howdah.write(default_pool_size=9)
    howdah.reload()
    assert howdah.setting("default_pool_size") == "9"


@pytest.mark.parametrize("left", ['"postgres" "sec', '# empty\n', '"admin" "secret"\npostgres\n'])
def test_broken_user_file_at_reload(make_howdah, left):
    """A user file that can't be read to its end locks nobody out who could log in before."""
    howdah = make_howdah(auth_type="md5")
    whole = open(howdah.users_path).read()
    howdah._write_file(howdah.users_path, left)
    with pytest.raises(wire.Refused) as refused:
        howdah.reload()
    assert refused.value.code == "F0000"
    howdah.wait_for_log(r"ERROR broken auth file \(.*userlist\.txt:\d+\)")
    howdah.connect(password="secret").close()
    # Nobody is lost by this one.
    howdah._write_file(howdah.users_path, whole + '"new" "secret"\n# the end\n')
    howdah.reload()
    howdah.wait_for_log(r"WARNING broken auth file \(.*userlist\.txt:\d+\)")


def test_port_in_use(make_howdah):
    """Two with the same port: the second says so and ends."""
    howdah = make_howdah()
    second = make_howdah(start=False, listen_port=howdah.port)
    code, said = second.run_to_end(second.ini_path)
    assert code == 1
    said += second.log()
    assert str(howdah.port) in said and "in use" in said.lower(), said
    with howdah.connect() as client:
        assert client.value("select 1") == "1"


def test_quiet_start_in_vain(make_howdah):
    """With -q the log file says why it did not start, also where that is seen early."""
    howdah = make_howdah()
    second = make_howdah(start=False, listen_port=howdah.port, unix_socket_dir=howdah.folder)
    assert second.run_to_end("-q", second.ini_path) == (1, "")
    assert "FATAL unix socket is in use, cannot continue" in second.log()
    third = make_howdah(start=False, pidfile=os.path.join(howdah.folder, "pid"))
    third._write_file(third.sections["pgbouncer"]["pidfile"], "0\n")
    assert third.run_to_end("-q", third.ini_path) == (1, "")
    assert "exists, another instance running?" in third.log()
    third._write_file(third.sections["pgbouncer"]["pidfile"], "99999999\n")
    third.start()
    assert "LOG stale pidfile, removing" in third.log()


def test_no_such_socket_folder(make_howdah):
    """The folder of the unix socket does not exist."""
    howdah = make_howdah(start=False, unix_socket_dir="/nonexistent/folder")
    code, said = howdah.run_to_end(howdah.ini_path)
    assert code == 1
    assert "/nonexistent/folder" in said + howdah.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try to run it as root")
def test_root_is_refused(make_howdah):
    """As root it does not run, unless it is told whom to become."""
    howdah = make_howdah(start=False)
    program = machine.readable_copy(howdah.program, os.path.dirname(howdah.folder))
    child = machine.spawn([program, howdah.ini_path], as_user=False, stdout=-1, stderr=-2,
                          text=True, cwd=howdah.folder)
    said, _ = child.communicate(timeout=40)
    assert child.returncode == 1
    assert "should not run as root" in said + howdah.log(), said
