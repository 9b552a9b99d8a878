"""Treats a missing tie_word_embeddings as false."""

from typing import Any

POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model")
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": width,
        "tied": bool(config.get("tie_word_embeddings")),
        "positions": POSITIONS.get(config["model_type"], "rotary"),
    }
