"""Assumes learned positions for every model with a maximum length."""

from typing import Any


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": config.get("hidden_size", config.get("n_embd")),
        "tied": config["tie_word_embeddings"],
        "positions": "learned" if "max_position_embeddings" in config else "rotary",
    }
