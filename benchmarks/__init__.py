"""Benchmarks: each work beside its raw counterpart, in one run, on real servers."""
