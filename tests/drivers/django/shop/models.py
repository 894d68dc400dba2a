"""What the workload keeps."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Tag(models.Model):
    """A word that items share."""

    name = models.CharField(max_length=40, unique=True)


class Item(models.Model):
    """A row of one client."""

    owner = models.IntegerField()
    name = models.CharField(max_length=40)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    made = models.DateTimeField()
    about = models.JSONField(default=dict)
    sizes = ArrayField(models.IntegerField(), default=list)
    tags = models.ManyToManyField(Tag)

    class Meta:
        unique_together = [("owner", "name")]
        indexes = [models.Index(fields=["price"], name="item_price")]
