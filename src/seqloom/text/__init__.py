"""Text processing: normalization, tokenizers, and alignment of words with subword tokens."""
