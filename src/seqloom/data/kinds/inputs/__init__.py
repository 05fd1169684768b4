"""The kinds of input."""
