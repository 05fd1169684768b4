"""Readers: one file a format."""
