"""Looking inside a model: attention, gates, gradients, filters, attributions, and how far a picture may be believed.

    tokens    what the model reads, with the text it stands for      subject   the model and one input
    asking    how each shape of model is asked                       vectors   those of the first layer, or others
    view      results that show and save themselves
"""
