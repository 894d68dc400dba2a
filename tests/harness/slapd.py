"""A directory server of the tests' own: Debian's slapd, unprivileged, in a folder of its own."""

import os
import shutil
import subprocess

from . import machine, wire

BASE = "dc=example,dc=net"
ROOT, ROOT_PASSWORD = f"cn=Manager,{BASE}", "hush"
SCHEMA = "/etc/ldap/schema"
# Users and their passwords; each is `uid=NAME,ou=people`, but for the second of two twins.
PASSWORDS = {"ann": "secret", "bob": "another", "admin": "secret", "a,b": "comma",
             "jürgen": "schlüssel"}

CONFIGURATION = """
include {schema}/core.schema
include {schema}/cosine.schema
include {schema}/inetorgperson.schema
pidfile {folder}/pid
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{root}" read {readers}
{more}
TLSCertificateFile {folder}/server.crt
TLSCertificateKeyFile {folder}/server.key
database ldif
directory {folder}/data
suffix "{base}"
rootdn "{root}"
rootpw {root_password}
"""


def program():
    """Where slapd is; None without it."""
    return shutil.which("slapd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/libexec")


def person(name, password, above=f"ou=people,{BASE}"):
    """An entry of a user."""
    named = name.replace(",", "\\2c")
    return (f"dn: uid={named},{above}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\n"
            f"sn: {name}\nmail: {name}@example.net\nuserPassword: {password}\n")


class Slapd:
    """Listens for ldap and ldaps on loopback ports."""

    def __init__(self, scratch, name, readers="by * read", more=""):
        """readers: who may search, besides the root. more: settings."""
        self.scratch = scratch
        self.folder = machine.folder(scratch, name)
        machine.folder(self.folder, "data")
        self.host = "127.0.0.1"
        self.port, self.tls_port = machine.free_port(), machine.free_port()
        self.certificate = os.path.join(self.folder, "server.crt")
        self.child = None
        self._make_certificate()
        self._write("slapd.conf", CONFIGURATION.format(
            schema=SCHEMA, folder=self.folder, base=BASE, root=ROOT,
            root_password=ROOT_PASSWORD, readers=readers, more=more))
        entries = [f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\n"
                   "o: example\n"]
        entries += [f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n"
                    for unit in ("people", "others")]
        entries += [person(*user) for user in PASSWORDS.items()]
        entries += [person("twin", "one"), person("twin", "two", f"ou=others,{BASE}")]
        self._write("entries.ldif", "\n".join(entries))
        # A copy, because distributions confine the installed one to its own folders.
        self.program = machine.readable_copy(program(), scratch)
        machine.run([self.program, "-Tadd", "-f", self._path("slapd.conf"),
                     "-l", self._path("entries.ldif")])
        self.start()

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _write(self, name, text):
        with open(self._path(name), "w", encoding="utf-8") as file:
            file.write(text)
        machine.hand_over(file.name)

    def _make_certificate(self):
        machine.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                     "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                     "-addext", "basicConstraints=critical,CA:FALSE",
                     "-keyout", self._path("server.key"), "-out", self.certificate])

    def start(self):
        """Starts it and waits until it listens."""
        with open(self._path("log"), "a") as log:
            self.child = machine.spawn(
                [self.program, "-f", self._path("slapd.conf"), "-d", "0", "-h",
                 f"ldap://{self.host}:{self.port} ldaps://{self.host}:{self.tls_port}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        machine.wait_until(self._listens, f"slapd to listen; its log is {self._path('log')}")
        return self

    def _listens(self):
        if self.child.poll() is not None:
            raise RuntimeError(f"slapd ended at once with {self.child.returncode}")
        try:
            wire.Wire((self.host, self.port)).close()
            return True
        except OSError:
            return False

    def stop(self):
        """Ends it."""
        if self.child:
            machine.end(self.child)
            self.child = None

    # Options for Howdah

    def simple(self):
        """Binds as the user at once."""
        return (f"ldapserver={self.host} ldapport={self.port} ldapprefix=\"uid=\" "
                f"ldapsuffix=\",ou=people,{BASE}\"")

    def search(self, more=""):
        """Searches for the user first."""
        return f"ldapserver={self.host} ldapport={self.port} ldapbasedn=\"{BASE}\" {more}"

    def url(self, rest="?uid?sub", scheme="ldap"):
        """Searches for the user as a URL says."""
        port = self.tls_port if scheme == "ldaps" else self.port
        return f"ldapurl=\"{scheme}://{self.host}:{port}/{BASE}{rest}\""
