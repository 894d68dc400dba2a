"""Two tables, and the one between them."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    """In one transaction, as most."""

    initial = True
    operations = [
        migrations.CreateModel("Tag", [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=40, unique=True)),
        ]),
        migrations.CreateModel("Item", [
            ("id", models.BigAutoField(primary_key=True)),
            ("owner", models.IntegerField()),
            ("name", models.CharField(max_length=40)),
            ("price", models.DecimalField(max_digits=8, decimal_places=2, default=0)),
            ("made", models.DateTimeField()),
            ("about", models.JSONField(default=dict)),
            ("sizes", django.contrib.postgres.fields.ArrayField(models.IntegerField(), default=list)),
            ("tags", models.ManyToManyField("shop.Tag")),
        ], options={"unique_together": {("owner", "name")}}),
    ]
