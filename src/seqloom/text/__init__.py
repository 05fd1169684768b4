"""Text as symbols: normalising, tokenising, alignment of words and subwords."""
