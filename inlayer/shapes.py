"""Base module: the letters that name tensor sizes throughout inlayer, and the names of array types.

B batch, T tokens of one text, V table rows (vocabulary), D width of a row (n_embd), H heads, K head width,
N tokens in the flattened batch (B * T), S tokens before a text (its history), U unique ids of a batch, Q queries,
C tokens of one chunk, L layers, P width of one layer's vector, W width of a value embedding, R rotated channels; with
several processes, M rows of one of them, G processes. Other letters are local to a function.
A suffix gives a tensor's shape where it is created: `hidden_BTD`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]  # also indices and counts
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
