"""Django on a database that may be sharded: tenants in WHERE, and a tenant said for each request.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. What is printed is the same
whether there are shards or not.
"""

import os

import django
from django.conf import settings
from django.db import IntegrityError, connections, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery, Sum, Window
from django.db.models.functions import Rank

SERVER = {
    "ENGINE": "django.db.backends.postgresql", "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"],
    "USER": os.environ["PGUSER"], "PASSWORD": os.environ["PGPASSWORD"], "NAME": os.environ["PGDATABASE"],
    "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True,
}
settings.configure(INSTALLED_APPS=["tenants"], DATABASES={"default": SERVER, "bound": {
    **SERVER, "OPTIONS": {"server_side_binding": True, "prepare_threshold": 1}}})
django.setup()

from tenants.models import Account, Order, Serial  # noqa: E402

TENANTS = range(1, 13)


def reads(using, tenant):
    """Queries of the ORM whose WHERE has the tenant."""
    orders = Order.objects.using(using).filter(account_id=tenant)
    mine = Order.objects.filter(account_id=OuterRef("account_id"), account=tenant)
    accounts = Account.objects.using(using).filter(account_id=tenant)
    yield orders.count()
    yield orders.exists()
    yield list(orders.order_by("id").values_list("id", "total")[:2])
    yield orders.aggregate(Sum("total"), Count("note", distinct=True))
    yield [order.account.name for order in orders.select_related("account").order_by("id")]
    yield list(orders.filter(Q(total__gt=3) | Q(note__isnull=True)).order_by("id").values_list("id", flat=True))
    yield list(accounts.annotate(n=Count("orders")).values_list("name", "n"))
    yield list(accounts.annotate(least=Subquery(mine.order_by("id").values("id")[:1]),
                                 some=Exists(mine.filter(total__isnull=True))).values_list("least", "some"))
    yield list(orders.annotate(rank=Window(Rank(), order_by=F("id").desc())).order_by("id")
               .values_list("id", "rank"))
    yield [len(account.orders.filter(account=tenant)) for account in accounts]
    yield sorted(order.id for order in orders.iterator(chunk_size=2))
    yield sorted(orders.filter(id__lt=3).union(orders.filter(id__gt=2)).values_list("id", flat=True))


def writes(using, tenant):
    """Transactions that the ORM makes; nothing of them stays."""
    orders = Order.objects.using(using).filter(account_id=tenant)
    with transaction.atomic(using):
        yield orders.update(total=F("id") + 1)
        Order.objects.using(using).create(account_id=tenant, id=500, total=1)
        try:
            with transaction.atomic(using):
                Order.objects.using(using).bulk_create([Order(account_id=tenant, id=number)
                                                        for number in (501, 500)])
        except IntegrityError:
            yield "again"
        yield list(orders.select_for_update().order_by("id").values_list("id", "total"))
        yield orders.filter(id__gte=500).delete()[0]
        transaction.set_rollback(True, using)
    serial = Serial.objects.using(using).get(serial_no=tenant)
    with transaction.atomic(using):
        serial.weight = 99
        serial.save()
        serial.refresh_from_db()
        yield serial.weight, *Serial.objects.using(using).get_or_create(serial_no=tenant)[1:]
        transaction.set_rollback(True, using)


def request(using, tenant):
    """A request that says its tenant; its statements don't."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"set howdah.key = 'tenant:{tenant}'")
    try:
        orders = Order.objects.using(using).alias(whose=F("account_id") + 0).filter(whose=tenant)
        yield list(orders.order_by("id").values_list("id", flat=True))
        with transaction.atomic(using):
            yield orders.filter(id__gt=2).update(note="x")
            transaction.set_rollback(True, using)
    finally:
        with connections[using].cursor() as cursor:
            cursor.execute("reset howdah.key")


for alias in ("default", "bound"):
    for number in TENANTS:
        connections[alias].close_if_unusable_or_obsolete()
        for work in (reads, writes, request):
            print(alias, number, work.__name__, *work(alias, number))
print("end 1")
