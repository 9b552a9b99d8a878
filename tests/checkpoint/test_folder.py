"""FolderStore: every layout of safetensors folders, and invalid ones."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import inlayer
from inlayer.checkpoint.open import find_sample
from inlayer.checkpoint.shard_index import INDEX
from inlayer.errors import CheckpointError, ConfigError, DtypeError, InputError, MissingFileError
from inlayer.tensors import to_tensor

LLAMA = {
    "model_type": "llama", "vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        TABLE: torch.randn(20, 8).to(torch.bfloat16),
        HEAD: torch.randn(20, 8).to(torch.bfloat16),
        "model.layers.0.mlp.up_proj.weight": torch.randn(20, 8).to(torch.bfloat16),
    }


def write(folder: Path, shards: dict[str, list[str]], *, index: bool = True, config: Any = LLAMA) -> Path:
    folder.mkdir(exist_ok=True)
    tensors = weights()
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, folder / file)
    if index:
        weight_map = {name: file for file, names in shards.items() for name in names}
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


SHARDS = {
    "model-1-of-3.safetensors": ["model.layers.0.mlp.up_proj.weight"],
    "model-2-of-3.safetensors": [HEAD],
    "model-3-of-3.safetensors": [TABLE],
}
IDS = torch.tensor([[0, 19, 7, 7]])


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize(
    "shards", [SHARDS, {"model.safetensors": [*weights()]}, {"odd name.safetensors": [*weights()]}]
)
def test_table_is_found_in_any_file(tmp_path: Path, shards: dict[str, list[str]], index: bool) -> None:
    model = inlayer.load(write(tmp_path / "m", shards, index=index))
    assert torch.equal(model.embeddings(IDS), weights()[TABLE][IDS])
    assert torch.equal(model.head.weight, weights()[HEAD])
    assert not model.head.tied
    assert (model.table_info.name, model.head_name) == (TABLE, HEAD)
    stored = model.table_info
    content = (tmp_path / "m" / stored.file).read_bytes()
    assert (
        content[stored.offset : stored.offset + stored.nbytes] == weights()[TABLE].view(torch.uint8).numpy().tobytes()
    )
    assert model.store.parameters() == 480
    assert not model.has_tokenizer
    with pytest.raises(InputError, match=r"m has no tokenizer; .* inlayer\.open_tokenizer\(path\)"):
        model.tokenizer  # noqa: B018
    assert model.config == LLAMA


def test_file_without_config_has_only_rows(tmp_path: Path) -> None:
    write(tmp_path, {"x.safetensors": [TABLE, HEAD]}, index=False, config=None)
    model = inlayer.load(tmp_path / "x.safetensors")
    assert (model.config, model.spec, model.has_tokenizer) == (None, None, False)
    assert torch.equal(model.embeddings(IDS), weights()[TABLE][IDS])
    assert model.embeddings.position_embedding is None
    assert torch.equal(model.head.weight, weights()[HEAD])


def test_file_is_opened_with_config_and_tokenizer_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, {"x.safetensors": [TABLE]}, index=False)
    assert inlayer.load(tmp_path / "x.safetensors").spec is not None
    headless = inlayer.load(str(tmp_path / "x.safetensors"))
    assert not headless.has_head
    with pytest.raises(InputError, match=r"has no head; .*: inlayer\.Head\(8, 20\)\.tie\(model\.embeddings\)"):
        headless.head  # noqa: B018
    assert inlayer.load(tmp_path / "config.json").spec is not None


def test_model_safetensors_is_preferred_to_other_files(tmp_path: Path) -> None:
    write(tmp_path, {"model.safetensors": [TABLE, HEAD]}, index=False)
    save_file({TABLE: torch.zeros(3, 3)}, tmp_path / "consolidated.safetensors")
    assert torch.equal(inlayer.load(tmp_path).embeddings(IDS), weights()[TABLE][IDS])


def test_same_tensor_in_two_files_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"model-1.safetensors": [TABLE], "model-2.safetensors": [TABLE]}, index=False)
    with pytest.raises(CheckpointError, match=r"is in both 'model-1.safetensors' and 'model-2.safetensors'"):
        inlayer.load(tmp_path)


def test_head_that_differs_from_the_table_is_not_tied(tmp_path: Path) -> None:
    """As in transformers: a head that differs from the table is used; one that repeats it is tied."""
    tied = LLAMA | {"tie_word_embeddings": True}
    model = inlayer.load(write(tmp_path / "differs", SHARDS, config=tied))
    assert not model.head.tied
    assert torch.equal(model.head.weight, weights()[HEAD])
    same = {TABLE: weights()[TABLE], HEAD: weights()[TABLE].clone()}
    (tmp_path / "repeats").mkdir()
    save_file(same, tmp_path / "repeats" / "model.safetensors")
    (tmp_path / "repeats" / "config.json").write_text(json.dumps(tied))
    model = inlayer.load(tmp_path / "repeats")
    assert model.head.tied
    assert model.head.table is model.embeddings.token_embedding


def test_head_keeps_its_own_dtype(tmp_path: Path) -> None:
    head = torch.randn(20, 8)
    save_file({TABLE: weights()[TABLE].to(torch.float8_e4m3fn), HEAD: head}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert torch.equal(inlayer.load(tmp_path).head.weight, head)
    assert inlayer.load(tmp_path, dtype=torch.float16).head.weight.dtype == torch.float16


def test_wrapped_head_is_found(tmp_path: Path) -> None:
    tensors = {f"module.{name}": tensor for name, tensor in weights().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    model = inlayer.load(tmp_path)
    assert torch.equal(model.embeddings(IDS), weights()[TABLE][IDS])
    assert torch.equal(model.head.weight, weights()[HEAD])


def test_adapters_next_to_old_files_are_not_the_model(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    save_file({"v_head.summary.weight": torch.zeros(1, 8)}, tmp_path / "value_head.safetensors")
    save_file({"lora.weight": torch.zeros(2, 8)}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "junk.gguf").write_bytes(b"junk")
    assert torch.equal(inlayer.load(tmp_path).embeddings(IDS), weights()[TABLE][IDS])


def test_single_tensor_of_another_size_is_not_a_table(tmp_path: Path) -> None:
    save_file({"foo": torch.zeros(3, 5)}, tmp_path / "model.safetensors")
    assert inlayer.load(tmp_path).table_info.shape == (3, 5)  # nothing says otherwise
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(CheckpointError, match="has no embedding table"):
        inlayer.load(tmp_path)


def test_t5_shared_table_is_preferred(tmp_path: Path) -> None:
    tensors = {"shared.weight": torch.ones(20, 8), "decoder.embed_tokens.weight": torch.zeros(20, 8),
               "encoder.embed_tokens.weight": torch.zeros(20, 8)}  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors")
    assert inlayer.load(tmp_path).table_info.name == "shared.weight"


def test_unknown_family_has_rows_but_no_layer(tmp_path: Path) -> None:
    model = inlayer.load(write(tmp_path, SHARDS, config={"model_type": "martian"}))
    assert torch.equal(to_tensor(model.table.rows(IDS)), weights()[TABLE][IDS])
    with pytest.raises(ConfigError, match="unknown model type 'martian'"):
        model.embeddings  # noqa: B018


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"hidden_size": 16}, CheckpointError, "\\(20, 8\\); its config requires rows of width 16"),
        ({"hidden_size": "8"}, ConfigError, "hidden_size is '8'"),
        ({"vocab_size": 10**12}, ConfigError, "vocab_size"),
        ({"model_type": ["llama"]}, ConfigError, "unknown model type"),
        ({"model_type": "gpt2"}, CheckpointError, "has no tensor for position_embedding.weight"),
    ],
)
def test_config_that_does_not_match_the_files_is_an_error(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        inlayer.load(write(tmp_path, SHARDS, config=LLAMA | change)).embeddings  # noqa: B018


def test_table_may_have_more_rows_than_the_config(tmp_path: Path) -> None:
    model = inlayer.load(write(tmp_path, SHARDS, config=LLAMA | {"vocab_size": 18}))
    assert torch.equal(model.embeddings(IDS), weights()[TABLE][IDS])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("../secret.safetensors", "plain file name"),
        ("/etc/passwd", "plain file name"),
        ("a/b.safetensors", "plain file name"),
        ("..\\b.safetensors", "plain file name"),
        ("x.py", "plain file name"),
        (["x"], "plain file name"),
        ("", "plain file name"),
        ("\0.safetensors", "plain file name"),
        ("\x1b[2J\u202e.safetensors", "plain file name"),
        ("two\nlines.safetensors", "plain file name"),
        ("missing.safetensors", "is missing the file missing.safetensors"),
        ("model-1-of-3.safetensors", "which does not contain it"),
    ],
)
def test_misleading_index_is_an_error(tmp_path: Path, file: Any, words: str) -> None:
    write(tmp_path, SHARDS)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {TABLE: file}}))
    with pytest.raises((CheckpointError, MissingFileError), match=words):
        inlayer.load(tmp_path)


@pytest.mark.parametrize(
    "index", [b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {}}', b"[" * 10**5, b"\xff"]
)
def test_invalid_index_is_an_error(tmp_path: Path, index: bytes) -> None:
    write(tmp_path, SHARDS)
    (tmp_path / INDEX).write_bytes(index)
    with pytest.raises(CheckpointError, match=INDEX):
        inlayer.load(tmp_path)


MODEL2VEC = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": 8, "normalize": True}
STATIC_MODULE = {
    "idx": 0,
    "name": "0",
    "path": "0_StaticEmbedding",
    "type": "sentence_transformers.models.StaticEmbedding",
}


def write_static(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    save_file({name: weights()[TABLE]}, folder / "model.safetensors")
    shutil.copy(find_sample("default")[0] / "tokenizer.json", folder)


@pytest.mark.parametrize("kind", ["model2vec", "subfolder", "root"])
def test_static_embeddings_open_with_table_and_tokenizer(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "static"
    if kind == "model2vec":
        write_static(folder, "embeddings")
        (folder / "config.json").write_text(json.dumps(MODEL2VEC))
    else:
        path = "0_StaticEmbedding" if kind == "subfolder" else ""
        write_static(folder / path, "embedding.weight")
        (folder / "modules.json").write_text(json.dumps([STATIC_MODULE | {"path": path}]))
        (folder / path / "config.json").write_text('{"vocab_size": 20}')
    model = inlayer.load(folder)
    assert model.note.startswith("static embeddings")
    assert torch.equal(model.embeddings(IDS), weights()[TABLE][IDS])
    assert (model.has_head, model.has_tokenizer) == (False, True)
    assert getattr(model, "head", None) is None
    report = inlayer.inspect(folder)
    assert (report.table.model_type, report.positions.kind) == ("static embeddings", "none")
    assert not any("config" in line for line in report.not_checked)


@pytest.mark.parametrize(
    "modules", [b"", b"[]", b"{}", b'[{"path": 3, "type": 1}]', b'[{"path": "..", "type": "a.b"}]']
)
def test_damaged_modules_file_changes_nothing(tmp_path: Path, modules: bytes) -> None:
    folder = write(tmp_path / "m", {"model.safetensors": [*weights()]}, index=False)
    (folder / "modules.json").write_bytes(modules)
    assert inlayer.load(folder).config == LLAMA
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingFileError, match="has no weights"):
        inlayer.load(folder)


@pytest.mark.timeout(60)  # opening a pipe waits for a writer
def test_named_pipes_are_not_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", {"model.safetensors": [*weights()]}, index=False)
    os.mkfifo(folder / "modules.json")
    assert inlayer.load(folder).config == LLAMA
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.gguf")
    with pytest.raises(MissingFileError, match=r"model\.gguf is not a regular file"):
        inlayer.load(folder)


def test_adapter_folder_names_its_base_model(tmp_path: Path) -> None:
    lora = {"base_model.model.model.layers.0.q_proj.lora_A.weight": torch.zeros(4, 8)}
    lora |= {"base_model.model.model.layers.0.q_proj.lora_B.weight": torch.zeros(8, 4)}
    save_file(lora, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="its tensors are those of a LoRA adapter"):
        inlayer.load(tmp_path)  # control: without its config it could be anything
    config = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(
        CheckpointError, match=r"it is an adapter \(LORA\) of meta-llama/Llama-3.1-8B, .* open its base model$"
    ):
        inlayer.load(tmp_path)
    save_file(
        lora | {"base_model.model.model.embed_tokens.weight": weights()[TABLE]}, tmp_path / "adapter_model.safetensors"
    )
    assert inlayer.load(tmp_path).note == "an adapter (LORA) of meta-llama/Llama-3.1-8B"  # trained with modules_to_save
    (tmp_path / "adapter_model.safetensors").unlink()
    torch.save(lora, tmp_path / "adapter_model.bin")
    for without_base in (None, ""):
        config["base_model_name_or_path"] = without_base
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=r"it is an adapter \(LORA\), .* open its base model$"):
            inlayer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("q.lora_A.weight", "LoRA"),
        ("base_model.lm_head.lora_B.default.weight", "LoRA"),
        ("emb.lora_embedding_A", "LoRA"),
        ("lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", "LoRA"),  # kohya
        ("lora_te_text_model_encoder_layers_0_mlp_fc1.lora_up.weight", "LoRA"),
        ("prompt_embeddings", "prompt-tuning"),
        ("base_model.prompt_embeddings.weight", "prompt-tuning"),
    ],
)
@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_model.bin"])
def test_adapter_of_a_single_tensor_is_not_a_table(tmp_path: Path, name: str, kind: str, file: str) -> None:
    save = save_file if file.endswith("safetensors") else torch.save
    save({name: torch.zeros(8, 4)}, tmp_path / file)
    for source in (tmp_path, tmp_path / file):
        with pytest.raises(CheckpointError, match=f"its tensors are those of a {kind} adapter; open its base model"):
            inlayer.load(source)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(CheckpointError, match=r"it is an adapter \(LORA\), .* open its base model$"):
        inlayer.load(tmp_path)
    save({name: torch.zeros(8, 4), "foo.weight": torch.zeros(8, 4)}, tmp_path / file)
    assert inlayer.load(tmp_path).table_info.name == "foo.weight"  # control


def test_links_out_of_the_folder_are_an_error(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"model.safetensors": [TABLE, HEAD]}, index=False)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "model.safetensors").symlink_to(outside / "model.safetensors")
    with pytest.raises(CheckpointError, match="symbolic link that points outside its folder"):
        inlayer.load(inside)
    (inside / "model.safetensors").unlink()
    (inside / "real").mkdir()
    os.link(outside / "model.safetensors", inside / "real" / "weights.safetensors")
    (inside / "model.safetensors").symlink_to(Path("real") / "weights.safetensors")
    assert torch.equal(inlayer.load(inside).embeddings(IDS), weights()[TABLE][IDS])
    (inside / "config.json").symlink_to(outside / "config.json")
    with pytest.raises(CheckpointError, match="symbolic link that points outside its folder"):
        inlayer.load(inside)
    (inside / "config.json").unlink()
    (inside / "config.json").symlink_to(inside / "config.json")
    with pytest.raises(inlayer.InlayerError):
        inlayer.load(inside)
    module = tmp_path / "static"
    module.mkdir()
    (module / "modules.json").write_text(json.dumps([STATIC_MODULE | {"path": "0_X"}]))
    (module / "0_X").symlink_to(outside)
    with pytest.raises(CheckpointError, match="0_X is a symbolic link that points outside its folder"):
        inlayer.load(module)
    (outside / "model.gguf").write_bytes(b"GGUF")
    (module / "model.gguf").symlink_to(outside / "model.gguf")
    (module / "modules.json").unlink()
    with pytest.raises(CheckpointError, match=r"model\.gguf is a symbolic link that points outside its folder"):
        inlayer.load(module)


def test_links_in_the_hub_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in write(tmp_path / "source", SHARDS).iterdir():
        (blobs / f"{file.name}-hash").write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"{file.name}-hash")
        (snapshot / "text_encoder").mkdir(exist_ok=True)
        (snapshot / "text_encoder" / file.name).symlink_to(Path("../../../blobs") / f"{file.name}-hash")
    for folder in (snapshot, snapshot / "text_encoder"):
        assert torch.equal(inlayer.load(folder).embeddings(IDS), weights()[TABLE][IDS])


def test_integer_table_is_an_error(tmp_path: Path) -> None:
    save_file({TABLE: torch.ones(4, 4, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(DtypeError, match="expected floating-point values"):
        inlayer.load(tmp_path).embeddings  # noqa: B018


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.float64])
def test_every_dtype_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    rows = weights()[TABLE].to(dtype)
    save_file({TABLE: rows}, tmp_path / "model.safetensors")
    ours = inlayer.load(tmp_path).embeddings(IDS)
    assert ours.dtype == dtype
    assert torch.equal(ours.view(torch.uint8), rows.view(torch.uint8)[IDS])
    asked = inlayer.load(tmp_path, dtype=torch.float32).embeddings(IDS)
    assert torch.equal(asked, rows.to(torch.float32)[IDS])


def test_unaligned_table_is_read(tmp_path: Path) -> None:
    """Tensors need not start at a multiple of their item size."""
    header = json.dumps({TABLE: {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}).encode()
    header += b" " * (-(len(header) + 8) % 4 + 1)
    data = torch.arange(8.0)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data.numpy().tobytes())
    model = inlayer.load(tmp_path)
    assert model.table_info.offset % 4 == 1
    assert torch.equal(model.embeddings(torch.tensor([1, 0])), data.view(2, 4).flip(0))
    assert np.array_equal(model.table.weight, data.view(2, 4))


@pytest.mark.parametrize(
    "source", ["", "nowhere", "no/such/folder", "./nowhere", "x.gguf", "a/b.safetensors", "\0", "~nobody/x"]
)
def test_invalid_sources_are_an_error(source: str) -> None:
    with pytest.raises(inlayer.InlayerError) as caught:
        inlayer.load(source)
    assert len(str(caught.value).splitlines()) == 1


def test_empty_folders_and_devices_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="has no weights"):
        inlayer.load(tmp_path)
    with pytest.raises(MissingFileError, match="not a regular file"):
        inlayer.load("/dev/null")
    with pytest.raises(DtypeError, match=r"dtype is torch.int8"):
        inlayer.load(tmp_path, dtype=torch.int8)


def test_pickled_model_refers_to_its_source(tmp_path: Path) -> None:
    model = inlayer.load(write(tmp_path, SHARDS), dtype=torch.float32)
    data = pickle.dumps(model)
    assert len(data) < 1024
    assert torch.equal(pickle.loads(data).embeddings(IDS), model.embeddings(IDS))


def test_head_is_not_a_table(tmp_path: Path) -> None:
    """An untied model without a table, or whose table's shard is missing."""
    write(tmp_path, {"model-2-of-3.safetensors": [HEAD, "model.layers.0.mlp.up_proj.weight"]}, index=False)
    for source in (tmp_path, tmp_path / "model-2-of-3.safetensors"):
        with pytest.raises(CheckpointError, match=r"has no embedding table.* is a shard missing"):
            inlayer.load(source)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"tie_word_embeddings": True}))
    assert torch.equal(inlayer.load(tmp_path).embeddings(IDS), weights()[HEAD][IDS])


