"""Questions answered from the tables and the log."""
