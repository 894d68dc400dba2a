"""Reads the console with psycopg's defaults, which open a transaction, and prepared, in both
formats."""

import sys

import psycopg

with psycopg.connect("") as conn:
    for turn in range(2):
        for table in sys.argv[1:]:
            rows = conn.execute(f"show {table}").fetchall()
            for binary in (False, True):
                cursor = conn.cursor(binary=binary)
                prepared = cursor.execute(f"show {table}", prepare=True).fetchall()
                assert [len(row) for row in prepared] == [len(row) for row in rows], table
            print(table, len(rows))
    with conn.transaction():
        conn.execute("select 1")
    conn.execute("pause %s", ["postgres"])
    conn.execute("resume %s", ["postgres"])
    try:
        conn.execute("show nothing", prepare=True)
        raise AssertionError("no error")
    except psycopg.errors.ProtocolViolation:
        conn.rollback()
    # More than it keeps prepared: it deallocates the oldest.
    for number in range(120):
        conn.execute(f"set statement_timeout = {number}", prepare=True)
    with conn.pipeline():
        cursors = [conn.execute(f"show {table}") for table in sys.argv[1:]]
    assert all(cursor.fetchall() is not None for cursor in cursors)
print("end 1")
