"""A model's table as a sentence-transformers module: the first module of a `SentenceTransformer`.

- a saved module contains the rows, tokenizer.json, settings, and weighting; `inlayer.load` also opens it
- vectors are identical to those of `Model.encode`; they have no gradient
Tested with the real library in tests/integrations/test_sentence_transformers.py.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlayer.checkpoint import load
from inlayer.encoding.encode import EncodeSettings, check_one_vector
from inlayer.encoding.weighting import FILE as WEIGHTING_FILE
from inlayer.encoding.weighting import Weighting
from inlayer.errors import DtypeError, InputError, needs_package, needs_torch
from inlayer.integrations.check_source import check_source
from inlayer.ragged import Ragged
from inlayer.tokenizers.base import check_texts
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

with needs_torch("inlayer.integrations.sentence_transformers"):
    import torch
    from safetensors.torch import save_file

    from inlayer.tensors import to_tensor

with needs_package(
    "inlayer.integrations.sentence_transformers",
    "sentence-transformers",
    "sentence-transformers",
    "sentence_transformers",
):
    from sentence_transformers.base.modules.input_module import InputModule

if TYPE_CHECKING:
    from inlayer.checkpoint.encode_mixin import FittedWeights, TextPool

__all__ = ["TableModule"]

SETTINGS = "inlayer.json"


class TableModule(InputModule):  # type: ignore[misc]
    """A sentence-transformers module that turns texts into vectors.

    Args:
        source: Any source that `inlayer.load` accepts. Default: the bundled sample model.
        pool: "mean", "first", "last", or "max".
        weights: A fitted `Weighting`, or its file.

    Raises:
        InlayerError: If the model cannot be opened or has no tokenizer, or an argument is invalid.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> SentenceTransformer(modules=[TableModule("default")], device="cpu").encode(["I love dogs"]).shape
        (1, 128)
    """

    modalities = ["text"]  # noqa: RUF012  # as in the base class
    config_keys = ["pool"]  # noqa: RUF012
    config_file_name = SETTINGS

    def __init__(
        self, source: str | os.PathLike[str] = "default", *, pool: TextPool = "mean", weights: FittedWeights = None
    ) -> None:
        super().__init__()
        check_one_vector(pool)
        self.source, self.model, self.pool = source, load(check_source(source)), pool
        self.encoder = self.model.encoder(weights)
        self.settings = EncodeSettings(pool).validated(self.encoder.width)
        self.tokenizer = self.encoder.tokenizer

    def preprocess(self, inputs: list[str], prompt: str | None = None, **_: Any) -> dict[str, torch.Tensor]:
        """Tokenize texts.

        Args:
            inputs: The texts.
            prompt: Text to put before each text.
            **_: Ignored.

        Returns:
            `input_ids`, the ids of all texts in one array, and `offsets`, the index where each text starts.

        Raises:
            DtypeError: If an input is not a text.

        Example:
            >>> TableModule("default").preprocess(["I love dogs", "Hi"])["offsets"]
            tensor([0, 4, 6])
        """
        try:
            texts = check_texts(inputs)
        except DtypeError as error:
            raise DtypeError(f"{error}; this is the index in a batch, which is sorted by length") from None
        ids = self.encoder.ids([(prompt or "") + text for text in texts])
        return {"input_ids": torch.from_numpy(ids.flat), "offsets": torch.from_numpy(ids.offsets)}

    def forward(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        """Pool the rows of the tokens.

        Args:
            features: As returned by `preprocess`.
            **_: Ignored.

        Returns:
            The features, with the vectors (n, D) as `sentence_embedding`.

        Raises:
            IdRangeError: If an id is outside the table.

        Example:
            >>> module = TableModule("default")
            >>> module(module.preprocess(["I love dogs"]))["sentence_embedding"].shape
            torch.Size([1, 128])
        """
        device = features["input_ids"].device
        ids = Ragged(features["input_ids"].cpu().numpy(), features["offsets"].cpu().numpy())
        features["sentence_embedding"] = torch.from_numpy(self.encoder.pooled(ids, self.settings)).to(device)
        return features

    def __reduce__(self) -> tuple[Any, ...]:  # like a Model: a pickle contains the source, not the rows
        return partial(type(self), pool=self.pool, weights=self.encoder.weighting), (self.source,)

    def get_embedding_dimension(self) -> int:
        """Return the width of the vectors.

        Returns:
            The number of values of a vector.

        Example:
            >>> TableModule("default").get_embedding_dimension()
            128
        """
        return self.encoder.width

    @property
    def max_seq_length(self) -> float:
        """Infinite, because no text is truncated.

        Example:
            >>> TableModule("default").max_seq_length
            inf
        """
        return float("inf")

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the rows, tokenizer, settings, and weighting to a folder that `inlayer.load` also opens.

        Args:
            output_path: An existing folder.
            *_: Ignored.
            **__: Ignored.

        Raises:
            InputError: If the model has no tokenizer.json.

        Example:
            >>> TableModule("default").save("model")
        """
        if not isinstance(self.tokenizer, HuggingFaceTokenizer):
            raise InputError(f"{self.model.source} has no tokenizer.json, which a saved module requires")
        folder = Path(output_path)
        tensors = {"embedding.weight": to_tensor(self.model.table.weight).clone()}
        if self.model.token_weights is not None:  # a model2vec model
            tensors["weights"] = to_tensor(self.model.token_weights)
        save_file(tensors, folder / "model.safetensors")
        (folder / "tokenizer.json").write_bytes(self.tokenizer.data)
        settings = {"pool": self.pool, "skipped": self.model.skipped_tokens}
        (folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        (folder / WEIGHTING_FILE).unlink(missing_ok=True)  # left by a module saved here earlier
        if self.encoder.weighting is not None:
            self.encoder.weighting.save(folder)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> TableModule:
        """Open a saved module.

        Args:
            model_name_or_path: A folder, or a hub id.
            subfolder: The module's folder inside it.
            **options: `token`, `cache_folder`, `revision`, and `local_files_only` for the hub. Others are ignored.

        Returns:
            The module.

        Raises:
            InputError: If the folder contains no module saved by inlayer.

        Example:
            >>> TableModule("default", pool="max").save("model")
            >>> TableModule.load("model").pool
            'max'
        """
        known = ("token", "cache_folder", "revision", "local_files_only")
        hub = {name: value for name, value in options.items() if name in known}
        files = [
            cls.load_file_path(model_name_or_path, filename=name, subfolder=subfolder, **hub)
            for name in ("model.safetensors", "tokenizer.json", SETTINGS, WEIGHTING_FILE)
        ]
        if files[0] is None or files[2] is None:
            raise InputError(f"{model_name_or_path} contains no module saved by inlayer")
        settings = json.loads(Path(files[2]).read_text(encoding="utf-8"))
        weights = Weighting.load(files[3]) if files[3] is not None else None
        return cls(os.path.dirname(files[0]), pool=settings.get("pool", "mean"), weights=weights)  # noqa: PTH120
