"""Servers in turn, and a disturber between: what a session has must really follow its client.

In this mode of the tests a client that keeps no server never gets the same one twice running, and
somebody else has used each server in between and left there what a session can hold. That this is
so is looked up in PostgreSQL, so that keeping servers can't pass for moving what a session has.
"""

from . import machine, wire
from .howdah import console_rows

# What disturbers leave, each in turn. Nobody else may meet it.
LEFT = (
    "set search_path = nowhere", "set default_transaction_read_only = on", "set role plain_user",
    "create temp table numbers (nothing int)", "set work_mem = '65kB'", "prepare s1 as select 'disturbed'",
    "select pg_advisory_lock(77)", "set row_security = off; set lock_timeout = '1h'",
    "set default_transaction_isolation = serializable", "listen news",
    "declare mine cursor with hold for select 'disturbed'", "set session authorization plain_user",
    "create temp sequence counted; select nextval('counted')", "set app.tenant = 'disturbed'",
    "set extra_float_digits = -15; set check_function_bodies = off",
    "set datestyle = 'German, DMY'; set client_encoding = 'LATIN1'; set timezone = 'Asia/Tokyo'",
    "reset role; reset session authorization; reset all", "discard all",
)

# Which servers were used last by clients of a pooler.
LAST = ("select pid from pg_stat_activity where datname = 'postgres' and "
        "usename = 'postgres' and backend_type = 'client backend' and pid <> pg_backend_pid() "
        "order by state_change desc limit 3")

TURNS = {"pool_mode": "transaction", "server_round_robin": 1, "server_lifetime": 3600,
         "server_check_delay": 3600}


def turns(clients, workers=1):
    """The settings of a pool in this mode for so many clients. Each may keep a server, and two
    servers are always free, one of which a disturber may keep."""
    return {**TURNS, "default_pool_size": clients + 2, "pin_limit": clients + 1, "workers": workers}


class Tally:
    """How many transactions ran, and how many of them on a server that was given out for them."""

    def __init__(self):
        self.ran = self.free = 0

    def __str__(self):
        return f"{self.free} of {self.ran} transactions ({100 * self.free / max(1, self.ran):.0f} %) " \
               "were given a server, the others ran on a kept one"


class Turns:
    """Between two turns of clients: who had which server, and a disturber on each.

    Call `ended` behind each step of a client; behind none but those outside of a transaction, if
    there is one client.
    """

    def __init__(self, howdah, postgres, clients, tally):
        self.howdah, self.clients, self.size, self.tally = howdah, clients, clients + 2, tally
        self.direct = postgres.connect()
        self.console = howdah.connect("admin", "pgbouncer", password="secret")
        self.turn = self.twice = 0
        self.last, self.given = {}, {}
        self.settle()
        self.before = self.counted()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.direct.close()
        self.console.close()

    def ended(self, who="the client", idle=True):
        """A step of a client has ended, outside of a transaction if `idle`: notes which server it
        had, and has all free ones disturbed."""
        ran, given = (now - before for now, before in zip(self.counted(), self.before))
        self.tally.ran += ran
        self.tally.free += given
        self.given[who] = self.given.get(who, 0) + given
        if idle and ran:
            self.note(who, self.last_used())
        if idle:
            self.disturb()
        self.before = self.counted()

    def counted(self):
        """How many transactions ran, and how often a server was given out."""
        row = next(row for row in self.rows("SHOW STATS") if row["database"] == "postgres")
        return int(row["total_xact_count"]), int(row["total_server_assignment_count"])

    def note(self, who, server):
        """It has had this server last. If it was given one once since its last turn, then this, and
        not the one before, unless that was kept for it till then. (With several clients the turns of
        others may bring a server round again; it has been disturbed all the same.)"""
        if self.given.pop(who) == 1 and self.clients == 1 and self.last.get(who) == (server, False):
            # On a busy machine the server used last may be one that the pooler itself has asked or
            # cleaned meanwhile: that is let pass once, and now and then in a long test.
            self.twice += 1
            assert self.twice <= 1 + self.turn // 10, f"{who} got server {server} twice running"
        kept = any(row["remote_pid"] == server and row["pin_reason"]
                   for row in self.mine("SHOW SERVERS_EXTENDED"))
        self.last[who] = server, kept

    def rows(self, command):
        """Rows of the console, by their columns' names."""
        return console_rows(self.console, command)

    def disturb(self):
        """Somebody uses each free server once, in turn, and leaves something there, or leaves with
        it. So the client's last one comes back behind all others."""
        left = LEFT[self.turn % len(LEFT)]
        self.turn += 1
        for number in range(self.settle()):
            with self.howdah.connect() as disturber:
                disturber.rows(left)
                if number % 2:
                    disturber.send(wire.terminate())
            self.settle()

    def last_used(self):
        """The process id of the server that was used last, but for connections that listen."""
        listening = [row["remote_pid"] for row in self.mine("SHOW SERVERS")
                     if row["state"] == "listening"]
        return next(pid for (pid,) in self.direct.rows(LAST) if pid not in listening)

    def settle(self):
        """Waits until all servers are there, each free or a client's; gives how many are free."""
        def settled():
            servers = [row for row in self.mine("SHOW SERVERS") if row["state"] != "listening"]
            idle = sum(row["state"] == "idle" for row in servers)
            if len(servers) < self.size:
                self.fill(self.size - len(servers) + idle)
                return False
            linked = sum(bool(row["link"]) for row in servers)
            here = len(self.mine("SHOW CLIENTS")) <= self.clients
            return here and idle + linked == self.size and [idle]
        return machine.wait_until(settled, "all servers to be at rest")[0]

    def mine(self, command):
        """Rows of the pool."""
        return [row for row in self.rows(command) if row["database"] == "postgres"]

    def fill(self, count):
        """Has so many servers opened."""
        others = [self.howdah.connect() for _ in range(count)]
        for other in others:
            other.rows("begin")
        for other in others:
            other.rows("rollback")
            other.close()
