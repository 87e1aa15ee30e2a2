# SPDX-License-Identifier: Apache-2.0
"""What vLLM's backends need, one function a class of its source."""
import copy

from needs import ANY, F100, F110, F120, FP8, INTS, NVFP4_W4A4, Needs

# ---------------------------------------------------------------- vLLM, integers
def marlin_needs(x):
    need = Needs(x).cuda(ANY).pairs((INTS + FP8 + ("nvfp4", "mxfp4", "mxfp8"), None, None))
    need.vllm_loader(marlin=True).groups(0, 32, 64, 128).bf16_from(80)
    if x.integer:
        # Padded to a tile, so whole groups are enough; act-order's rows can't be padded.
        inter = max(64, x.group) if x.ordered else x.group
        need.multiple("hidden_size", 128).multiple("intermediate_size", inter)
    elif x.key == "nvfp4":
        need.multiple("hidden_size", 64).multiple("intermediate_size", 16)
    elif x.key == "mxfp4":
        need.both(32)
    elif x.key in FP8 + ("mxfp8",):
        blocks = 128 if x.key == "fp8_block" else 1
        need.multiple("hidden_size", 64, blocks)
        need.multiple("intermediate_size", 64 if x.hidden % 128 == 0 else 128, blocks)
    return need


def marlin(x):
    return marlin_needs(x).in_order(but=("flashinfer_two_sided",))


def batched_marlin(x):
    return marlin_needs(x).batched()


def moe_wna16(x):
    """On GPUs GPTQ that Marlin's test of sizes fails is MoeWNA16's: codes stay as the checkpoint has
    them, and the group is halved until it divides both sizes, or ends at 32."""
    inter = max(64, x.group) if x.ordered else max(x.group, 1)
    fits = x.hidden % 128 == 0 and x.group in (0, 32, 64, 128) and x.inter % inter == 0
    if x.producer != "gptq" or not x.sm or fits:
        return x
    x = copy.copy(x)
    while x.group >= 64 and (x.hidden % x.group or x.inter % x.group):
        x.group //= 2
    x.as_stored = True
    if x.group == 32 and x.key == "int4":
        x.key = "int4_g32"
    return x


def as_moe_wna16(need, *columns):
    """What every class gets to see: whole groups of at least 32, besides what divides `columns`."""
    x = need.layer
    if x.as_stored and 0 < x.group < 32:
        need.add("weight", "groups of 32 or more, or one scale a channel", str(x.group))
    return need.both(*columns, x.group if x.as_stored else 1)


def humming(x):
    x = moe_wna16(x)
    keys = ("int4", "int8", "nvfp4", "mxfp4", "mxfp8") + FP8
    need = Needs(x).cuda(ANY).pairs((keys, None, None)).vllm_loader().weight_on_output()
    return as_moe_wna16(need)


def trtllm_mxint4(x):
    x = moe_wna16(x)
    # Before the class is asked: GPTQ's and AWQ's integrations always declare biases.
    need = (Needs(x).vllm_loader().no_declared_bias().cuda(F100).pairs(("int4_g32", "16-bit", None)).no_zeros()
            .no_order().no_bias().gated().functions("silu", limits=False).exchanges("none", "allgather")
            .routings("renormalize", "deepseek_v3", "llama4").f32_logits_only("deepseek_v3")
            .trtllm_router())
    return as_moe_wna16(need, 256)


def triton_wna16(x):
    x = moe_wna16(x)
    need = Needs(x).triton_device().pairs((("int4", "int4_g32", "int8"), "16-bit", None))
    need.vllm_loader().no_order().no_awq().no_bias().not_flashinfer()
    return as_moe_wna16(need, x.group if x.integer else 1)


def int4_emulation(x):
    x = moe_wna16(x)
    keys = tuple(k for k in INTS if k != "int8")
    need = Needs(x)
    if x.as_stored:
        need.add("weight", "GPTQ of sizes that fit Marlin", "the layout of the checkpoint")
    as_moe_wna16(need)
    return need.cuda().pairs((keys, "16-bit", None)).vllm_loader().no_bias().not_flashinfer()


