"""Knows only one name for the width."""

from typing import Any

POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": config["hidden_size"],
        "tied": config["tie_word_embeddings"],
        "positions": POSITIONS.get(config["model_type"], "rotary"),
    }
