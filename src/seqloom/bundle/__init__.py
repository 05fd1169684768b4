"""A model folder: weights, what they are, and what their numbers mean, in one folder that can be copied anywhere.

    my-model/
    ├── model.safetensors       the weights; shared ones once. Its header holds the sums of the three files below
    ├── tokenizer.json          from text to numbers            (none for vectors and pictures)
    ├── target_tokenizer.json   the same for target texts, where it is another one
    ├── labels.json             the names of classes or tags in the order of their numbers
    ├── config.json             format, version, task, model, kinds of input and target, notes
    ├── card.md                 for people
    └── manifest.json           size and sha256 of every file

A folder is believed only if every byte is as it was written, and if the weights were written for this vocabulary: two
symbols that change places would turn every answer into nonsense without changing one weight. Nothing in it is code.

    weights.py    tensors to bytes and back, each size checked before memory is taken
    outline.py    the names, shapes and shared weights that a configuration asks for, without memory for any
    folder.py     the files of a bundle, and a bundle from its files
    places.py     the model of a run, and the run of a model
"""

from seqloom.bundle.folder import Bundle, built, bundle_files, read_bundle

__all__ = ["Bundle", "built", "bundle_files", "read_bundle"]
