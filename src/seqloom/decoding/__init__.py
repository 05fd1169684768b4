"""Decoding: generate sequences with a model that scores the next token.

decode.py      `write` and `stream`: outputs for a batch of prompts, by greedy decoding or sampling
beam.py        beam search
steps.py       the next tokens of rows, one after another: the plain way
replayed.py    the same on a CPU: state in buffers, the calls of torch for a token recorded and replayed
buffered.py    the same with `cuda_graphs`: state in buffers, each token a CUDA graph
answers.py     drafts, stop strings, scores and penalties, and the interface of models
continuous.py  rows that join a running batch and leave it between two tokens
pauses.py      what is done between two steps
alignment.py   the attention of a decoder to its source
"""
