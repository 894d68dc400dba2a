"""The Debian package: what is in it; installed, started, upgraded, removed. A release's files."""

import configparser
import grp
import gzip
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import tarfile

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


def shell(*argv, **environment):
    """Runs a command to its end; what it printed."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", **environment})
    assert done.returncode == 0, f"{argv}:\n{done.stdout}"
    return done.stdout


def build(scratch, *options):
    """Builds the package of the binary under test; its path."""
    said = shell(os.path.join(PACKAGING, "build-deb"), "--binary", os.path.abspath(PROGRAM),
                 "--output", os.path.join(scratch, "deb"), *options, DPKG_DEB_COMPRESSOR_LEVEL="0")
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
    for path in ["etc/howdah/userlist.txt", "lib/systemd/system/howdah.service",
                 "usr/lib/howdah/howdah-reload",
                 "usr/share/man/man8/howdah.8.gz", "usr/share/man/man5/howdah.ini.5.gz",
                 "usr/share/man/man1/howdah-top.1.gz",
                 "usr/share/bash-completion/completions/howdah",
                 "usr/share/doc/howdah/copyright", "usr/share/doc/howdah/THIRD-PARTY-NOTICES.gz",
                 "usr/share/doc/howdah/changelog.gz", "usr/share/doc/howdah/docs/settings.md",
                 "usr/share/doc/howdah/packaging/grafana-dashboard.json",
                 "usr/share/doc/howdah/packaging/howdah.logrotate",
                 "usr/share/doc/howdah/packaging/howdah.toml"]:
        assert (tmp_path / path).is_file(), path
    for path in [*unit["Service"]["ExecStart"].split(), unit["Service"]["ExecReload"].split()[0]]:
        assert (tmp_path / path.lstrip("/")).is_file()
    # Secrets are nobody's to read before the package has said whose they are.
    for path in ["howdah.ini", "userlist.txt"]:
        assert stat.S_IMODE((tmp_path / "etc/howdah" / path).stat().st_mode) == 0o640
    version = shell(str(tmp_path / "usr/sbin/howdah"), "-V").split()[1]
    assert shell("dpkg-deb", "--field", package, "Version").strip() == version


@pytest.mark.skipif(not shutil.which("lintian"), reason="needs lintian")
def test_lintian_finds_nothing(package):
    assert shell("lintian", "--allow-root", "--fail-on", "error,warning", package) == ""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_unit_is_hardened(unit):
    """It may do no more than it needs, which io_uring's calls are part of."""
    said = shell("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager",
                 os.path.join(PACKAGING, "howdah.service"))
    assert "Overall exposure level" in said
    calls = unit["Service"]["SystemCallFilter"].split()
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= set(calls)


def rendered(page):
    """A manual page as a reader sees it; nothing in it is odd to groff."""
    assert shell("groff", "-man", "-Tutf8", "-ww", "-z", page) == ""
    return shell("groff", "-man", "-Tascii", "-P-cbou", page)


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_manual_pages(package, tmp_path):
    """The page of settings is the binary's own. Examples can be copied from the terminal."""
    page = tmp_path / "howdah.ini.5"
    page.write_text(shell(PROGRAM, "--man"))
    shell("dpkg-deb", "--extract", package, str(tmp_path))
    with gzip.open(tmp_path / "usr/share/man/man5/howdah.ini.5.gz", "rt") as packed:
        assert packed.read() == page.read_text()
    if shutil.which("lexgrog"):
        assert "howdah.ini - settings of Howdah" in shell("lexgrog", str(page))
    for name, examples in {
        str(page): ["orders = host=10.0.0.5 port=5432 pool_size=40", "* = host=10.0.0.6"],
        os.path.join(PACKAGING, "man", "howdah.8"): [
            "howdah --check --connect howdah.ini",
            "psql -h 127.0.0.1 -p 6432 -U postgres pgbouncer -c 'SHOW POOLS'"],
        os.path.join(PACKAGING, "man", "howdah-top.1"): [
            "howdah top 'postgres://admin@pooler.example.com:6432/pgbouncer?sslmode=verify-full'"],
    }.items():
        lines = [line.strip() for line in rendered(name).splitlines()]
        assert {"FILES", "EXAMPLES", *examples} <= set(lines), name


