"""howdah.toml: the file, users in databases, servers' parameters, secrets, and the environment."""

import json
import os
import re
import tomllib

import pytest

from harness import machine, wire
from harness import postgres as pg

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


@pytest.fixture(scope="module")
def strict(system_programs, scratch):
    """A cluster that asks everybody for a password, with roles and a second database."""
    cluster = pg.Postgres(system_programs, scratch, "own")
    cluster.sql("create database shop")
    for role in ("app", "shop_app", "shop_owner", "lone"):
        cluster.sql(f"create role {role} login password '{role}_word'")
    cluster.write_hba("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")
    cluster.reload()
    yield cluster
    cluster.stop()


def write(howdah, name, text):
    """A file beside the log; gives its path."""
    path = os.path.join(howdah.folder, name)
    howdah._write_file(path, text)
    return path


def with_file(make_howdah, strict, text, files=None, start=True, **settings):
    """A Howdah with a howdah.toml: its [howdah] has what a test needs, and `settings`."""
    howdah = make_howdah(start=False, postgres=strict)
    own = {**howdah.sections["pgbouncer"], "auth_type": "scram-sha-256", "auth_file": None,
           "ignore_startup_parameters": None, **settings}
    own = {key: int(value) if str(value).isdigit() else value for key, value in own.items()}
    lines = [f"{key} = {json.dumps(value)}" for key, value in own.items() if value is not None]
    server = f'host = "{strict.host}:{strict.port}"'
    for name, content in (files or {}).items():
        write(howdah, name, content.replace("SERVER", server))
    text = text.replace("SERVER", server)
    howdah.ini_path = write(howdah, "howdah.toml", "\n".join(
        [text.partition("\n[")[0] if text.startswith("include") else "", "[howdah]", *lines,
         "[users.admin]", 'password = "secret"', text[text.index("["):]]))
    if start:
        howdah.start()
    return howdah


def who(howdah, user, database="shop", password=None, query="select current_user"):
    """What a query gives to a user who logs in with a password."""
    with howdah.connect(user=user, database=database, password=password or f"{user}_word") as client:
        return client.value(query)


def refused(howdah, user, database="shop", password=None):
    """The error of a login."""
    with pytest.raises(wire.Refused) as error:
        who(howdah, user, database, password)
    return error.value


SHOP = """[databases.shop]
SERVER
server_user = "shop_owner"
server_password = "shop_owner_word"
parameters = { statement_timeout = "30s", "shop.kind" = "all" }

[databases.shop.users.app]
pool_size = 1
server_user = "shop_app"
server_password = { file = "word" }
parameters = { statement_timeout = "7s" }

[databases.postgres]
SERVER

[users]
app.password = "app_word"
lone.password = "lone_word"
"""


def test_servers_log_in_as_the_file_says(make_howdah, strict):
    """One user of a database has a server login of its own; SHOW keeps the client's user."""
    howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word\n"})
    assert who(howdah, "app") == "shop_app"
    assert who(howdah, "lone") == "shop_owner"
    assert who(howdah, "app", "postgres") == "app"
    assert refused(howdah, "app", password="shop_app_word").code == "28P01"
    assert howdah.pool("shop", "app")["sv_idle"] == 1
    assert howdah.pool("shop", "shop_owner")["sv_idle"] == 1
    assert howdah.pool("shop", "shop_app") is None
    servers = {(row["database"], row["user"]) for row in howdah.console("SHOW SERVERS")}
    assert servers == {("shop", "app"), ("shop", "shop_owner"), ("postgres", "app")}
    with howdah.connect(user="app", database="shop", password="app_word") as first:
        first.ask(wire.query("begin"))
        with howdah.connect(user="app", database="shop", password="app_word") as second:
            second.send(wire.query("select 1"))
            howdah.wait_for_pool("shop", "app", cl_waiting=1)  # pool_size = 1
            first.ask(wire.query("commit"))
            second.read_until()


def test_sessions_start_with_parameters(make_howdah, strict):
    """The nearest counts, a client's own goes before, and a change replaces servers."""
    howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word"})
    shown = "select current_setting('statement_timeout') || current_setting('shop.kind')"
    assert who(howdah, "app", query=shown) == "7sall"
    assert who(howdah, "lone", query=shown) == "30sall"
    with howdah.connect(user="app", database="shop", password="app_word",
                        options="-c statement_timeout=3s") as client:
        assert client.value("show statement_timeout") == "3s"
        client.ask(wire.query("reset statement_timeout"))
        assert client.value("show statement_timeout") == "3s"
    assert who(howdah, "app", query=shown) == "7sall"
    with open(howdah.ini_path) as file:
        text = file.read()
    write(howdah, "howdah.toml", text.replace('"7s"', '"8s"'))
    pids = who(howdah, "app", query="select pg_backend_pid()")
    howdah.reload()
    machine.wait_until(lambda: who(howdah, "app", query=shown) == "8sall", "new servers")
    assert who(howdah, "app", query="select pg_backend_pid()") != pids


