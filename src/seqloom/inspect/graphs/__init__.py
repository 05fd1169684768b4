"""The graph of a computation: values going forward, gradients coming back, for expressions and for whole models.

grammar.py      expressions as they are written       recording.py   what torch does, one operation after another
scalars.py      backpropagation on numbers            model.py       the view of a model
expression.py   the view of an expression             builder.py     one function for all of it
diagram.py      the picture
"""
