# SPDX-License-Identifier: Apache-2.0
"""FP8 weights that are unreadable, or that the config describes in another way."""

import numpy as np
from case import Case, random
from fp8 import BLOCK, MODULE, codes, config, granular


def fault(name, rule, change, text="", **rest):
    case = granular("fault-" + name, (300, 200), (3, 2), 128, 128, text, suffix="weight_scale_inv", **{"config": BLOCK} | rest)
    change(case.tensors)
    case.faults = (rule,)
    return case


SCALE, WEIGHT = f"{MODULE}.weight_scale_inv", f"{MODULE}.weight"


def replaced(name, array):
    return lambda tensors: tensors.update({name: array})


def no_weights():
    none = "as they are they are no weights"
    for name, block in [("square", BLOCK), ("square-no-config", {})]:
        case = granular(f"fault-{name}", (40, 40), (1, 40), 1, 0, "one a row or a column", config=block)
        case.faults = ("module-unreadable",)
        yield case
    yield fault("no-scale", "module-unreadable", lambda tensors: tensors.pop(SCALE), none)
    yield fault("no-scale-no-config", "module-unreadable", lambda tensors: tensors.pop(SCALE), none, config={})
    yield fault(
        "two-scales",
        "module-unreadable",
        lambda tensors: tensors.update({f"{MODULE}.weight_scale": np.float32(1)}),
        "two scales, weight_scale_inv and weight_scale",
    )
    yield fault(
        "scale-shape",
        "module-unreadable",
        replaced(SCALE, np.ones((2, 2), np.float32)),
        "weight_scale_inv of shape [2, 2] for a weight of [300, 200]",
    )
    yield fault("scale-dtype", "module-unreadable", replaced(SCALE, np.ones((3, 2), np.int32)), "weight_scale_inv is i32")
    yield fault("scale-bytes", "module-unreadable", replaced(SCALE, np.ones((3, 2), np.uint8)), "weight_scale_inv is u8")
    yield fault(
        "zero-points",
        "module-unreadable",
        lambda tensors: tensors.update({f"{MODULE}.weight_zero_point": np.eye(3, 2, dtype=np.int8)}),
        "weight_zero_point beside FP8 codes",
    )
    yield fault("rank", "module-unreadable", replaced(WEIGHT, codes(random("rank"), (3, 10, 20))), "weight of shape [3, 10, 20]")
    yield fault(
        "semantics",
        "module-unreadable",
        lambda tensors: None,
        'weight_scale_semantics "inverse"',
        config=config(weight_block_size=[128, 128], weight_scale_semantics="inverse"),
    )


def other_granularities():
    """Scales of another shape than the config says."""
    yield fault("block-size", "config-block-size", lambda tensors: None, "block of 128x128", config=config(weight_block_size=[64, 64]))
    yield fault("block-list", "config-block-size", lambda tensors: None, "block of 128x128", config=config(weight_block_size=[128]))
    one = replaced(SCALE, np.full((1, 1), 0.01, np.float32))
    yield fault("one-scale-of-blocks", "config-block-size", one, "f32 scale a tensor")
    row = replaced(SCALE, np.full((300, 1), 0.01, np.float32))
    yield fault("row-scales-of-blocks", "config-block-size", row, "f32 scale a row")
    small = replaced(SCALE, np.full((6, 2), 0.01, np.float32))
    yield fault("pieces-below-a-block", "module-unreadable", small, "weight_scale_inv of shape [6, 2]")
    column = replaced(SCALE, np.full((1, 200), 0.01, np.float32))
    yield fault("column-scales-of-blocks", "config-block-size", column, "f32 scale a column")
    halves = replaced(SCALE, np.full(2, 0.01, np.float32))
    yield fault("halves-of-one", "module-unreadable", halves, "weight_scale_inv of shape [2]")
    pair = {"module": "model.layers.0.mlp.gate_up_proj"}
    fused = replaced("model.layers.0.mlp.gate_up_proj.weight_scale_inv", np.full(2, 0.01, np.float32))
    yield fault("halves-of-blocks", "config-block-size", fused, "f32 scale a run of 150 rows", **pair)
    pieces = replaced(SCALE, np.full((4, 2), 0.01, np.float32))
    yield fault("pieces-of-one", "scale-pieces", pieces, "f32 scale a block of 2x128")
    for height in (159, 200):
        case = qkv_pieces(height)
        case.faults = ("fused-order-unknown",)
        case.notes = ("scale-pieces",)
        yield case


def qkv_pieces(height):
    """A fused q, k and v of eight pieces, each in blocks of its own; of an odd height too."""
    module = "model.layers.0.self_attn.qkv_proj"
    rng = random(f"pieces-{height}")
    scale = np.exp2(rng.uniform(-12, -8, (16, 2))).astype(np.float32)
    case = Case(f"fp8-fault-pieces-of-{height}", {}, BLOCK)
    case.tensors[f"{module}.weight"] = codes(rng, (8 * height, 256))
    case.tensors[f"{module}.weight_scale_inv"] = scale
    return case


def contradictions():
    def with_nan(tensors):
        tensors[WEIGHT].view(np.uint8)[7, 9] = 0xFF

    yield fault("nan", "weight-nan", with_nan)
    yield fault("fmt", "config-fp8-format", lambda tensors: None, "e4m3", config=config(fmt="e5m2"))
    yield fault("qkv", "fused-order-unknown", lambda tensors: None, module="model.layers.0.self_attn.qkv_proj")
    for model_type, name, known in [
        ("bailing_moe", "attention.query_key_value", True),
        ("bailing_moe_v2", "attention.query_key_value", True),
        ("phi3", "self_attn.qkv_proj", True),
        ("gpt_neox", "attention.query_key_value", False),
    ]:
        case = fault(f"qkv-of-{model_type}", "fused-order-unknown", lambda tensors: None, module="model.layers.0." + name)
        case.config = dict(BLOCK, model_type=model_type)
        case.faults = () if known else case.faults
        yield case
    yield fault("powers", "scale-not-power-of-two", lambda tensors: None, config=config(weight_block_size=[128, 128], scale_fmt="ue8m0"))
    listed = config(weight_block_size=[128, 128], modules_to_not_convert=["mlp.up_proj"])
    yield fault("listed", "config-excludes-quantized", lambda tensors: None, config=listed)
    experts = {"module": "model.layers.0.mlp.experts.0.up_proj"}
    says = dict(BLOCK, expert_dtype="fp4")
    yield fault("expert-dtype", "config-expert-dtype", lambda tensors: None, config=says, **experts)


def cases():
    yield from no_weights()
    yield from other_granularities()
    yield from contradictions()
