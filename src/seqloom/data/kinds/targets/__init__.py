"""The kinds of target."""
