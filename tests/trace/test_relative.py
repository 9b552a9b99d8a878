"""Relative positions in a walk: what transformers' attention receives, bit by bit, also on the terminal and in JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import inlayer
from inlayer.trace.family_facts import RelativeFacts
from inlayer.trace.terminal import show
from tests.checkpoint.make_gguf import write_gguf
from tests.families.tiny import VOCAB, build, tiny_config
from tests.trace.schema import FILE

T = 12
TEXT = " ".join(f"w{number}" for number in range(T))
DTYPES = [torch.float32, torch.bfloat16]
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}


def saved(folder: Path, name: str, kind: str, dtype: torch.dtype, **settings: Any) -> tuple[nn.Module, inlayer.Model]:
    """A tiny model of transformers, and the same files opened by inlayer with a tokenizer of words."""
    torch.manual_seed(0)
    model = build(kind, tiny_config(name, kind, **settings)).eval().to(dtype)
    model.save_pretrained(folder)
    opened = inlayer.load(folder)
    words = inlayer.WordTokenizer.from_text(" ".join(f"w{number}" for number in range(VOCAB - 10)))
    opened.__dict__["tokenizer"] = words  # in place of the cached property
    return model, opened


def run(model: nn.Module, opened: inlayer.Model) -> None:
    ids = torch.tensor([opened.tokenizer.encode(TEXT)])
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        model(input_ids=ids, **extra)


def walked(opened: inlayer.Model, **settings: Any) -> RelativeFacts:
    facts = inlayer.walk(TEXT, opened, **settings).positions.relative
    assert facts is not None
    return facts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "argument", "settings"),
    [
        ("bloom", "alibi", {"n_head": 4}),
        ("bloom", "alibi", {"n_head": 6, "hidden_size": 96}),
        ("falcon", "alibi", {"alibi": True}),
        ("falcon", "alibi", {"alibi": True, "num_attention_heads": 6, "num_kv_heads": 6, "hidden_size": 96}),
        ("mpt", "position_bias", {}),
        ("mpt", "position_bias", {"n_heads": 6, "d_model": 96}),
    ],
)
def test_alibi(tmp_path: Path, name: str, argument: str, settings: dict[str, Any], dtype: torch.dtype) -> None:
    model, opened = saved(tmp_path, name, "causal", dtype, **settings)
    received: list[Tensor] = []
    block = next(module for module in model.modules() if isinstance(module, nn.ModuleList))[0]
    block.register_forward_pre_hook(lambda _, _args, named: received.append(named[argument]), with_kwargs=True)
    run(model, opened)
    facts = walked(opened, dims=64)
    theirs = received[0].flatten(0, -2)[:, -T:]  # MPT's attention also takes the end
    assert theirs.dtype == (torch.float32 if name == "mpt" else dtype)
    assert facts.bias == theirs.tolist()
    assert facts.n_heads == len(facts.slopes) == len(theirs)
    assert facts.columns == list(range(1 - T, 1) if name == "mpt" else range(T))
    assert walked(opened, dims=64, first_token=2).bias == [head[2:] for head in facts.bias]
    assert [head[1:] for head in facts.bias] != theirs[:, :-1].tolist()  # control: shifted by one


def biases(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """The rows and values that the encoder's first table of relative positions is used with, when the model runs."""
    found: list[tuple[Tensor, Tensor]] = []
    table = next(module for name, module in model.named_modules() if name.endswith(".relative_attention_bias"))
    table.register_forward_hook(lambda _, args, values: found.append((args[0], values)))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "kind"), [("t5", "seq2seq"), ("mt5", "seq2seq"), ("umt5", "seq2seq"), ("mpnet", "masked")]
)
def test_buckets_with_a_bias_per_head(tmp_path: Path, name: str, kind: str, dtype: torch.dtype) -> None:
    settings = {"relative_attention_max_distance": 10} if name == "mpnet" else BUCKETS  # MPNet does not read it
    model, opened = saved(tmp_path, name, kind, dtype, **settings)
    used = biases(model)
    run(model, opened)
    rows, values = used[0]
    facts = walked(opened)
    for query in range(T):
        at = [facts.columns.index(key - query) for key in range(T)]
        assert [facts.rows[one] for one in at] == rows.reshape(T, T)[query].tolist()
        for head, bias in enumerate(facts.bias):
            assert [bias[one] for one in at] == values.reshape(T, T, -1)[query, :, head].tolist()
    assert len(facts.bias) == facts.n_heads == values.shape[-1]
    raw = (tmp_path / "model.safetensors").read_bytes()
    table = next(module for name, module in model.named_modules() if name.endswith(".relative_attention_bias"))
    for row, offset in zip(facts.rows, facts.offsets, strict=True):
        stored = table.weight.detach()[row].contiguous().view(torch.uint8).numpy().tobytes()
        assert raw[offset : offset + len(stored)] == stored
    assert facts.rows[::-1] != facts.rows  # control: the direction of a distance matters


@pytest.mark.parametrize("dtype", DTYPES)
def test_longt5_has_the_same_buckets(tmp_path: Path, dtype: torch.dtype) -> None:
    model, opened = saved(tmp_path, "longt5", "seq2seq", dtype, **BUCKETS, local_radius=5)
    used = biases(model)
    run(model, opened)
    rows, values = used[0]  # of one block of keys, with the blocks before and after it
    block = rows.shape[0]
    assert rows.shape == (block, 3 * block)
    facts = walked(opened)
    distance = torch.arange(3 * block)[None] - block - torch.arange(block)[:, None]
    for query, key in (distance.abs() < T).nonzero().tolist():
        at = facts.columns.index(int(distance[query, key]))
        assert facts.rows[at] == rows[query, key]
        assert [bias[at] for bias in facts.bias] == values[query, key].tolist()


