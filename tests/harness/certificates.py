"""A certificate authority of the tests' own, by the openssl command: certificates of every kind."""

import os
import subprocess
from typing import NamedTuple

from . import machine

LOCAL = ("DNS:localhost", "IP:127.0.0.1")

# How to make a key of each kind: arguments of `openssl genpkey`.
KEYS = {
    "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "rsa4096": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"],
    "ecdsa": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "ed25519": ["-algorithm", "ED25519"],
}


class Certificate(NamedTuple):
    """Files in PEM."""

    key: str
    chain: str  # the certificate, and those of intermediate authorities behind it

    def der(self):
        """The certificate itself."""
        return subprocess.run(["openssl", "x509", "-in", self.chain, "-outform", "DER"],
                              capture_output=True, check=True).stdout


def listener(certificate, authority, mode="require", **settings):
    """Settings of a Howdah whose clients have TLS."""
    return {"client_tls_sslmode": mode, "client_tls_key_file": certificate.key,
            "client_tls_cert_file": certificate.chain,
            "client_tls_ca_file": authority.certificate, **settings}


class Authority:
    """A root authority, or one that another has signed."""

    def __init__(self, scratch, name, above=None, subject="/CN=Test authority", kind="ecdsa"):
        self.folder = machine.folder(scratch, name)
        self.count = 0
        self.above = above
        self.key = self._path("authority.key")
        self.certificate = self._path("authority.crt")
        self._make_key(self.key, kind)
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
        if above:
            above._sign(self.key, self.certificate, subject, extensions, days=30)
        else:
            self._openssl("req", "-x509", "-new", "-key", self.key, "-out", self.certificate,
                          "-subj", subject, "-days", "30",
                          *[word for one in extensions for word in ("-addext", one)])

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _openssl(self, *arguments):
        return machine.run(["openssl", *arguments])

    def _make_key(self, path, kind):
        self._openssl("genpkey", *KEYS[kind], "-out", path)
        os.chmod(path, 0o600)

    def _sign(self, key, certificate, subject, extensions, days, version=3, digest="-sha256",
              padding=None):
        """Certifies that a key is this subject's. days below 0: it has expired."""
        self.count += 1
        request = self._path(f"{self.count}.csr")
        self._openssl("req", "-new", "-key", key, "-out", request, "-subj", subject)
        options = [digest] if digest else []
        if padding:
            options += ["-sigopt", f"rsa_padding_mode:{padding}"]
        if version == 3:
            path = self._path(f"{self.count}.ext")
            with open(path, "w") as file:
                file.write("\n".join(extensions) + "\n")
            os.chmod(path, 0o644)
            options += ["-extfile", path]
        sign = ["x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                "-set_serial", str(1000 + self.count), "-days", str(days), "-out", certificate,
                *options]
        self._openssl(*sign)
        if version == 1 and "Version: 1 " not in self._text(certificate):
            self._openssl(*sign, "-x509v1")  # OpenSSL 3.4 and newer make them on demand only
            assert "Version: 1 " in self._text(certificate)

    def _text(self, certificate):
        return self._openssl("x509", "-in", certificate, "-noout", "-text")

    def issue(self, subject="/CN=localhost", names=LOCAL, kind="ecdsa", days=30, version=3,
              pkcs1=False, digest="-sha256", padding=None, usage="serverAuth,clientAuth",
              key_usage=None):
        """A certificate. names: alternative ones, as openssl writes them. pkcs1: the key's file
        has the older format ("RSA PRIVATE KEY", "EC PRIVATE KEY"). digest: None where the
        authority's key is Ed25519, which has its own. padding: "pss" for RSA-PSS. key_usage: what the key is for; no word of it
        unless given."""
        self.count += 1
        stem = self._path(f"leaf{self.count}")
        key, chain = stem + ".key", stem + ".crt"
        self._make_key(key, kind)
        extensions = [f"extendedKeyUsage={usage}"]
        if key_usage:
            extensions.append(f"keyUsage={key_usage}")
        if names:
            extensions.append("subjectAltName=" + ",".join(names))
        self._sign(key, chain, subject, extensions, days, version, digest, padding)
        if pkcs1:
            old = key + ".old"
            self._openssl("pkey", "-in", key, "-traditional", "-out", old)
            os.chmod(old, 0o600)
            os.replace(old, key)
        with open(chain, "a") as file:
            at = self
            while at.above:
                with open(at.certificate) as certificate:
                    file.write(certificate.read())
                at = at.above
        return Certificate(key, chain)

    def client(self, user, **options):
        """A client's certificate that names this user as its common name."""
        return self.issue(subject=f"/CN={user}", names=(), **options)
