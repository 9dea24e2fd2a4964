"""The gRPC service: the same log as over HTTP, for clients in any language."""

from belog.service.grpc_api.server import GrpcServer, start_grpc
from belog.service.grpc_api.settings import GrpcSettings

__all__ = ["GrpcServer", "GrpcSettings", "start_grpc"]