def test_sample_configuration_is_right(tmp_path):
    user = machine.unprivileged_user().pw_name
    users = tmp_path / "userlist.txt"
    users.write_text(text("userlist.txt"))
    ini = tmp_path / "howdah.ini"
    ini.write_text(text("howdah.ini").replace("/etc/howdah/userlist.txt", str(users))
                   .replace("/run/howdah", str(tmp_path)))
    assert "warning" not in shell(PROGRAM, "--check", "-u", user, str(ini)).lower()


def test_every_option_is_told():
    """By the manual pages, and by what completes a shell's command lines."""
    manual = text("man", "howdah.8").replace("\\-", "-")
    manual_of_top = text("man", "howdah-top.1").replace("\\-", "-")
    for arguments, page in [(["--help"], manual), (["init", "--help"], manual),
                            (["import", "--help"], manual),
                            (["top", "--help"], manual_of_top)]:
        for option in re.findall(r"--[a-z-]+", shell(PROGRAM, *arguments)):
            assert option in page, option
            for shells in ["bash", "zsh"]:
                assert option in text("completion", f"howdah.{shells}"), option
            assert f" -l {option[2:]} " in text("completion", "howdah.fish"), option


@pytest.mark.parametrize("line, offered", [
    ("howdah t", "top"),
    ("howdah --ch", "--check"),
    ("howdah --io-driver = ep", "epoll"),
    ("howdah top --o", "--once"),
    ("howdah init --d", "--dir="),
    ("howdah -d /etc/passw", "/etc/passwd"),
])
def test_completion_by_bash(line, offered):
    words = line.split()
    script = (f"source {PACKAGING}/completion/howdah.bash; COMP_WORDS=({line}); "
              f"COMP_CWORD={len(words) - 1}; _howdah 2>/dev/null; printf '%s\n' \"${{COMPREPLY[@]}}\"")
    assert offered in shell("bash", "-c", script).split()


PROGRAM_TEXT = """
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    puts(strcmp(words[1], "-V") ? ".TH HOWDAH.INI 5" : "Howdah 1.2.3 (stand-in)");
    return 0;
}
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A small program with howdah's version and manual page."""
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / "howdah.c").write_text(PROGRAM_TEXT)
    shell("cc", "-g", "-o", str(folder / "howdah"), str(folder / "howdah.c"))
    return str(folder / "howdah")


