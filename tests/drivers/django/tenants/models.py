"""Tables of a database that may be sharded, which are there already."""

from django.db import models


class Account(models.Model):
    """A tenant."""

    account_id = models.BigIntegerField(primary_key=True)
    name = models.TextField(null=True)
    score = models.IntegerField(null=True)

    class Meta:
        managed, db_table = False, "accounts"


class Serial(models.Model):
    """A table with a key of one column, which Django can save and delete."""

    serial_no = models.BigIntegerField(primary_key=True)
    account_id = models.BigIntegerField(null=True)
    weight = models.IntegerField(null=True)

    class Meta:
        managed, db_table = False, "serials"


class Order(models.Model):
    """What a tenant has."""

    pk = models.CompositePrimaryKey("account_id", "id")
    account = models.ForeignKey(Account, models.DO_NOTHING, db_column="account_id", related_name="orders")
    id = models.IntegerField()
    total = models.IntegerField(null=True)
    note = models.TextField(null=True)

    class Meta:
        managed, db_table = False, "orders"
