"""Checks the packages that Howdah is built from, by what deny.toml allows: licences that go with MIT
OR Apache-2.0, one version of each package, and no version that an advisory of RustSec is about.

    tests/dependencies.py                 needs no network: advisories are in tests/advisories.txt
    tests/dependencies.py --read FOLDER   writes that file, from a clone of RustSec's advisory-db
"""

import datetime
import glob
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "advisories.txt")
OWN = "MIT OR Apache-2.0"
# From this age on, in days, the list of advisories is said to be old.
OLD = 120


class Licence:
    """A licence expression: an OR needs one side that is allowed, an AND both."""

    def __init__(self, expression, allowed):
        # Old packages write "MIT/Apache-2.0", which means OR.
        words = re.findall(r"\(|\)|[^\s()/]+|/", expression)
        self.words = ["OR" if word == "/" else word for word in words]
        self.known = allowed
        self.allowed = bool(self.words) and self.any_of()
        if self.words:
            raise ValueError(f"cannot read {expression!r}")

    def any_of(self):
        """term OR term ..."""
        result = self.all_of()
        while self.words and self.words[0] == "OR":
            self.words.pop(0)
            right = self.all_of()
            result = result or right
        return result

    def all_of(self):
        """licence AND licence ..."""
        result = self.one()
        while self.words and self.words[0] == "AND":
            self.words.pop(0)
            right = self.one()
            result = result and right
        return result

    def one(self):
        """A licence, perhaps WITH an exception, or an expression in parentheses."""
        word = self.words.pop(0)
        if word == "(":
            result = self.any_of()
            if not self.words or self.words.pop(0) != ")":
                raise ValueError("a parenthesis is not closed")
            return result
        if self.words and self.words[0] == "WITH":
            word = f"{word} WITH {self.words[1]}"
            del self.words[:2]
        return word in self.known


def numbers(version):
    """The three numbers of a version; what is missing is 0."""
    found = [int(number) for number in re.match(r"\d+(?:\.\d+)*", version)[0].split(".")]
    return tuple(found + [0] * (3 - len(found)))


def meets(version, requirement):
    """Whether a version meets Cargo's requirement, such as `>=1.2, <2`."""
    return all(meets_one(numbers(version), part.strip()) for part in requirement.split(","))


def meets_one(version, comparison):
    """One comparison of a requirement."""
    sign, written = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)", comparison).groups()
    bound = numbers(written)
    if sign in ("^", "~", None):
        given = written.count(".") + 1
        kept = min(given, 2) if sign == "~" else next(
            (at + 1 for at, number in enumerate(bound[:given]) if number), given)
        return version >= bound and version[:kept] == bound[:kept]
    return {">=": version >= bound, "<=": version <= bound, ">": version > bound,
            "<": version < bound, "=": version == bound}[sign]


def licences(packages, ours, rules):
    """What may not be used."""
    for package in packages:
        licence = package["license"] or ""
        fine = licence == OWN if package["id"] in ours else Licence(
            licence, rules["licenses"]["allow"]).allowed
        if not fine:
            yield f"{package['name']} {package['version']}: licence {licence or 'not given'}"


def duplicates(packages, rules):
    """Packages in several versions, and what deny.toml allows without need."""
    versions = {}
    for package in packages:
        versions.setdefault(package["name"], set()).add(package["version"])
    skipped = {}
    for entry in rules["bans"]["skip"]:
        name, _, version = entry["crate"].partition("@")
        skipped.setdefault(name, []).append(version)
    for name, found in versions.items():
        skips = skipped.pop(name, []) if len(found) > 1 else []
        rest = {version for version in found
                if not any(f"{version}.".startswith(f"{skip}.") for skip in skips)}
        if len(rest) > 1:
            yield f"{name} in several versions: {', '.join(sorted(found))}"
    for name in skipped:
        yield f"deny.toml skips {name}, which has one version"


