"""Families: a model's config.json -> the settings of its input layer and head. No torch.

config.json -> [LayerSpec] -> Embeddings, Head
- the only package that maps other projects' config fields to layer settings
- `config_to_spec.py` interprets a config field by field (`config_reader.py`), using its model type's entry
  (`model_types.py`) or the generic rules (`generic.py`); `rope.py` and `ngram_configs.py` handle their own fields
- `tensor_names.py` lists the names of tensors in checkpoints
Tested against transformers, family by family, in tests/families/; docs/families.md lists the results.
"""

from inlayer.families.config_to_spec import describe
from inlayer.families.model_types import FAMILIES
from inlayer.families.spec import HeadSpec, LayerSpec, RotarySpec

__all__ = ["FAMILIES", "HeadSpec", "LayerSpec", "RotarySpec", "describe"]
