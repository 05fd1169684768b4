"""Kinds of input and of target: one class each, one interface (`kind.py`), one table (`data/schema.py`).

inputs     text, pair and triple: `text.py`; `words.py`; `vectors.py`; `picture.py`
targets    label, labels and tags: `labels.py`; numbers and series: `numbers.py`; text: `target_text.py`; nothing and
           masked: `nothing.py`; related and similarity: `related.py`
"""
