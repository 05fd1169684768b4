"""Import of pretrained models; a model that cannot be reproduced exactly is an error.

    a folder: config.json, tokenizer.json, model.safetensors          an encoder of the architecture of BERT
    a file:   word vectors (GloVe, word2vec, fastText)                their mean, weighted or not
                                    │
                                    ▼
    a model folder like those of training: inspect, embed, search and fine-tune it

Imported files are untrusted: no code is run, no pickle is opened, and sizes are checked before memory is allocated. A
setting that could change the outputs and is not supported is an error.

    models.py        `import_model`
    bert.py          an encoder: its configuration, vocabulary and weights, and its sentence vectors
    static.py        word vectors
    checkpoint.py    reading untrusted files
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.importing.models import import_model, imported

__all__ = ["import_model", "imported"]

__getattr__ = loading(__name__, {"models": ("import_model", "imported")})


def __dir__() -> list[str]:
    return __all__
