"""Text as tokens: normalizing, tokenizing, alignment of words and subwords."""
