"""The oracle of sharded databases: generated statements, on shards and on one database with all rows.

What is answered must be the one database's answer, byte for byte, or a refusal. After writes the
shards have its rows, each on its own shard. `--seeds N` plays more, `--first-seed N` begins elsewhere.
"""

import random

import pytest

from harness.sharded_play import MODES, Pair, Tally, shorter
from harness.sharded_statements import Generator
from harness.sharded_world import World

pytestmark = [pytest.mark.one_driver, pytest.mark.timeout(3600)]

COUNTS = (2, 3, 5)
STATEMENTS = 40
# Shares of statements that must be answered without an error.
FLOOR = 0.25


@pytest.fixture(scope="module")
def worlds(postgres):
    """A world for each number of shards."""
    return {count: World(postgres, count) for count in COUNTS}


@pytest.fixture(scope="module")
def oracle(worlds, shared_howdah, postgres):
    """A Howdah in front of all worlds."""
    at = f"host={postgres.host} port={postgres.port}"
    databases, maps = {}, {}
    for world in worlds.values():
        databases.update({shard: at for shard in world.shards})
        databases[world.name] = f"shards={','.join(world.shards)}"
        maps[f"distributions:{world.name}"] = world.distributions()
        maps[f"tables:{world.name}"] = world.tables()
    return shared_howdah(databases=databases, maps=maps, sharding_preview=1, default_pool_size=2, workers=2)


def statements(seed, world):
    """The statements of a seed, with how each is sent."""
    rng = random.Random(f"{world.count} {seed}")
    for _ in range(STATEMENTS):
        mode = rng.choice(MODES[:3] * 3 + MODES)
        near = rng.choice([0, 0, 0.1, 0.3])
        yield Generator(rng, world.keys, mode != "simple", near).statement(), mode, rng.randrange(2)


def play(seed, world, howdah):
    """Plays a seed's statements, and looks at the rows of all shards in the end."""
    wrote = False
    with Pair(world, howdah) as pair:
        for statement, mode, results in statements(seed, world):
            found = pair.run(statement, mode, results)
            if found:
                least = shorter(statement, lambda less: pair.differs_again(less, mode, results))
                raise AssertionError(f"seed {seed}, {world.count} shards, {mode}: {found}\n"
                                     f"{statement.text}\nshortest: {least.text}\n{least.parameters}")
            if statement.writes:
                wrote = True
                if "countries" in statement.text or "rates" in statement.text:
                    world.replicate()
    if wrote:
        faults = world.faults()
        world.reset()
        assert not faults, f"seed {seed}, {world.count} shards: {faults}"
    return pair.tally


@pytest.mark.parametrize("count", COUNTS)
def test_statements(oracle, worlds, request, capsys, count):
    """Each is answered as by one database, or refused; and many are answered."""
    first = request.config.getoption("--first-seed")
    tally = Tally()
    for seed in range(first, first + request.config.getoption("--seeds")):
        tally.add(play(seed, worlds[count], oracle))
    with capsys.disabled():
        print(f"\n{count} shards, {tally}")
    assert tally.answered > FLOOR, str(tally)
