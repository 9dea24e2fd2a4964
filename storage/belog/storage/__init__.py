"""The event log's interface and its backends."""
