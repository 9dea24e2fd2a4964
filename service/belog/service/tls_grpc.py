"""TLS for gRPC, made of the same files as for HTTP."""

import grpc

from belog.service.configuration import TlsSection
from belog.service.tls import client_pems, server_pems

__all__ = ["channel_credentials", "server_credentials"]


def server_credentials(tls: TlsSection) -> grpc.ServerCredentials | None:
    """Return the credentials of a server, None where TLS is not configured. Blocks to read files.

    Raises:
        InvalidConfiguration: A file cannot be read or used, or a key does not fit its certificate.
    """
    pems = server_pems(tls)
    if pems is None or pems.key is None or pems.cert is None:
        return None
    return grpc.ssl_server_credentials(
        [(pems.key, pems.cert)],
        root_certificates=pems.ca,
        require_client_auth=pems.ca is not None,
    )


def channel_credentials(
    *, ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None
) -> grpc.ChannelCredentials:
    """Return the credentials of a channel; arguments and errors as of `tls.client_context`."""
    pems = client_pems(ca_file=ca_file, cert_file=cert_file, key_file=key_file)
    return grpc.ssl_channel_credentials(
        root_certificates=pems.ca, private_key=pems.key, certificate_chain=pems.cert
    )
