"""Checks that everything Howdah is built from may be used under MIT OR Apache-2.0.

Reads `cargo metadata` and evaluates each package's licence expression against a list of what is
allowed: an OR needs one side, an AND both.
"""

import json
import re
import subprocess
import sys

ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-1-Clause", "BSD-2-Clause",
    "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "MITNFA",
    "OpenSSL", "PostgreSQL", "Unicode-3.0", "Unicode-DFS-2016", "Unlicense", "Zlib",
}
OWN = "MIT OR Apache-2.0"


def allowed(expression):
    """Whether a licence expression can be met with allowed licences."""
    # Old packages write "MIT/Apache-2.0", which means OR.
    words = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    words = ["OR" if word == "/" else word for word in words]
    result = any_of(words)
    if words:
        raise ValueError(f"cannot read {expression!r}")
    return result


def any_of(words):
    """term OR term ..."""
    result = all_of(words)
    while words and words[0] == "OR":
        words.pop(0)
        right = all_of(words)
        result = result or right
    return result


def all_of(words):
    """licence AND licence ..."""
    result = one(words)
    while words and words[0] == "AND":
        words.pop(0)
        right = one(words)
        result = result and right
    return result


def one(words):
    """A licence, perhaps WITH an exception, or an expression in parentheses."""
    word = words.pop(0)
    if word == "(":
        result = any_of(words)
        if not words or words.pop(0) != ")":
            raise ValueError("a parenthesis is not closed")
        return result
    if words and words[0] == "WITH":
        word = f"{word} WITH {words[1]}"
        del words[:2]
    return word in ALLOWED


def main():
    """Prints what may not be used; the exit code says whether there was any."""
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked"],
        check=True, stdout=subprocess.PIPE).stdout)
    ours = set(metadata["workspace_members"])
    bad = []
    for package in metadata["packages"]:
        licence = package["license"] or ""
        fine = licence == OWN if package["id"] in ours else bool(licence) and allowed(licence)
        if not fine:
            bad.append(f"{package['name']} {package['version']}: {licence or 'no licence given'}")
    for line in bad:
        print("not allowed:", line)
    print(f"{len(metadata['packages'])} packages looked at, {len(bad)} not allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    assert allowed("MIT/Apache-2.0") and allowed("GPL-3.0 OR (MIT AND Zlib)")
    assert not allowed("MIT AND AGPL-3.0") and not allowed("(GPL-2.0 OR LGPL-2.1)")
    sys.exit(main())
