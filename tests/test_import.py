"""howdah import: users log in where they could with the other pooler, and nowhere else."""

import json
import os
import stat
import tomllib

import pytest

from harness import postgres as pg
from harness import wire

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


@pytest.fixture(scope="module")
def strict(system_programs, scratch):
    """A cluster that asks everybody for a password."""
    cluster = pg.Postgres(system_programs, scratch, "imported")
    for database in ("shop", "stock"):
        cluster.sql(f"create database {database}")
    for role in ("app", "jobs", "shop_app", "stock_app"):
        cluster.sql(f"create role {role} login password '{role}_word'")
    cluster.sql("set password_encryption = md5; create role asked login password 'asked_word'")
    cluster.sql("create role asker login superuser password 'asker_word'")
    cluster.write_hba("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 md5")
    cluster.reload()
    yield cluster
    cluster.stop()


def imported(make_howdah, strict, files, code=0):
    """A Howdah that runs with what an import of these files gives, and the import's output."""
    howdah = make_howdah(start=False, postgres=strict)
    paths = []
    for name, text in files.items():
        paths.append(os.path.join(howdah.folder, name))
        text = text.replace("PG_PORT", str(strict.port)).replace("PORT", str(howdah.port))
        howdah._write_file(paths[-1], text)
    done, said = howdah.run_to_end("import", *paths, "--out", howdah.folder, "--json")
    assert done == code, said
    howdah.ini_path = os.path.join(howdah.folder, "howdah.toml")
    howdah.sections["pgbouncer"]["unix_socket_dir"] = ""
    done, checked = howdah.run_to_end("config", "check", howdah.ini_path)
    assert done == 0, checked
    howdah.start()
    return howdah, json.loads(said)


def who(howdah, user, database, password):
    """Whom PostgreSQL sees, and where."""
    with howdah.connect(user=user, database=database, password=password) as client:
        return client.value("select current_user || ' in ' || current_database()")


def refused(howdah, user, database, password):
    """Whether a login is refused."""
    with pytest.raises(wire.Refused):
        who(howdah, user, database, password)
    return True


PGCAT = """[general]
host = "127.0.0.1"
port = PORT
admin_username = "admin"
admin_password = "secret"

[pools.front]
pool_mode = "transaction"
[pools.front.users.0]
username = "app"
password = "front_word"
server_username = "shop_app"
server_password = "shop_app_word"
pool_size = 3
[pools.front.users.1]
username = "jobs"
password = "jobs_word"
pool_size = 2
pool_mode = "session"
[pools.front.shards.0]
servers = [["127.0.0.1", PG_PORT, "primary"]]
database = "shop"

[pools.stock]
[pools.stock.users.0]
username = "app"
password = "app_word"
pool_size = 3
[pools.stock.users.1]
username = "guest"
auth_type = "trust"
server_username = "stock_app"
server_password = "stock_app_word"
pool_size = 1
[pools.stock.shards.0]
servers = [["127.0.0.1", PG_PORT, "primary"]]
database = "stock"
"""


def test_pgcat(make_howdah, strict):
    """Passwords for each database, other names at the server, trust for one user, a console."""
    howdah, report = imported(make_howdah, strict, {"pgcat.toml": PGCAT})
    assert (report["from"], report["loses_what_decides"]) == ("PgCat", False)
    assert who(howdah, "app", "front", "front_word") == "shop_app in shop"
    assert who(howdah, "jobs", "front", "jobs_word") == "jobs in shop"
    assert who(howdah, "app", "stock", "app_word") == "app in stock"
    assert who(howdah, "guest", "stock", "anything") == "stock_app in stock"
    assert refused(howdah, "app", "front", "app_word")
    assert refused(howdah, "app", "stock", "front_word")
    assert refused(howdah, "jobs", "stock", "jobs_word")
    assert refused(howdah, "guest", "front", "anything")
    assert refused(howdah, "admin", "front", "secret")
    assert refused(howdah, "app", "shop", "app_word")
    assert refused(howdah, "app", "pgbouncer", "app_word")
    howdah.secrets["admin"] = "secret"
    assert howdah.setting("pool_mode") == "session"  # the pools have their own
    assert (howdah.pool("front", "app")["pool_mode"], howdah.setting("query_wait_timeout")) == (
        "transaction", "1")
    mode = os.stat(os.path.join(howdah.folder, "secrets.toml")).st_mode
    assert stat.S_IMODE(mode) == 0o600
    with open(howdah.ini_path, "rb") as file:
        assert "word" not in str(tomllib.load(file)["databases"])


