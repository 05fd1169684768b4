"""Kinds of input and of target: one file each, one contract, one table."""
