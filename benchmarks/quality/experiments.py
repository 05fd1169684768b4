"""Experiments that are compared with published results: for each the command that trains and the one that evaluates.

A command is what a user would type. `{data}` is the folder of datasets (`SEQLOOM_DATA`), `{models}` the folder of
model files beside this file, `{made}` the folder of files made from the datasets, and `{glove}` a file of GloVe
vectors (`SEQLOOM_GLOVE`). All settings were chosen on dev sets. The test set is evaluated once per seed.
"""

from typing import NamedTuple


class Experiment(NamedTuple):
    """One line of the table of results."""

    data: str  # dataset, in words
    model: str  # in words
    metric: str  # of `seqloom evaluate --json`
    target: float  # the score to reach; for a loss or perplexity, the highest
    train: str  # arguments of `seqloom train`, without --out, --seed and --device
    evaluate: str = "--split test"  # arguments of `seqloom evaluate`
    scale: float = 1.0  # multiplies the metric, for the units of papers
    lower_is_better: bool = False


SST2 = '{data}/sst2/train.txt.xz --dev {data}/sst2/dev.txt --test {data}/sst2/test.txt --template "{label} {text}"'
SST2 += " --word-split space"
TREC = '{data}/trec/train.txt.xz --test {data}/trec/test.txt --template "{label}:{fine} {text}" --input text'
TREC += " --target label --dev-size 10% --test-size 0% --word-split space"
PTB = "{data}/ptb/ptb.train.txt.xz --dev {data}/ptb/ptb.valid.txt.xz --test {data}/ptb/ptb.test.txt.xz --task lm"
PTB += (
    " --word-split space --min-count 1"  # 30 of its 9,999 words occur once, and the published vocabulary has them all
)
MULTI30K = (
    "{data}/multi30k/tok/train.lc.norm.tok.en.xz {data}/multi30k/tok/train.lc.norm.tok.de.xz"
    " --dev {data}/multi30k/tok/val.lc.norm.tok.en --dev {data}/multi30k/tok/val.lc.norm.tok.de"
    " --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.en"
    " --test {data}/multi30k/tok/test_2016_flickr.lc.norm.tok.de --format parallel"
)
SCAN = (
    '--template "IN: {input} OUT: {target}" --input input --target target --task translate --tokenizer words'
    " --word-split space --dev-size 10% --test-size 0% --metric exact_match"
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

SST2_SUBWORDS = SST2.removesuffix(" --word-split space") + " --tokenizer bpe --vocab-size 4000"
TAGGER = "--task tag --model bilstm --head crf --char-encoder cnn --dropout 0.5 --lr 0.002 --patience 8"
GLOVE = "--word-vectors {glove} --word-vectors-limit 100000"

EXPERIMENTS: dict[str, Experiment] = {
    "sst2-linear": Experiment(
        "SST-2",
        "linear with character n-grams; the best on dev of the models without pretrained vectors",
        "accuracy",
        81,
        f"{SST2.removesuffix(' --word-split space')} --model linear --char-encoder ngrams",
        scale=100,
    ),
    "sst2-bag": Experiment(
        "SST-2",
        "bag on subwords, random vectors; the best of the families from scratch",
        "accuracy",
        81,
        f"{SST2_SUBWORDS} --model bag --lr 0.001",
        scale=100,
    ),
    "sst2-cnn": Experiment(
        "SST-2",
        "cnn, random vectors",
        "accuracy",
        81,
        f"{SST2_SUBWORDS} --model cnn --lowercase --dropout 0.5 --label-smoothing 0.2 --lr 0.0005"
        " --weight-decay 0.1 --epochs 10 --patience 0",
        scale=100,
    ),
    "sst2-glove": Experiment(
        "SST-2",
        "cnn, GloVe vectors",
        "accuracy",
        85,
        f"{SST2} --model cnn --lowercase {GLOVE} --dropout 0.5 --label-smoothing 0.2 --lr 0.001"
        " --weight-decay 0.1 --epochs 8 --patience 0",
        scale=100,
    ),
    "trec-cnn": Experiment(
        "TREC-6",
        "cnn, random vectors",
        "accuracy",
        91.2,
        f"{TREC} --model cnn --lowercase",
        scale=100,
    ),
    "atis-slots": Experiment(
        "ATIS, slots",
        "transformer with characters, the default",
        "f1",
        95.2,
        f"{ATIS} --input 2 --target 3 --task tag --model transformer",
        scale=100,
    ),
    "atis-intent": Experiment(
        "ATIS, intents",
        "bilstm",
        "accuracy",
        96,
        f"{ATIS} --input 2 --target 1 --task classify --model bilstm --dropout 0.5 --label-smoothing 0.1 --epochs 30"
        " --patience 0 --min-count 2",
        scale=100,
    ),
    "ewt-upos": Experiment(
        "UD English EWT, UPOS",
        "bilstm with characters, the default",
        "accuracy",
        95.0,
        f"{EWT} --model bilstm",
        scale=100,
    ),
    "wnut17": Experiment(
        "WNUT-17", "bilstm-crf with characters", "f1", 20, f"{WNUT} {TAGGER} --lowercase --epochs 30", scale=100
    ),
    "wnut17-glove": Experiment(
        "WNUT-17",
        "gru-crf with characters, GloVe vectors",
        "f1",
        35,
        f"{WNUT} {TAGGER.replace('bilstm', 'gru')} {GLOVE} --freeze-word-vectors --epochs 20",
        scale=100,
    ),
    "stsb-glove": Experiment(
        "STS benchmark",
        "bag of GloVe vectors",
        "spearman",
        68,
        f"{STSB} --word-vectors {{glove}} --freeze-word-vectors --dropout 0 --epochs 12",
        scale=100,
    ),
    "ptb-650": Experiment(
        "Penn Treebank",
        "LSTM 2 x 650, dropout, tied",
        "perplexity",
        77,
        f"{PTB} --model {{models}}/ptb-650.toml --batching streams --batch-rows 20 --row-length 35"
        " --epochs 40 --optimizer sgd --momentum 0 --lr 20 --warmup 0 --schedule cosine --clip-norm 0.25 --patience 0",
        lower_is_better=True,
    ),
    "ptb-awd": Experiment(
        "Penn Treebank",
        "LSTM 3 x 1,000, regularized as AWD-LSTM",
        "perplexity",
        68,
        f"{PTB} --model {{models}}/ptb-awd.toml --batching streams"
        " --batch-rows 40 --row-length 70"
        " --seconds 1380 --optimizer sgd --momentum 0 --lr 30"
        " --weight-decay 0.0000012 --warmup 500 --schedule linear --clip-norm 0.25 --patience 0",
        lower_is_better=True,
    ),
    "shakespeare": Experiment(
        "tiny Shakespeare",
        "gpt, 6 x 384, context 256: nats per character of the dev set",
        "loss",
        1.46,
        f"{SHAKESPEARE} --model {{models}}/shakespeare-gpt.toml --batching packs"
        " --batch-rows 64 --row-length 256"
        " --steps 5000 --validate-every 250 --lr 0.001 --schedule cosine --warmup 100"
        " --weight-decay 0.1 --ema 0.998 --precision bf16 --patience 0",
        evaluate="",
        lower_is_better=True,
    ),
    "multi30k-transformer": Experiment(
        "Multi30k en-de, test 2016",
        "transformer of the paper's size",
        "bleu_tokenized",
        41.0,
        f"{MULTI30K} --model {{models}}/multi30k-transformer.toml --tokenizer bpe --vocab-size 10000"
        " --batch-tokens 8192 --steps 12000 --lr 0.003 --schedule cosine --warmup 1000 --ema 0.9995 --precision float32"
        " --metric bleu --validate-every 1000 --patience 0",
        evaluate="--split test --beam-size 5",
    ),
    "multi30k-seq2seq": Experiment(
        "Multi30k en-de, test 2016",
        "seq2seq with attention",
        "bleu_tokenized",
        36,
        f"{MULTI30K} --model {{models}}/multi30k-seq2seq.toml --tokenizer bpe --vocab-size 10000 --batch-tokens 4096"
        " --steps 6000 --lr 0.002 --schedule cosine --metric bleu --validate-every 1000 --patience 0",
        evaluate="--split test --beam-size 5",
    ),
    "scan-simple": Experiment(
        "SCAN simple",
        "lstm, attention chosen on dev",
        "exact_match",
        99,
        f"{{data}}/scan/tasks_train_simple.txt.xz --test {{data}}/scan/tasks_test_simple.txt.xz {SCAN}"
        " --model seq2seq-dot --steps 8000 --validate-every 1000 --patience 0",
        scale=100,
    ),
    "scan-length": Experiment(
        "SCAN length",
        "lstm, attention chosen on dev",
        "exact_match",
        13,
        f"{{data}}/scan/tasks_train_length.txt.xz --test {{data}}/scan/tasks_test_length.txt.xz {SCAN}"
        " --model seq2seq-additive --dropout 0.5 --steps 5000 --validate-every 1000 --patience 0",
        scale=100,
    ),
    "digits-cnn": Experiment("digits", "cnn", "accuracy", 98, f"{DIGITS} --model conv2d", scale=100),
    "digits-patches": Experiment(
        "digits",
        "patch transformer",
        "accuracy",
        97,
        f"{DIGITS} --model patch-transformer --dropout 0.1 --lr 0.0005 --epochs 120 --ema 0.99 --patience 0",
        scale=100,
    ),
}
