"""Rows, by the model as it is at this migration."""

from django.db import migrations


def fill(apps, schema_editor):
    """Makes a few tags."""
    tags = apps.get_model("shop", "Tag").objects.using(schema_editor.connection.alias)
    tags.bulk_create([tags.model(name=f"first {number}") for number in range(3)])


class Migration(migrations.Migration):
    """Its way back leaves the rows."""

    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
