# SPDX-License-Identifier: Apache-2.0
"""Layers of several kinds, stacks under other names than "model.layers", routers beside shared experts
with gates, and token-prediction layers: what each can't be without."""

from dataclasses import replace

from case import Case, random, with_fault
from layer_faults import drop
from layer_parts import CONFIG, EXPERTS, HIDDEN, INNER, LAYERS, VOCAB, attention, dense, latent, matrix, mlp, moe, norm, usual
from zeros import zero

PATTERN = "M-M*ME*E"
MAMBA = {"in_proj": (144, HIDDEN), "conv1d": (80, 1, 4), "A_log": (4,), "D": (4,), "dt_bias": (4,), "out_proj": (HIDDEN, 64)}
PREFIXES = (
    "layers",
    "transformer.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "decoder.layers",
    "model.decoder.layers",
    "transformer.h",
    "transformer.blocks",
    "backbone.layers",
    "gpt_neox.layers",
)


def mixer(rng, layer, kind):
    if kind == "M":
        out = {f"{layer}mixer.{part}.weight": matrix(rng, *shape) for part, shape in MAMBA.items()}
        names = {key: key.removesuffix(".weight") for key in out if key.split(".")[-2] in ("A_log", "D", "dt_bias")}
        return {names.get(key, key): value for key, value in out.items()} | {layer + "mixer.norm.weight": norm(64)}
    if kind == "*":
        return {key.replace("self_attn", "mixer"): value for key, value in attention(rng, layer).items()}
    tensors = mlp(rng, layer + "mixer", 48) if kind == "-" else moe(rng, layer + "mixer")
    return {key: value for key, value in tensors.items() if "gate_proj" not in key}


def nemotron(name, pattern=PATTERN):
    """Nemotron-H: each layer is one mixer of the kind that its letter says."""
    rng = random(name)
    tensors = {"backbone.embeddings.weight": matrix(rng, VOCAB, HIDDEN), "backbone.norm_f.weight": norm(HIDDEN)}
    tensors["lm_head.weight"] = matrix(rng, VOCAB, HIDDEN)
    for number, kind in enumerate(PATTERN):
        layer = f"backbone.layers.{number}."
        tensors |= {layer + "norm.weight": norm(HIDDEN)} | mixer(rng, layer, kind)
    config = {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hybrid_override_pattern": pattern,
        "num_hidden_layers": len(PATTERN),
    }
    return Case(name, tensors, CONFIG | config)


def without_pattern(name):
    case = nemotron(name)
    del case.config["hybrid_override_pattern"]
    return case


def mamba_beside(name, layers=LAYERS):
    """Falcon-H1: a state-space model beside the attention of each layer."""

    def both(rng, layer, number):
        mamba = {key.replace("mixer", "mamba"): value for key, value in mixer(rng, layer, "M").items()}
        return attention(rng, layer) | mamba

    return dense(name, both, layers)


def under(prefix):
    def make(name):
        case = usual(name)
        case.tensors = {key.replace("model.layers", prefix): value for key, value in case.tensors.items()}
        return case

    return make


def first_qwen(name):
    """An MLP of w1 and w2, both rows of the inner size, and c_proj."""
    case = under("transformer.h")(name)
    names = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "c_proj", "o_proj": "c_proj"}
    for old, new in names.items():
        case.tensors = {key.replace(old, new): value for key, value in case.tensors.items()}
    for number in range(LAYERS):
        module = f"transformer.h.{number}.attn.c_attn.weight"
        case.tensors[module] = matrix(random(name), 128, HIDDEN)
    case.tensors = {key.replace("self_attn", "attn"): value for key, value in case.tensors.items() if not key.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))}
    return case


def encoder_beside(name):
    """Decoders of pictures have an encoder, and no words."""
    case = under("model.decoder.layers")(name)
    case.tensors |= {key.replace("decoder", "encoder"): value for key, value in case.tensors.items() if "decoder" in key}
    del case.tensors["model.embed_tokens.weight"]
    return case


