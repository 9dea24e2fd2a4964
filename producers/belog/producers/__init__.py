"""The validating producer and the importers in front of it."""
