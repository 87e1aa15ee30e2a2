# SPDX-License-Identifier: Apache-2.0
"""Scales that are too few: what is said of them has the count that was found and the one expected."""

import modelopt_other
from case import random
from compressed_tensors import integers
from mxfp4 import deepseek, gpt_oss
from quark import microscaling


def cut(name, case, tensor, *texts):
    """The last scale of each row, dropped."""
    module = next(module for module in case.schemes if tensor.startswith(module))
    for number, text in enumerate(texts):
        case.tensors[tensor] = case.tensors[tensor][..., :-1] if number == 0 else case.tensors[tensor]
        yield type(case)(f"fault-count-{name}-{number}", case.tensors, case.config, schemes={module: text}, faults=("module-unreadable",))


def cases():
    experts = "model.layers.0.mlp.experts."
    up = experts + "0.up_proj"
    yield from cut("gpt-oss", gpt_oss("count"), f"{experts}down_proj_scales", "u8 [3, 64, 2]", "[3, 64, 3], ceil(96/32) a row")
    yield from cut("quark", microscaling("count"), f"{up}.weight_scale", "u8 [48, 1]", "[48, 2], ceil(64/32) a row")
    down = "layers.2.ffn.experts.0.w2"
    yield from cut("deepseek", deepseek("count"), f"{down}.scale", "[64, 2]", "[64, 3], ceil(96/32) a row")
    words = integers("count", group=32, shape=(48, 224))
    name = next(name for name in words.tensors if name.endswith("weight_scale"))
    yield from cut("words", words, name, "[48, 6]", "group of 32 ([48, 7], ceil(224/32) a row)")
    rng = random("counts")
    for name, made, algorithm, texts in [
        ("mxfp4", modelopt_other.mxfp4(rng, k=224), "mxfp4", ("[48, 6]", "[48, 7], ceil(224/32) a row")),
        ("mxfp4-row", modelopt_other.mxfp4(rng, k=64), "W4A8_MXFP4_FP8", ("[48, 1]", "[48, 2], ceil(64/32) a row")),
        ("mxfp8", modelopt_other.mxfp8(rng, k=224), "MXFP8", ("[48, 6]", "[48, 7], ceil(224/32) a row")),
        ("int4", modelopt_other.int4(rng, k=512), "W4A16_AWQ", ("[48, 3]", "such as of 128: [48, 4], ceil(512/128) a row")),
    ]:
        case = modelopt_other.one(name, made, "", modelopt_other.block(algorithm))
        yield from cut(f"modelopt-{name}", case, f"{modelopt_other.MODULE}.weight_scale", *texts)
