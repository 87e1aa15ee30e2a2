# SPDX-License-Identifier: Apache-2.0
"""Matrices of attentions against the heads that config.json states, in families that fewbit does not
run; beside them families whose other keys, or whose names, explain other sizes."""

from case import random, with_fault
from layer_kinds import nemotron
from layer_parts import HIDDEN, LAYERS, attention, dense, latent, matrix, usual

RNG = random("heads")
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
RANKS = {"num_attention_heads": 3, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 8}
LATENT = {"q_a_proj": (40, HIDDEN), "q_b_proj": (48, 40), "kv_a_proj_with_mqa": (36, HIDDEN), "kv_b_proj": (60, 32), "o_proj": (HIDDEN, 24)}


def stated(name, **changes):
    case = usual(name)
    case.config |= HEADS | changes
    return case


def without_width(name, **changes):
    """Heads of hidden_size / num_attention_heads."""
    case = stated(name, model_type="llama", **changes)
    del case.config["head_dim"]
    return case


def nested(name):
    case = stated(name)
    inner = {key: case.config.pop(key) for key in HEADS} | {"hidden_size": HIDDEN}
    case.config |= {"text_config": inner, "vision_config": {"num_attention_heads": 16, "num_heads": 16, "hidden_size": 32}}
    return case


def ranks(name, rank=40):
    """Latent attention; without a rank of the queries they are one matrix."""
    case = latent(name)
    sizes = dict(LATENT)
    if rank is None:
        del sizes["q_a_proj"], sizes["q_b_proj"]
        sizes["q_proj"] = (48, HIDDEN)
    case.tensors = {key: value for key, value in case.tensors.items() if "self_attn" not in key}
    for number in range(LAYERS):
        module = f"model.layers.{number}.self_attn."
        case.tensors |= {f"{module}{part}.weight": matrix(RNG, *shape) for part, shape in sizes.items()}
    case.config |= RANKS | {"q_lora_rank": rank, "num_key_value_heads": 3}
    return case


def hybrid_latent(name):
    """Kimi-Linear: other layers have queries and keys of other heads under the same names."""
    case = ranks(name, None)
    for number in (1, 3):
        module = f"model.layers.{number}.self_attn."
        case.tensors = {key: value for key, value in case.tensors.items() if not key.startswith(module)}
        case.tensors |= attention(RNG, f"model.layers.{number}.")
    case.config["layer_types"] = ["full", "linear"] * 2 + ["full"] * 2
    return case


def gated(name):
    """Queries and the gate of the output in one matrix."""
    return dense(name, lambda rng, layer, number: attention(rng, layer) | {f"{layer}self_attn.q_proj.weight": matrix(rng, 128, HIDDEN)}, **HEADS)


def side_by_side(name):
    """EAGLE: embedding and hidden state side by side."""
    case = stated(name, model_type="llama")
    for part, rows in [("q", 64), ("k", 32), ("v", 32)]:
        case.tensors[f"model.layers.0.self_attn.{part}_proj.weight"] = matrix(RNG, rows, 2 * HIDDEN)
    case.config["num_hidden_layers"] = 1
    case.tensors = {key: value for key, value in case.tensors.items() if "layers." not in key or "layers.0." in key}
    return case


def mixers(name):
    case = nemotron(name)
    case.config |= HEADS | {"mamba_num_heads": 8, "mamba_head_dim": 8}
    return case


# Keys that explain heads of other numbers.
EXPLAINED = {
    "list": {"num_attention_heads": [8] * LAYERS},
    "global": {"head_dim": 8, "global_head_dim": 16},
    "blocks": {"num_key_value_heads": 4, "block_configs": [{"attention": {"n_heads_in_group": 2}}]},
    "values": {"num_key_value_heads": 1, "v_head_dim": 32},
    "sliding": {"num_attention_heads": 8, "swa_num_attention_heads": 4},
    "no-key-heads": {"num_attention_heads": 8, "num_key_value_heads": None},
    "no-width": {"num_attention_heads": 2, "head_dim": None},
    "no-heads": {"num_attention_heads": None, "head_dim": 8},
}
# -> config that is not that of the tensors, and what is said of it
WRONG = {
    "heads": (stated, {"num_attention_heads": 8}, "[128, 64] by the heads of config.json"),
    "key-heads": (stated, {"num_key_value_heads": 4}, "[64, 64] by the heads of config.json"),
    "width": (stated, {"head_dim": 32}, "[64, 128] by the heads of config.json"),
    "no-width": (without_width, {"num_attention_heads": 8}, "[16, 64] by the heads of config.json"),
    "nested": (nested, {"text_config": HEADS | {"hidden_size": HIDDEN, "head_dim": 8}}, "[32, 64] by the heads"),
    "mixer": (mixers, {"num_key_value_heads": 1}, "[16, 64] by the heads of config.json"),
    "latent-rank": (ranks, {"kv_lora_rank": 28}, "[32, 64] by the heads of config.json"),
    "latent-query-rank": (ranks, {"q_lora_rank": 32}, "[32, 64] by the heads of config.json"),
    "latent-values": (ranks, {"v_head_dim": 16}, "[64, 48] by the heads of config.json"),
    "latent-rope": (hybrid_latent, {"qk_rope_head_dim": 8}, "[60, 64] by the heads of config.json"),
}


def cases():
    for make in (stated, without_width, nested, ranks, hybrid_latent, gated, side_by_side, mixers):
        yield make(f"no-fault-heads-{make.__name__.replace('_', '-')}")
    yield ranks("no-fault-heads-one-query", None)
    for name, keys in EXPLAINED.items():
        yield stated(f"no-fault-heads-{name}", **keys)
    for name, (make, keys, said) in WRONG.items():
        case = with_fault(make, f"heads-{name}", "config-size", lambda case, keys=keys: case.config.update(keys))
        case.said = (said,)
        yield case
    one = "model.layers.2.self_attn.k_proj.weight"
    for name, rows in [("more", 64), ("fewer", 16)]:
        yield with_fault(stated, f"heads-one-layer-{name}", "config-size", lambda case, n=rows: case.tensors.update({one: matrix(RNG, n, HIDDEN)}))
