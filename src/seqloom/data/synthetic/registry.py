"""The registry of synthetic datasets: each is generated from a seed, and each has a measured difficulty.

    dates        translate   seq2seq with attention 98 %     brackets       classify    memory of open brackets
    reviews      classify    bag 80 % at most, lstm 95 %     arithmetic     classify    ten classes
    questions    classify    bag 55 % at most, cnn 98 %      copy           classify    rnn 30 % at most
    homographs   classify    context decides                 copy_memory    tag         the published form
    movies       tag         bilstm-crf 95 F1                adding         regress     the published form
    grammar      lm          known lowest perplexity         listops        classify    the published form
    pictures     classify    filters and patches             listops_small  classify    the same, shorter
    graphs       classify    only the edges tell

Examples are a pure function of the set, the split, the seed and the index; splits never share an input.
"""

from seqloom.data.synthetic.arithmetic import ARITHMETIC, LISTOPS, LISTOPS_SMALL
from seqloom.data.synthetic.arrays import ADDING, PICTURES
from seqloom.data.synthetic.grammar import GRAMMAR
from seqloom.data.synthetic.graphs import GRAPHS
from seqloom.data.synthetic.memory import BRACKETS, COPY, COPY_MEMORY
from seqloom.data.synthetic.phrases import DATES, MOVIES
from seqloom.data.synthetic.sentences import HOMOGRAPHS, QUESTIONS, REVIEWS
from seqloom.data.synthetic.set import SyntheticSet
from seqloom.errors import ConfigError, did_you_mean

NAMES: dict[str, SyntheticSet] = {
    one.name: one
    for one in (
        *(DATES, REVIEWS, QUESTIONS, HOMOGRAPHS, MOVIES, GRAMMAR, PICTURES, GRAPHS),
        *(BRACKETS, ARITHMETIC, COPY, COPY_MEMORY, ADDING, LISTOPS, LISTOPS_SMALL),
    )
}


def named(name: str) -> SyntheticSet:
    """Return the set with this name; raise ConfigError with the nearest name if there is none."""
    if name not in NAMES:
        raise ConfigError(f"there is no built-in dataset '{name}'", fix=did_you_mean(str(name), NAMES))
    return NAMES[name]
