"""Train: learn the embeddings of a table, in a small decoder, and save what was learned.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss -> and all the way back
- corpus.py -> tokens.py: text files become ids on disk. presets.py, recipe.py, settings.py: what is trained, and how
- trainer.py takes steps, with optimizer.py and telemetry.py, alone or in many processes (parallel.py)
- run.py keeps a run on disk, with state.py and folder.py; save.py and tokenizer_files.py write the model
- outcome.py tells what came of it: learned.py, plot.py, report/
- attach.py puts inlayer's table and head into a model of transformers
"""

from inlayer.training.config import Settings
from inlayer.training.presets import PRESETS, preset
from inlayer.training.run import Plan, Run
from inlayer.training.save import load_decoder, save_decoder

__all__ = ["PRESETS", "Plan", "Run", "Settings", "load_decoder", "preset", "save_decoder"]
