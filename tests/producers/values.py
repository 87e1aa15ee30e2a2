# SPDX-License-Identifier: Apache-2.0
"""One value of a scale changed: what spoils weights is found, by the rule that names the tensor."""

from dataclasses import replace

import auto_round_floats
import awq
import compressed_tensors
import fp8
import modelopt_other
import named
import numpy as np
import ternary

EVERY = {"nan": np.nan, "infinite": np.inf, "negative": -1, "zero": 0, "huge": 3e38}
RULES = {"nan": "scale-nan", "infinite": "scale-nan", "negative": "scale-negative", "zero": "scale-zero", "huge": "scale-direction"}


def changed(case, ending, value, rule, label):
    """The first value of the first tensor of that name."""
    name = next(name for name in case.tensors if name.endswith(ending))
    part = np.array(case.tensors[name])
    part.reshape(-1)[:1] = value
    tensors = case.tensors | {name: part}
    return replace(case, name=f"value-{case.name}-{ending.split('.')[-1]}-{label}", tensors=tensors, faults=(rule,))


def found(module, name):
    return next(case for case in module.cases() if case.name == name)


def bitsandbytes():
    for label, value in EVERY.items():
        yield changed(named.nf4("nf4"), "weight.absmax", value, RULES[label], label)
        yield changed(named.int8("int8"), "SCB", value, RULES[label], label)
        if label in ("nan", "infinite", "huge"):
            nested = named.nf4("nested", nested=True)
            yield changed(nested, "nested_absmax", value, RULES[label], label)
            map_name = next(name for name in nested.tensors if name.endswith("nested_quant_map"))
            nested.tensors[map_name] = np.full(256, value, np.float32)
            yield replace(nested, name=f"value-nested-map-{label}", faults=(RULES[label],))


def divisors():
    """Of BitNet, and the global scale of compressed-tensors: weights are divided by them."""
    one = ternary.whole("divisor", np.float32([0.5]))
    for label, value, rule in [
        ("nan", np.nan, "global-scale-value"),
        ("negative", -1, "global-scale-value"),
        ("zero", 0, "global-scale-value"),
        ("tiny", 1e-38, "global-scale-direction"),
        ("huge", 3e38, "global-scale-direction"),
    ]:
        yield changed(one, "weight_scale", value, rule, label)
    whole = compressed_tensors.nvfp4()
    yield changed(whole, "weight_global_scale", 3.4e38, "global-scale-direction", "huge")


def vectors():
    for name in ("modelopt-int8-sq", "modelopt-int4-awq-f32"):
        yield changed(found(modelopt_other, name), "pre_quant_scale", 3.3e38, "pre-quant-scale-value", "huge")


def cases():
    yield from bitsandbytes()
    yield from divisors()
    yield from vectors()
    fast = awq.whole("fast", "gemv_fast", 32, awq.config("gemv_fast", 32))
    for label, value in [("nan", np.nan), ("infinite", -np.inf), ("huge", -6e4), ("turned", 5)]:
        yield changed(fast, "qzeros", value, "zeros-value", label)
    second = found(auto_round_floats, "auto-round-nvfp4-v2")
    yield changed(second, "weight_scale", 255, "scale-nan", "nan")
    yield changed(second, "weight_scale", 254, "scale-direction", "huge")
    block = found(auto_round_floats, "auto-round-fp8-block")
    yield changed(block, "weight_scale_inv", -1, "scale-negative", "negative")
    row = found(fp8, "fp8-e5m2")
    yield changed(row, "weight_scale", 1e35, "scale-direction", "huge")
    yield changed(row, "weight_scale", -1e35, "scale-direction", "huge-negative")
