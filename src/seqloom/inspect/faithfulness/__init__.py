"""Faithfulness: how far may a picture of attention, or an attribution, be believed on this model?

bench.py          one layer and one input, on which other weights are tried
alternatives.py   equal, far, shuffled and erased weights   eraser.py      tokens taken away, or nothing else left
guide.py          weights that teach another model          agreement.py   attention, gradients, leave-one-out
measures.py       every test on one input                   verdict.py     the sentence
report.py         all of it as one view
"""
