"""Attributions: how much each element of an input contributed to a prediction.

goal: the score s to explain, one number of the prediction or a difference of two
ground: the input x, token vectors (not token ids), or the numbers of steps and pixels themselves

gradient           |ds/dx_t|                          the effect of a small change at t
gradient_x_input   ds/dx_t . (x_t - b_t)              times the distance of t from the baseline b
integrated_gradients  (x_t - b_t) . mean of ds/dx_t on the path from b to x: sums to s(x) - s(b)
occlusion          s(x) - s(x with b at t)
leave_one_out      s(x) - s(x without t)
rollout            how much of t the attention of all layers lets through to the prediction

goals.py         the goal and the ground                 attribution.py   the views of one prediction; JSON lines
gradients.py     methods that use gradients              tables.py        several methods; predictions x tokens
methods.py       the other methods, and the list of all  pairs.py         a similarity by pairs of tokens
"""
