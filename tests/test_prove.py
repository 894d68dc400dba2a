"""`./prove`: what it reads from the machines, and that the page is written from the records."""

import pytest

from harness import prove, regress

pytestmark = pytest.mark.own


def test_the_page_is_what_the_records_say():
    with open(prove.PAGE) as file:
        assert file.read() == prove.page(), "./prove --page writes it"


def test_every_machine_is_there():
    names = [machine.name for machine in prove.MACHINES]
    assert len(set(names)) == len(names)
    assert set(prove.records()) <= set(names)


@pytest.mark.parametrize("name, output, said", [
    ("simulation", "seed 7\n30 runs, 4 statements, 5 turns, 6 lends, 7 moves, 1.3 s, 0 failed\n",
     "30 runs, 4 statements, 5 turns, 6 lends, 7 moves, 1.3 s, 0 failed"),
    ("transparent", "....\n===== 26 passed, 1 failed in 3.1s =====\n",
     "26 passed, 1 failed in 3.1s"),
    ("load", "behaviour  operations  per s  wrong  unexpected  hangs\n"
             "copy_out          106      5      0           1      0  <--\n"
             "cancel             94      5      2           0      0  <--\n"
             "end: accounts       1             0           0      0\n",
     "200 operations: 2 wrong, 1 unexpected, 0 hangs"),
    ("cores", "layout             cores      bound      fixed    reached   part  of it\n"
              "a pool of 100          8     204312     200100     199934   0.98   1.00  0.0000  "
              "0.0100  0.0001     8   2 s\n"
              "a pool of 100         16     408624     356211     352122   0.86   0.99  0.0010  "
              "0.0200  0.0001    16   3 s  MISS\n"
              "a step in load, 2 virtual cores (the rules, not speed): wide after 812 ms; 4 clients "
              "moved during a transaction, the latest by 2.10 ms\n",
     "2 cells: at least 0.86 of the bound and 0.99 of a fixed division; 1 steps in load: wide "
     "after 812 ms; 1 missed"),
    ("mutants", "mutation                 noticed by     runs\n"
                "buffer-kept              memory            1  \n"
                "equal-nothing            NOT NOTICED          \n"
                "place-not-kept           tests                \n"
                "cancel-lost              NOT NOTICED          \n",
     "4 mutations: seeds noticed 1, tests 1; NOT NOTICED: cancel-lost"),
    ("decisions", "and bytes for sockets, relayed as they came or written by Howdah\n"
                  "                     instructions  atomics  bytes_relayed  bytes_written\n"
                  "simple                       3664        0             89              0\n"
                  "simple-101-rows              5463        0           1289              0\n\n",
     "simple 3664, simple-101-rows 5463"),
    ("regress", "+ a line that differs\n2 tests end differently: guc temp; all are expected of "
                "transaction mode\n",
     "2 tests end differently: guc temp; all are expected of transaction mode"),
    ("fuzz", "== messages\nstat::number_of_executed_units: 77\n== ldap\nx\n"
             "stat::number_of_executed_units: 5\n", "messages 77, ldap 5"),
])
def test_what_a_machine_said(name, output, said):
    machine = next(machine for machine in prove.MACHINES if machine.name == name)
    assert machine.read(output) == said


def test_commands_name_no_folders_of_this_machine():
    assert prove.shown(["./regress", "/home/somebody/regress", "--x"]) == "./regress regress --x"


@pytest.mark.parametrize("different, mode, code", [
    ([], "session", 0),
    ([], "transaction", 0),
    (["temp.out"], "transaction", 0),
    (["temp.out"], "session", 1),
    (["join.out", "temp.out"], "transaction", 1),
])
def test_only_known_files_of_the_suite_may_end_differently(different, mode, code):
    said, got = regress.verdict(different, mode)
    assert got == code
    assert ("NOT EXPECTED" in said) == (code == 1)
    assert prove.last(r"tests? ends? differently")(said) == said.strip("= ")
