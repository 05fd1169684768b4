"""How near two texts are: a score for pairs, and the tables of a search task."""

from seqloom.config.data import GivenSplit, ReadingConfig
from seqloom.data.sources.source import Source
from seqloom.data.sources.sums import file

_STSB = "https://raw.githubusercontent.com/PhilipMay/stsb-multi-mt/99a65f1b68667f69a57bea13f602c7c9c27a9fcd/data"

STSB = Source(
    name="stsb",
    description="STS benchmark, English: how alike two sentences are, 0 to 5",
    licence="scores CC BY-SA 4.0, each text source under terms of its own (listed in the LICENSE of the repository)",
    citation="Cer, Diab, Agirre, Lopez-Gazpio and Specia (2017). SemEval-2017 Task 1: Semantic Textual Similarity "
    "Multilingual and Crosslingual Focused Evaluation",
    origin="PhilipMay/stsb-multi-mt at 30de0dec4ee1",
    files={
        "train": (file("stsb/stsb-en-train.csv.xz", f"{_STSB}/stsb-en-train.csv"),),
        "dev": (file("stsb/stsb-en-dev.csv", f"{_STSB}/stsb-en-dev.csv"),),
        "test": (file("stsb/stsb-en-test.csv", f"{_STSB}/stsb-en-test.csv"),),
    },
    reading=ReadingConfig(format="csv", header=False),
    task="regress",
    input=("1", "2"),
    target=("3",),
    split=GivenSplit(),
)

SCIFACT = Source(
    name="scifact",
    description="SciFact in the BEIR form: claims, and the abstracts that bear on them",
    licence="claims CC BY 4.0, abstracts ODC-By 1.0 (stated in allenai/scifact)",
    citation="Wadden, Lin, Lo, Wang, van Zuylen, Cohan and Hajishirzi (2020). Fact or Fiction: Verifying Scientific "
    "Claims",
    origin="the BEIR archive of the set; the files lie in several repositories, none of which holds all of them",
    files={
        "corpus": (file("scifact/corpus.jsonl.xz"),),
        "queries": (file("scifact/queries.jsonl"),),
        "qrels_train": (file("scifact/qrels_train.tsv"),),
        "qrels_test": (file("scifact/qrels_test.tsv"),),
    },
)
