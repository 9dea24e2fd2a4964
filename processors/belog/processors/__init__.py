"""The tables made from the log, and what keeps them up to date."""
