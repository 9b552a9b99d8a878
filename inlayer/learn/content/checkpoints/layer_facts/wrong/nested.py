"""Looks at only the outer level."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    family, said = config["model_type"], config.get("tie_word_embeddings")
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": config.get("hidden_size") or config.get("n_embd") or config.get("d_model"),
        "tied": family in TIED if said is None else said,
        "positions": POSITIONS.get(family, "rotary"),
    }
