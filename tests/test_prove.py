"""`./prove`: its records, and the page that is written from them."""

import json

import pytest

from machines import prove, regress

pytestmark = pytest.mark.own


def test_the_page_is_what_the_records_say():
    with open(prove.PAGE) as file:
        assert file.read() == prove.page(), "./prove --page writes it"


def test_every_machine_is_there():
    names = [machine.name for machine in prove.MACHINES]
    assert len(set(names)) == len(names)
    assert set(prove.records()) <= set(names)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record of a machine that prints this, run with these options."""
    monkeypatch.setattr(prove, "RECORDS", tmp_path / "proof.json")
    monkeypatch.setattr(prove, "PAGE", tmp_path / "proof.md")
    (tmp_path / "proof.json").write_text("{}")
    (tmp_path / "proof.md").write_text(prove.BEGIN + prove.END)

    def run(printed, *options, keeps=True):
        machine = prove.Machine("sim", "all", ["sh", "-c", 'printf %s "$0"', printed])
        code = prove.run(machine, options, keeps)
        return code, prove.records().get("sim")
    return run


def test_the_last_line_of_a_machine_is_its_record(record, tmp_path, capsys):
    printed = "{not this one}\n" + json.dumps(
        {"machine": "sim", "ok": False, "runs": 3000, "by": {"fuzz_er": 1, "none": []}, "lost": ["a", "b"],
         "left": [], "seconds": 1.5})
    code, kept = record(printed + "\n", "/home/somebody/suite", "--x")
    assert code == 1 and capsys.readouterr().out == printed + "\n"
    assert kept["options"] == ["suite", "--x"] and not kept["ok"] and kept["runs"] == 3000
    assert "`./prove sim suite --x` | **FAILED**: runs 3,000, by (fuzz er 1), lost a b, seconds 1.5 |" in (
        tmp_path / "proof.md").read_text()


def test_what_is_no_whole_run_is_not_on_record(record):
    assert record('{"machine": "sim", "ok": true}\n', keeps=False) == (0, None)


def test_a_run_that_says_nothing_has_failed(record):
    code, kept = record("It has crashed.\n")
    assert (code, kept["ok"], kept["ended_with"]) == (1, False, 0)


def test_only_known_files_of_the_suite_may_end_differently():
    assert regress.unexpected(["temp"], "transaction") == []
    assert regress.unexpected(["join", "temp"], "transaction") == ["join"]
    assert regress.unexpected(["temp"], "session") == ["temp"]
