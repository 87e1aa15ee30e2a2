# SPDX-License-Identifier: Apache-2.0
"""What fewbit's own backends need (docs/backends.md, "Those that run here").

The kernels of a level run on CPUs of that level and above. They take 16 and 32-bit weights and
NVFP4 in whole groups of 16, without zero points and act-order, and have no biases; the reference
takes every readable scheme on any CPU, and has no biases either. The CUDA backend takes NVFP4 and
MXFP4 in whole groups on cards of compute capability 9.0, with biases.
"""
from cuda_rules import verdict
from needs import Needs

LEVELS = ["cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx"]
NAMES = {"gptq": "GPTQ", "awq": "AWQ", "ct": "compressed-tensors"}


def scheme_words(x, scheme):
    """What the layer has, as pages call it, without what they add in brackets."""
    if x.key == "plain":
        return scheme
    if x.producer:
        return f"{NAMES[x.producer]} {scheme.split('-')[1].upper()}"
    if x.key == "nvfp4":
        return "compressed-tensors NVFP4" if scheme.startswith("ct-") else "ModelOpt NVFP4"
    return {"mxfp4": "MXFP4", "mxfp8": "FP8 MXFP8"}.get(x.key, "FP8")


def own_cpu(level, x):
    need = Needs(x)
    if need.on("cpu") and LEVELS.index(x.device) < LEVELS.index(level):
        need.add("isa", level[4:], x.device[4:])
    if x.key not in ("plain", "nvfp4"):
        has = scheme_words(x, x.name.split("/")[1])
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in bf16, f16, f32, or e2m1 with an e4m3 scale a group of 16",
                     has)
    need.no_bias()
    return need.both(16) if x.key == "nvfp4" else need


def own_cuda(x):
    need = Needs(x).cuda((90, 90))
    if x.key not in ("nvfp4", "mxfp4"):
        for which in ("gate and up", "down"):
            need.add("weight", f"{which} in e2m1 with an e4m3 scale a group of 16 or an e8m0 scale "
                     "a group of 32", scheme_words(x, x.name.split("/")[1]))
        return need
    need.both(x.group)
    if x.sm == 90 and not (x.inter % x.group or x.hidden % x.group):
        fits = verdict(x, 1)
        assert fits is not None
        grouped = not (x.inter % 64 or x.hidden % 64) and x.function in ("silu", "swigluoai")
        if fits != "fits" and not grouped:
            need.add("shape", "a layer that fits a thread block", fits)
    return need


def own_order(x):
    levels = [("cpu_avx512", "cpu:avx512"), ("cpu_avx2", "cpu:avx2"), ("cpu_generic", "cpu:generic")]
    rows = [(name, lambda layer, at=level: own_cpu(at, layer), True) for name, level in levels]
    rows = [("cuda_moe", own_cuda, True)] + rows
    return rows + [("reference", lambda layer: Needs(layer).cpu().no_bias(), True)]
