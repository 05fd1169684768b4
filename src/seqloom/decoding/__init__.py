"""Decoding: how a model that scores the next symbol writes a whole sequence.

writing.py     `write` and `stream`: answers to a batch of prompts, in any of the ways
rows.py        greedy and sampling: one symbol after another, rows that have ended left out
sampling.py    temperature, top-k, top-p, min-p, and draws that belong to a row
beam.py        several texts side by side, the best of them the answer
scoring.py     log-probabilities and the penalties on repetition, length and coverage
drafts.py      texts as they are written: stop strings, and what can be shown already
stepping.py    what is asked of a model: `step`, and a state with the rows on axis 0
alignment.py   where a decoder looked
"""
