"""Uses the default even if the config says False, because of `or`."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model")
    family = config["model_type"]
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": width,
        "tied": config.get("tie_word_embeddings") or family in TIED,
        "positions": POSITIONS.get(family, "rotary"),
    }