def shared_gate(name, **config):
    """Qwen2-MoE, with as many experts as its keys have rows."""
    case = dense(name, lambda rng, layer, number: attention(rng, layer), model_type="qwen2_moe")
    case.config |= {"num_experts": 32, "num_experts_per_tok": 2, "moe_intermediate_size": INNER}
    rng = random(name + "mlp")
    for number in range(LAYERS):
        module = f"model.layers.{number}.mlp"
        drop(module)(case)
        case.tensors[module + ".gate.weight"] = matrix(rng, 32, HIDDEN)
        case.tensors[module + ".shared_expert_gate.weight"] = matrix(rng, 1, HIDDEN)
        for expert in (*(f"experts.{i}" for i in range(32)), "shared_expert"):
            case.tensors |= mlp(rng, f"{module}.{expert}", INNER)
    return case


def without_norms(name):
    case = latent(name)
    drop("_layernorm")(case)
    return case


def draft_behind(name, heads=1):
    """DeepSeek: layers behind the others, with two norms and a matrix for both of their inputs."""
    case = latent(name)
    rng = random(name + "draft")
    case.config["num_nextn_predict_layers"] = heads
    for number in range(LAYERS, LAYERS + heads):
        layer = f"model.layers.{number}."
        last = f"model.layers.{LAYERS - 1}."
        case.tensors |= {layer + key.removeprefix(last): value for key, value in case.tensors.items() if key.startswith(last)}
        case.tensors[layer + "eh_proj.weight"] = matrix(rng, HIDDEN, 2 * HIDDEN)
        case.tensors |= {f"{layer}{part}.weight": norm(HIDDEN) for part in ("enorm", "hnorm", "shared_head.norm")}
        case.tensors |= {f"{layer}{part}.weight": matrix(rng, VOCAB, HIDDEN) for part in ("embed_tokens", "shared_head.head")}
    return case


