"""Faithfulness: how far can an attention picture or an attribution of this model be trusted?

bench.py          one layer and one input, on which other attention weights are tried
alternatives.py   uniform, adversarial, shuffled and erased weights
explanations.py   tokens removed, and the agreement of explanations
guide.py          weights that teach another model          measures.py   all tests, and the verdict
report.py         the view
"""
