"""Returns the config's own field names."""

from typing import Any


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("vocab_size", "hidden_size", "tie_word_embeddings", "model_type")}
