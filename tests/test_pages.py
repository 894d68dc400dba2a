"""The pages for users: links lead somewhere, named tests exist, and examples of files are right."""

import os
import re
import subprocess

import pytest

from conftest import PROGRAM
from harness import machine, purpose

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCS = os.path.join(ROOT, "docs")
PAGES = ["README.md", "ARCHITECTURE.md", "crates/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
         *(f"docs/{name}" for name in sorted(os.listdir(DOCS)) if name.endswith(".md"))]

# Of its own suite.
PGBOUNCERS = ["test_cancel_wait", "test_client_hba_cert", "test_client_login_count",
              "test_deallocate_all", "test_describe_non_existent_prepared_statement",
              "test_discard_all", "test_equivalent_startup_param",
              "test_logical_rep_unprivileged", "test_options_startup_param",
              "test_physcal_rep_unprivileged", "test_prepared_disallow_name_reuse",
              "test_show_stats", "test_statement_name_longer_than_pkt_buf"]


def text(page):
    """A page of the project."""
    with open(os.path.join(ROOT, page)) as file:
        return file.read()


def anchors(page):
    """What `#...` may name in a page: its headings, as GitHub spells them."""
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples(page, language):
    """The blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert not re.search(r"^(<<<<<<<|>>>>>>>) ", text(page), re.M), "a merge is left open"
    for link in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        assert os.path.exists(os.path.join(ROOT, target)), link
        assert not anchor or anchor in anchors(target), link


def test_the_picture_has_the_figures():
    """Of the page that it is made from."""
    with open(purpose.PICTURE) as file:
        assert file.read() == purpose.picture(), "python3 -m harness.purpose writes it"


def test_named_tests_exist():
    """Functions of pytest, and sections of the scripts of events (at least their first words)."""
    sources = [os.path.join(folder, name) for top in ("tests", "crates")
               for folder, _, names in os.walk(os.path.join(ROOT, top)) for name in names
               if name.endswith((".py", ".rs", ".txt"))]
    known = "\n".join(text(source) for source in sources)
    for page in PAGES:
        said = text(page)
        for name in re.findall(r"`(test_\w+)`", said):
            assert f" {name}(" in known or name in PGBOUNCERS, f"{page}: {name}"
        for group in re.findall(r"scripts: ([^()|\n`]+)", said):
            for name in filter(None, map(str.strip, group.rstrip(" ;,.").split(";"))):
                assert name == "..." or f"\n= {name}" in known, f"{page}: {name}"


@pytest.mark.own
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page, "ini")])
def test_configurations_are_right(page, tmp_path, authority):
    """howdah --check takes every example. One without [databases] or [pgbouncer] gets that line."""
    folder = str(tmp_path)
    certificate = authority.issue()
    users = tmp_path / "userlist.txt"
    users.write_text('"postgres" "secret"\n')
    places = {
        "/etc/howdah/userlist.txt": str(users), "/run/howdah": folder,
        "/etc/howdah/server.crt": certificate.chain, "/etc/howdah/server.key": certificate.key,
        "/etc/howdah/root.crt": authority.certificate,
    }
    user = machine.unprivileged_user().pw_name
    for body in examples(page, "ini"):
        for place, here in places.items():
            body = body.replace(place, here)
        if "[pgbouncer]" not in body:
            body = "[pgbouncer]\n" + body
        if "[databases]" not in body:
            body += "\n[databases]\n* = host=127.0.0.1\n"
        ini = tmp_path / "example.ini"
        ini.write_text(body)
        told = subprocess.run([os.path.abspath(PROGRAM), "--check", "-u", user, str(ini)], text=True, cwd=folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert told.returncode == 0, f"{body}\n{told.stdout}"