def test_pgcat_asks_for_passwords(make_howdah, strict):
    """auth_query, for the users that the file names, and no others."""
    howdah, _ = imported(make_howdah, strict, {"pgcat.toml": """[general]
host = "127.0.0.1"
port = PORT
auth_query = "SELECT usename, passwd FROM pg_shadow WHERE usename='$1'"
auth_query_user = "asker"
auth_query_password = "asker_word"
[pools.shop.users.0]
username = "asked"
pool_size = 2
[pools.shop.shards.0]
servers = [["127.0.0.1", PG_PORT, "primary"]]
database = "shop"
"""})
    assert who(howdah, "asked", "shop", "asked_word") == "asked in shop"
    assert refused(howdah, "asked", "shop", "wrong")
    assert refused(howdah, "app", "shop", "app_word")
    assert refused(howdah, "asker", "shop", "asker_word")


def test_pgdog(make_howdah, strict):
    """Two files, users of several databases, a login of the database, servers' parameters."""
    howdah, report = imported(make_howdah, strict, {"pgdog.toml": """[general]
host = "127.0.0.1"
port = PORT
[admin]
password = "secret"
[[databases]]
name = "shop"
host = "127.0.0.1"
port = PG_PORT
user = "shop_app"
password = "shop_app_word"
statement_timeout = 5000
[[databases]]
name = "back"
host = "127.0.0.1"
port = PG_PORT
database_name = "stock"
[[sharded_tables]]
database = "shop"
column = "id"
""", "users.toml": """[[users]]
name = "app"
databases = ["shop", "back"]
password = "app_word"
[[users]]
name = "jobs"
database = "back"
password = "other_word"
server_password = "jobs_word"
"""}, code=1)
    lost = [key["key"] for key in report["keys"] if key["decides"]]
    assert (report["from"], lost) == ("PgDog", ["sharded_tables"])
    assert who(howdah, "app", "shop", "app_word") == "shop_app in shop"
    assert who(howdah, "app", "back", "app_word") == "app in stock"
    assert who(howdah, "jobs", "back", "other_word") == "jobs in stock"
    assert refused(howdah, "jobs", "back", "jobs_word")
    assert refused(howdah, "jobs", "shop", "other_word")
    assert refused(howdah, "admin", "shop", "secret")
    with howdah.connect(user="app", database="shop", password="app_word") as client:
        assert client.value("show statement_timeout") == "5s"
    howdah.secrets["admin"] = "secret"
    assert howdah.pool("shop", "app")["pool_mode"] == "transaction"


def test_pg_doorman(make_howdah, strict):
    """A database for all users that PostgreSQL knows; the console's password opens the console alone."""
    howdah, _ = imported(make_howdah, strict, {"pg_doorman.yaml": """general:
  host: 127.0.0.1
  port: PORT
  admin_username: admin
  admin_password: secret
pools:
  shop:
    server_host: 127.0.0.1
    server_port: PG_PORT
    auth_query:
      query: "SELECT usename, passwd FROM pg_shadow WHERE usename = $1"
      user: asker
      password: asker_word
      database: shop
      server_user: shop_app
      server_password: shop_app_word
"""})
    assert who(howdah, "asked", "shop", "asked_word") == "shop_app in shop"
    assert refused(howdah, "asked", "shop", "wrong")
    assert refused(howdah, "admin", "shop", "secret")
    howdah.secrets["admin"] = "secret"
    assert howdah.setting("query_wait_timeout") == "5"


def test_nothing_is_overwritten(make_howdah, strict):
    """A file that is there, one that can't be read, and two poolers' files end with 2."""
    howdah = make_howdah(start=False, postgres=strict)
    path = os.path.join(howdah.folder, "pgcat.toml")
    dog = os.path.join(howdah.folder, "pgdog.toml")
    secrets = os.path.join(howdah.folder, "secrets.toml")
    howdah._write_file(path, PGCAT.replace("PG_PORT", "1").replace("PORT", "2"))
    howdah._write_file(dog, '[[databases]]\nname = "a"\n')
    howdah._write_file(secrets, "mine")
    order = ("import", "--out", howdah.folder, path)
    for arguments, said in [
        (order, "is there already"),
        ((*order, dog), "is PgDog's, another file is PgCat's"),
        ((*order, "--from", "pgdg"), "did you mean pgdog?"),
        (("import", "nowhere.toml"), "could not load file"),
        (("import",), "needs the files of another pooler"),
    ]:
        code, output = howdah.run_to_end(*arguments)
        assert (code, said in output) == (2, True), output
    assert not os.path.exists(os.path.join(howdah.folder, "howdah.toml"))
    os.remove(secrets)
    code, output = howdah.run_to_end(*order, "--markdown")
    assert (code, output.startswith("# Import from PgCat")) == (0, True), output
