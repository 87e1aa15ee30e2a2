#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other engines' backends need, stated a second time, and the tables made from it.

usage: make_oracle.py [--check]     writes vllm.csv, sglang.csv and flashinfer.csv beside itself
                                    --check: exit 1 when they are not what it would write

The rules below follow the engines' sources class by class (docs/backends.md names them), not
fewbit's tables: each class is a function that lists what it misses. A row of a table holds a layer
of tests/problems/models.txt, a device, the spread tp/ep/exchange, the backend chosen ("-": none)
and for each backend that the engine would ask all unmet needs: "name=reason:what the layer has;
...". The words are fewbit's. oracle_test.cpp compares every row with the library.
"""
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DEVICES = [f"sm_{c}" for c in (75, 80, 86, 89, 90, 100, 120, 121)]
DEVICES += ["cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx", "xpu"]
BATCHED = ("deepep_low_latency", "nixl")
INTS = ("int4", "int4_g32", "int4_asym", "int4_g32_asym", "int8")
FP8 = ("fp8_tensor", "fp8_channel", "fp8_block")


class Layer:
    """A layer and the machine and ranks that it is asked for."""

    def __init__(self, words, scheme, device, spread):
        self.name = f"{words[0]}/{scheme}"
        self.hidden, inter, experts, self.top_k = (int(w) for w in words[1:5])
        self.function, self.routing = words[5], words[6]
        options = words[8:]
        self.bias = "bias" in options
        self.on_input = "input" in options
        self.f32 = "f32" in options
        self.groups, self.top_groups = 1, 1
        for option in options:
            if option.startswith("groups="):
                self.groups, self.top_groups = (int(g) for g in option[7:].split("/"))
        self.limit = 7 if self.function == "swigluoai" else None
        self.gated = self.function != "relu2"
        self.tp, self.ep, self.exchange = spread
        self.inter = inter // self.tp
        self.experts = experts  # of all ranks: what routers are asked about
        self.device = device
        self.sm = int(device[3:]) if device.startswith("sm_") else 0
        self.read_scheme(scheme)

    def read_scheme(self, scheme):
        self.group, self.zeros, self.ordered, self.awq = 0, False, False, False
        self.acts = "16-bit"
        if scheme in ("bf16", "f16"):
            self.key = "plain"
        elif "nvfp4" in scheme:
            self.key, self.group = "nvfp4", 16
            self.acts = "16-bit" if scheme.endswith("w4a16") else "nvfp4"
        elif scheme.startswith("mxfp4"):
            self.key, self.group = "mxfp4", 32
            self.acts = "mxfp8" if scheme.endswith("a8") else "16-bit"
        elif scheme == "mxfp8":
            self.key, self.group, self.acts = "mxfp8", 32, "mxfp8"
        elif scheme.startswith("fp8"):
            self.key = scheme.replace("-", "_")
            self.acts = {"fp8_tensor": "fp8_tensor", "fp8_channel": "fp8_token",
                         "fp8_block": "fp8_group"}[self.key]
        else:
            self.read_integer(scheme.split("-"))

    def read_integer(self, parts):
        producer, bits = parts[0], parts[1]
        self.group = 0 if "channel" in parts else int(parts[2][1:])
        self.awq = producer == "awq"
        self.zeros = self.awq or "asym" in parts
        self.ordered = "actorder" in parts
        if producer == "gptq":  # one key whatever the group; not symmetric is refused in the config
            self.key = "other" if self.zeros else bits
        elif producer == "awq":
            self.key = "int4"
        elif bits == "int8":
            self.key = "int8" if self.group == 0 and not self.zeros else "other"
        else:
            self.key = "int4_g32" if self.group == 32 else "int4"
            self.key += "_asym" if self.zeros else ""

    @property
    def integer(self):
        return self.key in INTS


def device_words(device):
    if device.startswith("sm_"):
        return f"CUDA device described {device}"
    return "XPU described xpu" if device == "xpu" else f"CPU described {device}"


class Needs:
    """Collects what a class misses, each with what the layer has."""

    def __init__(self, layer):
        self.layer, self.missing = layer, []

    def add(self, reason, has):
        self.missing.append((reason, has))

    # --- machines
    def cuda(self, *ranges):
        x = self.layer
        if not x.sm:
            self.add("device", device_words(x.device))
        elif ranges and not any(low <= x.sm <= high for low, high in ranges):
            self.add("device", f"compute capability {x.sm // 10}.{x.sm % 10}")
        return self

    def amx(self):
        x = self.layer
        if not x.device.startswith("cpu:"):
            self.add("device", device_words(x.device))
        elif x.device != "cpu:amx":
            self.add("isa", x.device[4:])
        return self

    def xpu(self):
        if self.layer.device != "xpu":
            self.add("device", device_words(self.layer.device))
        return self

    # --- weights and activations: {(key, acts): capability ranges or None}; acts None: any
    def pairs(self, table):
        x = self.layer
        for (key, acts), ranges in table.items():
            if key != x.key or acts not in (None, x.acts):
                continue
            if ranges and x.sm and not any(low <= x.sm <= high for low, high in ranges):
                self.add("device", f"compute capability {x.sm // 10}.{x.sm % 10}")
            return self
        self.add("weight", f"{x.key} with {x.acts} activations")
        return self

    def no_zeros(self):
        if self.layer.zeros:
            self.add("weight", "zero points")
        return self

    def no_order(self):
        if self.layer.ordered:
            self.add("weight", "act-order")
        return self

    def no_awq(self):
        if self.layer.awq:
            self.add("weight", "AutoAWQ's order")
        return self

    def groups(self, *sizes):
        x = self.layer
        if x.integer and x.group not in sizes:
            self.add("weight", str(x.group) if x.group else "one scale a channel")
        return self

    def no_bias(self, but=()):
        if self.layer.bias and self.layer.key not in but:
            self.add("weight", "biases")
        return self

    # --- the function
    def functions(self, *names, limits=True):
        x = self.layer
        if x.function not in names:
            self.add("activation", x.function)
        elif x.limit and not limits:
            self.add("activation", f"limit {x.limit}")
        return self

    def gated(self):
        if not self.layer.gated:
            self.add("activation", f"no gate, {self.layer.function}")
        return self

    def bf16_from(self, capability):
        if self.layer.sm and self.layer.sm < capability:
            self.add("dtype", "bf16")
        return self

    # --- ranks and routers
    def exchanges(self, *names):
        if self.layer.exchange not in names:
            self.add("parallel", self.layer.exchange)
        return self

    def in_order(self, but=()):
        names = ("none", "allgather", "deepep_high_throughput", "flashinfer_one_sided",
                 "flashinfer_two_sided")
        return self.exchanges(*(n for n in names if n not in but))

    def not_flashinfer(self):
        return self.in_order(but=("flashinfer_one_sided", "flashinfer_two_sided"))

    def batched(self):
        return self.exchanges(*BATCHED)

    def no_expert_parallel(self):
        if self.layer.ep > 1:
            self.add("parallel", f"experts over {self.layer.ep} ranks")
        return self

    def routings(self, *names):
        if self.layer.routing not in names:
            self.add("routing", self.layer.routing)
        return self

    def f32_logits_only(self, *names):
        x = self.layer
        if x.f32 and x.routing not in names:
            self.add("routing", f"f32 logits with {x.routing}")
        return self

    def weight_on_output(self):
        if self.layer.on_input:
            self.add("routing", "input")
        return self

    def trtllm_router(self):
        x = self.layer
        if x.top_k > 32:
            self.add("routing", str(x.top_k))
        if x.experts % 4:
            self.add("routing", str(x.experts))
        if x.experts <= x.top_k:
            self.add("routing", str(x.experts))
        if x.routing == "deepseek_v3":
            if x.top_groups > 4:
                self.add("routing", str(x.top_groups))
            if x.experts % x.groups:
                self.add("routing", str(x.experts))
        return self

    # --- sizes
    def multiple(self, size, *divisors):
        value = self.layer.hidden if size == "hidden_size" else self.layer.inter
        unmet = 1
        for divisor in divisors:
            if divisor and value % divisor:
                unmet = math.lcm(unmet, divisor)
        if unmet > 1:
            self.add("shape", f"{size} % {unmet} = 0:{value}")
        return self

    def both(self, *divisors):
        return self.multiple("hidden_size", *divisors).multiple("intermediate_size", *divisors)

    def tiles(self):
        """64 x 128 or 128 x 64 tiles of both products: k by n."""
        x = self.layer
        if x.hidden % 64:
            self.multiple("hidden_size", 64)
        return self.multiple("intermediate_size", 64 if x.hidden % 128 == 0 else 128)


ANY = (75, 999)
F100, F110, F120 = (100, 109), (110, 119), (120, 129)
NVFP4_W4A4 = {("nvfp4", "nvfp4"): None}


# ---------------------------------------------------------------- vLLM, integers
def marlin_needs(x):
    need = Needs(x).cuda(ANY).pairs({(k, None): None for k in INTS + FP8 +
                                     ("nvfp4", "mxfp4", "mxfp8")})
    need.groups(0, 32, 64, 128).bf16_from(80)
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
        need.multiple("hidden_size", 64)
        need.multiple("intermediate_size", 64 if x.hidden % 128 == 0 else 128, blocks)
    return need


def marlin(x):
    return marlin_needs(x).in_order(but=("flashinfer_two_sided",))


def batched_marlin(x):
    return marlin_needs(x).batched()


def humming(x):
    return Needs(x).cuda(ANY).pairs({(k, None): None for k in ("int4", "int8", "nvfp4", "mxfp4",
                                                               "mxfp8") + FP8}).weight_on_output()


def trtllm_mxint4(x):
    return (Needs(x).cuda(F100).pairs({("int4_g32", "16-bit"): None}).no_zeros().no_order()
            .no_bias().gated().functions("silu", limits=False).exchanges("none", "allgather")
            .routings("renormalize", "deepseek_v3", "llama4").f32_logits_only("deepseek_v3")
            .trtllm_router().both(256))


def triton_wna16(x):
    need = Needs(x).cuda().pairs({(k, "16-bit"): None for k in ("int4", "int4_g32", "int8")})
    need.no_order().no_awq().no_bias().not_flashinfer()
    return need.both(x.group) if x.integer else need


def int4_emulation(x):
    return (Needs(x).cuda().pairs({(k, "16-bit"): None for k in INTS if k != "int8"}).no_bias()
            .not_flashinfer())


def cpu_int4(x):
    need = (Needs(x).amx().pairs({("int4", "16-bit"): None}).no_order().gated()
            .functions("silu", limits=False).no_expert_parallel().in_order()
            .routings("softmax", "renormalize").weight_on_output())
    columns = [min(x.group or 128, 128), x.group] if x.integer else []
    need.multiple("hidden_size", 32, *columns)
    return need.multiple("intermediate_size", 16 if x.gated else 32, *columns)


def xpu_int4(x):
    return (Needs(x).xpu().pairs({(k, "16-bit"): None for k in ("int4", "int4_g32")}).no_zeros()
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
    need = Needs(x).cuda((90, 90), F100, F120).pairs({
        ("plain", "16-bit"): None, ("fp8_tensor", "fp8_tensor"): None,  # 9.0: as the class
        ("mxfp4", "16-bit"): hopper, ("fp8_block", "fp8_group"): hopper,
        ("mxfp4", "mxfp8"): blackwell, ("nvfp4", "nvfp4"): blackwell})
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
    return whole_blocks(Needs(x).cuda(F120)
                        .pairs({("nvfp4", "nvfp4"): None, ("nvfp4", "16-bit"): None})
                        .functions("silu", "gelu_tanh", "relu2", limits=False).no_bias()
                        .no_expert_parallel().in_order())


def nvfp4_emulation(x):
    return Needs(x).cuda().pairs(NVFP4_W4A4).no_bias().not_flashinfer().both(16)


# ---------------------------------------------------------------- vLLM, MXFP4
def trtllm_mxfp4(x):
    return (Needs(x).cuda(F100).pairs({("mxfp4", "16-bit"): None, ("mxfp4", "mxfp8"): None})
            .gated().functions("swigluoai", "silu").in_order().both(32))


def oai_triton(x):
    return (Needs(x).cuda((90, 109)).pairs({("mxfp4", "16-bit"): None}).gated()
            .functions("swigluoai", "silu", "gelu").in_order().both(32))


def mx_emulation(x):
    return (Needs(x).cuda().pairs({("mxfp4", "16-bit"): None, ("mxfp4", "mxfp8"): None})
            .not_flashinfer().both(32))


def deep_gemm_fp4(x):
    return (Needs(x).cuda(F100, F120).pairs({("mxfp4", "mxfp8"): None}).gated().functions("silu")
            .no_bias().not_flashinfer().both(32))


def cpu_mxfp4(x):
    return (Needs(x).amx().pairs({("mxfp4", "16-bit"): None}).gated().functions("silu", "swigluoai")
            .in_order().routings("softmax", "renormalize").both(32))


def xpu_mxfp4(x):
    return (Needs(x).xpu().pairs({("mxfp4", "16-bit"): None, ("mxfp4", "mxfp4"): None})
            .functions("silu", "gelu", "gelu_tanh", "swigluoai", "relu2").in_order().both(32))


# ---------------------------------------------------------------- vLLM, FP8 and 16 bits
def trtllm_fp8(x):
    need = (Needs(x).cuda(F100)
            .pairs({("fp8_block", "fp8_group"): None, ("mxfp8", "mxfp8"): None,
                    ("fp8_tensor", "fp8_tensor"): None})
            .functions("silu", "swigluoai", "relu2").no_bias().in_order())
    return need.multiple("intermediate_size", 128) if x.key == "fp8_block" else need


def deep_gemm(x):
    return (Needs(x).cuda((90, 90), F100)
            .pairs({("fp8_block", "fp8_group"): None, ("mxfp8", "mxfp8"): [F100]}).gated()
            .functions("silu", "swigluoai").no_bias().not_flashinfer().both(128))


def batched_deep_gemm(x):
    return (Needs(x).cuda((90, 90), F100).pairs({("fp8_block", "fp8_group"): None}).gated()
            .functions("silu").no_bias().batched().both(128))


def cutlass_fp8(x):
    return (Needs(x).cuda((90, 109))
            .pairs({("fp8_channel", "fp8_token"): None, ("fp8_tensor", "fp8_tensor"): None})
            .gated().no_bias().exchanges("none", "allgather"))


def triton_needs(x):
    ada = [(89, 999)]
    need = Needs(x).cuda().pairs({
        ("plain", "16-bit"): None, ("fp8_tensor", "fp8_tensor"): ada,
        ("fp8_channel", "fp8_token"): ada, ("fp8_block", "fp8_group"): ada})
    return need.multiple("intermediate_size", 128) if x.key == "fp8_block" else need


def triton(x):
    return triton_needs(x).not_flashinfer()


def batched_triton(x):
    return triton_needs(x).batched()


def trtllm_bf16(x):
    return (Needs(x).cuda(F100).pairs({("plain", "16-bit"): None}).functions("silu", "relu2")
            .no_bias()
            .exchanges("none", "allgather", "flashinfer_one_sided", "flashinfer_two_sided")
            .routings("deepseek_v3", "llama4", "renormalize", "sigmoid_renormalize", "sigmoid")
            .multiple("intermediate_size", 128))


# ---------------------------------------------------------------- SGLang
def sglang_marlin(x):
    need = Needs(x).cuda((80, 999)).pairs({("int4", None): None, ("int4_g32", None): None,
                                           ("int8", None): None, ("mxfp4", "16-bit"): None})
    need.groups(0, 32, 64, 128).exchanges("none", "allgather")
    need.functions("silu", *(["relu2"] if x.key == "mxfp4" else []))
    group = x.group if x.integer else 1
    need.multiple("hidden_size", 64, group)
    tile = 64 if x.hidden % 128 == 0 else 128
    return need.multiple("intermediate_size", tile, 1 if x.ordered else group)


def sglang_trtllm_mxint4(x):
    return (Needs(x).cuda((100, 999)).pairs({("int4_g32", "16-bit"): None}).no_zeros().no_order()
            .no_bias().gated().functions("silu", limits=False).exchanges("none").both(256))


# ---------------------------------------------------------------- FlashInfer, called directly
def api_trtllm_fp4(x):
    need = Needs(x).cuda((100, 100), (103, 103), (107, 107)).pairs({
        ("nvfp4", "nvfp4"): None, ("mxfp4", "mxfp8"): None,
        ("mxfp4", "16-bit"): [(100, 100), (107, 107)]})
    need.gated().functions("silu", "swigluoai").trtllm_router()
    return need.multiple("hidden_size", 128).multiple("intermediate_size",
                                                      128 if x.key == "mxfp4" else 64)


def api_trtllm_mxint4(x):
    return (Needs(x).cuda(F100, F120)
            .pairs({("int4", "16-bit"): None, ("int4_g32", "16-bit"): None}).groups(32).no_zeros()
            .no_order().no_bias().gated().functions("silu", "swigluoai")
            .trtllm_router().both(256))


def api_cutedsl(x):
    return (Needs(x).cuda((100, 100), (103, 103), (107, 107)).pairs(NVFP4_W4A4).gated()
            .functions("silu", "swigluoai").no_bias().multiple("hidden_size", 16)
            .multiple("intermediate_size", 64))


def api_cutlass(x):
    need = Needs(x).cuda((89, 90), (100, 100), (103, 103), (107, 107), (110, 110), (120, 121))
    need.pairs({("plain", "16-bit"): None, ("mxfp4", "16-bit"): [(90, 90)]}).gated()
    need.functions("silu", "swigluoai").no_bias(but=("mxfp4",))
    return need.both(128) if x.key == "mxfp4" else need


def api_b12x(x):
    return (Needs(x).cuda((120, 121))
            .pairs({("nvfp4", "nvfp4"): None, ("nvfp4", "16-bit"): None,
                    ("mxfp4", "16-bit"): None, ("mxfp4", "mxfp4"): None})
            .functions("silu", "gelu_tanh", "swigluoai", "relu2").no_bias().no_expert_parallel()
            .both(64))


# (name, rules, asked without being named)
MXINT4 = ("flashinfer_trtllm_mxint4", trtllm_mxint4, False)
MARLIN, BATCHED_MARLIN = ("marlin", marlin, True), ("batched_marlin", batched_marlin, True)
HUMMING = ("humming", humming, True)
CUTLASS = ("flashinfer_cutlass", flashinfer_cutlass, True)
TRITON, BATCHED_TRITON = (("vllm_triton", triton, True),
                          ("vllm_batched_triton", batched_triton, True))


def vllm_order(x):
    if x.device.startswith("cpu"):
        return [("vllm_cpu_int4", cpu_int4, True), ("vllm_cpu_mxfp4", cpu_mxfp4, True)]
    if x.device == "xpu":
        return [("xpu_int4", xpu_int4, True), ("xpu_mxfp4", xpu_mxfp4, True)]
    if x.integer:
        return [MXINT4, MARLIN, BATCHED_MARLIN, ("vllm_triton_wna16", triton_wna16, True), HUMMING,
                ("vllm_emulation_int4", int4_emulation, True)]
    if x.key == "nvfp4":
        return [("flashinfer_trtllm_nvfp4", trtllm_nvfp4, True),
                ("flashinfer_cutedsl", cutedsl, True),
                ("flashinfer_cutedsl_batched", cutedsl_batched, True), CUTLASS,
                ("vllm_cutlass_fp4", cutlass_fp4, True), MARLIN, HUMMING,
                ("vllm_emulation_nvfp4", nvfp4_emulation, True), ("flashinfer_b12x", b12x, False)]
    if x.key == "mxfp4":
        trt = ("flashinfer_trtllm_mxfp4", trtllm_mxfp4, True)
        emulation = ("vllm_emulation_mx", mx_emulation, True)
        if x.routing == "sqrt_softplus":  # DeepSeek-V4
            return [trt, ("vllm_deep_gemm_fp4", deep_gemm_fp4, True), MARLIN, BATCHED_MARLIN]
        if x.acts != "16-bit":
            return [trt, CUTLASS, emulation]
        return [trt, ("vllm_oai_triton", oai_triton, True), CUTLASS, MARLIN, BATCHED_MARLIN,
                emulation]
    if x.key in FP8 + ("mxfp8",):
        order = [("flashinfer_trtllm_fp8", trtllm_fp8, True), CUTLASS,
                 ("vllm_deep_gemm", deep_gemm, True), ("vllm_cutlass_fp8", cutlass_fp8, False),
                 TRITON, MARLIN, HUMMING, ("vllm_batched_deep_gemm", batched_deep_gemm, True),
                 BATCHED_TRITON]
        if x.sm == 90 and x.key == "fp8_block":
            first = CUTLASS if x.ep > 1 else TRITON
            order = [first] + [b for b in order if b is not first]
        return order
    if x.key == "plain":
        trt = ("flashinfer_trtllm_bf16", trtllm_bf16, True)
        if x.sm == 90 or x.function == "swigluoai":
            return [TRITON, BATCHED_TRITON, trt, CUTLASS]
        return [trt, CUTLASS, TRITON, BATCHED_TRITON]
    return []


def sglang_order(x):
    if not x.sm:
        return []
    return [("sglang_marlin", sglang_marlin, True),
            ("sglang_trtllm_mxint4", sglang_trtllm_mxint4, False)]


def flashinfer_order(x):
    if not x.sm:
        return []
    return [("trtllm_fp4", api_trtllm_fp4, True), ("trtllm_mxint4", api_trtllm_mxint4, True),
            ("cutedsl_nvfp4", api_cutedsl, True), ("cutlass", api_cutlass, True),
            ("b12x", api_b12x, True)]


def row_of(layer, order):
    chosen, cells = "-", []
    for name, rules, by_itself in order:
        missing = rules(layer).missing
        if not missing and by_itself and chosen == "-":
            chosen = name
        cells.append(name + "=" + "; ".join(f"{reason}:{has}" for reason, has in sorted(missing)))
    spread = f"{layer.tp}/{layer.ep}/{layer.exchange}"
    return [layer.name, layer.device, spread, chosen, " | ".join(cells)]


def models():
    text = (HERE.parent / "problems" / "models.txt").read_text()
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            for scheme in words[7].split(","):
                yield words, scheme


def spreads_of(words, devices):
    """Every device alone; on three GPUs also spread over ranks."""
    for device in devices:
        yield device, (1, 1, "none")
    for device in ("sm_80", "sm_90", "sm_100"):
        for tp in (2, 8):
            if int(words[2]) % tp == 0:
                yield device, (tp, 1, "none")
        if int(words[3]) % 8 == 0:
            yield device, (1, 8, "allgather")
            yield device, (1, 8, "deepep_low_latency")
            yield device, (1, 8, "flashinfer_two_sided")


def table(order, spread_too, devices):
    rows = []
    for words, scheme in models():
        for device, spread in spreads_of(words, devices):
            if spread != (1, 1, "none") and not spread_too(words[0]):
                continue
            layer = Layer(words, scheme, device, spread)
            rows.append(row_of(layer, order(layer)))
    return rows


SPREAD_MODELS = {"Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-120b", "GLM-4.5-Air", "Nemotron-3-Nano",
                 "Kimi-K2-Thinking", "MiniMax-M2"}
GPUS = [d for d in DEVICES if d.startswith("sm_")]


def main():
    tables = {
        "vllm": table(vllm_order, lambda name: name in SPREAD_MODELS, DEVICES),
        "sglang": table(sglang_order, lambda name: False, ["sm_75", "sm_80", "sm_90", "sm_100"]),
        "flashinfer": table(flashinfer_order, lambda name: False,
                            ["sm_90", "sm_100", "sm_120"]),
    }
    wrong = []
    for engine, rows in tables.items():
        lines = [["problem", "device", "spread", "choice", "refusals"]] + rows
        path = HERE / f"{engine}.csv"
        text = "\n".join(",".join(quoted(cell) for cell in line) for line in lines) + "\n"
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                wrong.append(path.name)
        else:
            path.write_text(text)
            print(f"{path.name}: {len(rows)} rows")
    if wrong:
        print("not what make_oracle.py writes: " + ", ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def quoted(cell):
    assert '"' not in cell
    return f'"{cell}"' if "," in cell else cell


if __name__ == "__main__":
    sys.exit(main())