class Gathered(TorchFunctionMode):
    """Records the indices of every torch.gather."""

    def __init__(self) -> None:
        super().__init__()
        self.indices: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.gather:
            self.indices.append((kwargs or {}).get("index", args[2] if len(args) > 2 else None))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("deberta", {"max_relative_positions": 8}),
        ("deberta-v2", {"max_relative_positions": 8}),
        ("deberta-v2", {"max_relative_positions": 16, "position_buckets": 8}),
    ],
)
def test_deberta(tmp_path: Path, name: str, settings: dict[str, int], dtype: torch.dtype) -> None:
    settings = {"relative_attention": True, "pos_att_type": ["c2p"], **settings}  # type: ignore[dict-item]
    model, opened = saved(tmp_path, name, "masked", dtype, **settings)
    with Gathered() as gathered:
        run(model, opened)
    theirs = gathered.indices[0].flatten(0, -3)[0]
    facts = walked(opened)
    ours = [[facts.rows[facts.columns.index(key - query)] for key in range(T)] for query in range(T)]
    assert ours == theirs.tolist()
    assert facts.tensor.endswith("encoder.rel_embeddings.weight")
    assert (facts.bias, facts.n_heads) == ([], None)
    assert [list(row) for row in zip(*ours, strict=True)] != ours  # control: queries and keys exchanged
    raw = (tmp_path / "model.safetensors").read_bytes()
    weight = model.get_submodule(facts.tensor.removesuffix(".weight")).weight.detach()
    for row, offset in zip(facts.rows, facts.offsets, strict=True):
        stored = weight[row].contiguous().view(torch.uint8).numpy().tobytes()
        assert raw[offset : offset + len(stored)] == stored


@pytest.mark.parametrize(
    ("name", "kind", "settings", "words"),
    [
        ("bloom", "causal", {}, "ALiBi: bias = slope"),
        ("t5", "seq2seq", BUCKETS, "relative positions: rows of"),
        ("deberta", "masked", {"relative_attention": True}, "relative positions: rows of"),
    ],
)
def test_terminal_and_json_show_them(
    tmp_path: Path, name: str, kind: str, settings: dict[str, Any], words: str
) -> None:
    _, opened = saved(tmp_path, name, kind, torch.float32, **settings)
    trace = inlayer.walk(TEXT, opened)
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    for columns in (40, 60, 120):
        output = io.StringIO()
        show(trace, Console(file=output, width=columns, force_terminal=False), step=6)
        text = output.getvalue()
        assert words in " ".join(text.split())
        assert all(len(line) <= columns for line in text.splitlines())
    replaced = inlayer.walk(TEXT, opened, positions="rotary")
    assert replaced.positions.relative is None
    assert inlayer.walk("I love dogs", "default").positions.relative is None


def test_code_of_step_6_runs_as_printed(tmp_path: Path) -> None:
    for name, kind in (("bloom", "causal"), ("mpt", "causal"), ("t5", "seq2seq")):
        _, opened = saved(tmp_path / name, name, kind, torch.float32)
        trace = inlayer.walk(TEXT, opened)
        facts = trace.positions.relative
        names: dict[str, Any] = {"inlayer": inlayer, "torch": torch, "layer": opened.embeddings}
        names["ids"] = torch.tensor([opened.tokenizer.encode(TEXT)])
        exec(trace.steps[5].code, names)
        assert facts is not None
        if facts.kind == "alibi":
            assert names["bias"][0, :8, 0].tolist() == facts.bias
        else:
            assert names["buckets"][0].tolist() == facts.rows[T - 1 :]


def test_gguf_has_the_same_bias(tmp_path: Path) -> None:
    model, opened = saved(tmp_path, "t5", "seq2seq", torch.float32, **BUCKETS)
    table = next(module for name, module in model.named_modules() if name.endswith(".relative_attention_bias"))
    tensors = {"token_embd.weight": model.shared.weight, "enc.blk.0.attn_rel_b.weight": table.weight}
    counts = {"context_length": 64, "attention.head_count": 4, "attention.relative_buckets_count": 8}
    file = write_gguf(
        tmp_path / "model.gguf",
        architecture="t5",
        values={f"t5.{name}": value for name, value in counts.items()},
        tokenizer={"model": "none"},
        tensors={name: (weight.detach().numpy(), None) for name, weight in tensors.items()},
    )
    converted = inlayer.load(file)
    converted.__dict__["tokenizer"] = opened.tokenizer
    ours = walked(converted)
    assert ours.tensor == "enc.blk.0.attn_rel_b.weight"
    # The file does not have the longest distance: T5's own, 128, is used, and only far tokens differ.
    near = [place for place, at in enumerate(ours.columns) if abs(at) < 3]
    for head, bias in enumerate(walked(opened).bias):
        assert [ours.bias[head][place] for place in near] == [bias[place] for place in near]


def test_a_table_that_differs_from_the_config_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, "t5", "seq2seq", torch.float32, **BUCKETS)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"relative_attention_num_buckets": 16}))
    opened = inlayer.load(tmp_path)
    opened.__dict__["tokenizer"] = inlayer.WordTokenizer.from_text(TEXT)
    with pytest.raises(inlayer.errors.CheckpointError, match="requires 16 rows"):
        inlayer.walk(TEXT, opened)


def test_inspect_names_relative_positions(tmp_path: Path) -> None:
    saved(tmp_path, "bloom", "causal", torch.float32)
    assert inlayer.inspect(tmp_path).positions.relative == "attention adds ALiBi, 4 heads"
    assert inlayer.inspect("default").positions.relative is None
