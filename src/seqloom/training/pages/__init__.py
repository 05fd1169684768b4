"""The pages of a run: `report.html` for people who look at it, `card.md` for people who get the model.

lines    the journals, typed                                summary  a run in one value
scores   metrics of the shipped weights with intervals      report   the report, as a document
naming   what to call the model                             card     the card, as a document
curves   the figures
"""
