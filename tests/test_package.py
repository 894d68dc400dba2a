"""The Debian package: what is in it; installed, started, upgraded, removed."""

import configparser
import grp
import gzip
import os
import pwd
import re
import shutil
import stat
import subprocess

import pytest

from conftest import PROGRAM
from harness import machine, wire

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGING = os.path.join(ROOT, "packaging")

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not all(map(shutil.which, ["dpkg-deb", "objdump", "strip"])),
                       reason="needs Debian's dpkg and binutils"),
]


def text(*path):
    """A file of packaging/."""
    with open(os.path.join(PACKAGING, *path)) as file:
        return file.read()


def shell(*argv, **options):
    """Runs a command to its end; what it printed."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **options)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}"
    return done.stdout


def build(scratch, *options):
    """Builds the package of the binary under test; its path."""
    said = shell(os.path.join(PACKAGING, "build-deb"), "--binary", os.path.abspath(PROGRAM),
                 "--output", os.path.join(scratch, "deb"), *options)
    return said.split()[-1]


@pytest.fixture(scope="module")
def package(scratch):
    return build(scratch)


@pytest.fixture
def unit():
    """The systemd unit."""
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(text("howdah.service"))
    return parser


def test_contents(package, tmp_path, unit):
    shell("dpkg-deb", "--extract", package, str(tmp_path))
    for path in ["usr/sbin/howdah", "etc/howdah/howdah.ini", "etc/howdah/userlist.txt",
                 "lib/systemd/system/howdah.service", "usr/lib/howdah/howdah-reload", "usr/share/man/man8/howdah.8.gz",
                 "usr/share/man/man5/howdah.ini.5.gz", "usr/share/doc/howdah/copyright",
                 "usr/share/doc/howdah/changelog.gz", "usr/share/doc/howdah/docs/settings.md",
                 "usr/share/doc/howdah/docs/seeing-inside.md",
                 "usr/share/doc/howdah/packaging/grafana-dashboard.json",
                 "usr/share/doc/howdah/packaging/prometheus-alerts.yml"]:
        assert (tmp_path / path).is_file(), path
    program, config = unit["Service"]["ExecStart"].split()
    assert (tmp_path / program.lstrip("/")).is_file()
    assert (tmp_path / config.lstrip("/")).is_file()
    # Secrets are nobody's to read before the package has said whose they are.
    for path in ["howdah.ini", "userlist.txt"]:
        assert stat.S_IMODE((tmp_path / "etc/howdah" / path).stat().st_mode) == 0o640
    version = shell(str(tmp_path / "usr/sbin/howdah"), "-V").split()[1]
    assert shell("dpkg-deb", "--field", package, "Version").strip() == version


def test_manual_of_settings(package, tmp_path):
    """The page is the binary's own, and what reads manual pages finds nothing odd in it."""
    shell("dpkg-deb", "--extract", package, str(tmp_path))
    page = tmp_path / "howdah.ini.5"
    with gzip.open(tmp_path / "usr/share/man/man5/howdah.ini.5.gz", "rt") as packed:
        page.write_text(packed.read())
    assert page.read_text() == shell(PROGRAM, "--man")
    if shutil.which("groff"):
        assert shell("groff", "-man", "-Tutf8", "-ww", "-z", str(page)) == ""
    if shutil.which("lexgrog"):
        assert "howdah.ini - settings of Howdah" in shell("lexgrog", str(page))


def test_sample_configuration_is_right(tmp_path):
    user = machine.unprivileged_user().pw_name
    users = tmp_path / "userlist.txt"
    users.write_text(text("userlist.txt"))
    ini = tmp_path / "howdah.ini"
    ini.write_text(text("howdah.ini").replace("/etc/howdah/userlist.txt", str(users))
                   .replace("/run/howdah", str(tmp_path)))
    assert "warning" not in shell(PROGRAM, "--check", "-u", user, str(ini)).lower()


def test_manual_tells_every_option():
    manual = text("howdah.8").replace("\\-", "-")
    for option in re.findall(r"--[a-z-]+", shell(PROGRAM, "--help")):
        assert option in manual, option


@pytest.mark.skipif(os.geteuid() != 0 or not os.environ.get("CI"),
                    reason="installs into this very system: only as root with CI set")
@pytest.mark.skipif(os.path.exists("/usr/sbin/howdah"), reason="Howdah is installed here")
def test_install_start_upgrade_remove(scratch, package, unit, postgres):
    ini, program = "/etc/howdah/howdah.ini", "/usr/sbin/howdah"
    place = machine.folder(scratch, "installed")
    port = machine.free_port()
    try:
        shell("dpkg", "--install", package)
        for path in [ini, "/etc/howdah/userlist.txt"]:
            status = os.stat(path)
            assert pwd.getpwuid(status.st_uid).pw_name == unit["Service"]["User"]
            assert grp.getgrgid(status.st_gid).gr_name == unit["Service"]["Group"]
            assert stat.S_IMODE(status.st_mode) == 0o640

        with open(ini) as file:
            changed = file.read()
        changed = changed.replace("listen_port = 6432", f"listen_port = {port}")
        changed = changed.replace("/run/howdah", place)
        changed = changed.replace("port=5432", f"port={postgres.port}")
        with open(ini, "w") as file:
            file.write(changed)
        with open("/etc/howdah/userlist.txt", "a") as file:
            file.write('"postgres" "secret"\n')

        # As systemd would, were there one.
        child = machine.spawn(unit["Service"]["ExecStart"].split(), cwd="/")
        try:
            def answers():
                assert child.poll() is None
                try:
                    with wire.connect(("127.0.0.1", port), password="secret") as client:
                        return client.value("select 6 * 7")
                except OSError:
                    return None
            assert machine.wait_until(answers, "the installed Howdah to answer") == "42"
        finally:
            machine.end(child)

        shell("dpkg", "--install", build(scratch, "--version", "999.0"))
        assert shell("dpkg-query", "--show", "--showformat=${Version}", "howdah") == "999.0"
        with open(ini) as file:
            assert file.read() == changed, "an upgrade keeps the administrator's file"

        shell("dpkg", "--remove", "howdah")
        assert not os.path.exists(program) and os.path.exists(ini)
    finally:
        shell("dpkg", "--purge", "howdah")
    assert not os.path.exists("/etc/howdah")
