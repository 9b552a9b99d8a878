"""Task layer_facts: read the input layer's config."""

from typing import Any

# Defaults of each family: is the head tied to the table, and which positions are used?
FAMILIES = {
    "bloom": {"tied": True, "positions": "none"},
    "deepseek_v3": {"tied": False, "positions": "rotary"},
    "gemma3_text": {"tied": True, "positions": "rotary"},
    "gpt2": {"tied": True, "positions": "learned"},
    "kimi_k2": {"tied": False, "positions": "rotary"},
    "llama": {"tied": False, "positions": "rotary"},
    "t5": {"tied": True, "positions": "none"},
}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    """Return vocab_size, n_embd, tied, and positions of a model from its config.json."""
    text = config
    if config.get("model_type") not in FAMILIES and isinstance(config.get("text_config"), dict):
        text = config["text_config"]
    if text.get("model_type") not in FAMILIES:
        raise ValueError(f"unknown model type {text.get('model_type')!r}")
    family = FAMILIES[text["model_type"]]
    vocab_size = first_value(text.get("vocab_size"))
    n_embd = first_value(text.get("hidden_size"), text.get("n_embd"), text.get("d_model"))
    if vocab_size is None or n_embd is None:
        raise ValueError("the config has no vocab_size or no width")
    tied = first_value(config.get("tie_word_embeddings"), text.get("tie_word_embeddings"), family["tied"])
    return {"vocab_size": vocab_size, "n_embd": n_embd, "tied": tied, "positions": family["positions"]}


def first_value(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)
