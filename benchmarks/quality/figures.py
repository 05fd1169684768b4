"""The published figures that Seqloom is measured by: for each the commands that train, and the one that judges.

A command is what a user would type; `{data}` is the folder of data sets (`SEQLOOM_DATA`), `{models}` the one of model
files beside this file, `{made}` the one of files made of the sets, `{glove}` a file of GloVe vectors (`SEQLOOM_GLOVE`).
Everything was chosen on dev parts. The test part is looked at once for each seed.
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
PTB += " --word-split space --least 1"  # 30 of its 9,999 words occur once, and the published vocabulary has them all
MULTI30K = (
    "{data}/multi30k/tok/train.lc.norm.tok.en.xz {data}/multi30k/tok/train.lc.norm.tok.de.xz"
    " --dev {data}/multi30k/tok/val.lc.norm.tok.en --dev {data}/multi30k/tok/val.lc.norm.tok.de"
    " --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.en"
    " --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.de --format parallel"
)
SCAN = (
    '--template "IN: {input} OUT: {target}" --input input --target target --task translate --tokenizer words'
    " --word-split space --shares 10%,0%"
)
SHAKESPEARE = (
    "{made}/shakespeare-train.txt --dev {made}/shakespeare-dev.txt --unit file --task lm --tokenizer characters"
)
DIGITS = "{made}/digits-train.npz --dev {made}/digits-dev.npz --test {made}/digits-test.npz"

ATIS = "{data}/atis/train.tsv.xz --dev {data}/atis/valid.tsv --test {data}/atis/test.tsv --format tsv --no-header"
EWT = (
    "{data}/ud_english_ewt/en_ewt-ud-train.conllu.xz --dev {data}/ud_english_ewt/en_ewt-ud-dev.conllu.xz"
    " --test {data}/ud_english_ewt/en_ewt-ud-test.conllu.xz --target upos"
)
STSB = (
    "{data}/stsb/stsb-en-train.csv.xz --dev {data}/stsb/stsb-en-dev.csv --test {data}/stsb/stsb-en-test.csv --no-header"
    " --input 1 --input 2 --target 3 --task embed"
)
WNUT = "{data}/wnut17/train.conll --dev {data}/wnut17/dev.conll --test {data}/wnut17/test.conll"

SST2_SUBWORDS = SST2.removesuffix(" --word-split space") + " --tokenizer bpe --vocabulary 4000"
TAGGER = "--task tag --model bilstm --head crf --letters cnn --dropout 0.5 --rate 0.002 --patience 8"
GLOVE = "--vectors {glove} --vector-words 60000"

FIGURES: dict[str, Figure] = {
    "sst2-cnn": Figure(
        "SST-2",
        "cnn, random vectors; the best of the families from scratch",
        "accuracy",
        80.5,
        f"{SST2_SUBWORDS} --model cnn --lower --dropout 0.5 --smoothing 0.2 --rate 0.0005 --decay 0.1 --epochs 10"
        " --patience 0",
        times=100,
    ),
    "sst2-glove": Figure(
        "SST-2",
        "cnn, GloVe vectors",
        "accuracy",
        85,
        f"{SST2} --model cnn --lower {GLOVE} --dropout 0.5 --smoothing 0.2 --rate 0.001 --decay 0.1 --epochs 8"
        " --patience 0",
        times=100,
    ),
    "trec-cnn": Figure(
        "TREC-6",
        "cnn, random vectors",
        "accuracy",
        91.2,
        f"{TREC} --model {{models}}/trec-cnn.toml --lower --rate 0.001 --decay 0.1 --warm-up 20 --epochs 12"
        " --patience 0",
        times=100,
    ),
    "atis-slots": Figure(
        "ATIS, slots",
        "bilstm-crf with letters",
        "f1",
        95.2,
        f"{ATIS} --input 2 --target 3 {TAGGER} --epochs 30",
        times=100,
    ),
    "atis-intent": Figure(
        "ATIS, intents",
        "bilstm",
        "accuracy",
        96,
        f"{ATIS} --input 2 --target 1 --task classify --model bilstm --dropout 0.5 --smoothing 0.1 --epochs 30"
        " --patience 0 --least 2",
        times=100,
    ),
    "ewt-upos": Figure(
        "UD English EWT, UPOS",
        "bilstm with letters",
        "accuracy",
        95.0,
        f"{EWT} --model {{models}}/ewt-bilstm.toml --rate 0.002 --average 0.999 --epochs 20 --patience 0",
        times=100,
    ),
    "wnut17": Figure("WNUT-17", "bilstm-crf with letters", "f1", 20, f"{WNUT} {TAGGER} --epochs 30", times=100),
    "wnut17-glove": Figure(
        "WNUT-17",
        "bilstm-crf with letters, GloVe vectors",
        "f1",
        35,
        f"{WNUT} {TAGGER} {GLOVE} --freeze-vectors --epochs 15",
        times=100,
    ),
    "stsb-glove": Figure(
        "STS benchmark",
        "bag of GloVe vectors",
        "spearman",
        68,
        f"{STSB} --vectors {{glove}} --freeze-vectors --dropout 0 --epochs 12",
        times=100,
    ),
    "ptb-650": Figure(
        "Penn Treebank",
        "LSTM 2 x 650, dropout, tied",
        "perplexity",
        77,
        f"{PTB} --model {{models}}/ptb-650.toml --streams 20x35 --epochs 40 --optimiser sgd --momentum 0 --rate 20"
        " --warm-up 0 --schedule cosine --clip 0.25 --patience 0",
        lower_is_better=True,
    ),
    "ptb-awd": Figure(
        "Penn Treebank",
        "LSTM 3 x 1,000, regularised as AWD-LSTM",
        "perplexity",
        68,
        f"{PTB} --model {{models}}/ptb-awd.toml --streams 40x70 --seconds 1380 --optimiser sgd --momentum 0 --rate 30"
        " --decay 0.0000012 --warm-up 500 --schedule linear --clip 0.25 --patience 0",
        lower_is_better=True,
    ),
    "shakespeare": Figure(
        "tiny Shakespeare",
        "gpt, 6 x 384, context 256: nats per character of the dev part",
        "loss",
        1.46,
        f"{SHAKESPEARE} --model {{models}}/shakespeare-gpt.toml --packs 64x256 --steps 5000 --validate-every 250"
        " --rate 0.001 --schedule cosine --warm-up 100 --decay 0.1 --average 0.998 --precision bf16 --patience 0",
        judge="",
        lower_is_better=True,
    ),
    "multi30k-transformer": Figure(
        "Multi30k en-de, test 2016",
        "transformer of the paper's size",
        "bleu_tokenised",
        41.0,
        f"{MULTI30K} --model {{models}}/multi30k-transformer.toml --tokenizer bpe --vocabulary 10000 --batch 8192"
        " --steps 12000 --rate 0.003 --schedule cosine --warm-up 1000 --average 0.9995 --precision float32"
        " --metric bleu --validate-every 1000 --patience 0",
        judge="--test --beam 5",
    ),
    "multi30k-seq2seq": Figure(
        "Multi30k en-de, test 2016",
        "seq2seq with attention",
        "bleu_tokenised",
        36,
        f"{MULTI30K} --model {{models}}/multi30k-seq2seq.toml --tokenizer bpe --vocabulary 10000 --batch 4096"
        " --steps 6000 --rate 0.002 --schedule cosine --metric bleu --validate-every 1000 --patience 0",
        judge="--test --beam 5",
    ),
    "scan-simple": Figure(
        "SCAN simple",
        "lstm, attention chosen on dev",
        "exact_match",
        99,
        f"{{data}}/scan/tasks_train_simple.txt.xz --test {{data}}/scan/tasks_test_simple.txt.xz {SCAN}"
        " --model seq2seq-dot --steps 8000 --validate-every 1000 --patience 0",
        times=100,
    ),
    "scan-length": Figure(
        "SCAN length",
        "lstm, attention chosen on dev",
        "exact_match",
        13,
        f"{{data}}/scan/tasks_train_length.txt.xz --test {{data}}/scan/tasks_test_length.txt.xz {SCAN}"
        " --model seq2seq-additive --dropout 0.5 --steps 5000 --validate-every 1000 --patience 0",
        times=100,
    ),
    "digits-cnn": Figure("digits", "cnn", "accuracy", 98, f"{DIGITS} --model conv2d", times=100),
    "digits-patches": Figure(
        "digits",
        "patch transformer",
        "accuracy",
        97,
        f"{DIGITS} --model patch-transformer --dropout 0.1 --rate 0.0005 --epochs 120 --average 0.99 --patience 0",
        times=100,
    ),
}
