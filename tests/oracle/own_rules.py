# SPDX-License-Identifier: Apache-2.0
"""What fewbit's own backends need (docs/backends.md, "Those that run here").

The kernels of a level run on CPUs of that level and, on x86, above. They take 16 and 32-bit
weights of any size and NF3 (but for those with tiles, amx), 2 to 8-bit weights in whole steps of 16, and with act-order in whole groups, which the shares
of several tensor ranks do not have. The reference takes every readable scheme on any CPU. The CUDA
backend runs on cards of compute capability 9.0, with biases: NVFP4, MXFP4 and MXFP8 in whole groups,
int4 and int8 in groups of a multiple of 32 or whole rows, with act-order under the CPU kernels' conditions,
NF3, ternary blocks, and FP8 with a scale for blocks of 128x128, a row or the tensor.
"""
import copy
import math

from cuda_rules import verdict
from needs import FP8, Needs

X86 = ["cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx"]
ARM = ["cpu:generic", "cpu:neon"]
BLOCKS = {"q2_0": "INT2", "pq2_0": "INT2", "tq2_0": "INT2", "q4_0": "INT4", "q8_0": "INT8"}
ELEMENTS = {"q2_0": 64, "pq2_0": 128, "tq2_0": 256, "q4_0": 32, "q8_0": 32, "q4_k": 256, "q5_k": 256,
            "q6_k": 256}  # of a block
NAMES = {"gptq": "GPTQ", "awq": "AWQ", "ct": "compressed-tensors"}


KEPT = ("q4_k", "q6_k")  # blocks that stay as they are
FORMS = "bf16, f16, f32, GGUF's Q4_K or Q6_K, or e2m1, nf3, u2, int4, int8 or e4m3 with scales"
TILE_FORMS = "e2m1, u2, int4, int8 or e4m3 with scales"


def scheme_words(x, scheme):
    """What the layer has, as pages call it, without what they add in brackets."""
    if x.key == "plain":
        return scheme
    if x.key == "gguf":
        return f"GGUF {BLOCKS.get(x.blocks) or x.blocks.upper()}"
    if x.producer:
        return f"{NAMES[x.producer]} {scheme.split('-')[1].upper()}"
    if x.key == "nvfp4":
        return "compressed-tensors NVFP4" if scheme.startswith("ct-") else "ModelOpt NVFP4"
    return {"mxfp4": "MXFP4", "mxfp8": "FP8 MXFP8", "nf3": "NF3"}.get(x.key, "FP8")


def whole_orders(x, need):
    if not (x.ordered and x.group):
        return
    for name, size in (("hidden_size", x.hidden), ("intermediate_size", x.inter)):
        if size % x.group:
            need.add("shape", f"{name} % {x.group} = 0 with act-order", size)
    if x.tp > 1:
        need.add("weight", "down in act-order on one tensor rank", f"{x.tp} ranks")


def own_cpu(level, x):
    need = Needs(x)
    runs = any(level in levels[:levels.index(x.device) + 1]
               for levels in (X86, ARM) if x.device in levels)
    if need.on("cpu") and not runs:
        need.add("isa", level[4:], x.device[4:])
    tiles = level == "cpu:amx"
    if tiles and (x.key in ("plain", "nf3") or x.key == "gguf" and x.blocks in KEPT):
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in {TILE_FORMS}", scheme_words(x, x.name.split("/")[1]))
    if x.key == "plain":
        return need
    if x.key == "gguf" and x.blocks not in BLOCKS:
        if x.blocks in KEPT:
            return need.both(256)
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in {TILE_FORMS if tiles else FORMS}", scheme_words(x, x.name.split("/")[1]))
        return need
    for name, size in (("hidden_size", x.hidden), ("intermediate_size", x.inter)):
        if size % 16:
            need.add("shape", f"{name} % 16 = 0", size)
    whole_orders(x, need)
    return need


def own_cuda(x):
    need = Needs(x).cuda((90, 90))
    # Codes and scales apart, these are int2, int4 and int8 in groups of 32 and more; NF3 lies as they do.
    integers = x.integer or x.key == "nf3" or x.key == "gguf" and x.blocks in BLOCKS
    if integers and x.group % 32:
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in groups of a multiple of 32", x.group)
        return need
    if not integers and x.key not in ("nvfp4", "mxfp4", "mxfp8") + FP8:
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in e2m1 with an e4m3 scale a group of 16 or an e8m0 scale "
                     "a group of 32, in int4, int8, u2 or nf3 with scales, or in e4m3 with an e8m0 scale a "
                     "group of 32 or f32, bf16 or f16 scales a block of 128x128, a row or the tensor", scheme_words(x, x.name.split("/")[1]))
        return need
    whole = 16 if integers else x.group or 32
    need.both(whole)
    if x.sm == 90 and not (x.inter % whole or x.hidden % whole):
        fits = verdict(x, 1)
        assert fits is not None
        grouped = not (x.inter % 64 or x.hidden % 64) and x.function in ("silu", "swigluoai")
        if fits != "fits" and not grouped:
            need.add("shape", "a layer that fits a thread block", fits)
    whole_orders(x, need)
    return need


def together(x):
    """Features that no rank gets a part of: a group or block of scales, a packed word."""
    if x.key == "fp8_block":
        return 128
    if x.key in ("mxfp4", "mxfp8"):
        return 32
    if x.key == "gguf":
        return ELEMENTS[x.blocks]
    if not x.integer:
        return x.group or 1
    word = 32 // (8 if x.key == "int8" else 4)
    return math.lcm(1 if x.ordered else x.group or 1, word)


def dealt(size, unit, ranks):
    """Whole units, the first ranks one more; the last unit may be short. None: fewer than ranks."""
    units = -(-size // unit)
    if units < ranks:
        return None
    shares, begin = [], 0
    for rank in range(ranks):
        end = min(size, begin + unit * (units // ranks + (rank < units % ranks)))
        shares.append(end - begin)
        begin = end
    return shares


def over_ranks(rules, x):
    """What some rank lacks of one backend, and the unit that it lacks least with: one for all ranks.

    Units are what stays together, and the steps of 16 and 64 that kernels take.
    """
    if x.tp == 1:
        return 1, rules(x).missing
    tried = []
    for unit in sorted({math.lcm(together(x), step) for step in (1, 16, 64)}):
        shares = dealt(x.all_features, unit, x.tp)
        missing = []
        for size in sorted(set(shares or [x.all_features])):
            one = copy.copy(x)
            one.inter = size
            missing += [need for need in rules(one).missing if need not in missing]
        if shares is None:
            missing.append(("shape", f"{x.tp} whole groups of {unit} in intermediate_size",
                            f"{-(-x.all_features // unit)} in {x.all_features}"))
        tried.append((unit, missing))
    return min(tried, key=lambda one: len(one[1]))


def own_order(x):
    levels = [("cpu_amx", "cpu:amx"), ("cpu_avx512", "cpu:avx512"), ("cpu_avx2", "cpu:avx2"), ("cpu_neon", "cpu:neon"),
              ("cpu_generic", "cpu:generic")]
    rows = [(name, lambda layer, at=level: own_cpu(at, layer), True) for name, level in levels]
    rows = [("cuda_moe", own_cuda, True)] + rows
    return rows + [("reference", lambda layer: Needs(layer).cpu(), True)]
