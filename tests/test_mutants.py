"""`./prove mutants`: what it keeps of the mutations that it has played, and how it weaves them."""

import json
import sys

import pytest

import machines

sys.path.insert(0, f"{machines.ROOT}/crates/sim")
import mutants  # noqa: E402
import weave  # noqa: E402

pytestmark = pytest.mark.own

NAMES = {"buffer-kept", "cancel-lost", "crashed", "equal-nothing", "place-not-kept"}


def noted(limit=400, before=None):
    """A record of five mutations."""
    record = before or {}
    for name, outcome in {
            "buffer-kept": ("memory", 1), "cancel-lost": None, "crashed": ("crash", "<501"),
            "equal-nothing": None, "place-not-kept": ("tests", "")}.items():
        mutants.note(record, name, outcome, limit, "abc")
    return record


def test_what_is_seen_is_noted_and_counted():
    assert noted() == {
        "buffer-kept": {"checker": "memory", "runs": "1", "commit": "abc"},
        "cancel-lost": {"missed": 400, "commit": "abc"},
        "crashed": {"checker": "crash", "runs": "<501", "commit": "abc"},
        "equal-nothing": {"missed": 400, "commit": "abc"},
        "place-not-kept": {"checker": "tests", "runs": "", "commit": "abc"},
    }
    counted = mutants.figures(noted())
    assert counted.pop("of") > 100
    assert counted == {"mutations": 5, "seeds": 2, "tests": 1, "missed": ["cancel-lost"], "commits": 1}


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


SOURCE = """\
use crate::row::Row;

impl Pool {
    pub(crate) fn has_room(&self) -> bool {
        self.taken < LIMIT
    }

    fn next<T>(
        &mut self,
        wanted: T,
    ) -> Option<Row>
    where
        T: Wish,
    {
        if wanted.is_none() {
            return None;
        }
        self.rows.pop()
    }

    const fn limit() -> usize {
        LIMIT
    }
}

trait Wish {
    fn is_none(&self) -> bool;
}
"""

WOVEN = """\
use crate::row::Row;

impl Pool {
    pub(crate) fn has_room(&self) -> bool {
if crate::mutant::is(3) {
        true
} else if crate::mutant::is(8) {
        self.taken <= LIMIT
} else {
        self.taken < LIMIT
}
    }

    fn next<T>(
        &mut self,
        wanted: T,
    ) -> Option<Row>
    where
        T: Wish,
    {
if crate::mutant::is(8) {
        self.rows.pop()
} else {
        if wanted.is_none() {
            return None;
        }
        self.rows.pop()
}
    }

    const fn limit() -> usize {
        LIMIT
    }
}

trait Wish {
    fn is_none(&self) -> bool;
}
"""

# One patch changes a function, another changes the same one and the next.
EVERY_ROW = {3: SOURCE.replace("self.taken < LIMIT", "true")}
TWO = {**EVERY_ROW, 8: SOURCE.replace("taken < ", "taken <= ").replace("""\
        if wanted.is_none() {
            return None;
        }
""", "")}


def changes(mutated):
    return {number: weave.changed_bodies(SOURCE, text) for number, text in mutated.items()}


def test_functions_choose_among_the_bodies_of_mutations():
    woven, owners = weave.weave(SOURCE, changes(TWO))
    assert woven == WOVEN
    of = dict(zip(woven.split("\n"), owners))
    assert of["impl Pool {"] == ()
    assert of["        true"] == (3,)
    assert of["        self.taken <= LIMIT"] == (8,)
    assert of["        self.taken < LIMIT"] == (3, 8)


@pytest.mark.parametrize("old, new", [
    ("const fn limit() -> usize {\n        LIMIT", "const fn limit() -> usize {\n        7"),
    ("wanted: T", "mut wanted: T"),
    ("use crate::row::Row;", "use crate::row::Row as R;"),
])
def test_what_is_outside_of_bodies_is_not_woven(old, new):
    mutated = SOURCE.replace(old, new)
    assert mutated != SOURCE
    assert weave.changed_bodies(SOURCE, mutated) is None


def test_a_crate_with_woven_functions_has_the_module_they_ask():
    texts = {"crates/x/src/pool.rs": SOURCE, "crates/x/src/lib.rs": "mod pool;\n"}
    woven = {number: {"crates/x/src/pool.rs": bodies} for number, bodies in changes(TWO).items()}
    files, _ = weave.weave_files(texts.get, woven)
    assert files == {
        "crates/x/src/pool.rs": WOVEN,
        "crates/x/src/lib.rs": "mod pool;\nmod mutant;\n",
        "crates/x/src/mutant.rs": weave.MUTANT,
    }


def error(line, is_primary=True, file="pool.rs", expansion=None):
    return {"file_name": file, "line_start": line, "is_primary": is_primary, "expansion": expansion}


def test_an_error_of_the_compiler_is_blamed_on_the_mutations_of_its_line():
    owners = {"pool.rs": [(), (3,), (8,), (3, 8)]}
    def blamed(*spans):
        return weave.blamed([{"spans": list(spans)}], owners)
    assert blamed(error(2)) == {3}
    assert blamed(error(4)) == {3, 8}
    assert blamed(error(3), error(2, is_primary=False)) == {8}
    assert blamed(error(1), error(2, is_primary=False)) == {3}
    assert blamed(error(9, file="macros.rs", expansion={"span": error(3)})) == {8}
    assert blamed(error(1)) == blamed() == set()
