"""Faithfulness: how far may a picture of attention, or an attribution, be believed on this model?

distances   TVD, JSD, Kendall's tau, overlap          answers    the distributions that are compared
imposing    other weights in place of the model's     holding    what stands before a layer, computed once
bench       one layer and one input, at work          removing   an input without some of its tokens
permuting   shuffled weights                          adversary  far weights, the same answer
erasing     weights set to zero                       eraser     tokens taken away, or nothing else left
uniform     equal weights, and other models           agreement  attention, gradients, leave-one-out
verdict     the sentence                              report     all of it as one view
"""
