#!/usr/bin/env python3
"""What the program howdah is made of: the crates that are linked, what those have in them, and
Rust's standard library. Writes their licences, and a bill of materials.

The sources of all crates must be there, as they are after a build. SOURCE_DATE_EPOCH is the time
that the bill tells. Equal sources give equal output.
"""

import argparse
import collections
import datetime
import html
import json
import os
import re
import subprocess
import sys
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = "howdah-daemon"
LICENCE_FILE = re.compile(r"(un)?licen[sc]e([-_.].*)?|(copying|copyright|notices?)([-_.].*)?", re.I)
PROGRAM_TEXT = (".rs", ".json", ".toml", ".py", ".c", ".h")

# reference: its name in the bill. needs: keys of others. texts: licences, as (title, text).
Component = collections.namedtuple(
    "Component", "name version licence reference checksum repository needs texts")


def run(*argv):
    """What a command prints."""
    return subprocess.run(argv, check=True, cwd=ROOT, text=True, stdout=subprocess.PIPE).stdout


def linked(target):
    """Pairs of name and version of the crates that are linked, each with those it needs itself.

    `cargo tree` knows the features of this one program. Build scripts and macros run while it is
    built, and are no part of it.
    """
    needs, path = {}, []
    for line in run("cargo", "tree", "--locked", "--package", PACKAGE, "--target", target,
                    "--edges", "normal,no-proc-macro", "--prefix", "depth",
                    "--format", " {p}").splitlines():
        depth, name, version = re.match(r"(\d+) (\S+) v(\S+)", line).groups()
        del path[int(depth):]
        path.append((name, version))
        needs.setdefault(path[-1], set())
        if len(path) > 1:
            needs[path[-2]].add(path[-1])
    return needs


def licence_files(folder):
    """The files with licences in a crate: (path in the crate, text)."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"tests", "target", ".git"})
        of_licences = re.fullmatch(r"licen[sc]es", os.path.basename(place), re.I)
        for name in sorted(names):
            if (of_licences or LICENCE_FILE.fullmatch(name)) and not name.endswith(PROGRAM_TEXT):
                path = os.path.join(place, name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    found.append((os.path.relpath(path, folder), file.read()))
    return found


def spdx(licence):
    """A licence expression; old crates write "MIT/Apache-2.0", which means OR."""
    return re.sub(r"\s*/\s*", " OR ", licence or "")


def standard_text(package):
    """The text for a crate that tells its licence's name only."""
    if "Apache-2.0" in package["license"]:
        name = "LICENSE-APACHE"
    elif "MIT" in package["license"]:
        name = "LICENSE-MIT"
    else:
        raise SystemExit(f"{package['name']}: no text of {package['license']!r}")
    with open(os.path.join(ROOT, name)) as file:
        text = file.read()
    authors = ", ".join(package["authors"]) or f"The {package['name']} authors"
    text = re.sub(r"(?m)^(Copyright \(c\)).*Howdah.*", lambda found: f"{found[1]} {authors}", text)
    return [(f"{name}, as the crate has no file", text)]


def components(target):
    """All that is linked, our own crates too, by name and version."""
    with open(os.path.join(ROOT, "Cargo.lock")) as file:
        locked = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"',
                            file.read())
    checksums = {(name, version): checksum for name, version, checksum in locked}
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked",
                              "--filter-platform", target))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    standard = standard_library()
    found = {(standard.name, standard.version): standard}
    for key, needs in linked(target).items():
        package, (name, version) = packages[key], key
        folder = os.path.dirname(package["manifest_path"])
        # Our own crates have the licence of the program.
        texts = package["source"] and (licence_files(folder) or standard_text(package))
        found[key] = Component(
            name, version, spdx(package["license"]), f"pkg:cargo/{name}@{version}",
            checksums.get(key), package["repository"],
            [(standard.name, standard.version), *sorted(needs)], texts or [])
        if name == "aws-lc-sys":
            library = aws_lc(folder, found[key].licence)
            found[library.name, library.version] = library
            found[key].needs.append((library.name, library.version))
    return found


