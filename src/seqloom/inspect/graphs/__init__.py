"""The graph of a computation: values going forward, gradients coming back, for expressions and for whole models.

grammar      expressions as they are written       recording   what torch does, one operation after another
operations   what each does, its derivatives       trace       what was recorded
scalars      backpropagation on numbers            repeats     loops and layers that do the same again
expression   the view of an expression             parts       what is seen of a model: its parts, or one of them
layout       where boxes stand                     model       the view of a model
diagram      the picture                           walking     the page with a slider
front        one function for all of it
"""
