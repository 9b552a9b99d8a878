"""`Model.tables`: the token-indexed tensors of checkpoints that transformers wrote, and of published names.

The reference is the safetensors library and the modules of the transformers model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import inlayer
from inlayer.errors import MissingFileError
from inlayer.families.tensor_names import table_role
from tests.checkpoint.test_folder import HEAD, LLAMA, SHARDS, TABLE, write
from tests.families.survey import save_tiny

EXPECTED = {
    ("gemma4_text", "causal"): ["token", "per_layer"],
    ("gemma3n_text", "causal"): ["token", "per_layer"],
    ("bert", "masked"): ["token", "position", "token_type"],
    ("gpt2", "causal"): ["token", "position"],
    ("deepseek_v4", "causal"): ["token", "head", "routing", "routing", "routing"],
    ("qwen2", "causal"): ["token", "head"],
}


@pytest.mark.parametrize("job", EXPECTED, ids="-".join)
def test_tables_of_a_saved_model(job: tuple[str, str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    maker = type(save_tiny(*job, str(tmp_path)))
    tables = inlayer.load(tmp_path).tables
    assert [table.role for table in tables] == EXPECTED[job]
    theirs = maker.from_pretrained(tmp_path)
    modules = {name for name, module in theirs.named_modules() if isinstance(module, nn.Embedding)}
    found = {table.name.removesuffix(".weight") for table in tables}
    assert {name.rpartition(".")[2] for name in modules} <= {name.rpartition(".")[2] for name in found}
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        total = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118  # it is not a dict
        for table in tables:
            stored = file.get_tensor(table.name)
            assert (table.shape, table.nbytes, table.file) == (stored.shape, stored.nbytes, "model.safetensors")
            assert table.share == stored.size / total
            raw = (tmp_path / table.file).read_bytes()[table.offset : table.offset + table.nbytes]
            assert raw == stored.tobytes()
            if table.role != "routing":
                assert np.array_equal(inlayer.load(tmp_path).store.table(table.name).rows([1, 0]), stored[[1, 0]])


def test_names_of_published_files() -> None:
    roles = {
        "model.embed_tokens.weight": "token",
        "model.layers.61.embed_tokens.weight": "mtp",  # DeepSeek-V3
        "model.layers.61.shared_head.head.weight": "mtp",
        "mtp.embed_tokens.weight": "mtp",  # Qwen3-Next
        "transformer.value_embeds.3.weight": "value",  # nanochat
        "backbone.value_embeddings.weight": "value",
        "per_layer_token_embd.weight": "per_layer",  # GGUF
        "layers.2.ffn.gate.tid2eid": "routing",
        "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight": "ngram",
        "model.vision_tower.embeddings.position_embedding.weight": None,
        "visual.patch_embed.weight": None,
        "blk.0.attn_output.weight": None,
        "model.norm.weight": None,
    }
    assert {name: table_role(name) for name in roles} == roles


def test_a_copy_for_multi_token_prediction_has_the_shape_of_the_table(tmp_path: Path) -> None:
    rows = torch.randn(20, 8)
    tensors = {TABLE: rows, "model.layers.1.embed_tokens.weight": rows.clone(), HEAD: torch.randn(20, 8)}
    tensors |= {"model.layers.0.codebook.embedding.weight": torch.randn(4, 8)}  # of another kind
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert [table.role for table in inlayer.load(tmp_path).tables] == ["token", "head", "mtp"]
    for name in ("model.layers.1.embed_tokens.weight", "model.layers.1.shared_head.head.weight"):  # shorter: a defect
        save_file(tensors | {name: torch.randn(19, 8)}, tmp_path / "model.safetensors")
        assert (name, (19, 8)) in [(table.name, table.shape) for table in inlayer.load(tmp_path).tables]


def test_a_missing_shard_is_an_error_not_a_shorter_list(tmp_path: Path) -> None:
    model = inlayer.load(write(tmp_path, SHARDS))
    assert [table.file for table in model.tables] == ["model-3-of-3.safetensors", "model-2-of-3.safetensors"]
    (tmp_path / "model-2-of-3.safetensors").unlink()
    with pytest.raises(MissingFileError, match=r"is missing the file model-2-of-3\.safetensors"):
        _ = inlayer.load(tmp_path).tables
