# SPDX-License-Identifier: Apache-2.0
"""Modules that one layer lacks or has in another shape, and what a whole model can't be without, in
families that fewbit does not run and in GGUF; beside them models whose layers differ on purpose."""

import numpy as np
from case import Case, bf16, random, with_fault
from layer_faults import drop
from raw_gguf import U32, RawGguf, u32

HIDDEN, INNER, EXPERTS, VOCAB, LAYERS = 64, 32, 4, 96, 6
LATENT = {
    "q_a_proj": (32, HIDDEN),
    "q_b_proj": (64, 32),
    "kv_a_proj_with_mqa": (48, HIDDEN),
    "kv_b_proj": (64, 32),
    "o_proj": (HIDDEN, 48),
}
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": HIDDEN,
    "moe_intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 1,
    "tie_word_embeddings": False,
}


def matrix(rng, *shape):
    return bf16(rng.normal(0, 0.05, shape))


def norm(size):
    return bf16(np.ones(size))


def mlp(rng, module, inner):
    shapes = {"gate": (inner, HIDDEN), "up": (inner, HIDDEN), "down": (HIDDEN, inner)}
    return {f"{module}.{part}_proj.weight": matrix(rng, *shape) for part, shape in shapes.items()}


def moe(rng, module):
    out = {f"{module}.gate.weight": matrix(rng, EXPERTS, HIDDEN)}
    out[f"{module}.gate.e_score_correction_bias"] = np.linspace(-1, 1, EXPERTS).astype(np.float32)
    for expert in range(EXPERTS):
        out |= mlp(rng, f"{module}.experts.{expert}", INNER)
    return out | mlp(rng, f"{module}.shared_experts", INNER)


def latent(name):
    """A dense layer, then layers of experts, all with latent attention."""
    rng = random(name)
    tensors = {"model.embed_tokens.weight": matrix(rng, VOCAB, HIDDEN), "lm_head.weight": matrix(rng, VOCAB, HIDDEN)}
    tensors["model.norm.weight"] = norm(HIDDEN)
    for number in range(LAYERS):
        layer = f"model.layers.{number}."
        tensors |= {f"{layer}{part}_layernorm.weight": norm(HIDDEN) for part in ("input", "post_attention")}
        tensors |= {f"{layer}self_attn.{part}.weight": matrix(rng, *shape) for part, shape in LATENT.items()}
        tensors |= moe(rng, layer + "mlp") if number > 0 else mlp(rng, layer + "mlp", 48)
    return Case(name, tensors, dict(CONFIG))


def attention(rng, layer, names="qkvo"):
    shapes = {"q": (64, HIDDEN), "k": (32, HIDDEN), "v": (32, HIDDEN), "o": (HIDDEN, 64)}
    return {f"{layer}self_attn.{part}_proj.weight": matrix(rng, *shapes[part]) for part in names}


def dense(name, attention_of, layers=LAYERS, **config):
    """Dense layers with the attention that `attention_of` gives to each number."""
    rng = random(name)
    tensors = {"model.embed_tokens.weight": matrix(rng, VOCAB, HIDDEN), "model.norm.weight": norm(HIDDEN)}
    for number in range(layers):
        layer = f"model.layers.{number}."
        tensors |= {f"{layer}{part}_layernorm.weight": norm(HIDDEN) for part in ("input", "post_attention")}
        tensors |= attention_of(rng, layer, number) | mlp(rng, layer + "mlp", 48)
    return Case(name, tensors, {"model_type": "another", "num_hidden_layers": layers, "hidden_size": HIDDEN} | config)


def usual(name):
    return dense(name, lambda rng, layer, number: attention(rng, layer))


def two_layers(name):
    return dense(name, lambda rng, layer, number: attention(rng, layer), layers=2)


def three_layers(name):
    return dense(name, lambda rng, layer, number: attention(rng, layer), layers=3)


