"""An index made beside the table's use, which is possible outside of a transaction only."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Without a transaction."""

    atomic = False
    dependencies = [("shop", "0002_first_tags")]
    operations = [AddIndexConcurrently("item", models.Index(fields=["price"], name="item_price"))]
