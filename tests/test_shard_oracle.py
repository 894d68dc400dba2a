"""The oracle of sharded databases: generated statements and transactions, on shards and on one database
with all rows.

What is answered must be the one database's answer, byte for byte; all else is refused. After writes the
shards together have its rows, each on its own shard. A seed that fails is printed with the shortest text
found that still fails. `--seeds N` plays more, `--first-seed N` begins elsewhere.
"""

import collections
import random

import pytest

from harness import machine, sharded_play, sharded_transactions, wire
from harness.sharded_play import MODES, Pair, Tally
from harness.sharded_statements import Generator, Statement
from harness.sharded_world import LAST_TENANT, World

pytestmark = [pytest.mark.one_driver, pytest.mark.timeout(36_000, func_only=True)]

COUNTS = (2, 3, 5)
STATEMENTS = 25
# Shares of what must be answered, so that refusing all is no way to pass.
ANSWERED_STATEMENTS, ANSWERED_STEPS = 0.5, 0.85


@pytest.fixture(scope="module")
def worlds(postgres):
    """A world for each number of shards."""
    found = {count: World(postgres, count) for count in COUNTS}
    yield found
    for world in found.values():
        world.close()


@pytest.fixture(scope="module")
def oracle(worlds, shared_howdah):
    """A Howdah in front of all worlds."""
    databases, maps = {}, {}
    for world in worlds.values():
        databases.update(world.entries())
        maps.update(world.maps())
    return shared_howdah(databases=databases, maps=maps, default_pool_size=2, workers=2)


def seeds(request):
    """Which seeds to play."""
    first = request.config.getoption("--first-seed")
    return range(first, first + request.config.getoption("--seeds"))


def statements(seed, world):
    """The statements of a seed, with how each is sent and the format of its rows."""
    rng = random.Random(f"{world.count} {seed}")

    def one(mode):
        return Generator(rng, world.keys, mode != "simple", rng.choice([0, 0, 0.1, 0.3])).statement()
    for _ in range(STATEMENTS):
        mode = rng.choice(MODES[:3] * 3 + MODES)
        found = one(mode)
        if mode == "simple" and found.shard is None and rng.random() < 0.1:
            more = one(mode)
            if more.shard is None:
                found = Statement(f"{found.text}; {more.text}", [], found.writes or more.writes, True)
        yield found, mode, rng.randrange(2)


def play(seed, world, howdah):
    """Plays a seed's statements, and looks at the rows of all shards in the end."""
    wrote = False
    with Pair(world, howdah) as pair:
        if seed % 10 == 0:
            pair.set("set search_path = other, public")
        for statement, mode, results in statements(seed, world):
            found = pair.run(statement, mode, results)
            if found:
                least = sharded_play.shorter(statement, lambda less: pair.differs_again(less, mode, results))
                raise AssertionError(f"seed {seed}, {world.count} shards, {mode}: {found}\n{statement.text}\n"
                                     f"shortest: {least.text}\n{least.parameters}")
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
    """Each is answered as by one database, or refused; and most are answered."""
    tally = Tally()
    for seed in seeds(request):
        tally.add(play(seed, worlds[count], oracle))
    with capsys.disabled():
        print(f"\n{count} shards, {tally}")
    assert tally.answered > ANSWERED_STATEMENTS, str(tally)


def play_transactions(steps, seed, world, howdah, counts=None):
    """Plays a script beside another client of the pool. Gives what differs as text."""
    rng = random.Random(seed)
    with wire.connect(howdah.address, "postgres", world.name, seconds=10) as through, \
            world.connect(world.whole) as direct, \
            wire.connect(howdah.address, "postgres", world.name) as other:
        def between():
            if rng.random() < 0.4:
                other.rows(f"select name from accounts where account_id = {rng.randint(1, LAST_TENANT)}")
        try:
            sharded_transactions.play(steps, through, direct, between, counts, world.postgres.sleepers)
            return "; ".join(world.faults())
        except sharded_transactions.Difference as found:
            return str(found)
        finally:
            world.reset()


@pytest.mark.parametrize("count", [2, 3])
def test_transactions(oracle, worlds, request, capsys, count):
    """Every step is answered as by one database, with the same status of the transaction. Where Howdah
    refuses a statement, one that fails takes its place there."""
    world, counts = worlds[count], collections.Counter()
    for seed in seeds(request):
        steps = sharded_transactions.Script(seed, world).steps()
        found = play_transactions(steps, seed, world, oracle, counts)
        if found:
            least = sharded_transactions.shorter(
                steps, lambda less: play_transactions(less, seed, world, oracle))
            raise AssertionError(f"seed {seed}, {count} shards: {found}\nshortest: {least}\n"
                                 f"{play_transactions(least, seed, world, oracle)}")
    with capsys.disabled():
        print(f"\n{count} shards, steps of transactions: {dict(counts)}")
    assert counts["answered"] > ANSWERED_STEPS * sum(counts.values())


def test_a_cancel_while_waiting(shared_howdah, worlds):
    """A transaction whose first statement is cancelled while it waits for a server has failed."""
    world = worlds[2]
    howdah = shared_howdah(databases=world.entries(), maps=world.maps(),
                           default_pool_size=1)
    tenant = world.keys["tenant"][0][0]
    insert = f"insert into orders (account_id, id) values ({tenant}, 700)"
    with wire.connect(howdah.address, "postgres", world.name) as holder, \
            wire.connect(howdah.address, "postgres", world.name) as client:
        holder.rows(f"begin; select name from accounts where account_id = {tenant}")
        for begin, first in ((wire.query("begin"), wire.query(insert)),
                             (extended("begin"), extended(insert))):
            client.ask(begin)
            client.send(first)
            machine.wait_until(lambda: howdah.pool(world.shards[0])["cl_waiting"] == 1, "the client to wait")
            client.cancel()
            answer = client.read_until("Z")
            assert [got.fields()["C"] for got in answer if got.tag == "E"] == ["57014"]
            assert sharded_transactions.status(answer, "T") == "E"
            assert client.error(first)["C"] == "25P02"
            client.rows("rollback")
        holder.rows("rollback")
        assert client.rows(f"select id from orders where account_id = {tenant} and id = 700") == []


def extended(text):
    """A statement in the extended protocol."""
    return wire.parse(text) + wire.bind() + wire.execute() + wire.sync()
