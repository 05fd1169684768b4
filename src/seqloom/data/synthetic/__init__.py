"""Synthetic data sets, which need no files."""