@pytest.mark.parametrize("content", [b"", b"hi", b"hello, world", b'{"a": 1}', bytes(100)])
def test_files_of_an_unknown_format_are_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.dat").write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a safetensors, GGUF, or PyTorch file"):
        inlayer.load(tmp_path / "x.dat")


def sparse(path: Path, shapes: dict[str, list[int]]) -> None:
    """A consistent header of a sparse file, which takes no space on the disk."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)


@pytest.mark.parametrize(
    ("shapes", "config"),
    [
        ({"wte.weight": [20, 8], "wpe.weight": [2**36, 8]}, {"n_positions": 16}),
        ({"wte.weight": [20, 8], "wpe.weight": [2**26, 8]}, {"n_positions": 2**26}),
        ({"wte.weight": [20, 8], "wpe.weight": [16, 8], "lm_head.weight": [2**34, 8]}, {"n_positions": 16}),
        ({"wte.weight": [20, 8], "wpe.weight": [16, 8], "lm_head.weight": [1, 2**36]}, {"n_positions": 16}),
    ],
)
def test_consistent_headers_with_absurd_sizes_are_an_error(
    tmp_path: Path, shapes: dict[str, list[int]], config: dict[str, int]
) -> None:
    """Nothing is allocated for a part or a head that does not match its table."""
    sparse(tmp_path / "model.safetensors", shapes)
    gpt2 = {"model_type": "gpt2", "vocab_size": 20, "n_embd": 8, "n_head": 2, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(gpt2 | config))
    model = inlayer.load(tmp_path)
    with pytest.raises(CheckpointError):
        (model.embeddings, model.head)  # noqa: B018


def test_duplicate_name_among_many_is_found_quickly(tmp_path: Path) -> None:
    header = b"{" + b",".join(b'"w%d":{"data_offsets":0}' % (number % 60_000) for number in range(60_001)) + b"}"
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError, match="'w0' occurs twice"):  # by a loop over pairs, this took minutes
        inlayer.load(tmp_path)


def test_truncated_head_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, SHARDS)
    model = inlayer.load(tmp_path)
    head = model.head
    assert (head.tied, head.vocab_size) == (False, 20)
    hidden = torch.zeros(1, 8, dtype=torch.bfloat16)
    assert torch.equal(head(hidden + 1), nn.functional.linear(hidden + 1, weights()[HEAD]))
    os.truncate(tmp_path / "model-2-of-3.safetensors", 500)
    with pytest.raises(CheckpointError, match="was modified while it was open"):
        head(hidden)


def test_folder_whose_files_cannot_be_accessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"model.safetensors": [TABLE]}, index=False)

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_symlink", refuse)
    with pytest.raises(MissingFileError, match=r"config\.json cannot be accessed: Permission denied$"):
        inlayer.load(tmp_path)