def three_kinds(name):
    """Of three layers one has other matrices, as the config says or as it shows itself."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]

    def attention_of(rng, layer, number):
        return attention(rng, layer, "qkvo" if kinds[number] == "sliding_attention" else "qko")

    return dense(name, attention_of, layers=3, layer_types=kinds)


def one_layer(name):
    return dense(name, lambda rng, layer, number: attention(rng, layer), layers=1)


def fused(name):
    """q, k and v in one matrix, gate and up in another."""
    case = dense(name, lambda rng, layer, number: {f"{layer}self_attn.qkv_proj.weight": matrix(rng, 128, HIDDEN)} | attention(rng, layer, "o"))
    for number in range(LAYERS):
        layer = f"model.layers.{number}.mlp."
        for part in ("gate", "up"):
            del case.tensors[f"{layer}{part}_proj.weight"]
        case.tensors[f"{layer}gate_up_proj.weight"] = matrix(random(layer), 96, HIDDEN)
    return case


def without_values(name):
    """All values are the keys, as the config says."""
    return dense(name, lambda rng, layer, number: attention(rng, layer, "qko"), attention_k_eq_v=True)


def queries_alone(name):
    """A draft model whose keys and values are those of another."""
    return dense(name, lambda rng, layer, number: attention(rng, layer, "qo"))


def ungated(name):
    case = usual(name)
    drop("gate_proj")(case)
    return case


def gated_attention(name):
    def attention_of(rng, layer, number):
        return attention(rng, layer) | {f"{layer}self_attn.gate_proj.weight": matrix(rng, 64, HIDDEN)}

    return dense(name, attention_of)


def two_matrices(name):
    """An MLP under other names, and an attention with a matrix of its own kind."""
    case = usual(name)
    for old, new in [("up_proj", "fc1"), ("down_proj", "fc2"), ("v_proj", "vg_proj")]:
        case.tensors = {key.replace(old, new): value for key, value in case.tensors.items()}
    drop("gate_proj")(case)
    return case


def biased(name):
    def attention_of(rng, layer, number):
        return attention(rng, layer) | {f"{layer}self_attn.q_proj.bias": matrix(rng, 64)}

    return dense(name, attention_of)


def keys_as_values(name):
    """Gemma 4: full attention without v, of which this model has one layer."""
    kinds = ["sliding_attention"] * (LAYERS - 1) + ["full_attention"]

    def attention_of(rng, layer, number):
        return attention(rng, layer, "qkvo" if kinds[number] == "sliding_attention" else "qko")

    return dense(name, attention_of, layer_types=kinds)


def shared_keys(name):
    """Layers behind the third take keys and values from those before."""
    return dense(name, lambda rng, layer, number: attention(rng, layer, "qkvo" if number < 3 else "qo"))


def shared_keys_of_the_last(name):
    """The config says so of the last layer alone."""
    last = LAYERS - 1
    parts = lambda number: "qo" if number == last else "qkvo"  # noqa: E731
    return dense(name, lambda rng, layer, number: attention(rng, layer, parts(number)), num_kv_shared_layers=1)


def versioned(name):
    """A version and a name with as many characters as there are layers say nothing of these."""
    case = latent(name)
    case.config |= {"transformers_version": "5.17.0"[:LAYERS].ljust(LAYERS, "0"), "_name_or_path": "a/base"[:LAYERS]}
    return case


def hybrid(name):
    def attention_of(rng, layer, number):
        if number % 3 == 2:
            return attention(rng, layer)
        parts = {"in_proj": (96, HIDDEN), "out_proj": (HIDDEN, 32)}
        return {f"{layer}mamba.{part}.weight": matrix(rng, *shape) for part, shape in parts.items()}

    return dense(name, attention_of)


def wide_heads(name, told=True):
    """One layer with more heads, as the config says."""
    heads = [4] * (LAYERS - 1) + [8]

    def attention_of(rng, layer, number):
        out = attention(rng, layer)
        if heads[number] == 8:
            out[f"{layer}self_attn.q_proj.weight"] = matrix(rng, 128, HIDDEN)
            out[f"{layer}self_attn.o_proj.weight"] = matrix(rng, HIDDEN, 128)
        return out

    return dense(name, attention_of, **({"num_attention_heads": heads} if told else {}))


def without_first_norm(name):
    case = usual(name)
    del case.tensors["model.layers.0.input_layernorm.weight"]
    return case


def embedding_model(name):
    """Saved without its head, under the names of the bare model."""
    case = usual(name)
    case.config |= {"architectures": ["AnotherForCausalLM"], "tie_word_embeddings": False}
    case.tensors = {key.removeprefix("model."): value for key, value in case.tensors.items()}
    return case


def draft_model(name):
    """Takes embedding and head of the model that it drafts for."""
    case = usual(name)
    del case.tensors["model.embed_tokens.weight"]
    case.tensors["fc.weight"] = matrix(random(name), HIDDEN, 3 * HIDDEN)
    return case


def prediction_head(name):
    case = latent(name)
    rng = random(name + "mtp")
    case.tensors |= attention(rng, "mtp.layers.0.") | {"mtp.fc.weight": matrix(rng, HIDDEN, 2 * HIDDEN)}
    for expert in range(EXPERTS):
        case.tensors |= mlp(rng, f"mtp.layers.0.mlp.experts.{expert}", INNER)
    return case


def gguf(name, layers=5):
    rng = random(name)
    pairs = [("qwen3moe.block_count", U32, u32(layers)), ("qwen3moe.expert_count", U32, u32(EXPERTS))]
    case = RawGguf(name, {}, pairs=pairs)
    shapes = {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)}
    for number in range(layers):
        block = f"blk.{number}."
        shapes |= {block + part: (HIDDEN, HIDDEN) for part in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {block + part: (HIDDEN,) for part in ("attn_norm", "ffn_norm")}
        shapes[block + "ffn_gate_inp"] = (EXPERTS, HIDDEN)
        shapes |= {f"{block}ffn_{part}_exps": (EXPERTS, INNER, HIDDEN) for part in ("gate", "up")}
        shapes[block + "ffn_down_exps"] = (EXPERTS, HIDDEN, INNER)
    for key, shape in shapes.items():
        case.tensors[key + ".weight"] = (0, shape, rng.normal(0, 0.05, shape).astype(np.float32).tobytes())
    return case


def set_tensor(name, value):
    def apply(case):
        assert name in case.tensors
        case.tensors[name] = value

    return apply


def add_layer(case):
    rng = random("behind")
    case.tensors |= attention(rng, f"model.layers.{LAYERS + 4}.") | attention(rng, f"model.layers.{LAYERS}.")


# what to drop -> from which model
MISSING = {
    "router": (latent, "layers.3.mlp.gate."),
    "router-only": (latent, "mlp.gate."),
    "correction": (latent, "layers.2.mlp.gate.e_score"),
    "shared": (latent, "shared_experts"),
    "norm": (latent, "layers.3.input_layernorm"),
    "versioned": (versioned, "layers.3.input_layernorm"),
    "kv-a": (latent, "layers.4.self_attn.kv_a_proj"),
    "o-of-dense": (latent, "layers.0.self_attn.o_proj"),
    "embedding": (latent, "embed_tokens"),
    "head": (latent, "lm_head"),
    "last-norm": (latent, "model.norm"),
    "attention": (two_layers, "layers.1.self_attn"),
    "mlp": (two_layers, "layers.1.mlp"),
    "v-of-three": (three_layers, "layers.1.self_attn.v_proj"),
    "gate-of-three": (three_layers, "layers.2.mlp.gate_proj"),
    "norm-of-three": (three_layers, "layers.1.input_layernorm"),
    "o": (two_layers, "layers.1.self_attn.o_proj"),
    "k": (usual, "layers.2.self_attn.k_proj"),
    "bias": (biased, "layers.2.self_attn.q_proj.bias"),
    "all-v": (usual, "v_proj"),
    "all-k": (usual, "k_proj"),
    "all-q": (usual, "q_proj"),
    "all-o": (usual, "o_proj"),
    "all-up": (usual, "mlp.up_proj"),
    "all-down": (usual, "mlp.down_proj"),
    "all-o-of-hybrid": (hybrid, "self_attn.o_proj"),
    "all-v-of-one-layer": (one_layer, "v_proj"),
    "all-down-of-one-layer": (one_layer, "down_proj"),
    "all-o-of-fused": (fused, "o_proj"),
    "all-down-of-fused": (fused, "down_proj"),
    "all-o-of-latent": (latent, "self_attn.o_proj"),
    "all-kv-b": (latent, "kv_b_proj"),
    "all-q-a": (latent, "q_a_proj"),
    "all-down-of-shared": (latent, "shared_experts.down_proj"),
    "gguf-all-v": (gguf, "attn_v."),
    "gguf-all-o": (gguf, "attn_output."),
    "gguf-embedding": (gguf, "token_embd"),
    "gguf-norm": (gguf, "output_norm"),
    "gguf-router": (gguf, "blk.1.ffn_gate_inp"),
    "gguf-attention": (gguf, "blk.2.attn_k."),
}
Q_A = "model.layers.1.self_attn.q_a_proj.weight"
Q = "model.layers.1.self_attn.q_proj.weight"
SHAPES = {
    "transposed": (latent, set_tensor(Q_A, matrix(random("t"), HIDDEN, 32))),
    "flat": (two_layers, set_tensor(Q, matrix(random("f"), 64 * HIDDEN))),
    "rows": (usual, set_tensor(Q, matrix(random("r"), 65, HIDDEN))),
    "norm": (two_layers, set_tensor("model.layers.1.input_layernorm.weight", norm(HIDDEN - 1))),
    "heads-not-told": (lambda name: wide_heads(name, told=False), lambda case: None),
}


def cases():
    for make in (latent, usual, two_layers, biased, keys_as_values, shared_keys, hybrid, wide_heads, gguf):
        yield make(f"no-fault-layer-{make.__name__.replace('_', '-')}")
    for make in (one_layer, fused, without_values, queries_alone, ungated, gated_attention, two_matrices):
        yield make(f"no-fault-layer-{make.__name__.replace('_', '-')}")
    for make in (shared_keys_of_the_last, versioned, three_layers, three_kinds):
        yield make(f"no-fault-layer-{make.__name__.replace('_', '-')}")
    yield with_fault(latent, "layer-only-dense", "projection-missing", drop("layers.0.mlp.gate_proj"))
    for make in (without_first_norm, embedding_model, draft_model, prediction_head):
        yield make(f"no-fault-layer-{make.__name__.replace('_', '-')}")
    for name, (make, words) in MISSING.items():
        yield with_fault(make, f"layer-{name}", "tensor-missing", drop(words))
    for name, (make, apply) in SHAPES.items():
        yield with_fault(make, f"layer-{name}", "tensor-shape", apply)
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    yield with_fault(latent, "layer-bias-f64", "tensor-dtype", set_tensor(bias, np.zeros(EXPERTS)))
    gone = drop("mtp", "experts.2.gate_proj")
    yield with_fault(prediction_head, "layer-draft-expert", "experts-missing", gone)
    yield with_fault(usual, "layer-far-behind", "layers-missing", add_layer)