def cpu_int4(x):
    need = (Needs(x).amx().pairs(("int4", "16-bit", None)).vllm_loader().no_order().gated()
            .functions("silu", limits=False).no_expert_parallel().in_order()
            .routings("softmax", "renormalize").weight_on_output())
    columns = [min(x.group or 128, 128), x.group] if x.integer else []
    need.multiple("hidden_size", 32, *columns)
    return need.multiple("intermediate_size", 16 if x.gated else 32, *columns)


def xpu_int4(x):
    return (Needs(x).xpu().pairs((("int4", "int4_g32"), "16-bit", None)).vllm_loader().no_zeros()
            .no_order().functions("silu", "gelu", "gelu_tanh", "swigluoai", "relu2").in_order()
            .both(8, x.group if x.integer else 1))


# ---------------------------------------------------------------- vLLM, NVFP4
def trtllm_nvfp4(x):
    return (Needs(x).cuda(F100).pairs(NVFP4_W4A4)
            .functions("silu", "gelu", "gelu_tanh", "relu2", "swigluoai").no_bias().in_order()
            .both(16))


def cutedsl(x):
    return (Needs(x).cuda(F100).pairs(NVFP4_W4A4).functions("silu", "swigluoai", "relu2")
            .no_bias().in_order().both(16))


def whole_blocks(need):
    """Gate and up together fill blocks of 128 rows; layers without a gate are padded."""
    need.multiple("hidden_size", 16)
    return need.multiple("intermediate_size", 64 if need.layer.gated else 16)


def cutedsl_batched(x):
    return whole_blocks(Needs(x).cuda(F100).pairs(NVFP4_W4A4).gated()
                        .functions("silu", limits=False).no_bias().batched())


def flashinfer_cutlass(x):
    hopper, blackwell = [(90, 90)], [(100, 999)]
    need = Needs(x).cuda((90, 90), F100, F120).pairs(
        ("plain", "16-bit", None), ("fp8_tensor", "fp8_tensor", None),  # 9.0: as the class
        ("mxfp4", "16-bit", hopper), ("fp8_block", "fp8_group", hopper),
        ("mxfp4", "mxfp8", blackwell), ("nvfp4", "nvfp4", blackwell))
    need.functions("silu", "gelu_tanh", "relu2", "swigluoai").no_bias(but=("mxfp4",)).in_order()
    if x.key == "nvfp4":
        whole_blocks(need)
    elif x.key == "mxfp4":
        need.both(32)
    elif x.key == "fp8_block":
        need.multiple("intermediate_size", 128)
    return need


def cutlass_fp4(x):
    return whole_blocks(Needs(x).cuda(F100, F110, F120).pairs(NVFP4_W4A4).no_bias()
                        .no_expert_parallel().in_order())


def b12x(x):
    return whole_blocks(Needs(x).cuda(F120).cuda_from(13)
                        .pairs(("nvfp4", ("nvfp4", "16-bit"), None))
                        .functions("silu", "gelu_tanh", "relu2", limits=False).no_bias()
                        .no_expert_parallel().in_order())


def nvfp4_emulation(x):
    return Needs(x).triton_device().pairs(NVFP4_W4A4).no_bias().not_flashinfer().both(16)


# ---------------------------------------------------------------- vLLM, MXFP4
def trtllm_mxfp4(x):
    return (Needs(x).cuda(F100).pairs(("mxfp4", ("16-bit", "mxfp8"), None))
            .gated().functions("swigluoai", "silu").in_order().both(32))


def oai_triton(x, *functions):
    return (Needs(x).cuda((90, 109)).pairs(("mxfp4", "16-bit", None)).gated()
            .functions("swigluoai", *functions).in_order().both(32))


def oai_triton_unfused(x):
    return oai_triton(x, "silu", "gelu")


def mx_emulation(x):
    # It decodes the weights for whatever activations.
    acts = ("16-bit", "fp8_tensor", "mxfp8", "mxfp4")
    return Needs(x).triton_device().pairs(("mxfp4", acts, None)).not_flashinfer().both(32)


def deep_gemm_fp4(x):
    # Its own form; the order that it is asked in gives each class its own, whichever 8 bits are wanted.
    return (Needs(x).cuda(F100, F120).pairs(("mxfp4", ("fp8_group", "mxfp8"), None)).gated().functions("silu")
            .no_bias().not_flashinfer().both(32))


