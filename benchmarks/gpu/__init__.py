"""Benchmarks for a GPU, each beside a peer in the same run: `python -m benchmarks.gpu`."""
