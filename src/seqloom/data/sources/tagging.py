"""Sentences with a tag for each word: entities, parts of speech, slots; and the intents of the same sentences."""

from seqloom.config.data import GivenSplit, ReadingConfig
from seqloom.data.sources.source import Source
from seqloom.data.sources.sums import file

_WNUT = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master"
_EWT = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/r2.16"

WNUT17 = Source(
    name="wnut17",
    description="WNUT-17: emerging and rare entities of 6 types in posts from four sites",
    licence="CC-BY 4.0",
    citation="Derczynski, Nichols, van Erp and Limsopatham (2017). Results of the WNUT2017 Shared Task on Novel and "
    "Emerging Entity Recognition",
    origin="leondz/emerging_entities_17 at e52a2d2a71ac",
    files={
        "train": (file("wnut17/train.conll", f"{_WNUT}/wnut17train.conll"),),
        "dev": (file("wnut17/dev.conll", f"{_WNUT}/emerging.dev.conll"),),
        "test": (file("wnut17/test.conll", f"{_WNUT}/emerging.test.annotated"),),
    },
    reading=ReadingConfig(format="conll"),
    task="tag",
    input=("tokens",),
    target=("tags",),
    split=GivenSplit(),
)

EWT = Source(
    name="ud_english_ewt",
    description="Universal Dependencies 2.16, English Web Treebank: universal parts of speech (UPOS)",
    licence="CC BY-SA 4.0",
    citation="Silveira, Dozat, de Marneffe, Bowman, Connor, Bauer and Manning (2014). A Gold Standard Dependency "
    "Corpus for English",
    origin="UniversalDependencies/UD_English-EWT at tag r2.16",
    files={
        part: (file(f"ud_english_ewt/en_ewt-ud-{part}.conllu.xz", f"{_EWT}/en_ewt-ud-{part}.conllu"),)
        for part in ("train", "dev", "test")
    },
    reading=ReadingConfig(format="conllu"),
    task="tag",
    input=("tokens",),
    target=("upos",),
    split=GivenSplit(),
)

EWT_XPOS = EWT._replace(
    name="ud_english_ewt-xpos",
    description="The same sentences with the finer tags of the Penn Treebank (XPOS)",
    target=("xpos",),
)

ATIS = Source(
    name="atis",
    description="ATIS: questions about flights, a slot for each word",
    licence="none stated",
    citation="Hemphill, Godfrey and Doddington (1990). The ATIS Spoken Language Systems Pilot Corpus",
    origin="three parallel files of MiuLab/SlotGated-SLU at 61f0307c729b, joined: intent TAB words TAB tags",
    files={
        "train": (file("atis/train.tsv.xz"),),
        "dev": (file("atis/valid.tsv"),),
        "test": (file("atis/test.tsv"),),
    },
    reading=ReadingConfig(format="text", template="{intent}\t{words}\t{tags}"),
    task="tag",
    input=("words",),
    target=("tags",),
    split=GivenSplit(),
)

ATIS_INTENT = ATIS._replace(
    name="atis-intent",
    description="ATIS: questions about flights, the intent of each",
    task="classify",
    target=("intent",),
)
