"""Experiments of many runs: compare models, tune settings, and find what is wrong with a run."""
