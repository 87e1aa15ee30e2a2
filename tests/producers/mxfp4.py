# SPDX-License-Identifier: Apache-2.0
"""MXFP4 as models are released in it: gpt-oss (blocks, gate and up rows in turn, biases) and
DeepSeek-V4 (I8 bytes), and e2m1 experts stored the other way round."""

import ml_dtypes
import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread

GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 64,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
    },
}
EXPERTS = "model.layers.0.mlp.experts."


def mxfp4(rng, shape):
    """Codes, scale bytes and values of [..., n, k]."""
    codes = rng.integers(0, 16, shape)
    scales = rng.integers(100, 129, (*shape[:-1], -(-shape[-1] // 32))).astype(np.uint8)
    values = E2M1[codes] * spread(np.exp2(scales.astype(np.float64) - 127), 1, 32, shape)
    return codes, scales, values


def gpt_oss(name, config=None, scale_type=np.uint8):
    rng = random(name)
    tensors, values = {}, {}
    for projection, n, k in [("gate_up", 2 * 96, 64), ("down", 64, 96)]:
        module = f"{EXPERTS}{projection}_proj"
        codes, scales, plain = mxfp4(rng, (3, n, k))
        values[module] = plain.swapaxes(1, 2)  # as transformers holds them in 16 bits
        tensors[f"{module}_blocks"] = pack_nibbles(codes).reshape(3, n, k // 32, 16)
        tensors[f"{module}_scales"] = scales.view(scale_type)
        tensors[f"{module}_bias"] = bf16(rng.uniform(-1, 1, (3, n)))
    tensors["model.layers.0.mlp.router.weight"] = bf16(rng.uniform(-1, 1, (3, 64)))
    tensors["model.layers.0.mlp.router.bias"] = bf16(rng.uniform(-1, 1, 3))
    tensors["model.layers.0.self_attn.q_proj.weight"] = bf16(rng.uniform(-1, 1, (64, 64)))
    schemes = {f"{EXPERTS}gate_up_proj": "MXFP4", f"{EXPERTS}down_proj": "MXFP4", "model.layers.0.mlp.router": "bf16"}
    return Case(name, tensors, GPT_OSS if config is None else config, {}, schemes, values)


def original(name):
    """gpt-oss's `original` folder: names and a config of its own."""
    rng = random(name)
    tensors, values = {}, {}
    for projection, n, k in [("mlp1", 2 * 96, 64), ("mlp2", 64, 96)]:
        module = f"block.0.mlp.{projection}_weight"
        codes, scales, values[module] = mxfp4(rng, (3, n, k))
        tensors[f"{module}.blocks"] = pack_nibbles(codes).reshape(3, n, k // 32, 16)
        tensors[f"{module}.scales"] = scales
        tensors[f"block.0.mlp.{projection}_bias"] = bf16(rng.uniform(-1, 1, (3, n)))
    tensors["block.0.mlp.gate.weight"] = bf16(rng.uniform(-1, 1, (3, 64)))
    config = {"num_hidden_layers": 1, "num_experts": 3, "hidden_size": 64, "swiglu_limit": 7.0, "initial_context_length": 4096}
    return Case(name, tensors, config, notes=("config-missing", "model-not-runnable"))


def deepseek(name, config=None):
    rng = random(name)
    tensors, values, schemes = {}, {}, {}
    for projection, n, k in [("w1", 48, 64), ("w3", 48, 64), ("w2", 64, 96)]:
        module = f"layers.2.ffn.experts.0.{projection}"
        codes, scales, values[f"{module}.weight"] = mxfp4(rng, (n, k))
        tensors[f"{module}.weight"] = pack_nibbles(codes).view(np.int8)
        tensors[f"{module}.scale"] = scales.view(ml_dtypes.float8_e8m0fnu)
        schemes[module] = "MXFP4"
    block = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
    }
    config = {"quantization_config": block, "expert_dtype": "fp4"} if config is None else config
    for layer, dtype in [(0, np.int32), (1, np.int64)]:  # experts of each token
        table = f"layers.{layer}.ffn.gate.tid2eid"
        tensors[table] = rng.integers(0, 8, (5, 2)).astype(dtype)
        schemes[table], values[table] = np.dtype(dtype).name.replace("nt", ""), tensors[table].astype(np.float64)
    return Case(name, tensors, config, {}, schemes, values)


def transposed(name, model_type, quantized=("gate_up", "down")):
    """ModelOpt NVFP4 of experts that are [experts, in, out] in the 16-bit model."""
    rng = random(name)
    tensors, values = {}, {}
    for projection, n, k in [("gate_up", 96, 64), ("down", 64, 48)]:
        module = f"{EXPERTS.replace('mlp', 'feed_forward')}{projection}_proj"
        codes = rng.integers(0, 16, (3, n, k))
        scales = e4m3(np.exp2(rng.uniform(-5, 5, (3, n, k // 16))))
        factor = np.float32(rng.uniform(0.001, 0.1))
        scale = (scales.astype(np.float32) * factor).astype(np.float64)
        plain = E2M1[codes] * spread(scale, 1, 16, (3, n, k))
        tensors[module] = np.ascontiguousarray(pack_nibbles(codes).swapaxes(1, 2))
        tensors[f"{module}_weight_scale"] = np.ascontiguousarray(scales.swapaxes(1, 2))
        tensors[f"{module}_weight_scale_2"] = factor
        values[module] = plain.swapaxes(1, 2)
    config = {
        "model_type": model_type,
        "hidden_size": 64,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head"]},
    }
    return Case(name, tensors, config, {}, dict.fromkeys(values, "ModelOpt NVFP4"), values)


def last_exponent(name, code, faults):
    """2^127 beside codes of 1 is a weight that f32 holds, beside a code of 6 it is none."""
    case = deepseek(name)
    module = "layers.2.ffn.experts.0.w1"
    packed, scale = case.tensors[f"{module}.weight"].view(np.uint8), case.tensors[f"{module}.scale"].view(np.uint8)
    packed[3, 16:32], scale[3, 1] = code * 0x11, 254
    case.values[f"{module}.weight"][3, 32:64] = E2M1[code] * 2.0**127
    case.faults, case.refused = faults, E2M1[code] > 1.5
    if code == 2:
        case.faults, case.warnings = (), faults
    return case


def good():
    yield gpt_oss("mxfp4-gpt-oss")
    yield gpt_oss("mxfp4-gpt-oss-e8m0-type", scale_type=ml_dtypes.float8_e8m0fnu)
    yield gpt_oss("mxfp4-gpt-oss-without-config", config={"model_type": "gpt_oss", "hidden_size": 64})
    yield original("mxfp4-gpt-oss-original")
    yield deepseek("mxfp4-deepseek-v4")
    yield deepseek("mxfp4-deepseek-v4-without-config", config={})
    yield transposed("nvfp4-transposed-llama4", "llama4")
    yield transposed("nvfp4-transposed-gpt-oss", "gpt_oss")


def largest():
    """Of the codes that stand beside the largest scale."""
    for code, text in [(2, "1"), (3, "1.5"), (7, "6")]:
        yield last_exponent(f"mxfp4-fault-last-exponent-of-{text}", code, ("scale-direction",))


def broken(name, rules, change, case=None):
    case = case or gpt_oss(f"mxfp4-fault-{name}")
    case.name = f"mxfp4-fault-{name}"
    case.faults, case.schemes = rules, {}
    change(case.tensors)
    return case


def faults():
    unreadable = ("module-unreadable",)
    down = f"{EXPERTS}down_proj_"

    def put(suffix, value):
        return lambda tensors: tensors.update({down + suffix: value(tensors[down + suffix])})

    def nan(scales):
        scales = np.array(scales)
        scales[1, 2, 0] = 255
        return scales

    yield broken("scales-missing", unreadable, lambda tensors: tensors.pop(down + "scales"))
    yield broken("blocks-missing", ("scale-without-weight",), lambda tensors: tensors.pop(down + "blocks"))
    yield broken("scales-shape", unreadable, put("scales", lambda scales: scales[:, :, :-1]))
    yield broken("experts", unreadable, put("scales", lambda scales: scales[:-1]))
    yield broken("scales-type", unreadable, put("scales", lambda scales: scales.astype(np.float16)))
    yield broken("blocks-of-8", unreadable, put("blocks", lambda blocks: blocks[..., :8]))
    yield broken("scale-nan", ("scale-nan",), put("scales", nan))
    count = ("experts-count",)

    def fewer(tensors):
        for part in ("blocks", "scales", "bias"):
            tensors[down + part] = tensors[down + part][:-1]

    yield broken("experts-of-down", count, fewer)
    yield broken("experts-of-router", count, lambda t: t.update({"model.layers.0.mlp.router.weight": bf16(np.ones((4, 64)))}))
    yield broken("experts-of-bias", ("bias-shape",), put("bias", lambda bias: bias[:-1]))
    yield broken("experts-of-blocks", unreadable, put("blocks", lambda blocks: blocks[:-1]))
    yield broken("bias-of-one", ("bias-shape",), put("bias", lambda bias: bias[0]))
    yield broken("bias-wide", ("bias-shape",), put("bias", lambda bias: np.concatenate([bias, bias], axis=1)))
    yield broken("bias-type", ("bias-dtype",), put("bias", lambda bias: bias.astype(np.float64)))
    deep = deepseek("mxfp4-fault")
    yield broken("deepseek-scale-shape", unreadable, lambda t: t.update({"layers.2.ffn.experts.0.w2.scale": t["layers.2.ffn.experts.0.w2.scale"][:, :2]}), deep)
    says_fp8 = deepseek("mxfp4-fault")
    says_fp8.config = {**says_fp8.config, "expert_dtype": "fp8"}
    yield broken("expert-dtype", ("config-expert-dtype",), lambda t: None, says_fp8)


def cases():
    yield from good()
    yield from largest()
    yield from faults()
