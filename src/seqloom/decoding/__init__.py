"""Decoding: generate sequences with a model that scores the next token.

decode.py      `write` and `stream`: outputs for a batch of prompts, by greedy decoding or sampling
beam.py        beam search
answers.py     drafts, stop strings, scores and penalties, and the interface of models
alignment.py   the attention of a decoder to its source
"""