def test_release(stand_in, tmp_path):
    """The same program packed twice, at other times and with another umask, gives equal files."""
    moment = "1700000000"

    def release(name, mask, **environment):
        script = f"umask {mask}; {PACKAGING}/release --binary {stand_in} --output {tmp_path / name}"
        shell("bash", "-c", script, SOURCE_DATE_EPOCH=moment, **environment)
        shell("sh", "-c", f"cd {tmp_path / name} && sha256sum --check --quiet SHA256SUMS")
        return (tmp_path / name / "SHA256SUMS").read_text()
    sums = release("one", "022")
    os.utime(os.path.join(PACKAGING, "howdah.ini"))
    assert sums == release("other", "077", TZ="Asia/Tokyo", LC_ALL="C.UTF-8")
    folder = tmp_path / "one"
    assert len(sums.splitlines()) == len(list(folder.iterdir())) - 1 == 5

    [path] = folder.glob("*.tar.gz")
    with tarfile.open(path) as tar:
        members = {member.name.partition("/")[2]: member for member in tar}
        for name in ["howdah", "README.md", "LICENSE-MIT", "LICENSE-APACHE",
                     "THIRD-PARTY-NOTICES", "man/howdah.8", "man/howdah.ini.5",
                     "completion/howdah.bash", "docs/install.md", "packaging/howdah.ini",
                     "packaging/howdah.service", "packaging/howdah-reload"]:
            assert name in members, name
        assert {(member.mtime, member.uid, member.gid) for member in tar} == {(int(moment), 0, 0)}
        assert members["howdah"].mode == 0o755 and members["README.md"].mode == 0o644

    notices = (folder / "THIRD-PARTY-NOTICES").read_text()
    for part in ["The OpenSSL Project", "the fiat-crypto authors", "Tokio Contributors",
                 "Rust's standard library"]:
        assert part in notices, part

    [path] = folder.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    names = {part["name"] for part in bill["components"]}
    assert {"AWS-LC", "openssl", "tokio", "howdah-pooler", "Rust's standard library"} <= names
    # What builds or tests is not in the program; neither are macros, or other systems' crates.
    assert not {"bindgen", "cmake", "howdah-sim", "syn", "tokio-macros", "windows-sys"} & names
    known = {part["bom-ref"] for part in [bill["metadata"]["component"], *bill["components"]]}
    for entry in bill["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= known


STAND_INS = """
adduser, deb-systemd-helper, dpkg-statoverride: true
systemctl: case $* in *show*) echo "$AS_USER";; esac
deb-systemd-invoke: echo "$@" >>"$SEEN"; test "$1" = restart
runuser: echo runuser "$@" >>"$SEEN"; exit "$CHECK"
"""


@pytest.mark.parametrize("user, check, done", [
    ("postgres", 0, "restart howdah.service"),
    ("howdah", 1, None),
])
def test_upgrade_under_systemd(tmp_path, user, check, done):
    """The unit that runs says as whom Howdah goes on. Where the new program can't start, the old one
    stays. A purge removes only the package's own file."""
    for line in STAND_INS.strip().splitlines():
        names, _, script = line.partition(": ")
        for name in names.split(", "):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/howdah").mkdir(parents=True)
    (tmp_path / "etc/howdah/howdah.ini").touch()
    seen = tmp_path / "seen"
    own = tmp_path / "etc/systemd/system/howdah.service.d/00-howdah-package.conf"

    def run(script, *words):
        rooted = re.sub(r"(?<![\w}])/(etc|run|var)/", rf"{tmp_path}/\1/", text("debian", script))
        return shell("sh", "-c", rooted, script, *words, AS_USER=user, CHECK=str(check),
                     SEEN=str(seen), PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    said = run("postinst", "configure", "0.0.1")
    wanted = ["reload howdah.service",
              f"runuser -u {user} -- /usr/sbin/howdah --check {tmp_path}/etc/howdah/howdah.ini", done]
    assert seen.read_text().splitlines() == [line for line in wanted if line]
    assert ("the old process goes on" in said) == bool(check)
    assert own.exists() == (user == "postgres")
    if not own.exists():
        own.parent.mkdir(parents=True)
        own.write_text("[Service]\n")
    run("postrm", "purge")
    assert own.exists() == (user != "postgres")


def accounts():
    """The names of all users."""
    return {user.pw_name for user in pwd.getpwall()}


@pytest.mark.skipif(os.geteuid() != 0 or not os.environ.get("CI"),
                    reason="installs into this very system: only as root with CI set")
@pytest.mark.skipif(os.path.exists("/usr/sbin/howdah"), reason="Howdah is installed here")
def test_install_start_upgrade_remove(package, unit, postgres, scratch):
    ini, users, program = "/etc/howdah/howdah.ini", "/etc/howdah/userlist.txt", "/usr/sbin/howdah"
    own = "/etc/systemd/system/howdah.service.d/00-howdah-package.conf"
    user, group = unit["Service"]["User"], unit["Service"]["Group"]
    before = accounts()
    port = machine.free_port()
    try:
        shell("dpkg", "--install", package)
        for path in [ini, users]:
            status = os.stat(path)
            assert (status.st_uid, grp.getgrgid(status.st_gid).gr_name) == (0, group)
            assert stat.S_IMODE(status.st_mode) == 0o640
        assert not os.path.exists(own)

        with open(ini) as file:
            changed = file.read()
        changed = changed.replace("listen_port = 6432", f"listen_port = {port}")
        changed = changed.replace("port=5432", f"port={postgres.port}")
        with open(ini, "w") as file:
            file.write(changed)
        with open(users, "a") as file:
            file.write('"postgres" "secret"\n')

        # As systemd would, were there one.
        shell("install", "-d", "-o", user, "-g", group, "/run/howdah")
        child = machine.spawn(["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
                               *unit["Service"]["ExecStart"].split()], as_user=False, cwd="/")
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

        # Where Howdah ran as postgres, it goes on so, with its files as they are.
        for path in [ini, users]:
            shutil.chown(path, "postgres", "postgres")
        shell("dpkg", "--install", build(scratch, "--version", "999.0"))
        assert shell("dpkg-query", "--show", "--showformat=${Version}", "howdah") == "999.0"
        with open(ini) as file:
            assert file.read() == changed, "an upgrade keeps the administrator's file"
        assert grp.getgrgid(os.stat(ini).st_gid).gr_name == "postgres"
        with open(own) as file:
            assert "User=postgres\n" in file.read()

        shell("dpkg", "--remove", "howdah")
        assert not os.path.exists(program) and os.path.exists(ini)
    finally:
        shell("dpkg", "--purge", "howdah")
        shutil.rmtree("/run/howdah", ignore_errors=True)
    assert not os.path.exists("/etc/howdah") and not os.path.exists(own)
    if user not in before:
        shell("userdel", user)
