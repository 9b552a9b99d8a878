"""One tokenizer of each kind, as in tests/tokenizers."""

from tests.tokenizers.conftest import small_json, training_file
from tests.tokenizers.test_contract import tokenizer

__all__ = ["small_json", "tokenizer", "training_file"]
