# SPDX-License-Identifier: Apache-2.0
"""GPT-2's linear layers hold [in, out], so that biases have a value a column; layers of the same
names of other families hold [out, in]."""

import numpy as np
from case import Case, bf16, random

HIDDEN = 32
SIZES = {"attn.c_attn": 3 * HIDDEN, "attn.c_proj": HIDDEN, "mlp.c_fc": 4 * HIDDEN, "mlp.c_proj": HIDDEN}


def model(name, model_type, prefix="h.", turned=True, config=None):
    rng = random(name)
    case = Case(name, {}, {"model_type": model_type, "n_embd": HIDDEN} if config is None else config)
    for layer in range(2):
        for part, outputs in SIZES.items():
            inputs = 4 * HIDDEN if part == "mlp.c_proj" else HIDDEN
            module = f"{prefix}{layer}.{part}"
            shape = (inputs, outputs) if turned else (outputs, inputs)
            weight, bias = bf16(rng.uniform(-1, 1, shape)), bf16(rng.uniform(-1, 1, outputs))
            case.tensors |= {f"{module}.weight": weight, f"{module}.bias": bias}
    case.tensors["ln_f.weight"] = bf16(np.ones(HIDDEN))
    return case


def cases():
    for model_type, prefix in [("gpt2", "h."), ("gpt2", "transformer.h."), ("openai-gpt", "h."), ("decision_transformer", "encoder.h.")]:
        yield model(f"conv1d-{model_type}-{prefix.rstrip('.')}", model_type, prefix)
    yield model("conv1d-without-config", "", config={})
    for model_type in ("gpt_bigcode", "starcoder2", "qwen"):
        prefix = "model.layers." if model_type == "starcoder2" else "transformer.h."
        yield model(f"conv1d-none-{model_type}", model_type, prefix, turned=False)
    for name, model_type, found in [("gpt2", "gpt2", "one value a column"), ("starcoder2", "starcoder2", "one value a row")]:
        case = model(f"conv1d-fault-{name}", model_type, turned=model_type == "gpt2")
        case.tensors["h.0.attn.c_attn.bias"] = bf16(np.zeros(HIDDEN))
        case.faults, case.said = ("bias-shape",), (found,)
        yield case