def test_only_the_users_of_a_database(make_howdah, strict):
    """users_only, and a password for one database."""
    howdah = with_file(make_howdah, strict, """[databases.shop]
SERVER
users_only = true
[databases.shop.users.app]
password = { env = "SHOP_WORD" }
server_password = "app_word"
[databases."*"]
SERVER
[users]
app.password = "app_word"
lone.password = "lone_word"
""", start=False)
    os.environ["SHOP_WORD"] = "other"
    try:
        howdah.start()
    finally:
        del os.environ["SHOP_WORD"]
    assert who(howdah, "app", password="other") == "app"
    assert refused(howdah, "app", password="app_word").code == "28P01"
    error = refused(howdah, "lone")
    assert (error.code, error.text) == ("42501", 'permission denied for database "shop"')
    assert who(howdah, "lone", "postgres") == "lone"
    assert refused(howdah, "lone", password="wrong").code == "28P01"


def test_a_file_and_its_parts(make_howdah, strict):
    """include, mistakes of all files at once, and what the check says."""
    parts = {"a.toml": "[databases.shop]\nSERVER\n", "b.toml": "[users.app]\npassword = \"app_word\"\n"}
    howdah = with_file(make_howdah, strict, "include = \"?.toml\"\n[hosts]\n",
                       parts)
    assert who(howdah, "app") == "app"
    code, said = howdah.check()
    assert code == 0 and "1 database, 2 users, 3 files" in said, said
    write(howdah, "b.toml", "[users.app]\npassword = hush\npool_siez = 1\n[databases.shop]\nport = 1\n")
    code, said = howdah.check()
    assert code == 1
    assert f"syntax error in configuration ({howdah.folder}/b.toml:2:12)" in said
    assert f'user "app", pool_siez ({howdah.folder}/b.toml:3:1): there is no such setting; did you ' \
           "mean pool_size?" in said
    assert f"port is already set at {howdah.folder}/a.toml:2:1" in said
    assert "hush" not in said
    mark = howdah.log_mark()
    with pytest.raises(wire.Refused):
        howdah.reload()
    howdah.wait_for_log("pool_siez", since=mark)
    assert who(howdah, "app") == "app"
    assert "hush" not in howdah.said()


def environment(make_howdah, strict, variables):
    """A Howdah that has nothing but variables."""
    howdah = make_howdah(start=False, postgres=strict)
    own = {"HOWDAH_LISTEN_PORT": str(howdah.port), "HOWDAH_LOGFILE": howdah.log_path,
           "HOWDAH_WORKERS": "1", "HOWDAH_ADMIN_USERS": "app", **variables}
    os.environ.update(own)
    try:
        howdah.sections["pgbouncer"]["unix_socket_dir"] = ""
        howdah.child = howdah.spawn("--quiet", "--environment")
        howdah.checked = howdah.run_to_end("--check", "--environment")
        machine.wait_until(howdah._listens, "it to listen")
    finally:
        for name in own:
            del os.environ[name]
    return howdah


def test_a_start_without_a_file(make_howdah, strict):
    """The URL's login is that of clients and servers; the console works, and RELOAD reads the same."""
    url = f"postgresql://app:app_word@{strict.host}:{strict.port}"
    howdah = environment(make_howdah, strict, {
        "HOWDAH_DATABASE_URLS": f"{url}/shop,{url}/postgres?application_name=x",
        "HOWDAH_POOL_MODE": "transaction", "HOWDAH_QUERY_WAIT_TIMEOUT": "5s",
        "HOWDAH_SERVICE_HOST": "10.0.0.1", "HOWDAH_PORT": "tcp://10.0.0.1:6432"})
    assert howdah.checked[0] == 0 and "the environment: configuration OK: 2 databases" in howdah.checked[1]
    assert who(howdah, "app") == "app"
    assert who(howdah, "app", "postgres", query="show application_name") == "x"
    assert refused(howdah, "app", password="wrong").code == "28P01"
    with howdah.connect(user="app", database="pgbouncer", password="app_word") as console:
        assert "E" not in [got.tag for got in console.ask(wire.query("RELOAD"))]
    assert who(howdah, "app") == "app"
    for line in (howdah.log() + howdah.checked[1]).splitlines():
        assert "app_word" not in line


