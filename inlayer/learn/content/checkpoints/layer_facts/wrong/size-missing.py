"""Returns None if the config has no width."""

from typing import Any

TIED = {"bloom", "gemma3_text", "gpt2", "t5"}
FAMILIES = {*TIED, "deepseek_v3", "kimi_k2", "llama"}
POSITIONS = {"bloom": "none", "gpt2": "learned", "t5": "none"}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    text = config.get("text_config") or config
    family = text.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family}")
    said = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    return {
        "vocab_size": text.get("vocab_size"),
        "n_embd": text.get("hidden_size") or text.get("n_embd") or text.get("d_model"),
        "tied": family in TIED if said is None else said,
        "positions": POSITIONS.get(family, "rotary"),
    }
