"""Decoding: how a model that scores the next symbol writes a whole sequence.

decode.py      `write` and `stream`: answers to a batch of prompts; greedy and sampling, one symbol after another
beam.py        several texts side by side, the best of them the answer
answers.py     texts as they are written, what they are worth, and what is asked of a model
alignment.py   where a decoder looked
"""
