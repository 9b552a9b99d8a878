"""attach: models with inlayer's table and head are bit-identical to the original, also step by step in training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import inlayer
from inlayer.errors import ConfigError, DtypeError, InlayerError, InputError
from inlayer.integrations.transformers import AttachedHead, ScaledTable
from inlayer.tables import Table
from tests.families.tiny import build, tiny_config

pytestmark = pytest.mark.filterwarnings("ignore")  # from transformers
V, D = 59, 32

SMALL = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 32, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
DEEPSEEK = {
    **SMALL, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "moe_intermediate_size": 16, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 8, "head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 2,
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": D, "n_layer": 2, "n_head": 2, "n_positions": 32}
T5 = {"vocab_size": V, "d_model": D, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}

# Model class, config class, settings.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", DEEPSEEK),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SMALL),
    "llama padded": ("LlamaForCausalLM", "LlamaConfig", SMALL | {"pad_token_id": 3}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", SMALL | {"final_logit_softcapping": 0.7}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", SMALL | {"pad_token_id": 0}),
    "cohere": ("CohereForCausalLM", "CohereConfig", SMALL | {"logit_scale": 0.3}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", SMALL | {"logits_scaling": 5.0, "embedding_multiplier": 3.0}),
    "phi": ("PhiForCausalLM", "PhiConfig", SMALL | {"num_key_value_heads": 2}),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 1}),
    "xglm": (
        "XGLMForCausalLM",
        "XGLMConfig",
        {"vocab_size": V, "d_model": D, "ffn_dim": 32, "num_layers": 1, "attention_heads": 2},
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5 | {"decoder_start_token_id": 0}),
}
CAUSAL = [name for name in MODELS if name not in {"t5", "xglm"}]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(name: str, *, tied: bool, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """A tiny model with all values changed from their initialization, except a padding row."""
    model_class, config_class, sizes = MODELS[name]
    config = getattr(transformers, config_class)(**sizes | settings)
    config.tie_word_embeddings = tied  # set afterwards: T5Config ignores False
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(config).to(dtype).eval()
    table = model.get_input_embeddings()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        if table.padding_idx is not None:
            table.weight[table.padding_idx] = 0
    return model


def make_ids(seed: int = 0, rows: int = 2) -> Tensor:
    return torch.randint(4, V, (rows, 12), generator=torch.Generator().manual_seed(seed))


def is_tied(model: Any) -> bool:
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    assert (head.weight is table.weight) == head.tied  # by module and by parameter
    return bool(head.tied) and head.table is table


# Equal models


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "t5"])
def test_logits_and_loss_are_bit_equal(name: str, tied: bool, dtype: torch.dtype) -> None:
    model, ids = make(name, tied=tied, dtype=dtype), make_ids()
    before = model(ids, labels=ids)
    parameters = {key: (value, value.detach().clone()) for key, value in model.named_parameters()}
    assert inlayer.attach(model) is model
    after = model(ids, labels=ids)
    assert isinstance(model.get_input_embeddings(), Table)
    assert isinstance(model.get_output_embeddings(), AttachedHead)
    assert torch.equal(after.logits, before.logits)
    assert torch.equal(after.loss, before.loss)
    assert is_tied(model) == tied
    now = dict(model.named_parameters())
    assert now.keys() == parameters.keys()
    for key, (value, copied) in parameters.items():
        assert now[key] is value  # an existing optimizer keeps working
        assert torch.equal(value, copied)
    with torch.no_grad():  # control: the new modules are in use
        model.get_output_embeddings().weight[5] += 1
    assert not torch.equal(model(ids).logits, before.logits)


def test_encoder_decoder_shares_the_table_by_module() -> None:
    model, ids = make("t5", tied=True), make_ids()
    before = model(ids, labels=ids)
    inlayer.attach(model)
    assert torch.equal(model(ids, labels=ids).logits, before.logits)
    assert model.encoder.embed_tokens is model.decoder.embed_tokens is model.get_input_embeddings()
    assert is_tied(model)
    hidden = model.decoder(
        input_ids=model._shift_right(ids), encoder_hidden_states=model.encoder(ids).last_hidden_state
    ).last_hidden_state
    torch.testing.assert_close(model.lm_head.loss(hidden, ids), before.loss, rtol=1e-6, atol=0)


def test_second_call_does_nothing() -> None:
    model = inlayer.attach(make("llama", tied=True))
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert inlayer.attach(model) is model
    assert inlayer.attach(model, padding_idx=None) is model
    assert (model.get_input_embeddings(), model.get_output_embeddings()) == (table, head)
    with pytest.raises(InputError, match="attached with padding_idx None; it cannot be changed to 3"):
        inlayer.attach(model, padding_idx=3)


def test_frozen_table_stays_frozen() -> None:
    model = make("llama", tied=False)
    model.get_input_embeddings().weight.requires_grad_(False)
    inlayer.attach(model.train())
    model(make_ids(), labels=make_ids()).loss.backward()
    assert model.get_input_embeddings().weight.grad is None
    assert model.get_output_embeddings().training
    assert model.get_output_embeddings().weight.grad is not None


# Tying


CHANGES: dict[str, Callable[[Any], Any]] = {
    "tie_weights": lambda model: model.tie_weights() or model,
    "deepcopy": copy.deepcopy,
    "to": lambda model: model.to(torch.bfloat16).to(torch.float32),
    "resize": lambda model: model.resize_token_embeddings(V + 5, mean_resizing=False) and model,
    "load": lambda model: (model.load_state_dict(make("gemma3", tied=True).state_dict()), model)[1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_tie_survives(change: str) -> None:
    model = CHANGES[change](inlayer.attach(make("gemma3", tied=True)))
    assert is_tied(model)
    assert isinstance(model.get_input_embeddings(), ScaledTable)
    ids = make_ids()
    before = model(ids).logits
    with torch.no_grad():
        model.get_input_embeddings().weight[7] += 1
    assert not torch.equal(model(ids).logits[..., 7], before[..., 7])
    model(ids, labels=ids).loss.backward()
    assert bool((model.get_input_embeddings().weight.grad[0] == 0).all())  # the padding row, also in the head


def test_loading_reports_wrong_keys() -> None:
    """The head of a tied model accepts a duplicate weight, and nothing else."""
    model = inlayer.attach(make("gemma3", tied=True))
    state = make("gemma3", tied=True).state_dict()
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"lm_head.bias\""):
        model.load_state_dict(state | {"lm_head.bias": torch.zeros(V)})
    untied = inlayer.attach(make("gemma3", tied=False))
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"lm_head.weight\""):
        untied.load_state_dict({key: value for key, value in state.items() if key != "lm_head.weight"})


def test_later_tying_is_by_module() -> None:
    model = inlayer.attach(make("llama", tied=False))
    model.tie_weights()
    assert not is_tied(model)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    assert is_tied(model)
    model.lm_head.weight = nn.Parameter(torch.zeros(V, D))  # assigning another parameter unties
    assert not is_tied(model)
    assert bool((model(make_ids()).logits == 0).all())


def test_new_table_can_be_attached_again() -> None:
    model = inlayer.attach(make("llama", tied=True))
    model.set_input_embeddings(nn.Embedding(V, D))
    model.tie_weights()
    assert not model.lm_head.tied  # transformers shares the parameter, not the module
    assert is_tied(inlayer.attach(model))
    assert isinstance(model.get_input_embeddings(), Table)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["deepseek_v3", "gpt2", "gemma2", "phi"])
def test_save_pretrained_is_unchanged(name: str, tied: bool, tmp_path: Path) -> None:
    plain, ids = make(name, tied=tied), make_ids()
    plain.save_pretrained(tmp_path / "plain")
    logits = plain(ids).logits
    model = inlayer.attach(plain)
    model.save_pretrained(tmp_path / "ours")
    files = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "ours").iterdir())
    for file in files:
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    again = type(model).from_pretrained(tmp_path / "ours").eval()
    assert torch.equal(again(ids).logits, logits)
    assert torch.equal(inlayer.attach(again)(ids).logits, logits)


# Training


def train(model: Any, steps: int, loss_of: Callable[[Any, Tensor], Tensor]) -> list[float]:
    """Losses of training on the same four texts."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    losses = []
    model.train()
    for step in range(steps):
        loss = loss_of(model, make_ids(step % 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def by_model(model: Any, ids: Tensor) -> Tensor:
    loss: Tensor = model(ids, labels=ids).loss
    return loss


def by_head(model: Any, ids: Tensor) -> Tensor:
    loss: Tensor = model.lm_head.loss(model.model(ids).last_hidden_state[:, :-1], ids[:, 1:])
    return loss


@pytest.mark.parametrize("tied", [False, True])
def test_deepseek_v3_trains_like_the_original(tied: bool) -> None:
    """Kimi-K2's architecture, with the model's own loss and with the chunked loss of the head."""
    plain = train(make("deepseek_v3", tied=tied), 20, by_model)
    assert plain[-1] < plain[0] - 1.5
    for loss_of in (by_model, by_head):
        model = inlayer.attach(make("deepseek_v3", tied=tied))
        torch.testing.assert_close(train(model, 20, loss_of), plain, rtol=0, atol=1e-5)
        assert is_tied(model) == tied
    apart = inlayer.attach(make("deepseek_v3", tied=tied))  # control: tied instead of untied, or vice versa
    if tied:
        apart.lm_head.untie()
    else:
        apart.lm_head.tie(apart.get_input_embeddings())
    assert abs(train(apart, 20, by_model)[-1] - plain[-1]) > 1e-3


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", CAUSAL)
def test_head_loss_matches_the_models_loss(name: str, tied: bool) -> None:
    """The head's loss includes soft cap and scales that the model applies after its head; gradients also match."""
    model = inlayer.attach(make(name, tied=tied))
    ids, head = make_ids(), model.get_output_embeddings()
    theirs = model(ids, labels=ids).loss
    hidden = model.base_model(ids).last_hidden_state
    ours = head.loss(hidden[:, :-1], ids[:, 1:])
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    parameters = list(model.parameters())
    for mine, other in zip(
        torch.autograd.grad(ours, parameters, allow_unused=True),
        torch.autograd.grad(theirs, parameters, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(head.loss(hidden, ids), theirs, rtol=1e-4)  # control: not shifted
    if name in {"gemma2", "cohere", "granite"}:
        head.soft_cap, head.logit_scale, head.logit_divisor = None, 1.0, 1.0  # control: without the config's scales
        assert not torch.allclose(head.loss(hidden[:, :-1], ids[:, 1:]), theirs, rtol=1e-4)


def test_unknown_families_have_no_head_loss() -> None:
    model = inlayer.attach(make("xglm", tied=True))
    with pytest.raises(ConfigError, match=r"use the model's own loss: .*'xglm'"):
        model.lm_head.loss(torch.zeros(2, 3, D), torch.ones(2, 3, dtype=torch.int64))
    config = transformers.ElectraConfig(vocab_size=V, embedding_size=D, hidden_size=D, num_hidden_layers=1,
                                        num_attention_heads=2, intermediate_size=32)  # fmt: skip
    electra = inlayer.attach(transformers.ElectraForCausalLM(config))
    with pytest.raises(ConfigError, match="transforms the hidden states first"):
        electra.get_output_embeddings().loss(torch.zeros(2, 3, D), torch.ones(2, 3, dtype=torch.int64))


def test_a_masked_model_without_norm_and_bias_has_no_head_loss() -> None:
    if not hasattr(transformers, "UltraVBertConfig"):
        pytest.skip("this transformers has no UltraVBERT")
    masked = inlayer.attach(build("masked", tiny_config("ultravbert")))
    with pytest.raises(ConfigError, match="transforms the hidden states first"):
        masked.get_output_embeddings().loss(torch.zeros(2, 3, 64), torch.ones(2, 3, dtype=torch.int64))


# The padding row


def steps_with_padding(model: Any, after_backward: Callable[[Any], None] = lambda _: None) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(10):
        ids = make_ids(step)
        ids[:, :4] = 3
        optimizer.zero_grad()
        model(ids, labels=ids.masked_fill(ids == 3, -100), attention_mask=(ids != 3).long()).loss.backward()
        after_backward(model)
        optimizer.step()


def test_tied_padding_row_stays_zero() -> None:
    model, reference, free = (make("llama padded", tied=True) for _ in range(3))
    steps_with_padding(inlayer.attach(model))
    assert model.get_input_embeddings().padding_idx == 3
    rows = model.get_input_embeddings().weight.detach()
    assert torch.equal(rows[3], torch.zeros(D))
    # Everything else equals the original with that row's gradient set to zero.
    steps_with_padding(reference, lambda plain: plain.get_input_embeddings().weight.grad[3].zero_())
    torch.testing.assert_close(rows, reference.get_input_embeddings().weight.detach(), rtol=0, atol=1e-6)
    steps_with_padding(free)  # control: the original changes it
    assert bool((free.get_input_embeddings().weight[3] != 0).any())


def test_trained_padding_row_keeps_learning() -> None:
    """Many models pad with the token that ends texts; their heads have to keep it."""
    plain = make("llama padded", tied=True)
    with torch.no_grad():
        plain.get_input_embeddings().weight[3] = 0.1
    model = inlayer.attach(copy.deepcopy(plain))
    ids = make_ids()
    ids[:, 4:6] = 3
    for one in (plain, model):
        one(ids, labels=ids).loss.backward()
    ours, theirs = (one.get_input_embeddings().weight.grad for one in (model, plain))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert bool((ours[3] != 0).any())
    hidden = model.model(ids).last_hidden_state[:, :-1]
    torch.testing.assert_close(model.lm_head.loss(hidden, ids[:, 1:]), by_model(plain, ids), rtol=1e-6, atol=0)


def test_explicit_padding_idx() -> None:
    model = make("gpt2", tied=True)
    with pytest.raises(InputError, match=r"padding_idx is 58, but that row is not zero.*attach does not change values"):
        inlayer.attach(model, padding_idx=-1)
    assert type(model.lm_head) is nn.Linear
    with torch.no_grad():
        model.transformer.wte.weight[-1] = 0
    inlayer.attach(model, padding_idx=-1)
    assert model.transformer.wte.padding_idx == model.lm_head.padding_idx == V - 1
    ids = make_ids()
    model(ids, labels=ids).loss.backward()
    grad = model.transformer.wte.weight.grad
    assert bool((grad[-1] == 0).all())
    assert bool((grad[:-1] != 0).all())
    kept = inlayer.attach(make("llama padded", tied=True), padding_idx=None)
    assert kept.get_input_embeddings().padding_idx is None
    with pytest.raises(InputError, match="padding_idx 59 is outside"):
        inlayer.attach(make("gpt2", tied=True), padding_idx=V)


# Errors, which leave the model unchanged


class Doubled(nn.Embedding):
    embed_scale = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        return 2 * super().forward(ids)


def hooked(model: Any) -> None:
    model.enable_input_require_grads()


def quantized(model: Any) -> None:
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)


def on_meta(model: Any) -> None:
    model.to("meta")


def in_bytes(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(torch.zeros(V, D).to(torch.float8_e4m3fn), requires_grad=False)


def doubled(model: Any) -> None:
    model.set_input_embeddings(Doubled(V, D))


def normed(model: Any) -> None:
    model.set_input_embeddings(nn.Embedding(V, D, max_norm=1.0))


def sequence(model: Any) -> None:
    model.set_output_embeddings(nn.Sequential(nn.Linear(D, V)))


def shared_elsewhere(model: Any) -> None:
    model.extra = nn.Embedding(V, D)
    model.extra.weight = model.get_input_embeddings().weight


def ignoring(model: Any) -> None:
    model.set_output_embeddings = lambda _: None


def failing(model: Any) -> None:
    def fail(head: object) -> None:
        raise NotImplementedError("not here")

    model.set_output_embeddings = fail


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            quantized,
            InputError,
            r"head is of type torch\.ao\.nn\.quantized\.dynamic\..*Linear, not nn\.Linear; is it quantized",
        ),
        (sequence, InputError, r"head is of type torch\.nn\.modules\.container\.Sequential"),
        (in_bytes, DtypeError, r"head has dtype torch\.float8_e4m3fn"),
        (on_meta, InputError, r"table has no values"),
        (hooked, InputError, "table has hooks, which would be lost"),
        (normed, InputError, r"table has max_norm = 1\.0"),
        (doubled, InputError, "Doubled, which does more than look up and scale rows"),
        (shared_elsewhere, InputError, "does not accept another table and head; 'extra' still uses the old table"),
        (ignoring, InputError, "LlamaForCausalLM does not accept another table and head$"),
        (failing, InputError, "does not accept another table and head: not here"),
    ],
)
def test_unsupported_models_are_unchanged(
    change: Callable[[Any], None], error: type[InlayerError], message: str
) -> None:
    model = make("llama", tied=False)
    change(model)
    before = dict(model.named_modules(remove_duplicate=False))
    with pytest.raises(error, match=message):
        inlayer.attach(model)
    assert dict(model.named_modules(remove_duplicate=False)) == before


def test_other_kinds_of_models() -> None:
    small = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(InputError, match=r"LlamaModel has no head.*ForCausalLM"):
        inlayer.attach(make("llama", tied=False).model)
    with pytest.raises(InputError, match="head of BertLMHeadModel is inside a submodule"):
        inlayer.attach(transformers.BertLMHeadModel(transformers.BertConfig(**small, is_decoder=True)))
    with pytest.raises(InputError, match=r"Linear is not a transformers model.*no get_input_embeddings"):
        inlayer.attach(nn.Linear(2, 2))
    with pytest.raises(InputError, match="NoneType is not a transformers model"):
        inlayer.attach(None)


def test_model_with_several_tables() -> None:
    """An untied T5 has two tables; its setter would replace both with one."""
    model, ids = make("t5", tied=False), make_ids()
    before, modules = model(ids, labels=ids).logits, dict(model.named_modules(remove_duplicate=False))
    with pytest.raises(InputError, match="has several tables"):
        inlayer.attach(model)
    assert dict(model.named_modules(remove_duplicate=False)) == modules
    assert torch.equal(model(ids, labels=ids).logits, before)
