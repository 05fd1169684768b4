"""Checks of examples: one file a check."""
