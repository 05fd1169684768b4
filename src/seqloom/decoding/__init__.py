"""Decoding: how a model that scores the next symbol writes a whole sequence."""
