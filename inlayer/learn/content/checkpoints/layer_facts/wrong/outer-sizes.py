"""Lets the outer level override the text settings."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    text = config.get("text_config") or config
    family = text["model_type"]
    flat = {**text, **{name: value for name, value in config.items() if value is not None}}
    said = flat.get("tie_word_embeddings")
    return {
        "vocab_size": flat["vocab_size"],
        "n_embd": flat.get("hidden_size") or flat.get("n_embd") or flat.get("d_model"),
        "tied": family in TIED if said is None else said,
        "positions": POSITIONS.get(family, "rotary"),
    }