def cpu_mxfp4(x):
    return (Needs(x).amx().pairs(("mxfp4", "16-bit", None)).gated().functions("silu", "swigluoai")
            .in_order().routings("softmax", "renormalize").both(32))


def xpu_mxfp4(x):
    return (Needs(x).xpu().pairs(("mxfp4", ("16-bit", "mxfp4"), None))
            .functions("silu", "gelu", "gelu_tanh", "swigluoai", "relu2").in_order().both(32))


# ---------------------------------------------------------------- vLLM, FP8 and 16 bits
def trtllm_fp8(x):
    need = (Needs(x).cuda(F100)
            .pairs(("fp8_block", "fp8_group", None), ("mxfp8", "mxfp8", None),
                   ("fp8_tensor", "fp8_tensor", None))
            .functions("silu", "swigluoai", "relu2").no_bias())
    if x.key == "fp8_tensor":  # only the kernel that routes too
        return need.exchanges("none", "allgather").routings(
            "deepseek_v3", "llama4", "renormalize", "sigmoid_renormalize", "sigmoid", "minimax2")
    need = need.exchanges("none", "allgather", "flashinfer_one_sided", "flashinfer_two_sided")
    return need.multiple("intermediate_size", 128) if x.key == "fp8_block" else need


def deep_gemm(x):
    return (Needs(x).cuda((90, 90), F100)
            .pairs(("fp8_block", "fp8_group", None), ("mxfp8", "mxfp8", [F100])).gated()
            .functions("silu", "swigluoai").no_bias().not_flashinfer().both(128))


def batched_deep_gemm(x):
    return (Needs(x).cuda((90, 90), F100).pairs(("fp8_block", "fp8_group", None)).gated()
            .functions("silu").no_bias().batched().both(128))


def cutlass_fp8(x):
    return (Needs(x).cuda((90, 109))
            .pairs(("fp8_channel", "fp8_token", None), ("fp8_tensor", "fp8_tensor", None))
            .gated().no_bias().exchanges("none", "allgather"))


def triton_needs(x):
    ada = [(89, 999)]
    need = Needs(x).triton_device().pairs(
        ("plain", "16-bit", None), ("fp8_tensor", "fp8_tensor", ada),
        ("fp8_channel", "fp8_token", ada), ("fp8_block", "fp8_group", ada))
    return need.multiple("intermediate_size", 128) if x.key == "fp8_block" else need


def triton(x):
    return triton_needs(x).not_flashinfer()


def batched_triton(x):
    return triton_needs(x).batched()


def cpu_fp8(x):
    need = (Needs(x).amx().pairs(("fp8_block", "fp8_group", None)).gated().functions("silu")
            .no_bias().in_order().routings("softmax", "renormalize"))
    return need.multiple("intermediate_size", 128) if x.key == "fp8_block" else need


def cpu_plain(x):
    """Four classes; what AMX, Arm and Power refuse the portable one takes. intermediate_size is
    padded, but where gate and up lie in turn."""
    need = (Needs(x).cpu().pairs(("plain", "16-bit", None)).gated()
            .functions("silu", "gelu", "gelu_tanh", "swigluoai").in_order()
            .multiple("hidden_size", 32))
    return need.multiple("intermediate_size", 32) if x.function == "swigluoai" else need


XPU_FUNCTIONS = ("silu", "gelu", "gelu_tanh", "swigluoai", "relu2")


def xpu_plain(x):
    return (Needs(x).xpu().pairs(("plain", "16-bit", None)).functions(*XPU_FUNCTIONS).in_order())


def xpu_fp8(x):
    return (Needs(x).xpu().pairs(("fp8_tensor", ("16-bit", "fp8_tensor"), None),
                                 ("mxfp8", ("16-bit", "mxfp8"), None))
            .functions(*XPU_FUNCTIONS).in_order())


def trtllm_bf16(x):
    return (Needs(x).cuda(F100).pairs(("plain", "16-bit", None)).functions("silu", "relu2")
            .no_bias()
            .exchanges("none", "allgather", "flashinfer_one_sided", "flashinfer_two_sided")
            .routings("deepseek_v3", "llama4", "renormalize", "sigmoid_renormalize", "sigmoid")
            .multiple("intermediate_size", 128))
