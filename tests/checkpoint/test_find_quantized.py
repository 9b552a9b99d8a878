"""Quantized tables of safetensors: every row equals a float64 loop, and transformers where it has the format."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import inlayer
from inlayer.errors import DtypeError, InlayerError
from tests.families.capture import capture
from tests.families.survey import same_bits, save_tiny

V, D = 300, 256
TABLE = "model.embed_tokens.weight"
IDS = [0, 1, 129, 299, 129]
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
E8M0 = getattr(torch, "float8_e8m0fnu", torch.uint8)  # torch 2.6 does not have it
Tensors = dict[str, Tensor]
Loop = Callable[[Tensors, int, int], float]  # one value of the table, in float64


def random(*shape: int, low: int = 0, high: int = 256, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(len(shape) + high), dtype=dtype)


def fp8(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(torch.float8_e4m3fn)


def scales(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(4)) + 0.1


def value(tensors: Tensors, end: str, *at: int) -> float:
    return float(tensors[TABLE + end][at].to(torch.float64))


def nibble(tensors: Tensors, end: str, row: int, byte: int, channel: int) -> int:
    packed = tensors[TABLE + end][row].contiguous().view(torch.uint8).flatten()
    return int(packed[byte]) >> 4 * (channel % 2) & 15


CASES: dict[str, tuple[Tensors, Loop, str]] = {
    "FP8 blocks": (
        {"": fp8(V, D), "_scale_inv": scales(3, 2)},
        lambda t, r, c: value(t, "", r, c) * value(t, "_scale_inv", r // 128, c // 128),
        "F8_E4M3"),
    "FP8 rows": (
        {"": fp8(V, D), "_scale": scales(V, 1)}, lambda t, r, c: value(t, "", r, c) * value(t, "_scale", r, 0),
        "F8_E4M3"),
    "FP8 groups": (
        {"": fp8(V, D), "_scale": random(V, 8, low=120, high=130).view(E8M0)},
        lambda t, r, c: value(t, "", r, c) * value(t, "_scale", r, c // 32),
        "F8_E4M3"),
    "FP8 tensor": (
        {"": fp8(V, D), "_scale": scales(1)}, lambda t, r, c: value(t, "", r, c) * value(t, "_scale", 0),
        "F8_E4M3"),
    "MXFP4": (
        {"_blocks": random(V, D // 32, 16), "_scales": random(V, D // 32, low=110, high=140)},
        lambda t, r, c: FP4[nibble(t, "_blocks", r, c // 2, c)] * 2.0 ** (value(t, "_scales", r, c // 32) - 127),
        "MXFP4"),
    "MXFP4 of compressed-tensors": (
        {"_packed": random(V, D // 2), "_scale": random(V, D // 32, low=110, high=140)},
        lambda t, r, c: FP4[nibble(t, "_packed", r, c // 2, c)] * 2.0 ** (value(t, "_scale", r, c // 32) - 127),
        "MXFP4"),
    "NVFP4": (
        {"_packed": random(V, D // 2), "_scale": fp8(V, D // 16), "_global_scale": torch.tensor([512.0])},
        lambda t, r, c: FP4[nibble(t, "_packed", r, c // 2, c)] * value(t, "_scale", r, c // 16) / 512.0,
        "NVFP4"),
    "NVFP4 of ModelOpt": (
        {"": random(V, D // 2), "_scale": fp8(V, D // 16), "_scale_2": torch.tensor(0.0371)},
        lambda t, r, c: FP4[nibble(t, "", r, c // 2, c)] * value(t, "_scale", r, c // 16) * value(t, "_scale_2"),
        "NVFP4"),
    "INT4": (
        {"_packed": random(V, D // 8, low=-(2**31), high=2**31 - 1, dtype=torch.int32),
         "_scale": scales(V, 2).to(torch.bfloat16), "_shape": torch.tensor([V, D])},
        lambda t, r, c: (nibble(t, "_packed", r, c // 2, c) - 8) * value(t, "_scale", r, c // 128),
        "INT4"),
}  # fmt: skip
WITHOUT_E8M0 = pytest.mark.skipif(
    not hasattr(torch, "float8_e8m0fnu"), reason="this torch does not have the dtype of the scales"
)
NAMES = [pytest.param(name, marks=WITHOUT_E8M0) if name == "FP8 groups" else name for name in CASES]


def write(folder: Path, tensors: Tensors, **config: object) -> Path:
    save_file({TABLE + end: tensor for end, tensor in tensors.items()}, folder / "model.safetensors")
    llama = {"model_type": "llama", "vocab_size": V, "hidden_size": D, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(llama | config))
    return folder


def one_by_one(tensors: Tensors, loop: Loop) -> npt.NDArray[np.float32]:
    named = {TABLE + end: tensor for end, tensor in tensors.items()}
    values = [[loop(named, row, channel) for channel in range(D)] for row in IDS]
    return np.array(values, np.float64).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_rows_equal_a_float64_loop(name: str, tmp_path: Path) -> None:
    tensors, loop, dtype = CASES[name]
    model = inlayer.load(write(tmp_path, tensors))
    assert (model.table_info.dtype, model.table_info.shape) == (dtype, (V, D))
    assert [(one.role, one.shape) for one in model.tables] == [("token", (V, D))]
    assert model.tables[0].share is not None
    assert 0.5 < model.tables[0].share <= 1
    rows, expected = model.table.rows(IDS), one_by_one(tensors, loop)
    assert np.array_equal(rows.view(np.int32), expected.view(np.int32))
    assert np.array_equal(model.table.weight[IDS], expected)
    halves = inlayer.load(tmp_path, dtype="bfloat16")
    assert np.array_equal(halves.table.rows(IDS), expected.astype(ml_dtypes.bfloat16))
    assert np.array_equal(model.embeddings(torch.tensor(IDS)).numpy(), expected)
    other = dict(tensors)
    last = next(end for end in other if "scale" in end)
    other[last] = (
        other[last].view(torch.uint8).flip(0).view(other[last].dtype) if other[last].dim() > 1 else other[last] * 2
    )
    assert not np.array_equal(rows, one_by_one(other, loop))  # control: the loop follows the scales


def test_equal_to_transformers(tmp_path: Path) -> None:
    blocks, exponents = CASES["MXFP4"][0].values()
    theirs = convert_moe_packed_tensors(blocks[None], exponents[None])[0].T.float()  # experts are transposed
    ours = inlayer.load(write(tmp_path, CASES["MXFP4"][0])).table.weight
    assert np.array_equal(ours, theirs.numpy())
    tensors = {"": fp8(256, D), "_scale_inv": scales(2, 2)}  # transformers needs whole blocks
    theirs = Fp8Dequantize(None)._dequantize_one(*tensors.values(), output_dtype=torch.bfloat16)
    ours = inlayer.load(write(tmp_path, tensors, vocab_size=256), dtype="bfloat16").table.weight
    assert np.array_equal(ours.view(np.int16), theirs.view(torch.int16).numpy())


def test_other_block_sizes_and_inspect(tmp_path: Path) -> None:
    tensors = {"": fp8(V, D), "_scale_inv": scales(5, 4)}
    block = {"quantization_config": {"weight_block_size": [64, 64]}}
    rows = inlayer.load(write(tmp_path, tensors, **block)).table.rows(IDS)
    loop: Loop = lambda t, r, c: value(t, "", r, c) * value(t, "_scale_inv", r // 64, c // 64)  # noqa: E731
    assert np.array_equal(rows, one_by_one(tensors, loop))
    report = inlayer.inspect(tmp_path)
    assert (report.rows.nan_rows, report.rows.zero_rows) == (0, 0)


GROUPS_OF_96 = {"config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 96}}}}


@pytest.mark.parametrize(("name", "end", "settings", "size"), [
    ("INT4", "_scale", GROUPS_OF_96, 96),
    ("INT4", "_scale", None, 128),
    ("FP8 rows", "_scale", {"weight_block_size": [1, 96]}, 96),
])  # fmt: skip
def test_the_last_group_may_be_shorter(
    name: str, end: str, settings: dict[str, object] | None, size: int, tmp_path: Path
) -> None:
    tensors = {part: tensor for part, tensor in CASES[name][0].items() if part != "_shape"}
    tensors[end] = scales(V, -(-D // size))
    rows = inlayer.load(write(tmp_path, tensors, quantization_config=settings)).table.rows(IDS)
    if name == "INT4":
        loop: Loop = lambda t, r, c: (nibble(t, "_packed", r, c // 2, c) - 8) * value(t, end, r, c // size)  # noqa: E731
    else:
        loop = lambda t, r, c: value(t, "", r, c) * value(t, end, r, c // size)  # noqa: E731
    assert np.array_equal(rows, one_by_one(tensors, loop))


def test_scales_must_have_the_stated_group_size(tmp_path: Path) -> None:
    write(tmp_path, CASES["INT4"][0], quantization_config=GROUPS_OF_96)
    with pytest.raises(InlayerError, match="rows of scales for 256 channels in groups of 96"):
        _ = inlayer.load(tmp_path).table
    tensors = change("FP8 rows", scale=scales(V, 2))
    write(tmp_path, tensors, quantization_config={"weight_block_size": [128, 64]})
    with pytest.raises(InlayerError, match="in blocks of 1 x 64 needs 300 x 4"):
        _ = inlayer.load(tmp_path).table


def change(name: str, **changed: Tensor | None) -> Tensors:
    tensors = CASES[name][0] | {f"_{end}" if end else "": tensor for end, tensor in changed.items()}
    return {end: tensor for end, tensor in tensors.items() if tensor is not None}


MISSHAPEN: dict[str, tuple[Tensors, str]] = {
    "FP8 scales cut": (change("FP8 blocks", scale_inv=scales(2, 2)), r"_scale_inv' .* needs 3 x 2"),
    "FP8 scales of integers": (change("FP8 blocks", scale_inv=torch.ones(3, 2, dtype=torch.int64)), "floating point"),
    "FP8 scale per value": (change("FP8 rows", scale=scales(V, D)), "in blocks of 1 x 128 needs 300 x 2"),
    "FP8 scale is NaN": (change("FP8 tensor", scale=torch.tensor([torch.nan])), "expected a finite number"),
    "FP8 scales with 3 axes": (change("FP8 blocks", scale_inv=scales(3, 2, 2)), "needs 3 x 2"),
    "MXFP4 without scales": (change("MXFP4", scales=None), r"_scales' is missing"),
    "MXFP4 scales cut": (change("MXFP4", scales=random(V, 7)), r"expected U8 \(300, 8\)"),
    "MXFP4 blocks of 15 bytes": (change("MXFP4", blocks=random(V, 8, 15)), r"are U8 \(V, D / 32, 16\)"),
    "NVFP4 without a global scale": (change("NVFP4", global_scale=None), r"_global_scale' is missing"),
    "NVFP4 with two global scales": (change("NVFP4", global_scale=torch.ones(2)), "expected one number"),
    "NVFP4 divided by zero": (change("NVFP4", global_scale=torch.zeros(1)), "expected a finite number"),
    "NVFP4 scales in float32": (change("NVFP4", scale=scales(V, 16)), r"expected F8_E4M3 \(300, 16\)"),
    "INT4 with a huge shape": (change("INT4", shape=torch.tensor([V, 2**40])), r"do not match packed values"),
    "INT4 with a negative shape": (change("INT4", shape=torch.tensor([-V, -D])), r"do not match packed values"),
    "INT4 with uneven groups": (change("INT4", scale=scales(V, 3)), "rows of scales for 256 channels"),
    "INT4 with no groups": (change("INT4", scale=scales(V, 0)), "rows of scales for 256 channels"),
    "asymmetric INT4": (change("INT4", zero_point=random(V, 2)), "int4 with zero points or reordered groups"),
}


@pytest.mark.parametrize("name", MISSHAPEN)
def test_misshapen_scales_are_a_one_line_error(name: str, tmp_path: Path) -> None:
    tensors, message = MISSHAPEN[name]
    write(tmp_path, tensors)
    tracemalloc.start()
    with pytest.raises(InlayerError, match=message) as caught:
        _ = inlayer.load(tmp_path).table
    assert "\n" not in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_control_without_scales_fp8_rows_are_as_stored(tmp_path: Path) -> None:
    table = inlayer.load(write(tmp_path, {"": fp8(V, D)})).table
    assert table.dtype == np.dtype(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("model_type", ["gemma", "nanochat", "bloom", "gpt2"])
def test_hidden_states_are_not_computed_in_fp8(tmp_path: Path, model_type: str) -> None:
    sizes = {"model_type": model_type, "n_embd": D, "n_embed": D, "n_positions": 4, "pad_token_id": None}
    write(tmp_path, {"": fp8(V, D)}, **sizes)
    with pytest.raises(DtypeError, match="float8_e4m3fn without scales, and torch cannot compute hidden states"):
        _ = inlayer.load(tmp_path).embeddings
    assert inlayer.load(tmp_path).table.rows([1]).dtype == ml_dtypes.float8_e4m3fn
    if model_type in ("gemma", "nanochat"):  # without other tensors
        assert inlayer.load(tmp_path, dtype="bfloat16").embeddings(torch.tensor([1])).isfinite().all()


def test_fp8_without_scales_is_an_error_in_a_quantized_model(tmp_path: Path) -> None:
    tensors = {"": fp8(V, D)}
    write(tmp_path, tensors, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    with pytest.raises(InlayerError, match=r"has no scales; 'model.embed_tokens.weight_scale_inv' is missing"):
        _ = inlayer.load(tmp_path).table
    write(tmp_path, tensors)  # plain FP8 values are rows
    assert inlayer.load(tmp_path).table.rows([1]).dtype == ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_that_is_read_whole_is_scaled(name: str, tmp_path: Path) -> None:
    store = inlayer.load(write(tmp_path, CASES[name][0])).store
    assert np.array_equal(store.read(TABLE), store.table(TABLE).weight)


# ---- other tables

OTHER_TABLES: dict[str, tuple[str, dict[str, object]]] = {
    "gemma4_text": (
        "model.embed_tokens_per_layer.weight", {"vocab_size_per_layer_input": V, "hidden_size_per_layer_input": D // 4}
    ),
    "blt": (
        "model.encoder_hash_tok_embedding.weight",
        {"encoder_hash_byte_group_vocab": V // 6, "encoder_config": {"hidden_size": D, "num_key_value_heads": 4}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=OTHER_TABLES)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, nn.Module]:
    """A checkpoint with a second table, the name of that table, and the model of transformers."""
    folder, (name, settings) = tmp_path_factory.mktemp(request.param), OTHER_TABLES[request.param]
    torch.manual_seed(0)
    return folder, name, save_tiny(request.param, "causal", str(folder), **settings).eval()


@pytest.mark.parametrize("name", NAMES)
def test_other_tables_are_read_like_the_token_table(
    name: str, other: tuple[Path, str, nn.Module], tmp_path: Path
) -> None:
    folder, table, theirs = other
    tensors, _, dtype = CASES[name]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    stored = load_file(folder / "model.safetensors")
    del stored[table]
    save_file(stored | {table + end: tensor for end, tensor in tensors.items()}, tmp_path / "model.safetensors")
    model, ids = inlayer.load(tmp_path), torch.tensor([IDS]) % 90
    assert [(one.dtype, one.shape) for one in model.tables if one.name == table] == [(dtype, (V, D))]
    token_table = tmp_path / "token_table"
    token_table.mkdir()
    with torch.no_grad():
        theirs.get_parameter(table).copy_(torch.from_numpy(inlayer.load(write(token_table, tensors)).table.weight))
    seen = capture(theirs, input_ids=ids)
    assert same_bits(model.embeddings(ids), seen.hidden)
    if seen.per_layer is not None:
        assert same_bits(model.embeddings.per_layer(ids), seen.per_layer)
    assert not any("unreadable" in finding.code for finding in inlayer.inspect(tmp_path).findings)
    with torch.no_grad():  # control
        theirs.get_parameter(table).mul_(2)
    doubled = capture(theirs, input_ids=ids)
    per_layer = seen.per_layer is not None
    assert not same_bits(*((one.per_layer if per_layer else one.hidden) for one in (seen, doubled)))
