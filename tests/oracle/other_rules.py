# SPDX-License-Identifier: Apache-2.0
"""What SGLang's backends need, and FlashInfer's when they are called directly."""
from needs import F100, F120, NVFP4_W4A4, Needs

# ---------------------------------------------------------------- SGLang
def sglang_marlin(x):
    need = Needs(x).cuda((80, 999)).pairs((("int4", "int4_g32", "int8"), None, None),
                                          ("mxfp4", "16-bit", None))
    need.sglang_loader().groups(0, 32, 64, 128).exchanges("none", "allgather")
    need.functions("silu", *(["relu2"] if x.key == "mxfp4" else []))
    group = x.group if x.integer else 1
    need.multiple("hidden_size", 64, group)
    tile = 64 if x.hidden % 128 == 0 else 128
    return need.multiple("intermediate_size", tile, 1 if x.ordered else group)


def sglang_trtllm_mxint4(x):
    return (Needs(x).cuda((100, 999)).pairs(("int4_g32", "16-bit", None)).sglang_loader().no_zeros().no_order()
            .no_bias().gated().functions("silu", limits=False).exchanges("none").both(256))


# ---------------------------------------------------------------- FlashInfer, called directly
def api_trtllm_fp4(x):
    need = Needs(x).cuda((100, 100), (103, 103), (107, 107)).pairs(
        NVFP4_W4A4, ("mxfp4", "mxfp8", None), ("mxfp4", "16-bit", [(100, 100), (107, 107)]))
    need.gated().functions("silu", "swigluoai").trtllm_router()
    return need.multiple("hidden_size", 128).multiple("intermediate_size",
                                                      128 if x.key == "mxfp4" else 64)


def api_trtllm_mxint4(x):
    return (Needs(x).cuda(F100, F120)
            .pairs((("int4", "int4_g32"), "16-bit", None)).groups(32).no_zeros()
            .no_order().no_bias().gated().functions("silu", "swigluoai")
            .trtllm_router().both(256))


def api_cutedsl(x):
    return (Needs(x).cuda((100, 100), (103, 103), (107, 107)).pairs(NVFP4_W4A4).gated()
            .functions("silu", "swigluoai").no_bias().multiple("hidden_size", 16)
            .multiple("intermediate_size", 64))


def api_cutlass(x):
    need = Needs(x).cuda((89, 90), (100, 100), (103, 103), (107, 107), (110, 110), (120, 121))
    need.pairs(("plain", "16-bit", None), ("mxfp4", "16-bit", [(90, 90)])).gated()
    need.functions("silu", "swigluoai").no_bias(but=("mxfp4",))
    return need.both(128) if x.key == "mxfp4" else need


def api_b12x(x):
    return (Needs(x).cuda((120, 121)).cuda_from(13)
            .pairs(("nvfp4", ("nvfp4", "16-bit"), None), ("mxfp4", ("16-bit", "mxfp4"), None))
            .functions("silu", "gelu_tanh", "swigluoai", "relu2").no_bias().no_expert_parallel()
            .both(64))
