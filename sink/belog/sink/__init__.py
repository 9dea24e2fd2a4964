"""Replication of a log to other instances, change feeds and archives."""
