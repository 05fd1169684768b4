"""Attributions: which elements of an input moved this answer, and by how much?

score s ──goal──▶ one number of the answer, or one less another
input x ──ground──▶ the vectors of its tokens (never their numbers), or the numbers of steps and pixels themselves

gradient           |ds/dx_t|                          how much a small change at t would do
gradient_x_input   ds/dx_t . (x_t - b_t)              the same times how far t is from the baseline b
integrated         (x_t - b_t) . mean of ds/dx_t on the way from b to x: adds up to s(x) - s(b)
occlusion          s(x) - s(x with b at t)
leave_one_out      s(x) - s(x without t)
rollout            how much of t the attention of all layers lets through to the answer

goals.py         the goal and the ground                 attribution.py   the views of one answer, a file of texts
gradients.py     the methods with gradients              tables.py        several methods; every answer by every token
methods.py       the others, and the table of all        pairs.py         a similarity, pair of tokens by pair
"""
