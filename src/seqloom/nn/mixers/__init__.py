"""Mixers: every way in which the positions of a sequence may see one another, under one contract."""