def aws_lc(folder, licence):
    """The C library that a crate has in it, under the crate's licences."""
    with open(os.path.join(folder, "aws-lc/include/openssl/base.h")) as file:
        version = re.search(r'AWSLC_VERSION_NUMBER_STRING "(.*)"', file.read()).group(1)
    return Component("AWS-LC", version, licence, f"pkg:github/aws/aws-lc@v{version}", None,
                     "https://github.com/aws/aws-lc", [], [])


def standard_library():
    """Rust's standard library, with the notices that come with the compiler."""
    version = re.search(r"^release: (.*)", run("rustc", "-vV"), re.M).group(1)
    texts, crate = [], ""
    path = os.path.join(run("rustc", "--print", "sysroot").strip(),
                        "share/doc/rust/COPYRIGHT-library.html")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            page = file.read()
        # A heading for each crate, then its files.
        for heading, name, text in re.findall(
                r"<h3>\W*([^<]*)</h3>|<code>([^<]*)</code>\s*</summary>\s*<pre>(.*?)</pre>",
                page, re.S):
            crate = heading or crate
            if name:
                texts.append((html.unescape(f"{crate}, {name}"), html.unescape(text)))
    else:
        print(f"{path} is missing: no notices of Rust's standard library", file=sys.stderr)
    return Component("Rust's standard library", version, "MIT OR Apache-2.0",
                     f"pkg:github/rust-lang/rust@{version}#library/std", None,
                     "https://github.com/rust-lang/rust", [], texts)


def notices(found):
    """All texts, equal ones once."""
    parts = sorted((part for part in found.values() if not part.name.startswith("howdah-")),
                   key=lambda part: (part.name.lower(), part.version))
    page = ["Howdah is licensed under MIT OR Apache-2.0. The program has these parts of others in",
            "it. Where a licence says OR, either may be chosen. All texts follow.", ""]
    page += [f"  {part.name} {part.version}: {part.licence}" for part in parts]
    owners, texts = collections.defaultdict(list), {}
    for part in parts:
        for title, text in part.texts:
            key = " ".join(text.split())
            texts.setdefault(key, text)
            owners[key].append(f"{part.name} {part.version} ({title})")
    for key, text in texts.items():
        page += ["", "=" * 80, *owners[key], "=" * 80, "", text.strip("\n").rstrip()]
    return "\n".join(page) + "\n"


def entry(part):
    """A component in the bill."""
    value = {"type": "library", "bom-ref": part.reference, "name": part.name,
             "version": part.version, "licenses": [{"expression": part.licence}],
             "purl": part.reference}
    if part.checksum:
        value["hashes"] = [{"alg": "SHA-256", "content": part.checksum}]
    if part.repository:
        value["externalReferences"] = [{"type": "vcs", "url": part.repository}]
    return value


def bill(found):
    """The bill of materials."""
    parts = sorted(found.values(), key=lambda part: part.reference)
    [program] = [part for part in parts if part.name == PACKAGE]
    value = {
        "metadata": {"component": {**entry(program), "type": "application", "name": "howdah"}},
        "components": [entry(part) for part in parts if part is not program],
        "dependencies": [{"ref": part.reference,
                          "dependsOn": sorted(found[key].reference for key in part.needs)}
                         for part in parts],
    }
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds:
        moment = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
        value["metadata"]["timestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(value, sort_keys=True))
    value = {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{number}",
             "version": 1, **value}
    return json.dumps(value, indent=1) + "\n"


def main():
    """Writes what was asked for."""
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--notices", metavar="FILE", help="all their licences' texts")
    options.add_argument("--sbom", metavar="FILE", help="a bill of materials: CycloneDX 1.5, JSON")
    files = options.parse_args()
    host = re.search(r"^host: (.*)", run("rustc", "-vV"), re.M).group(1)
    found = components(host)
    for path, page in [(files.notices, notices), (files.sbom, bill)]:
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page(found))


if __name__ == "__main__":
    main()
