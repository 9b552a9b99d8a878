"""Passes a default to get(), which does not apply to null."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    family = config["model_type"]
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": config.get("hidden_size", config.get("n_embd", config.get("d_model"))),
        "tied": config.get("tie_word_embeddings", family in TIED),
        "positions": POSITIONS.get(family, "rotary"),
    }
