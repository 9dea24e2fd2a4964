"""TLS of both sides: contexts made of PEM files, one set for HTTP and gRPC alike."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from belog.schemas.errors import InvalidConfiguration
from belog.service.configuration import TlsSection

__all__ = [
    "PEM_BYTES_MAX",
    "Pems",
    "client_context",
    "client_pems",
    "server_context",
    "server_pems",
]

PEM_BYTES_MAX: Final = 4_194_304
"""Largest PEM file that is read, bytes: the bundles of all public CAs take about 250 kB."""


@dataclass(frozen=True, slots=True)
class Pems:
    """Contents of PEM files, as gRPC wants them. `repr` shows none."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None

    def __repr__(self) -> str:
        """Return which are there."""
        there = (name for name in ("ca", "cert", "key") if getattr(self, name) is not None)
        return f"Pems({', '.join(there)})"


def server_context(tls: TlsSection) -> ssl.SSLContext | None:
    """Return the context of a service, None where TLS is not configured. Blocks to read files.

    TLS 1.2 or newer. With `client_ca_file` clients without a certificate of these CAs are refused.

    Raises:
        InvalidConfiguration: A file cannot be read or used, or a key does not fit its certificate.
    """
    if tls.cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # HTTP/2 is gRPC's, which makes a context of its own.
    context.set_alpn_protocols(["http/1.1"])
    _load_chain(context, tls.cert_file, tls.key_file)
    if tls.client_ca_file is not None:
        _load_cas(context, tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    *, ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    """Return the context of a client, which checks the service's certificate and name.

    Args:
        ca_file: CAs to trust instead of the system's.
        cert_file: A certificate to show, with its chain.
        key_file: Its key.

    Raises:
        InvalidConfiguration: A file cannot be read or used, or a key does not fit its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is None:
        context.load_default_certs()
    else:
        _load_cas(context, ca_file)
    if cert_file is not None:
        _load_chain(context, cert_file, key_file)
    return context


def server_pems(tls: TlsSection) -> Pems | None:
    """Return what gRPC's server needs, None where TLS is not configured. Checked as the context is.

    Raises:
        InvalidConfiguration: As `server_context`.
    """
    if server_context(tls) is None:
        return None
    return Pems(_read(tls.client_ca_file), _read(tls.cert_file), _read(tls.key_file))


def client_pems(
    *, ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None
) -> Pems:
    """Return what gRPC's client needs. Checked as the context is.

    Raises:
        InvalidConfiguration: As `client_context`.
    """
    client_context(ca_file=ca_file, cert_file=cert_file, key_file=key_file)
    return Pems(_read(ca_file), _read(cert_file), _read(key_file))


def _load_chain(context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
    def refuse_password() -> str:
        msg = f"the key of {cert_file} asks for a password"
        raise InvalidConfiguration(msg, hint="give a key without one, readable by the service only")

    try:
        context.load_cert_chain(cert_file, key_file, password=refuse_password)
    except OSError as error:
        raise _unusable(f"certificate {cert_file} with key {key_file}", error) from error


def _load_cas(context: ssl.SSLContext, ca_file: str) -> None:
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise _unusable(f"CAs {ca_file}", error) from error


def _unusable(what: str, error: OSError) -> InvalidConfiguration:
    # An SSLError is an OSError.
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return InvalidConfiguration(f"{what} cannot be used: {reason}", hint="PEM is wanted")


def _read(name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        with Path(name).open("rb") as file:
            data = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise _unusable(name, error) from error
    if len(data) > PEM_BYTES_MAX:
        msg = f"{name} is larger than PEM_BYTES_MAX = {PEM_BYTES_MAX}"
        raise InvalidConfiguration(msg)
    return data
