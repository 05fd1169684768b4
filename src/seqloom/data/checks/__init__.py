"""Checks of examples, one module per check."""
