"""Drivers and frameworks on a sharded database: each program prints what it prints on one database."""

import pytest

from harness.programs import FRAMEWORKS, PROGRAMS, built
from harness.sharded_world import World

# Building their programs has its own limit.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.one_driver]

NAMES = [name for name, program in (PROGRAMS | FRAMEWORKS).items() if program.shards]

@pytest.fixture(scope="module")
def world(postgres):
    """Three shards, and one database with all rows."""
    found = World(postgres, 3, "drivers")
    yield found
    found.close()


@pytest.mark.parametrize("name", NAMES)
def test_driver(shared_howdah, world, postgres, name):
    """Transactions whose first statement has a key, prepared statements, pipelines, and a tenant that is
    said for each request."""
    program = built(name)
    howdah = shared_howdah(databases=world.entries(), maps=world.maps(),
                           default_pool_size=2, workers=2)
    wanted = program.run_to_end(postgres.host, postgres.port, "postgres", "secret", world.whole,
                                command=program.shards)
    seen = program.run_to_end(howdah.host, howdah.port, "postgres", "secret", world.name,
                              command=program.shards)
    assert wanted[-1] == "end 1" and seen == wanted
    assert not world.faults()
