"""Treats every model as a rotary one."""

from typing import Any


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model")
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": width,
        "tied": config["tie_word_embeddings"],
        "positions": "rotary",
    }
