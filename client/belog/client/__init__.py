"""Clients of the service: append, follow, ask; and a spool for when it is away."""
