"""The published figures that Seqloom is measured by: for each the commands that train, and the one that judges.

A command is what a user would type; `{data}` is the folder of data sets (`SEQLOOM_DATA`), `{models}` the folder of model
files beside this one. Everything was chosen on dev parts. The test part is looked at once for each seed.
"""

from typing import NamedTuple


class Figure(NamedTuple):
    """One line of the table of results."""

    data: str  # the set, in words
    model: str  # in words
    metric: str  # of `seqloom evaluate --json`
    least: float  # what is asked for; of a loss or a perplexity the most
    train: str  # arguments of `seqloom train`, without --out, --seed and --device
    judge: str = "--test"  # arguments of `seqloom evaluate`
    times: float = 1.0  # what the metric is multiplied by, to be read as papers print it
    lower_is_better: bool = False


SST2 = '{data}/sst2/train.txt.xz --dev {data}/sst2/dev.txt --test {data}/sst2/test.txt --template "{label} {text}"'
SST2 += " --word-split space"
TREC = '{data}/trec/train.txt.xz --test {data}/trec/test.txt --template "{label}:{fine} {text}" --input text'
TREC += " --target label --shares 10%,0% --word-split space"
PTB = "{data}/ptb/ptb.train.txt.xz --dev {data}/ptb/ptb.valid.txt.xz --test {data}/ptb/ptb.test.txt.xz --task lm"
PTB += " --word-split space"
MULTI30K = (
    "{data}/multi30k/tok/train.lc.norm.tok.en.xz {data}/multi30k/tok/train.lc.norm.tok.de.xz"
    " --dev {data}/multi30k/tok/val.lc.norm.tok.en --dev {data}/multi30k/tok/val.lc.norm.tok.de"
    " --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.en --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.de"
)