def draft_beside(name, root="mtp"):
    """Qwen3-Next: under a name of its own."""
    case = usual(name)
    rng = random(name + "draft")
    layer = f"{root}.layers.0."
    case.tensors |= attention(rng, layer) | moe(rng, layer + "mlp")
    case.tensors |= {f"{root}.fc.weight": matrix(rng, HIDDEN, 2 * HIDDEN), f"{root}.embed_tokens.weight": matrix(rng, VOCAB, HIDDEN)}
    case.tensors |= {f"{root}.{part}.weight": norm(HIDDEN) for part in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")}
    case.config |= {"n_routed_experts": EXPERTS, "moe_intermediate_size": INNER}
    return case


def draft_of_two(name):
    """Nemotron: the first layer of the head is its attention, the second its experts."""
    case = nemotron(name)
    rng = random(name + "draft")
    case.tensors |= mixer(rng, "mtp.layers.0.", "*") | mixer(rng, "mtp.layers.1.", "E")
    case.tensors["mtp.layers.0.eh_proj.weight"] = matrix(rng, HIDDEN, 2 * HIDDEN)
    for part in ("0.enorm", "0.hnorm", "0.norm", "1.norm", "1.final_layernorm"):
        case.tensors[f"mtp.layers.{part}.weight"] = norm(HIDDEN)
    return case


def draft_of_v4(name):
    """DeepSeek-V4: a matrix for each input."""
    case = draft_beside(name)
    for key in ("fc.weight", "norm.weight", "pre_fc_norm_hidden.weight", "pre_fc_norm_embedding.weight"):
        del case.tensors["mtp." + key]
    case.tensors = {key.replace("mtp.layers.", "mtp."): value for key, value in case.tensors.items()}
    case.tensors |= {f"mtp.0.{part}.weight": matrix(random(name), HIDDEN, HIDDEN) for part in ("e_proj", "h_proj")}
    case.tensors |= {f"mtp.0.{part}.weight": norm(HIDDEN) for part in ("enorm", "hnorm")}
    return case


def draft_of_longcat(name):
    """Norms inside of modules."""
    case = draft_beside(name)
    case.tensors["mtp.layers.0.eh_proj.weight"] = case.tensors.pop("mtp.fc.weight")
    case.tensors |= {f"mtp.layers.0.{part}.m.weight": norm(HIDDEN) for part in ("enorm", "hnorm")}
    return case


def second_stack(name):
    """A model with more layers beside the one that the config speaks of."""
    case = usual(name)
    other = dense(name, lambda rng, layer, number: attention(rng, layer), LAYERS + 2)
    case.tensors |= {"talker." + key: value for key, value in other.tensors.items()}
    return case


def medusa(name):
    """Heads of one matrix."""
    case = usual(name)
    for number in range(2):
        case.tensors[f"mtp.{number}.linear.weight"] = matrix(random(name), HIDDEN, HIDDEN)
    return case


def llama_pro(name):
    """Two layers are put in whose branches end in zeros, so that they change nothing."""
    case = usual(name)
    zero(*(f"model.layers.{number}.{part}.weight" for number in (2, 5) for part in ("self_attn.o_proj", "mlp.down_proj")))(case)
    return case


# what to drop -> from which model
MISSING = {
    "in-proj": (nemotron, "layers.2.mixer.in_proj"),
    "a-log": (nemotron, "layers.2.mixer.A_log"),
    "conv": (nemotron, "layers.0.mixer.conv1d"),
    "k": (nemotron, "layers.3.mixer.k_proj"),
    "o": (nemotron, "layers.6.mixer.o_proj"),
    "attention": (nemotron, "layers.6.mixer."),
    "up": (nemotron, "layers.1.mixer.up_proj"),
    "router": (nemotron, "layers.5.mixer.gate."),
    "experts": (nemotron, "layers.5.mixer.experts"),
    "all-out-proj": (nemotron, "mixer.out_proj"),
    "all-v": (nemotron, "mixer.v_proj"),
    "all-down": (nemotron, "layers.1.mixer.down_proj"),
    "o-without-pattern": (without_pattern, "mixer.o_proj"),
    "d-without-pattern": (without_pattern, "mixer.D"),
    "beside": (mamba_beside, "mamba.conv1d"),
    "routers": (shared_gate, "mlp.gate."),
    "routers-without-norms": (without_norms, "mlp.gate."),
    "eh-proj": (draft_behind, "eh_proj"),
    "enorm": (draft_behind, "enorm"),
    "draft-attention": (draft_behind, f"layers.{LAYERS}.self_attn"),
    "second-draft": (lambda name: draft_behind(name, 2), f"layers.{LAYERS + 1}.self_attn"),
    "fc": (draft_beside, "mtp.fc"),
    "mtp-attention": (draft_beside, "mtp.layers.0.self_attn"),
    "mtp-eh-proj": (draft_of_two, "mtp.layers.0.eh_proj"),
    "mtp-mixer": (draft_of_two, "mtp.layers.0.mixer"),
}
ZERO = {
    "draft-embedding": (draft_behind, f"model.layers.{LAYERS}.embed_tokens.weight"),
    "draft-head": (draft_behind, f"model.layers.{LAYERS}.shared_head.head.weight"),
    "draft-eh-proj": (draft_behind, f"model.layers.{LAYERS}.eh_proj.weight"),
    "draft-enorm": (draft_behind, f"model.layers.{LAYERS}.enorm.weight"),
    "mtp-embedding": (draft_beside, "mtp.embed_tokens.weight"),
    "mtp-fc": (draft_beside, "mtp.fc.weight"),
    "mtp-layers": (lambda name: draft_beside(name, "model.mtp_layers"), "model.mtp_layers.fc.weight"),
}


def cases():
    for make in (nemotron, without_pattern, mamba_beside, first_qwen, encoder_beside, shared_gate, draft_behind, draft_beside, draft_of_two, draft_of_v4, draft_of_longcat, second_stack, medusa):
        yield make(f"no-fault-kind-{make.__name__.replace('_', '-')}")
    for prefix in PREFIXES:
        yield under(prefix)(f"no-fault-prefix-{prefix}")
        yield with_fault(under(prefix), f"prefix-{prefix}", "tensor-missing", drop("self_attn.o_proj"))
    for name, (make, words) in MISSING.items():
        yield with_fault(make, f"kind-{name}", "tensor-missing", drop(words))
    for name, (make, tensor) in ZERO.items():
        yield with_fault(make, f"kind-zero-{name}", "weights-zero", zero(tensor))
    yield replace(llama_pro("no-fault-identity-layers"), notes=("weights-zero",))
    others = zero("model.layers.2.self_attn.q_proj.weight")
    yield with_fault(llama_pro, "erased-layer", "weights-zero", others)
    yield with_fault(llama_pro, "all-zero-branches", "weights-zero", zero(*(f"model.layers.{n}.mlp.down_proj.weight" for n in range(LAYERS))))
