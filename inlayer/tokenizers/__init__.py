"""Tokenizers: text -> ids, for every tokenizer file in common use. No code from those files is ever run.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- start here: byte_and_word.py (one id per byte or per word), bpe_training.py (train a BPE)
- files of real models: open.py picks the format; huggingface.py, tiktoken.py, sentencepiece.py, and gguf_tokenizer.py
  read them. Each imports its library when a file is opened, so importing this package stays cheap
- explanations: offsets.py (which bytes a token covers), merges.py (how bytes were merged into tokens)
"""

from inlayer.tokenizers.base import Merge, Token, Tokenizer
from inlayer.tokenizers.bpe_training import train_bpe
from inlayer.tokenizers.byte_and_word import ByteTokenizer, WordTokenizer
from inlayer.tokenizers.open import open_tokenizer

__all__ = ["ByteTokenizer", "Merge", "Token", "Tokenizer", "WordTokenizer", "open_tokenizer", "train_bpe"]
