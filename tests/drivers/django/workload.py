"""Django on persistent connections: migrations, the ORM, transactions, iterators, time zones.

Each of several threads has two connections: one with Django's defaults, and one with statements
prepared by the server, a role, a time zone and an isolation level of its own.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. Prints what each thread got,
in lines that are the same in each run on a new database.
"""

import datetime
import io
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import django
from django.conf import settings
from django.core import signals
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connections, models, transaction
from psycopg import IsolationLevel

ROLE = "django_web"
SERVER = {
    "ENGINE": "django.db.backends.postgresql", "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"], "USER": os.environ["PGUSER"],
    "PASSWORD": os.environ["PGPASSWORD"], "NAME": os.environ["PGDATABASE"],
    "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True,
}
BOUND = {"server_side_binding": True, "prepare_threshold": 1, "assume_role": ROLE,
         "isolation_level": IsolationLevel.REPEATABLE_READ}
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "shop"],
    DATABASES={"default": SERVER, "bound": {**SERVER, "TIME_ZONE": "Europe/Berlin", "OPTIONS": BOUND}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", USE_TZ=True, TIME_ZONE="UTC",
)
django.setup()

from shop.models import Item, Tag  # noqa: E402

ALIASES = ("default", "bound")
ZONES = ("Asia/Tokyo", "America/New_York", "Australia/Perth", "Africa/Cairo")
MADE = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.timezone.utc)
STATE = """select current_setting('TimeZone'), current_user::text, current_setting('search_path'),
    current_setting('transaction_isolation'), current_setting('transaction_read_only'),
    current_setting('lock_timeout'), current_setting('work_mem'), to_regclass('pg_temp.numbers')::text"""
LOCK = 20261124
HELD = "select count(*) from pg_cursors where is_holdable and name like '_django%'"
MAKE_ROLE = f"do $$ begin create role {ROLE}; exception when duplicate_object then null; end $$"
EACH = [ThreadPoolExecutor(1) for _ in range(4)]  # threads: Django's connections are theirs


def rows(using, statement, parameters=None):
    """Runs a statement by a cursor of its own."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else None


def refused(problem, work, *arguments):
    """Runs what must fail, and gives PostgreSQL's words."""
    try:
        work(*arguments)
    except problem as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "not refused"


def items(using, index):
    """The rows of one connection, and its number."""
    owner = 10 * ALIASES.index(using) + index
    return Item.objects.using(using).filter(owner=owner), owner


def migrate(*arguments):
    """Runs the command, and gives what it says of the migrations applied."""
    said = io.StringIO()
    call_command("migrate", *arguments, interactive=False, no_color=True, stdout=said)
    return [line.strip() for line in said.getvalue().splitlines() if "..." in line]


def migrations(_):
    """All threads migrate at once. Django takes no lock, so a command around `migrate` does."""
    rows("default", "select pg_advisory_lock(%s)", [LOCK])
    try:
        applied = migrate("shop", "0002") + migrate("auth")
    finally:
        released = rows("default", "select pg_advisory_unlock(%s)", [LOCK])
    return [released, *applied]


def other_migrations():
    """One without a transaction, and one that fails; then what there is."""
    yield migrate("shop", "0003")
    yield refused(DatabaseError, migrate, "shop", "0004")
    connection = connections["default"]
    yield sorted(connection.introspection.table_names())
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, "shop_item")
        yield [column.name for column in columns]
        yield sorted(connection.introspection.get_constraints(cursor, "shop_item"))
    yield rows("default", "select app, name from django_migrations order by id")
    yield list(Tag.objects.order_by("name").values_list("name", flat=True))
    rows("default", f"grant all on all tables in schema public to {ROLE}")
    rows("default", f"grant all on all sequences in schema public to {ROLE}")


def state(_, using):
    """What Django has set when it connected is there in each request of a connection that persists."""
    connections[using].ensure_connection()
    own = connections[using].connection
    for _ in range(8):
        signals.request_started.send(sender=None)
        yield rows(using, STATE)
        yield connections[using].connection is own
        signals.request_finished.send(sender=None)


def time_zones(index, using):
    """SET TIME ZONE, in and out of transactions that fail. Django learns of it, and sets its own."""
    instant = "select %s::timestamptz, %s::timestamptz::text, extract(hour from %s::timestamptz)"
    connection = connections[using]
    for turn in range(3):
        rows(using, f"SET TIME ZONE '{ZONES[index]}'")
        yield rows(using, instant, [MADE] * 3)
        try:
            with transaction.atomic(using):
                rows(using, f"SET TIME ZONE '{ZONES[index - 1]}'")
                yield rows(using, instant, [MADE] * 3)
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        yield rows(using, STATE)
        with transaction.atomic(using):
            rows(using, f"SET LOCAL TIME ZONE '{ZONES[index - 2]}'")
            yield rows(using, STATE)
        yield connection.connection.info.parameter_status("TimeZone")
        yield connection.ensure_timezone(), connection.ensure_timezone()
        rows(using, f"set work_mem = '{index + turn + 1}MB'")
        yield rows(using, STATE)
    rows(using, "reset work_mem")


