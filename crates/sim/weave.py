"""Weaves many mutations into one text: where they change the body of a function, the function has
all of their bodies, and asks at run time which of them is played.

    fn keeps(&self) -> bool {
        if crate::mutant::is(7) {
            true
        } else {
            self.kept > 0
        }
    }

The sources are as rustfmt writes them, so a function ends at the first brace that stands as far
left as the function does. A mutation that changes more than bodies can't be woven in.
"""
import re

# What runs while the compiler compiles can't ask; so a `const fn` is no function here.
HEADER = re.compile(r"( *)(?:pub(?:\([^)]*\))? )?(?:unsafe )?fn \w")

# The module that a crate with woven functions is given.
MUTANT = """\
//! Which mutation is played: none, unless the environment says so.
use std::sync::LazyLock;

static PLAYED: LazyLock<u32> = LazyLock::new(|| match std::env::var("HOWDAH_MUTANT") {
    Ok(number) => number.parse().expect("HOWDAH_MUTANT is a number"),
    Err(_) => 0,
});

/// Whether it is this one.
pub fn is(number: u32) -> bool {
    *PLAYED == number
}
"""


def body(lines, at):
    """First line and end of the body of the function that begins in a line, if one does."""
    header = HEADER.match(lines[at])
    if not header:
        return None
    as_far_left = re.compile(header[1] + r"\S")
    own = (n for n in range(at, len(lines)) if as_far_left.match(lines[n]))
    opens = next((n for n in own if lines[n].endswith(("{", "}", ";"))), None)
    if opens is None or not lines[opens].endswith("{"):
        return None
    closes = next((n for n in own if lines[n] == header[1] + "}"), None)
    return closes and (opens + 1, closes)


def split(text):
    """The outermost bodies of a text, and what stands around them: one more of these, all as lists
    of lines."""
    lines, around, bodies, begin, at = text.split("\n"), [], [], 0, 0
    while at < len(lines):
        found = body(lines, at)
        if found:
            around.append(lines[begin:found[0]])
            bodies.append(lines[found[0]:found[1]])
            begin = at = found[1]
        at += 1
    return [*around, lines[begin:]], bodies


def changed_bodies(original, mutated):
    """The bodies that differ, by their places; None if anything else does."""
    (around, bodies), (around_mutated, mutated_bodies) = split(original), split(mutated)
    if around != around_mutated:
        return None
    pairs = enumerate(zip(bodies, mutated_bodies))
    return {place: new for place, (old, new) in pairs if new != old}


def choice(old, variants):
    """A body that is one of several, as pairs of a line and the mutations that it is of."""
    everyone = tuple(variants)
    word = "if"
    for number, new in variants.items():
        yield f"{word} crate::mutant::is({number}) {{", everyone
        yield from ((line, (number,)) for line in new)
        word = "} else if"
    yield "} else {", everyone
    yield from ((line, everyone) for line in old)
    yield "}", everyone


def weave(original, changes):
    """The text with all changes, {mutation: {place: body}}. And for each of its lines the mutations
    that it is of: if the compiler refuses the line, these are the ones to leave out."""
    around, bodies = split(original)
    woven = [(line, ()) for line in around[0]]
    for place, (old, behind) in enumerate(zip(bodies, around[1:])):
        variants = {number: new[place] for number, new in changes.items() if place in new}
        woven += choice(old, variants) if variants else [(line, ()) for line in old]
        woven += [(line, ()) for line in behind]
    return "\n".join(line for line, _ in woven), [owners for _, owners in woven]


def crate_of(path):
    """The folder with the sources of a file's crate."""
    return path[: path.index("/src/") + len("/src")]


def weave_files(read, changes):
    """The files of one build with all changes, {mutation: {path: {place: body}}}, and the owners of
    their lines. `read` gives the text of a path."""
    by_path = {}
    for number, of_files in changes.items():
        for path, bodies in of_files.items():
            by_path.setdefault(path, {})[number] = bodies
    files, owners = {}, {}
    for path, of_path in by_path.items():
        files[path], owners[path] = weave(read(path), of_path)
    for sources in {crate_of(path) for path in by_path}:
        root = f"{sources}/lib.rs"
        files[root] = files.get(root, read(root)) + "mod mutant;\n"
        files[f"{sources}/mutant.rs"] = MUTANT
    return files, owners


def blamed(errors, owners):
    """The mutations that errors of the compiler point at: with their main spans, or else with any."""
    def at(span):
        while span:
            of_lines = owners.get(span["file_name"], [])
            yield from of_lines[span["line_start"] - 1] if span["line_start"] <= len(of_lines) else ()
            span = span["expansion"] and span["expansion"]["span"]

    found = set()
    for error in errors:
        spans = error["spans"]
        main = {number for span in spans if span["is_primary"] for number in at(span)}
        found |= main or {number for span in spans for number in at(span)}
    return found
