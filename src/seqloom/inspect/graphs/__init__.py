"""The graph of a computation: values forward and gradients backward, for expressions and models.

grammar.py      parses expressions                             recording.py   records torch operations
expression.py   backpropagation on numbers, and its view       model.py       the view of a model or a function
diagram.py      the figure
"""
