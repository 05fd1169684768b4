"""Every set that is known by name, in the order in which they are listed."""

from seqloom.data.sources import classes, meaning, pairs, running, tagging
from seqloom.data.sources.source import Source

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        *(classes.SST2, classes.TREC, classes.TREC_FINE, classes.SMS_SPAM, tagging.ATIS_INTENT),
        *(tagging.ATIS, tagging.WNUT17, tagging.EWT, tagging.EWT_XPOS),
        *(pairs.MULTI30K, pairs.MULTI30K_TOKENIZED, pairs.TATOEBA),
        *(pairs.SCAN_SIMPLE, pairs.SCAN_LENGTH, pairs.SCAN_ADD_JUMP),
        *(running.PTB, running.TINY_SHAKESPEARE, meaning.STSB, meaning.SCIFACT),
    )
}
