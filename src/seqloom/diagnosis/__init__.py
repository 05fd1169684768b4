"""What is wrong with a run, and what to change: `diagnose` for a run folder, `range_test` for a rate before the start.

    findings  page  terminal  words     what a diagnosis is, and how it is shown
    story                               the lines of a run as numbers of one kind
    curves  descent  costs  labels      what the numbers say: pure functions, no model needed
    flow  units                         what a model says: gradients by layer and by distance, dead and saturated units
    inside                              the findings of those
    front                               a run folder from beginning to end
    range_test                          the rate at which training is fastest (Smith 2017)

A rule speaks only where it is sure: every threshold stands with its reason, and a run that is all right gets no
finding.
"""