def advisories(packages, rules, lines):
    """Versions that an advisory is about, and packages that were not looked up."""
    ignored = {entry["id"] for entry in rules["advisories"]["ignore"]}
    known = {}
    for line in lines:
        if " RUSTSEC-" in line:
            about, _, fine = line.partition(":")
            name, number, *_ = about.split()
            known.setdefault(name, []).append((number, about, fine.split("|")))
        else:
            known.update((name, []) for name in line.split())
    for package in packages:
        name, version = package["name"], package["version"]
        if name not in known:
            yield f"{name}: not looked up in RustSec's advisories: {__file__} --read FOLDER"
        for number, about, fine in known.get(name, []):
            fine = any(part.strip() and meets(version, part) for part in fine)
            if not fine and number not in ignored:
                yield f"{name} {version}: {about}"


def read(folder, packages):
    """The lines of the list: the advisories about some packages, and the names of the others."""
    date = subprocess.run(["git", "-C", folder, "log", "-1", "--format=%cs"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()
    lines, clean = [], []
    for name in sorted({package["name"] for package in packages}):
        about = []
        for path in sorted(glob.glob(os.path.join(folder, "crates", name, "RUSTSEC-*.md"))):
            with open(path, encoding="utf-8") as file:
                told = tomllib.loads(re.search(r"```toml\n(.*?)```", file.read(), re.S)[1])
            advisory, versions = told["advisory"], told["versions"]
            kind = advisory.get("informational", "vulnerable")
            if "withdrawn" in advisory or kind == "notice":
                continue
            fine = versions.get("patched", []) + versions.get("unaffected", [])
            about.append(f"{name} {advisory['id']} {kind}: {' | '.join(fine)}".rstrip())
        lines += about
        clean += [] if about else [name]
    return ["# RustSec's advisories about the packages that Howdah is built from, and the versions",
            f"# that are not affected. Written by {os.path.basename(__file__)} --read.",
            f"# As of {date}", *lines, "# No advisory:",
            *textwrap.wrap(" ".join(clean), 98, break_on_hyphens=False)]


def main(arguments):
    """Prints what may not be used; the exit code says whether there was any."""
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features",
         "--filter-platform", "x86_64-unknown-linux-gnu"],
        check=True, stdout=subprocess.PIPE).stdout)
    packages, ours = metadata["packages"], set(metadata["workspace_members"])
    others = [package for package in packages if package["id"] not in ours]
    if arguments[:1] == ["--read"]:
        with open(LIST, "w", encoding="utf-8") as file:
            file.write("\n".join(read(arguments[1], others)) + "\n")
    with open(os.path.join(HERE, "..", "deny.toml"), "rb") as file:
        rules = tomllib.load(file)
    with open(LIST, encoding="utf-8") as file:
        listed = file.read()
    date = datetime.date.fromisoformat(re.search(r"^# As of (\S+)", listed, re.M)[1])
    lines = [line for line in listed.splitlines() if not line.startswith("#")]
    bad = [*licences(packages, ours, rules), *duplicates(others, rules),
           *advisories(others, rules, lines)]
    for line in bad:
        print("not allowed:", line)
    age = (datetime.date.today() - date).days
    if age > OLD:
        print(f"the list of advisories is {age} days old: {__file__} --read FOLDER")
    print(f"{len(packages)} packages looked at, {len(bad)} not allowed; advisories as of {date}")
    return 1 if bad else 0


if __name__ == "__main__":
    allows = lambda expression: Licence(expression, ["MIT", "Zlib", "Apache-2.0"]).allowed
    assert allows("MIT/Apache-2.0") and allows("GPL-3.0 OR (MIT AND Zlib)")
    assert not allows("MIT AND AGPL-3.0") and not allows("(GPL-2.0 OR LGPL-2.1)")
    assert meets("1.2.3", ">=1.2, <2") and meets("0.3.7", "^0.3.5") and meets("1.9.0", "1.2")
    assert not meets("0.4.0", "^0.3.5") and not meets("1.3.0", "~1.2") and not meets("1.0.0", ">1")
    sys.exit(main(sys.argv[1:]))
