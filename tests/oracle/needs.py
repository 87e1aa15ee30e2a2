# SPDX-License-Identifier: Apache-2.0
"""Layers as the tables ask about them, and the words of what a backend misses."""
import math

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