def orm(index, using):
    """Rows made, found, changed, counted, related and deleted."""
    mine, owner = items(using, index)
    made = [Item(owner=owner, name=f"n{number:02}", price=Decimal(number) / 4, made=MADE,
                 about={"number": number, "of": [index]}, sizes=[number, index]) for number in range(24)]
    mine.bulk_create(made, batch_size=10)
    yield mine.aggregate(models.Sum("price"), models.Max("made"), models.Count("id"))
    yield [mine.get_or_create(owner=owner, name="n05", defaults={"made": MADE})[1],
           mine.get_or_create(owner=owner, name="new", defaults={"made": MADE})[1]]
    for turn in range(4):
        item, was_made = mine.update_or_create(owner=owner, name="turn", defaults={
            "made": MADE, "price": turn, "about": {"turn": turn}})
        yield item.name, was_made, item.made, mine.get(name="turn").about
        mine.filter(about__number__lt=5).update(price=models.F("price") + turn)
        small = mine.filter(sizes__0__lt=5, sizes__1=index).order_by("name")
        yield list(small.values_list("name", "price"))
    some = list(mine.filter(name__startswith="n1").order_by("name"))
    for item in some:
        item.price += index
    yield mine.bulk_update(some, ["price"])
    tags = [Tag.objects.using(using).create(name=f"tag {using} {index}.{number}") for number in range(3)]
    for number, item in enumerate(some):
        item.tags.set(tags[:1 + number % 3])
    tagged = mine.filter(tags__isnull=False).distinct().order_by("name").prefetch_related("tags")
    yield [(item.name, sorted(tag.name for tag in item.tags.all())) for item in tagged]
    rank = models.Window(models.functions.RowNumber(), order_by=["-price", "name"])
    yield list(mine.annotate(rank=rank).order_by("rank").values_list("rank", "name", "price")[:6])
    nobody = models.Q(name="nobody")
    yield mine.filter(nobody).exists(), refused(Item.DoesNotExist, mine.get, nobody)
    yield mine.filter(name__in=["new", "turn"]).delete()
    yield list(Tag.objects.using(using).raw("select 1 as id, %s as name", [f"raw {index}"]))[0].name


def transactions(index, using):
    """Atomic blocks with savepoints, their errors and hooks; rows locked."""
    (mine, owner), told = items(using, index), []
    for turn in range(5):
        with transaction.atomic(using, durable=True):
            first = mine.select_for_update().get(name="n00")
            first.about["turn"] = turn
            first.save(update_fields=["about"])
            transaction.on_commit(lambda turn=turn: told.append(turn), using)
            try:
                with transaction.atomic(using):
                    mine.create(owner=owner, name=f"undone {turn}", made=MADE)
                    transaction.on_commit(lambda: told.append("never"), using)
                    mine.create(owner=owner, name="n01", made=MADE)
            except IntegrityError as problem:
                yield str(problem).splitlines()[0]
            kept = transaction.savepoint(using)
            mine.create(owner=owner, name=f"kept {turn}", made=MADE)
            transaction.savepoint_commit(kept, using)
            undone = transaction.savepoint(using)
            mine.filter(name__startswith="kept").delete()
            rows(using, "set lock_timeout = '9s'")
            transaction.savepoint_rollback(undone, using)
            yield rows(using, STATE)
        try:
            with transaction.atomic(using):
                mine.all().delete()
                yield refused(DatabaseError, rows, using, "select nonsense")
                yield refused(transaction.TransactionManagementError, mine.count)
        except DatabaseError as problem:
            yield str(problem)
        connections[using].set_autocommit(False)
        mine.filter(name="n02").update(price=turn)
        connections[using].rollback() if turn % 2 else connections[using].commit()
        connections[using].set_autocommit(True)
        yield list(mine.filter(name__in=["n00", "n02"]).order_by("name").values_list("price", "about"))
    yield told, list(mine.filter(name__contains="e").order_by("name").values_list("name", flat=True))


def iterators(index, using):
    """Cursors of the server: held ones outside of transactions, two at a time, and some given up."""
    whole, owner = items(using, index)
    mine = whole.order_by("name").values_list("name", flat=True)
    for turn in range(3):
        one, two = mine.iterator(chunk_size=4), mine.reverse().iterator(chunk_size=3)
        seen = []
        for pair in zip(one, two, strict=True):
            seen.append(pair)
            if len(seen) % 7 == 0:
                seen.append(mine.count())
        yield seen
        given_up = mine.iterator(chunk_size=2)
        yield next(given_up), rows(using, HELD)
        given_up.close()
        yield rows(using, HELD)
        with transaction.atomic(using):
            yield [name for name in mine.iterator(chunk_size=5) if turn < 2 or name > "n1"]
        yield [item.about for item in whole.order_by("id").iterator(chunk_size=6)]


def on_all(work, *arguments):
    """Runs work(number, ...) on all threads at once, each with connections of its own; gives lists."""
    running = [thread.submit(lambda at=number: list(work(at, *arguments)))
               for number, thread in enumerate(EACH)]
    return [one.result() for one in running]


def main():
    """All of it."""
    EACH[0].submit(rows, "default", MAKE_ROLE).result()
    applied = itertools.chain(*on_all(migrations))
    print("migrations", *sorted(map(str, applied)), sep="\n")
    print(*EACH[0].submit(lambda: list(other_migrations())).result(), sep="\n")
    for work in (state, orm, time_zones, transactions, iterators, state):
        for using in ALIASES:
            for index, answers in enumerate(on_all(work, using)):
                print(*(f"{work.__name__} {using} {index} {answer}" for answer in answers), sep="\n")
    print("end 1")


if __name__ == "__main__":
    main()
