"""Attributions: which elements of an input moved this answer, and by how much?

score s ──goal──▶ one number of the answer, or one less another
input x ──ground──▶ the vectors of its tokens (never their numbers), or the numbers of steps and pixels themselves

gradient           |ds/dx_t|                          how much a small change at t would do
gradient_x_input   ds/dx_t . (x_t - b_t)              the same times how far t is from the baseline b
integrated         (x_t - b_t) . mean of ds/dx_t on the way from b to x: adds up to s(x) - s(b)
occlusion          s(x) - s(x with b at t)
leave_one_out      s(x) - s(x without t)
rollout            how much of t the attention of all layers lets through to the answer

goals.py         which number is explained, and where attributions are taken: the ground, and baselines
gradients.py     the methods with gradients
methods.py       occlusion, leave-one-out and rollout, and the table of all methods
attribution.py   the view of one answer, and a file of texts to JSON lines
agreement.py     several methods side by side
table.py         every answer by every token
pairs.py         a similarity, pair of tokens by pair
ngrams.py        exact, of a linear model
"""
