"""The graph of a computation: values going forward, gradients coming back, for expressions and for whole models.

grammar.py      expressions as they are written               recording.py   what torch does, operation by operation
expression.py   backpropagation on numbers, and its view      model.py       the view of a model or a function
diagram.py      the picture
"""