def test_variables_beside_a_file(make_howdah, strict):
    """A variable goes before the file, at each reload; one that nobody knows is a mistake."""
    os.environ["HOWDAH_QUERY_WAIT_TIMEOUT"] = "7s"
    try:
        howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word"}, query_wait_timeout=3)
        assert howdah.setting("query_wait_timeout") == "7"
        howdah.reload()
        assert howdah.setting("query_wait_timeout") == "7"
        howdah.console("SET query_wait_timeout = 8")
        assert howdah.setting("query_wait_timeout") == "8"
        os.environ["HOWDAH_QERY_TIMEOUT"] = "7s"
        code, said = howdah.check()
        assert code == 1 and "did you mean HOWDAH_QUERY_TIMEOUT?" in said
    finally:
        del os.environ["HOWDAH_QUERY_WAIT_TIMEOUT"]
        os.environ.pop("HOWDAH_QERY_TIMEOUT", None)


def test_every_sample_is_right(make_howdah, strict):
    """Each example of TOML in the pages, and the packaged file."""
    howdah = make_howdah(start=False, postgres=strict)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    texts = [open(os.path.join(root, "packaging/howdah.toml")).read().replace("/run/howdah", howdah.folder)]
    for page in ("howdah-toml.md", "settings.md"):
        with open(os.path.join(root, "docs", page)) as file:
            texts += re.findall(r"^```toml\n(.*?)^```", file.read(), re.M | re.S)
    assert len(texts) == 4
    word = write(howdah, "word", "x")
    os.environ["APP_PASSWORD"] = "x"
    try:
        for text in texts:
            tomllib.loads(text)
            text = re.sub(r"/run/secrets/\w+", word, text).replace("/etc/howdah/userlist.txt", howdah.users_path)
            main = "" if "[howdah]" in text else "[howdah]\n"
            code, said = howdah.run_to_end("--check", write(howdah, "sample.toml", main + text))
            assert code == 0, said
    finally:
        del os.environ["APP_PASSWORD"]


def test_config_commands(make_howdah, strict):
    """check, convert and show; an ini file that was converted runs."""
    howdah = make_howdah(postgres=strict, databases={
        "shop": f"host={strict.host} port={strict.port} user=shop_owner password=shop_owner_word",
        "*": f"host={strict.host} port={strict.port} options='-c statement_timeout=9s'"},
        users={"lone": "pool_size=3"}, secrets={"lone": "lone_word"})
    code, toml = howdah.run_to_end("config", "convert", howdah.ini_path)
    assert code == 0, toml
    assert tomllib.loads(toml)["databases"]["*"]["parameters"] == {"statement_timeout": "9s"}
    before = [row for row in howdah.console("SHOW CONFIG") if row["key"] != "conffile"]
    howdah.stop()
    howdah.ini_path = write(howdah, "made.toml", toml)
    howdah.start()
    assert [row for row in howdah.console("SHOW CONFIG") if row["key"] != "conffile"] == before
    assert who(howdah, "lone", query="show statement_timeout") == "0"
    assert who(howdah, "lone", "postgres", query="show statement_timeout") == "9s"
    code, said = howdah.run_to_end("config", "show", howdah.ini_path, "--database=shop", "--user=lone")
    assert code == 0 and "pool_size = 3  (" in said and "server_password = ****  (" in said
    assert "_word" not in said
    code, said = howdah.run_to_end("config", "check", howdah.ini_path)
    assert code == 0 and "configuration OK: 2 databases" in said
    write(howdah, "made.toml", toml + "[users.x]\npasswrd = 'hush'\nquery_timeout = [1]\n")
    code, said = howdah.run_to_end("config", "check", howdah.ini_path)
    lines = toml.count("\n")
    assert code == 1 and said.splitlines()[:2] == [
        f'{howdah.ini_path}:{lines + 2}:1: user "x", passwrd: there is no such setting; did you mean password?',
        f'{howdah.ini_path}:{lines + 3}:1: user "x", query_timeout: must be a number of seconds, 0 or more, '
        "not an array"]
    code, said = howdah.run_to_end("config", "check", "--json", howdah.ini_path)
    first, _ = json.loads(said)["errors"]
    assert (code, first["line"], first["column"], first["what"]) == (1, lines + 2, 1, 'user "x", passwrd')
    assert "hush" not in said
    howdah.stop()


def test_servers_of_one_user_listen_and_move(make_howdah, strict):
    """The listening connection has the same login, and -R takes such servers over."""
    howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word"}, listen="share")
    with howdah.connect(user="app", database="shop", password="app_word") as client:
        client.ask(wire.query("listen news"))
        assert who(howdah, "app", query="select pg_notify('news', 'hi')") == ""
        assert client.read_until("A")
        users = strict.sql("select distinct usename from pg_stat_activity where datname = 'shop'")
        assert users == [["shop_app"]]
    pid = who(howdah, "app", query="select pg_backend_pid()")
    old, mark = howdah.child, howdah.log_mark()
    howdah.child = howdah.spawn("-R", "--quiet", howdah.ini_path)
    assert old.wait(30) == 0, howdah.said()
    howdah.wait_for_log("process up", since=mark)
    assert who(howdah, "app", query="select pg_backend_pid()") == pid


