"""Weighting: adjusts the mean of a text's rows, after fitting on a sample of texts.

rows -> [token weights] -> mean -> [minus common components, whitened] -> vectors
- smooth inverse frequency: a token's row is weighted by a / (a + p), where p is its share of all tokens (Arora et al.,
  2017)
- common components: directions shared by all texts are projected out
- whitening: the mean is subtracted, and all directions get the same variance (Su et al., 2021)
- stored as one .safetensors file with token weights (V,), mean (D,), and matrix (D, width); saving replaces it
  atomically
Tested against plain loops in tests/encoding/test_weighting.py. Quality on public data: docs/embed.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inlayer.checks import check_size, is_finite, is_integer
from inlayer.encoding.encode import Encoder, batches
from inlayer.encoding.row_pooling import RowPooler
from inlayer.errors import CheckpointError, DtypeError, InputError, type_name
from inlayer.files import check_is_file, check_path, format_path, write_output
from inlayer.formats.safetensors import read_header
from inlayer.ragged import Ragged, concatenate_batches
from inlayer.shapes import Array, Vectors
from inlayer.tokenizers.base import check_texts

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

FILE = "weighting.safetensors"
MIN_VARIANCE = 1e-9  # relative to the largest variance; directions below this are noise and are excluded


@dataclass(frozen=True, eq=False)
class Weighting:
    """Token weights and a linear map, fitted on texts and applied by `Model.encode(texts, weights=...)`.

    `Weighting.fit` fits a weighting on texts, and `Weighting.load` reads one from a file.

    Args:
        token_weights: The weight of each row (V,).
        mean: The vector subtracted from a pooled vector (D,).
        matrix: The matrix that the difference is multiplied by (D, width).
        settings: How the weighting was fitted.

    Raises:
        InputError: From `fit`, if a setting is invalid.

    Example:
        >>> model = inlayer.load("default")
        >>> weighting = inlayer.Weighting.fit(model, ["I love dogs", "I love cats", "They sell fish"])
        >>> model.encode("I love dogs", weights=weighting).shape
        (128,)
    """

    token_weights: Vectors
    mean: Vectors
    matrix: Vectors
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        model: Model,
        texts: Sequence[str],
        *,
        sif: float | int = 1e-3,
        remove_components: int = 1,
        whiten: bool = False,
        dim: int | None = None,
    ) -> Weighting:
        """Fit a weighting on texts like those that will be encoded; a few thousand are enough.

        Args:
            model: The model whose rows are weighted.
            texts: A sample of texts.
            sif: The constant a of smooth inverse frequency; 0 turns it off.
            remove_components: Number of common components to project out.
            whiten: Subtract the mean, and give all directions the same variance.
            dim: Keep only the `dim` directions with the largest variance. Requires `whiten`.

        Returns:
            The weighting.

        Raises:
            InputError: If a setting is invalid, or the texts have no tokens.

        Example:
            >>> model = inlayer.load("default")
            >>> inlayer.Weighting.fit(model, ["I love dogs", "I love cats"], remove_components=0).width
            128
        """
        if not hasattr(model, "table"):
            raise DtypeError(f"model is {type_name(model)}; it must be an opened model, such as inlayer.load(...)")
        texts, width = check_texts(texts), model.table.embedding_dim
        if isinstance(sif, bool) or not is_finite(sif) or sif < 0:
            raise InputError(f"sif is {sif!r}; it must be a finite number >= 0 (0 turns it off)")
        if not is_integer(remove_components) or not 0 <= remove_components < width:
            raise InputError(f"remove_components is {remove_components!r}; it must be an integer in 0..{width - 1}")
        if not isinstance(whiten, (bool, np.bool_)):
            raise DtypeError(f"whiten is {whiten!r}; it must be True or False")
        remove_components = int(remove_components)
        if dim is not None:
            dim = check_size(dim, "dim")
            if not whiten or dim > width:
                raise InputError(f"dim is {dim}; it requires whiten=True and must be at most {width}")
        encoder = Encoder(model)
        id_batches = [encoder.ids(batch) for batch in batches(texts)]
        return fit_ids(model, id_batches, sif=sif, remove_components=remove_components, whiten=whiten, dim=dim)

    @property
    def width(self) -> int:
        """Number of values in a weighted vector.

        Example:
            >>> texts = ["I love dogs", "I love cats", "They sell fish"]
            >>> inlayer.Weighting.fit(inlayer.load("default"), texts, whiten=True, dim=2).width
            2
        """
        return int(self.matrix.shape[1])

    def transform(self, vectors: Array) -> Vectors:
        """Apply the mean and the matrix to pooled vectors, in float64, so that the batch does not matter.

        Args:
            vectors: Pooled vectors (n, D).

        Returns:
            Vectors (n, width) in float32.

        Example:
            >>> weighting = inlayer.Weighting.fit(inlayer.load("default"), ["I love dogs", "I love cats"])
            >>> weighting.transform(np.ones((3, 128))).shape
            (3, 128)
        """
        transformed = (vectors.astype(np.float64) - self.mean) @ self.matrix.astype(np.float64)
        return transformed.astype(np.float32)

    def check(self, model: Model) -> None:
        """Check that the weighting was fitted on a table of the model's size.

        Args:
            model: The model to use it with.

        Raises:
            InputError: If the sizes differ.

        Example:
            >>> model = inlayer.load("default")
            >>> inlayer.Weighting.fit(model, ["I love dogs", "I love cats"]).check(model)
        """
        rows, width = model.table.shape
        if (rows, width) != (len(self.token_weights), len(self.mean)):
            raise InputError(
                f"the weighting was fitted on a table of {len(self.token_weights):,} x {len(self.mean):,}; "
                f"{model.source} has {rows:,} x {width:,}"
            )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the weighting to a file.

        Args:
            path: A file; or a folder, such as the model's, which gets a weighting.safetensors.

        Returns:
            The file.

        Raises:
            InlayerError: If it cannot be written.

        Example:
            >>> weighting = inlayer.Weighting.fit(inlayer.load("default"), ["I love dogs", "I love cats"])
            >>> weighting.save("model").name
            'weighting.safetensors'
        """
        from safetensors.numpy import save

        file = _file(path)
        tensors = {"tokens": self.token_weights, "mean": self.mean, "matrix": self.matrix}
        write_output(file, save(tensors, metadata={"weighting": json.dumps(self.settings)}))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Weighting:
        """Read a saved weighting.

        Args:
            path: The file or folder that it was saved to.

        Returns:
            The weighting.

        Raises:
            CheckpointError: If the file is not a weighting.
            MissingFileError: If there is no such file.

        Example:
            >>> model = inlayer.load("default")
            >>> file = inlayer.Weighting.fit(model, ["I love dogs", "I love cats"]).save("dogs.safetensors")
            >>> inlayer.Weighting.load(file).width
            128
        """
        from safetensors import safe_open

        file = _file(path)
        actual = {name: (tensor.dtype, len(tensor.shape)) for name, tensor in read_header(file).items()}
        if actual != {"tokens": ("F32", 1), "mean": ("F32", 1), "matrix": ("F32", 2)}:
            raise CheckpointError(f"{format_path(file)} is not a weighting: expected float32 tokens, mean, and matrix")
        with safe_open(file, framework="numpy") as opened:
            tensors = {name: opened.get_tensor(name) for name in actual}
            metadata = (opened.metadata() or {}).get("weighting")
        if len(tensors["mean"]) != len(tensors["matrix"]):
            raise CheckpointError(f"{format_path(file)}: mean and matrix have different sizes; fit the weighting again")
        return cls(tensors["tokens"], tensors["mean"], tensors["matrix"], parse_settings(metadata))

    def __repr__(self) -> str:
        return f"Weighting({len(self.token_weights):,} tokens, {len(self.mean)} -> {self.width}, {self.settings})"


