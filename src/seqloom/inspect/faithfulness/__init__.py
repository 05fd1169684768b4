"""Faithfulness: how far may a picture of attention, or an attribution, be believed on this model?

bench.py          one layer and one input, on which other weights are tried
alternatives.py   equal, far, shuffled and erased weights   explanations.py   tokens taken away; do explanations agree
guide.py          weights that teach another model          measures.py       every test, and the sentence
report.py         all of it as one view
"""