def test_secrets_are_shown_nowhere(make_howdah, strict):
    """No log, SHOW, mistake or output has the value of a secret setting."""
    text = SHOP.replace("SERVER\nserver_user", "SERVER\nconnect_query = \"select 'hush1'\"\nserver_user", 1)
    text += ('[databases.gone]\nurl = "postgresql://u:hush2@127.0.0.1:1/gone"\n'
             "[databases.gone.users.lone]\npassword = 'hush3'\nserver_password = 'hush4'\n")
    howdah = with_file(make_howdah, strict, text, {"word": "shop_app_word"}, verbose=2, http_token="hush5",
                       auth_ldap_options="ldapserver=h ldapbindpasswd=hush6")
    assert who(howdah, "app") == "shop_app"
    refused(howdah, "lone", "gone", password="hush3")
    said = ""
    for what in ("CONFIG", "DATABASES", "USERS", "POOLS", "SERVERS", "CLIENTS", "LISTS", "STATS", "HOSTS"):
        said += str(howdah.console(f"SHOW {what}"))
    for arguments in (["check"], ["check", "--json"], ["show"], ["show", "--database=gone", "--user=lone"],
                      ["show", "--database=shop"]):
        said += howdah.run_to_end("config", arguments[0], howdah.ini_path, *arguments[1:])[1]
    with open(howdah.ini_path, "a") as file:
        file.write("[databases.gone.users.x]\npassword = ['hush7']\nserver_password = { hush8 = 1 }\n")
    said += howdah.run_to_end("config", "check", howdah.ini_path)[1] + howdah.check()[1]
    with pytest.raises(wire.Refused) as error:
        howdah.reload()
    said += str(error.value) + howdah.said()
    assert "server_password" in said and not re.findall("hush|_word", said)


def test_settings_tell_their_places(make_howdah, strict):
    """SHOW SETTINGS: the file, SET, the command line, the default; no secret."""
    howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word"}, http_token="marker-of-the-token")
    howdah.console("SET query_wait_timeout = 7")
    rows = {(row["name"], row["entry"]): row for row in howdah.console("SHOW SETTINGS")}

    def told(name, entry=None):
        row = rows[name, entry]
        place = (row["place"] or "default").rpartition("/")[2].partition(":")[0]
        return row["value"], place, row["changeable"]
    assert told("listen_port") == (str(howdah.port), "howdah.toml", "no")
    assert told("query_wait_timeout") == ("7", "SET", "yes")
    assert told("server_lifetime") == ("3600", "default", "yes")
    assert told("pool_size", "databases.shop.users.app") == ("1", "howdah.toml", "yes")
    assert told("password", "users.app")[0].strip("*") == ""
    assert not re.search("_word|marker-of-the-token|'secret'", str(rows))


def test_a_changed_file_is_read_again(make_howdah, strict):
    """reload_on_change: a link that is swapped, and a mistake, which is told once."""
    howdah = with_file(make_howdah, strict, SHOP, {"word": "shop_app_word"}, start=False,
                       reload_on_change=1)
    with open(howdah.ini_path) as file:
        text = file.read()

    def version(name, text):
        """Another folder with the file; the link to it is swapped, as Kubernetes does."""
        folder = os.path.join(howdah.folder, name)
        os.mkdir(folder)
        write(howdah, os.path.join(name, "howdah.toml"), text)
        write(howdah, os.path.join(name, "word"), "shop_app_word")
        machine.hand_over(folder)
        os.symlink(name, os.path.join(howdah.folder, "next"))
        os.replace(os.path.join(howdah.folder, "next"), os.path.join(howdah.folder, "data"))

    def has(wait):
        machine.wait_until(lambda: howdah.setting("query_wait_timeout") == wait, "the reload")
    version("first", text.replace("[howdah]", "[howdah]\nquery_wait_timeout = 11"))
    howdah.ini_path = os.path.join(howdah.folder, "data", "howdah.toml")
    howdah.start()
    has("11")
    version("second", text.replace("[howdah]", "[howdah]\nquery_wait_timeout = 12"))
    has("12")
    version("wrong", text.replace("[howdah]", "[howdah]\nquery_wait_timeout = \"soon\""))
    howdah.wait_for_log("config file loading failed")
    version("third", text.replace("[howdah]", "[howdah]\nquery_wait_timeout = 13"))
    has("13")
    assert howdah.log().count("config file loading failed") == 1
