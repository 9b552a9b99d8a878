"""text -> ids: every tokenizer, opened from files without running anything they bring.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
A ladder: bytes.py (a byte is an id), words.py (a word is an id), train.py (learn which bytes to join), then the
files of real models: huggingface.py, ranks.py, sentencepiece.py. open.py chooses among them; fast.py and charset.py
say when gigatoken may do the work, merges.py how bytes became tokens. The libraries behind them are imported when a
file is opened, not here.
"""

from inlayer.tokenizers.base import Merged, Token, Tokenizer
from inlayer.tokenizers.bytes import ByteTokenizer
from inlayer.tokenizers.open import open_tokenizer
from inlayer.tokenizers.train import train_bpe
from inlayer.tokenizers.words import WordTokenizer

__all__ = ["ByteTokenizer", "Merged", "Token", "Tokenizer", "WordTokenizer", "open_tokenizer", "train_bpe"]
