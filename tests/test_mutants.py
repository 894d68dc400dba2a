"""`./sim mutants`: what it keeps of the mutations that it has played."""

import importlib.util
import json

import pytest

from harness import prove

pytestmark = pytest.mark.own

SPEC = importlib.util.spec_from_file_location("mutants", f"{prove.ROOT}/crates/sim/mutants.py")
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)

LOG = """\
mutation                                     noticed by     runs
buffer-kept                                  memory            1  
cancel-lost                                  NOT NOTICED          
crashed                                      crash          <501  
disk-full                                    NOT BUILT            error: no space
equal-nothing                                NOT NOTICED          
moved-away                                   OUTDATED             
place-not-kept                               tests                
Mon Nov 23 11:53:24 UTC 2026
by chance 1                                  memory            1  pool/mod.rs:7 self.keep = keep;
"""
NAMES = {"buffer-kept", "cancel-lost", "crashed", "disk-full", "equal-nothing", "moved-away",
         "place-not-kept"}


def noted(limit=400, before=None):
    """A record with all of the log."""
    record = before or {}
    for name, outcome in mutants.read_log(LOG, NAMES):
        mutants.note(record, name, outcome, limit, "abc")
    return record


def test_a_log_is_read():
    assert noted() == {
        "buffer-kept": {"checker": "memory", "runs": "1", "commit": "abc"},
        "cancel-lost": {"missed": 400, "commit": "abc"},
        "crashed": {"checker": "crash", "runs": "<501", "commit": "abc"},
        "equal-nothing": {"missed": 400, "commit": "abc"},
        "place-not-kept": {"checker": "tests", "runs": "", "commit": "abc"},
    }


def test_what_is_missed_and_what_is_lost_is_complained_about():
    said = list(mutants.complaints(noted(), NAMES - {"crashed"}))
    assert [line.split()[:2] for line in said] == [["MISSED", "cancel-lost:"], ["LOST", "crashed:"]]


def test_what_was_noticed_once_must_be_noticed_again():
    before = {"cancel-lost": {"checker": "reply", "runs": "300", "commit": "old"}}
    record = noted(400, before)
    said = list(mutants.complaints(record, NAMES))
    assert said == ["MISSED    cancel-lost, which reply noticed before: 400 seeds of abc"]
    mutants.note(record, "cancel-lost", ("reply", 7), 400, "new")
    assert not list(mutants.complaints(record, NAMES))


def test_fewer_seeds_than_it_took_miss_nothing():
    before = {"cancel-lost": {"checker": "reply", "runs": "300", "commit": "old"}}
    assert not list(mutants.complaints(noted(299, before), NAMES))


def test_a_mutation_that_changes_nothing_is_not_noticed():
    record = {"equal-nothing": {"checker": "reply", "runs": "3", "commit": "abc"}}
    assert [line.split()[0] for line in mutants.complaints(record, NAMES)] == ["NOTICED"]


def test_a_record_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "RECORD", tmp_path / "noticed.json")
    assert mutants.load_record() == {}
    mutants.save_record(noted())
    assert mutants.load_record() == noted()
    assert json.loads((tmp_path / "noticed.json").read_text()) == noted()
