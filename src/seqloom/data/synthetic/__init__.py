"""Data sets that need no file: one file a set."""
