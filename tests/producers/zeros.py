# SPDX-License-Identifier: Apache-2.0
"""Weights of nothing but zeros, files that were not filled to their end, and integer scales that were
turned round in a whole model; beside them what may be zero."""

import numpy as np
from case import Case, bf16, random, with_fault
from gptq import whole as gptq
from layer_parts import latent, usual
from small_model import ATTENTION, DOWN, LAYER, UP, fp8_model, modelopt_model, plain_model

Q_A = "model.layers.1.self_attn.q_a_proj"
NORM = "model.layers.1.input_layernorm.weight"


def zero(*names):
    def apply(case):
        for name in names:
            case.tensors[name] = np.zeros_like(case.tensors[name])

    return apply


def zero_end(count):
    """The last tensors of the file."""
    return lambda case: zero(*list(case.tensors)[-count:])(case)


def minus_zero(case):
    case.tensors[UP + ".weight"] = np.full_like(case.tensors[UP + ".weight"], 0x88)


def fused(name):
    """All experts of a layer in one tensor."""
    rng = random(name)
    tensors = {"model.layers.0.mlp.experts.gate_up_proj": bf16(rng.normal(0, 0.05, (4, 64, 32)))}
    tensors["model.layers.0.mlp.experts.down_proj"] = bf16(rng.normal(0, 0.05, (4, 32, 32)))
    return Case(name, tensors, {"model_type": "qwen3_5_moe", "hidden_size": 32, "moe_intermediate_size": 32})


def one_expert(case):
    name = "model.layers.0.mlp.experts.down_proj"
    case.tensors[name] = np.array(case.tensors[name])
    case.tensors[name][2] = 0


def may_be_zero(name):
    """Biases, adapters and single rows."""
    case = latent(name)
    case.tensors[Q_A + ".bias"] = bf16(np.zeros(32))
    for number in range(6):
        case.tensors[f"model.layers.{number}.self_attn.q_a_proj.bias"] = bf16(np.zeros(32))
    embedding = np.array(case.tensors["model.embed_tokens.weight"])
    embedding[-40:] = 0
    case.tensors["model.embed_tokens.weight"] = embedding
    # The last of the file.
    del case.tensors["lm_head.weight"]
    case.tensors["lm_head.weight"] = embedding
    return case


def half_of_head(case):
    head = np.array(case.tensors.pop("lm_head.weight"))
    head[40:] = 0
    case.tensors["lm_head.weight"] = head


def norms_around_zero(name):
    case = usual(name)
    case.config["model_type"] = "gemma3_text"
    zero(NORM)(case)
    return case


def turned_round(case):
    for name in [name for name in case.tensors if name.endswith(".scales")]:
        case.tensors[name] = (1 / np.asarray(case.tensors[name], np.float32)).astype(np.float16)


def layers_of_gptq(name):
    case = gptq(name)
    for name in list(case.tensors):
        case.tensors[name.replace("layers.0.", "layers.1.")] = case.tensors[name]
    return case


def cases():
    yield may_be_zero("no-fault-zero-parts")
    yield norms_around_zero("no-fault-norms-around-zero")
    for name, make, apply in [
        ("plain", latent, zero(Q_A + ".weight")),
        ("norm", latent, zero(NORM)),
        ("embedding", latent, zero("model.embed_tokens.weight")),
        ("expert", modelopt_model, zero(UP + ".weight")),
        ("expert-minus", modelopt_model, minus_zero),
        ("fp8", fp8_model, zero(DOWN + ".weight")),
        ("router", plain_model, zero(LAYER + "mlp.gate.weight")),
        ("o-proj", plain_model, zero(ATTENTION + "o_proj.weight")),
        ("fused", fused, one_expert),
    ]:
        yield with_fault(make, f"zero-{name}", "weights-zero", apply)
    yield with_fault(latent, "zero-end", "data-zero", zero_end(5))
    yield with_fault(latent, "zero-half", "data-zero", half_of_head)
    yield with_fault(layers_of_gptq, "gptq-turned-round", "scale-direction", turned_round)
    yield layers_of_gptq("no-fault-gptq-two-layers")
