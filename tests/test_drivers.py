"""Real drivers with their defaults over a small transaction pool: eight connections and more share
two servers. Each program in tests/drivers checks every answer itself and does the same things
directly and through Howdah."""

import pytest

from harness import machine
from harness.programs import PROGRAMS, built

# Building their programs has its own limit.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.one_driver]

USER, PASSWORD, DATABASE = "driver_user", "secret", "drivers"
SERVERS = 2


@pytest.fixture(scope="module")
def database(newest_postgres):
    """A database of the programs' own."""
    newest_postgres.sql(f"create role {USER} login superuser password '{PASSWORD}'")
    newest_postgres.sql(f"create database {DATABASE} owner {USER}")
    return newest_postgres


@pytest.fixture(scope="module")
def site(authority):
    """Howdah's certificate."""
    return authority.issue()


@pytest.fixture(params=PROGRAMS, scope="module")
def program(request):
    """Each program in turn, built."""
    return built(request.param)


def outcome(program, host, port, authority=None):
    """Runs a program to its end and gives the behaviours it saw, with their counts."""
    lines = program.run_to_end(host, port, USER, PASSWORD, DATABASE, authority=authority)
    assert lines and lines[-1] == "end 1", lines
    return lines


_directly = {}


def directly(program, postgres):
    """What the program sees without a pooler; it is run once."""
    if (program.name, postgres.port) not in _directly:
        _directly[program.name, postgres.port] = outcome(program, postgres.host, postgres.port)
    return _directly[program.name, postgres.port]


def test_directly(program, database):
    """The program is right about PostgreSQL itself."""
    assert len(directly(program, database)) > 10


def test_over_tls(program, make_howdah, database, authority, site):
    """The same with sslmode=verify-full, and with the channel bound where the driver can."""
    howdah = make_howdah(postgres=database, workers=2, default_pool_size=SERVERS,
                         auth_type="scram-sha-256", secrets={USER: PASSWORD},
                         client_tls_sslmode="require", client_tls_key_file=site.key,
                         client_tls_cert_file=site.chain)
    seen = outcome(program, "localhost", howdah.port, authority.certificate)
    assert seen == directly(program, database)


def test_through_howdah(program, shared_howdah, database):
    """The same behaviours as often, and nothing is left in the pool behind them."""
    howdah = shared_howdah(postgres=database, workers=2, default_pool_size=SERVERS,
                           auth_type="scram-sha-256", secrets={USER: PASSWORD})
    assert outcome(program, howdah.host, howdah.port) == directly(program, database)
    # One connection still listens, if this program or another has listened.
    listens = sum(row["state"] == "listening" for row in howdah.console("SHOW SERVERS"))
    row = howdah.wait_for_pool(DATABASE, USER, cl_active=0, cl_waiting=0, sv_active=0)
    assert 0 < row["sv_idle"] <= SERVERS, row
    # Those of the program that went directly may be ending still.
    machine.wait_until(
        lambda: database.sessions(user=USER, database=DATABASE) <= SERVERS + listens,
        "no more sessions than servers")
