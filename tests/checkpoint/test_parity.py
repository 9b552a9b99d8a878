"""Checkpoints that transformers wrote, for every family, sharded, with and without a head, opened by `load`.

The reference is the model transformers itself loads from the same folder.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import inlayer
from inlayer.checkpoint.folder import LocalFolder
from inlayer.checkpoint.store import FolderStore
from inlayer.positions import RotaryPositions
from tests.families.references import CASES, Case, Reference, reference_config
from tests.families.survey import same_bits
from tests.families.test_parity import random_ids

ENCODERS = {"bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "albert"}
SEQ2SEQ = {"t5", "mt5", "umt5"}
NO_HEAD = pytest.param(torch.float32, False, marks=pytest.mark.slow)


def with_head(case: Case) -> Any:
    """The family's transformers class with a language-model head."""
    if case.model_type in ENCODERS:
        return AutoModelForMaskedLM
    return AutoModelForSeq2SeqLM if case.model_type in SEQ2SEQ else AutoModelForCausalLM


@cache
def saved(folder: Path, name: str, dtype: torch.dtype, headed: bool) -> Path:
    """The folder of a tiny random model with one shard per large tensor."""
    case = next(case for case in CASES if case.name == name)
    torch.manual_seed(0)
    maker = with_head(case) if headed else AutoModel
    model = maker.from_config(reference_config(case), dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.pad_token_id = None  # transformers refuses to write Llama-1's -1
    path = folder / f"{name}-{dtype}-{headed}".replace("torch.", "")
    model.save_pretrained(path, max_shard_size="8KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


class Loaded(Reference):
    """The reference for a saved model: the input of transformers' first block after loading the folder."""

    def __init__(self, path: Path, case: Case, dtype: torch.dtype, headed: bool) -> None:
        self.case, self.dtype = case, dtype
        opener = with_head(case) if headed else AutoModel
        self.whole = opener.from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()
        model = self.whole.base_model
        self.model: nn.Module = model.encoder if model.config.model_type.endswith("t5") else model
        self.table = model.get_input_embeddings()


@each_case
@pytest.mark.parametrize(("dtype", "headed"), [(torch.float32, True), NO_HEAD, (torch.bfloat16, True)])
def test_hidden_states_and_head(folder: Path, case: Case, dtype: torch.dtype, headed: bool) -> None:
    path = saved(folder, case.name, dtype, headed)
    ids, mask = random_ids("right")
    reference, model = Loaded(path, case, dtype, headed), inlayer.load(path)
    theirs, tables = reference.run(input_ids=ids, attention_mask=mask)
    layer = model.embeddings
    assert same_bits(layer(ids, attention_mask=mask), theirs)
    assert not same_bits(layer(ids.flip(1), attention_mask=mask), theirs)  # control
    assert bool(tables) == isinstance(layer.position_embedding, RotaryPositions)
    position_ids = torch.arange(ids.shape[1])[None]
    for layer_type, (cos, sin) in tables.items():
        ours = layer.rotary(position_ids, layer_type)
        assert same_bits(ours[0], cos[:1])
        assert same_bits(ours[1], sin[:1])
    assert model.has_head == headed
    if headed:
        output = reference.whole.get_output_embeddings()
        assert torch.equal(model.head.weight, output.weight)
        assert model.head.tied == (model.head.weight is layer.token_embedding.weight)
        bias = getattr(output, "bias", None)
        assert (model.head.bias is None) == (bias is None)
        assert bias is None or torch.equal(model.head.bias, bias)


def test_table_is_found_without_an_index(folder: Path, tmp_path: Path) -> None:
    """Unusual shard names and no index: only the headers tell."""
    source = saved(folder, "llama", torch.float32, True)
    shards = sorted(source.glob("*.safetensors"))
    for number, shard in enumerate(reversed(shards), 1):
        (tmp_path / f"model-{number}-of-{len(shards)}.safetensors").write_bytes(shard.read_bytes())
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    ids = torch.arange(99)[None]
    assert torch.equal(inlayer.load(tmp_path).embeddings(ids), inlayer.load(source).embeddings(ids))


def test_only_the_shard_with_the_table_is_needed(folder: Path, tmp_path: Path) -> None:
    source = saved(folder, "llama", torch.float32, True)
    store = FolderStore(LocalFolder(source))
    shard = store.find("model.embed_tokens.weight").file
    for name in (shard, "config.json", "model.safetensors.index.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    ids = torch.arange(99)[None]
    model = inlayer.load(tmp_path)
    assert torch.equal(model.embeddings(ids), inlayer.load(source).embeddings(ids))
    with pytest.raises(inlayer.InlayerError, match=r"is missing the file .* which its index names"):
        model.head  # noqa: B018
    assert store.parameters() is not None
    assert model.store.parameters() is None


def test_load_with_dtype_converts_the_rows(folder: Path) -> None:
    path = saved(folder, "gpt2", torch.float32, True)
    ids: Tensor = torch.arange(99)[None, :60]
    layer, plain = inlayer.load(path, dtype=torch.bfloat16).embeddings, inlayer.load(path).embeddings
    assert layer(ids).dtype == torch.bfloat16
    assert torch.equal(layer(ids), plain.to(torch.bfloat16)(ids))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "model_type", ["bert", "roberta", "albert", "mpnet", "electra", "distilbert", "gpt2", "llama", "t5"]
)
def test_heads_tied_and_untied(tmp_path: Path, model_type: str, tied: bool) -> None:
    """Weight and bias as transformers uses them, if the file has two biases."""
    case = next(case for case in CASES if case.model_type == model_type)
    config = reference_config(case)
    config.tie_word_embeddings = tied
    model = with_head(case).from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    theirs = with_head(case).from_pretrained(tmp_path).get_output_embeddings()
    head = inlayer.load(tmp_path).head
    assert torch.equal(head.weight, theirs.weight)
    assert (head.bias is None) == (theirs.bias is None)
    assert head.bias is None or torch.equal(head.bias, theirs.bias)


def test_only_language_models_have_a_head(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "gpt2")
    for maker, headed in (("AutoModelForQuestionAnswering", False), ("AutoModelForSequenceClassification", False)):
        getattr(transformers, maker).from_config(reference_config(case)).save_pretrained(tmp_path / maker)
        assert inlayer.load(tmp_path / maker).has_head == headed
    transformers.GPT2DoubleHeadsModel(reference_config(case)).save_pretrained(tmp_path / "double")
    assert inlayer.load(tmp_path / "double").has_head


@pytest.mark.parametrize(
    ("own_rows", "bias", "headed"), [(False, False, False), (False, True, True), (True, True, True)]
)
def test_stored_copy_of_the_table_does_not_make_a_head(
    tmp_path: Path, own_rows: bool, bias: bool, headed: bool
) -> None:
    """A masked-language head without its bias is none, even if the tied rows were saved twice."""
    case = next(case for case in CASES if case.model_type == "bert")
    tensors = with_head(case).from_config(reference_config(case)).state_dict()
    table = tensors["bert.embeddings.word_embeddings.weight"]
    kept = {name: tensor.clone() for name, tensor in tensors.items() if name.startswith("bert.embeddings.")}
    kept["cls.predictions.decoder.weight"] = table + 1.0 if own_rows else table.clone()
    kept |= {"cls.predictions.bias": tensors["cls.predictions.bias"].clone()} if bias else {}
    save_file(kept, tmp_path / "model.safetensors")
    reference_config(case).save_pretrained(tmp_path)
    model = inlayer.load(tmp_path)
    assert model.has_head == headed
    if headed:
        assert (model.head.tied, model.head.bias is None) == (not own_rows, False)


@pytest.mark.parametrize("tied", [True, False])
def test_outer_config_decides_about_tying(tmp_path: Path, tied: bool) -> None:
    """Gemma-3 with images: both configs have the flag, and transformers uses the outer one."""
    text = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 32, "head_dim": 16,
            "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
    vision = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 14}  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, tie_word_embeddings=tied, mm_tokens_per_image=4
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    theirs = transformers.Gemma3ForConditionalGeneration.from_pretrained(tmp_path)
    ours = inlayer.load(tmp_path)
    assert torch.equal(torch.from_numpy(ours.table.weight), theirs.get_input_embeddings().weight)
    assert ours.head.tied == tied
    assert torch.equal(ours.head.weight, theirs.get_output_embeddings().weight)
