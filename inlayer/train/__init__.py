"""Train: learn the embeddings of a table, in a small decoder, and save what was learned.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- train/presets.py names the sizes, train/save.py writes and reads the folder of a decoder
"""

from inlayer.train.presets import PRESETS, preset
from inlayer.train.save import load_decoder, save_decoder

__all__ = ["PRESETS", "load_decoder", "preset", "save_decoder"]
