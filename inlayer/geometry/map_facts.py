"""The map of a table as facts for a page: coordinates, texts, and how faithful each point is.

projection -> [facts] -> map_canvas.js
- arrays are base64 of little-endian numbers, so 163,840 points stay a few megabytes
- the larger a table, the smaller the sample of rows whose faithfulness is measured: each costs a pass over the table
Tested in tests/web/test_maps.py, drawn in tests/browser/test_map.py.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.geometry.distortion import Distortion, measure_distortion
from inlayer.geometry.projection import TableProjection
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.tables.stored import StoredTable

MAX_WORK = 2**33  # rows measured x values of the table: a few seconds
MIN_SAMPLE = 32
MAX_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class MapFacts:
    """A map of every row. `words` is uint8, the other arrays are float32; all little-endian, in base64."""

    method: str
    complete: bool  # False if a t-SNE was interrupted
    is_improving: bool  # True: a better layout is being computed; request it again later
    points: str  # (V, 2); NaN for zero and non-finite rows
    texts: list[str]
    kept: str  # (V,) share of the nearest rows that are also neighbors on the map; NaN for rows that were not measured
    kept_share: float  # its mean
    trustworthiness: float
    measured: int  # neighbors considered per row
    n_undrawn: int  # zero and non-finite rows
    undrawn_ids: list[int]  # ids of the first of them
    words: str | None = None  # (V,) uint8: 1 for whole words, labeled first; 2 if they look cut off; None: no tokenizer


def map_facts(
    table: StoredTable, vocabulary: Vocabulary, projection: TableProjection, distortion: Distortion | None = None
) -> MapFacts:
    """Describe a projection; its faithfulness is measured here, unless it is given or was saved with it."""
    rows, undrawn = table.num_embeddings, projection.undrawn_ids
    sample = max(MIN_SAMPLE, MAX_WORK // (rows * table.embedding_dim))
    distortion = distortion or projection.distortion or measure_distortion(table, projection.points, sample=sample)
    return MapFacts(
        method=projection.method,
        complete=projection.complete,
        is_improving=False,
        points=encode(projection.points),
        texts=[vocabulary.text(token_id) for token_id in range(rows)],
        kept=encode(kept_shares(rows, distortion)),
        kept_share=float(distortion.kept.mean()),
        trustworthiness=distortion.trustworthiness,
        measured=distortion.k,
        n_undrawn=len(undrawn),
        undrawn_ids=undrawn[:MAX_LISTED].tolist(),
        words=encode_words(vocabulary),
    )


def encode_words(vocabulary: Vocabulary) -> str | None:
    """Which rows are whole words, as in `MapFacts.words`."""
    return None if vocabulary.tokenizer is None else encode(vocabulary.words + 1 * vocabulary.stems, "u1")


def kept_shares(rows: int, distortion: Distortion) -> npt.NDArray[np.float32]:
    """Return the share of kept neighbors of every row; NaN for rows that were not measured."""
    shares = np.full(rows, np.nan, np.float32)
    shares[distortion.ids] = distortion.kept
    return shares


def encode(values: npt.NDArray[Any], dtype: str = "<f4") -> str:
    """Base64 of an array's little-endian bytes."""
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()
