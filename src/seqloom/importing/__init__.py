"""Models from elsewhere, made into our own: exactly, or not at all.

    a folder: config.json, tokenizer.json, model.safetensors          an encoder of the architecture of BERT
    a file:   the vectors of words (GloVe, word2vec, fastText)        their mean, each word weighed or not
                                    │
                                    ▼
    a model folder as training writes it: inspect, embed, search, fine-tune it as any other

What comes from outside is untrusted: no code of it is run, no pickle is opened, every size is compared with what is
there before memory is taken, and whatever could change the outputs and is not understood is refused.

    models.py        what is given, what is asked, and the folder that is written
    bert.py          an encoder: its configuration, vocabulary and weights, and how it makes the vector of a sentence
    static.py        the vectors of words
    checkpoint.py    files that anybody may have written
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.importing.models import import_model, imported

__all__ = ["import_model", "imported"]

__getattr__ = loading(__name__, {"models": ("import_model", "imported")})


def __dir__() -> list[str]:
    return __all__
