"""HTTP: the routes of one log, as an ASGI application."""

from belog.service.http_api.app import make_app
from belog.service.http_api.settings import HttpSettings

__all__ = ["HttpSettings", "make_app"]
