"""Certificates that `openssl` makes for a test, and what a server over TLS does with them."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass
class Certificates:
    """An authority; of each name a certificate (`.pem`) and a key (`.key`) that it has signed."""

    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def make(self, name: str, subject: str, *, signed: bool = True) -> None:
        extension = "subjectAltName=IP:127.0.0.1,DNS:upstream.test"
        new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
               "-keyout", f"{name}.key", "-subj", f"/CN={subject}", "-x509", "-days", "2",
               "-out", f"{name}.pem"]  # fmt: skip
        if signed:
            new += ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", extension]
            new += ["-addext", "basicConstraints=critical,CA:FALSE"]
        else:
            new += ["-addext", "keyUsage=critical,keyCertSign"]
        assert OPENSSL is not None
        subprocess.run([OPENSSL, *new], cwd=self.folder, check=True, capture_output=True)


def made(folder: Path) -> Certificates:
    """An authority, a server's certificate and a client's."""
    certificates = Certificates(folder)
    certificates.make("ca", "Test authority", signed=False)
    certificates.make("server", "upstream.test")
    certificates.make("client", "proxy.test")
    return certificates


def server_context(certificates: Certificates, *, asks_client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.file("server.pem"), certificates.file("server.key"))
    if asks_client:
        context.load_verify_locations(certificates.file("ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