def fit_ids(
    model: Model, id_batches: list[Ragged], *, sif: float | int = 1e-3, remove_components: int = 0,
    whiten: bool = False, dim: int | None = None,
) -> Weighting:  # fmt: skip
    """Fit a weighting on texts that are already tokenized, with the checked settings of `Weighting.fit`."""
    texts, width = sum(map(len, id_batches)), model.table.embedding_dim
    counts = np.bincount(concatenate_batches(id_batches).flat, minlength=model.table.num_embeddings)
    if not counts.any():
        raise InputError(
            f"none of the given texts ({texts:,}) has tokens; pass texts similar to those you want to encode"
        )
    weights = np.ones(len(counts)) if sif == 0 else sif / (sif + counts / counts.sum())
    matrix, shift = np.eye(width), np.zeros(width)
    if remove_components or whiten:
        scale = weights if model.token_weights is None else weights * model.token_weights
        mean, moment = _moments(RowPooler(model.table, scale), id_batches)
    if remove_components:
        common = np.linalg.eigh(moment)[1][:, -remove_components:]
        matrix -= common @ common.T
    if whiten:
        shift = mean
        values, vectors = np.linalg.eigh(matrix @ (moment - np.outer(mean, mean)) @ matrix)
        selected = np.flatnonzero(values > MIN_VARIANCE * values[-1])[::-1][:dim]
        if selected.size == 0:
            raise InputError("the texts all have the same vector; whitening needs texts that differ")
        matrix = matrix @ (vectors[:, selected] / np.sqrt(values[selected]))
    settings = {"sif": sif, "remove_components": remove_components, "whiten": whiten, "dim": dim, "texts": texts}
    stored = [np.ascontiguousarray(array, np.float32) for array in (weights, shift, matrix)]
    return Weighting(stored[0], stored[1], stored[2], settings)


def parse_settings(metadata: str | bytes | None) -> dict[str, Any]:
    """Return the settings in a file's metadata, or an empty dict if there are no valid settings."""
    try:
        settings = json.loads(metadata or "{}")
    except ValueError:
        settings = {}
    return settings if isinstance(settings, dict) else {}


def _file(path: str | os.PathLike[str], name: str = "path") -> Path:
    location = check_path(path, name)
    return location / FILE if location.is_dir() else location


def cache_key(weights: Weighting | str | os.PathLike[str] | None) -> object:
    """Return a key that identifies a weighting: the object, or a file's current version (a save replaces the file)."""
    if weights is None or isinstance(weights, Weighting):
        return weights
    file = check_is_file(_file(weights, "weights"))
    status = file.stat()
    return file.absolute(), status.st_ino, status.st_mtime_ns, status.st_size


def open_weighting(weights: Weighting | str | os.PathLike[str] | None) -> Weighting | None:
    """Return a weighting unchanged, or read it from its file."""
    return weights if weights is None or isinstance(weights, Weighting) else Weighting.load(weights)


def _moments(pooler: RowPooler, id_batches: list[Ragged]) -> tuple[Array, Array]:
    """Return the mean and the second moments of the texts' vectors, in float64, ignoring texts without tokens."""
    total, products, count = np.zeros(pooler.width), np.zeros((pooler.width, pooler.width)), 0
    for ids in id_batches:
        vectors = pooler.pool(ids, "mean")[ids.counts > 0].astype(np.float64)
        total, products, count = total + vectors.sum(0), products + vectors.T @ vectors, count + len(vectors)
    return total / count, products / count
