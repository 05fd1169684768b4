"""Mixers: all layers in which positions of a sequence exchange information, with one interface."""
