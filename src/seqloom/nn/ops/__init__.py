"""Operators without parameters: a plain version that is the specification, and fast versions with equal results."""
