"""The pages of a run: `report.html` for people who look at it, `card.md` for people who get the model.

lines    the journals, typed                                curves   the figures
facts    what the folder says about its data                html     the report
scores   metrics of the shipped weights with intervals      card     the card
samples  examples followed over time                        words    how numbers are put
naming   what to call the model                             paces    the pace of training
summary  all of it in one value                             writing  both as files
"""
