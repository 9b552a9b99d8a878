"""Treats unknown families as Llama."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    text = config.get("text_config") or config
    family = text["model_type"]
    said = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    return {
        "vocab_size": text["vocab_size"],
        "n_embd": text.get("hidden_size") or text.get("n_embd") or text.get("d_model"),
        "tied": family in TIED if said is None else said,
        "positions": POSITIONS.get(family, "rotary"),
    }
