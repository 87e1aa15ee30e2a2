# SPDX-License-Identifier: Apache-2.0
"""Matrices that are plain although the config quantizes them: whatever attention or older MLP they
belong to; and those that published checkpoints keep plain without saying so."""

import auto_round
import awq
import fp8
import gptq
import numpy as np
from case import Case, bf16, random
from compressed_matrices import config, floats
from compressed_matrices import fp8 as ct_fp8
from quark import config as quark_config
from quark import spec

MLA = ["self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"]
LINEAR = ["linear_attn.in_proj_qkvz", "linear_attn.out_proj"]
OLDER = ["self_attention.query_key_value", "self_attention.dense", "mlp.dense_h_to_4h"]
FLASH = ["attn.wq_a", "attn.wkv", "attn.wo_b"]
N, K = 128, 128


def of_tensor(rng):
    parts, _ = ct_fp8(rng, N, K, "tensor")
    return parts | {"weight_scale": parts["weight_scale"].astype(np.float32).reshape(())}


def of_block(rng):
    parts, _ = ct_fp8(rng, N, K, "block")
    return {"weight": parts["weight"], "weight_scale_inv": parts["weight_scale"].astype(np.float32)}


KINDS = {
    "ct": (lambda rng: ct_fp8(rng, N, K, "channel")[0], config(floats(8, strategy="channel"), "float-quantized")["quantization_config"]),
    "fp8": (of_block, fp8.BLOCK["quantization_config"] | {"modules_to_not_convert": ["lm_head"]}),
    "modelopt": (of_tensor, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}),
    "quark": (of_tensor, quark_config(spec("fp8_e4m3", "per_tensor"))["quantization_config"]),
    "gptq": (lambda rng: gptq.matrix(rng, N, K, gptq.Form())[0], gptq.Form().config()),
    "auto-round": (lambda rng: gptq.matrix(rng, N, K, gptq.Form())[0], auto_round.config("auto_round:auto_gptq")["quantization_config"]),
    "awq": (lambda rng: awq.matrix(rng, N, K, "gemm", 32)[0], awq.config()),
}
WARNINGS = ("latent-attention-4bit", "input-scale-missing", "layers-mixed", "fused-order-unknown")


def model(name, kind, modules, plain=(), **more):
    """Three layers; modules that hold a text of `plain` are so."""
    rng = random(name)
    quantized, block = KINDS[kind]
    case = Case(name, {"model.norm.weight": bf16(np.ones(K))}, {"quantization_config": block | more}, warnings=WARNINGS)
    for layer in range(3):
        for part in (*modules, "mlp.up_proj", "mlp.down_proj"):
            module = f"model.layers.{layer}.{part}"
            is_plain = any(text in module for text in plain)
            parts = {"weight": bf16(rng.normal(0, 0.05, (N, K)))} if is_plain else quantized(rng)
            case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    case.absent = ("config-expects-quantized",)
    return case


def faulty(case, *said):
    case.faults, case.absent, case.said = ("config-expects-quantized",), (), said
    return case


def in_one_layer():
    """Others of the same name have codes, whoever wrote them."""
    for kind in KINDS:
        for name, modules in {"mla": MLA, "linear": LINEAR, "older": OLDER, "flash": FLASH}.items():
            yield model(f"plain-{kind}-{name}-none", kind, modules)
            for part in modules:
                case = model(f"plain-{kind}-{part}", kind, modules, [f"layers.1.{part}"])
                yield faulty(case, f"model.layers.1.{part}")


def unasked():
    """Plain in all layers: a fault where loaders quantize every linear layer, else worth knowing."""
    usual = ["self_attn.q_a_proj", "attn.wq_a", "linear_attn.out_proj", "self_attention.query_key_value"]
    for kind in KINDS:
        by_family = kind in ("gptq", "awq", "auto-round")
        for part in usual:
            case = model(f"plain-all-{kind}-{part}", kind, [part], [part])
            yield noted(case) if by_family else faulty(case, part)
        for part in ("self_attn.kv_a_proj_with_mqa", "linear_attn.in_proj_ba"):
            yield noted(model(f"plain-all-{kind}-{part}", kind, [part], [part]))
        left = ["linear_attn.conv1d", "attn.indexer.weights_proj", "attn.compressor.wkv", "attn.per_layer_gate", "pos_embedding"]
        yield model(f"plain-all-{kind}-left-alone", kind, left, left)
        case = model(f"plain-all-{kind}-parameters", kind, [])
        case.tensors |= {f"model.layers.{layer}.{part}": bf16(np.ones((4, 64))) for layer in range(3) for part in ("hc_attn_fn", "linear_attn.A_log")}
        yield case


def noted(case):
    case.absent, case.notes = (), ("config-expects-quantized",)
    return case


def named():
    """By the config itself, also of producers that have lists for a family."""
    q_a, kv_a = "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"
    more = {
        "gptq": [{"dynamic": {"+:.*q_a_proj": {"bits": 4}}}, {"modules_in_block_to_quantize": [[q_a, "mlp.up_proj", "mlp.down_proj"]]}],
        "quark": [{"layer_quant_config": {"*q_a_proj": {"weight": spec("fp8_e4m3", "per_tensor"), "input_tensors": None}}}],
    }
    for kind, ways in more.items():
        for number, way in enumerate(ways):
            yield model(f"plain-named-{kind}-{number}-none", kind, [q_a], **way)
            yield faulty(model(f"plain-named-{kind}-{number}", kind, [q_a], [q_a], **way), q_a)
    for target in ("re:.*self_attn.*", f"model.layers.0.{kv_a}"):
        case = model(f"plain-named-ct-{target[:2]}", "ct", [kv_a], [kv_a])
        groups = {"group_0": {"targets": [target, "re:.*mlp.*"], "weights": floats(8, strategy="channel")}}
        case.config["quantization_config"] = case.config["quantization_config"] | {"config_groups": groups}
        yield faulty(case, kv_a)


def cases():
    yield from in_one_layer()
    yield from unasked()
    yield from named()
