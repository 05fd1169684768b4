"""Synthetic datasets, which need no files."""
