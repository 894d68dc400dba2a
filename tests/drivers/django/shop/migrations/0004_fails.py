"""A migration that fails behind its first change."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The transaction takes the change back."""

    dependencies = [("shop", "0003_item_price")]
    operations = [
        migrations.AddField("item", "lost", models.IntegerField(null=True)),
        migrations.RunSQL("select 1 / 0"),
    ]
