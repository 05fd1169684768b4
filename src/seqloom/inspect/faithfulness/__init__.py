"""Faithfulness: how far may a picture of attention, or an attribution, be believed on this model?

bench.py          one layer and one input, on which other weights are tried
erasure.py        weights set to zero                       eraser.py      tokens taken away, or nothing else left
alternatives.py   equal weights, other models, far weights  agreement.py   attention, gradients, leave-one-out
guide.py          weights that teach another model          measures.py    every test on one input
verdict.py        the sentence                              report.py      all of it as one view
"""
