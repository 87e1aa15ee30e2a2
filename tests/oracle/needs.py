# SPDX-License-Identifier: Apache-2.0
"""Layers as the tables ask about them, and the words of what a backend misses."""
import math

EXCHANGES = ("none", "allgather", "deepep_high_throughput", "deepep_low_latency", "nixl",
             "flashinfer_one_sided", "flashinfer_two_sided")
BATCHED = ("deepep_low_latency", "nixl")
ROUTINGS = ("softmax", "renormalize", "deepseek_v3", "llama4", "sigmoid", "sigmoid_renormalize",
            "minimax2", "sqrt_softplus", "other")
INTS = ("int4", "int4_g32", "int4_asym", "int4_g32_asym", "int8")
FP8 = ("fp8_tensor", "fp8_channel", "fp8_block")
KEYS = ("plain",) + INTS + ("nvfp4", "mxfp4", "mxfp8") + FP8
ACTS = ("16-bit", "int8", "fp8_tensor", "fp8_token", "fp8_group", "mxfp8", "nvfp4", "mxfp4")


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
        self.all_features, self.inter = inter, inter // self.tp
        self.experts = experts  # of all ranks: what routers are asked about
        self.device = device
        name, _, cuda = device.partition(":cuda")
        self.cuda_version = float(cuda) if cuda else None
        self.sm = int(name[3:]) if name.startswith("sm_") else 0
        self.platform = "cuda" if self.sm else device[:3]
        self.read_scheme(scheme)

    def deal_as_vllm(self):
        """Its loader of gpt-oss: as many groups of 32 a rank, the last padded; else even shares."""
        if self.key == "mxfp4" and self.function == "swigluoai":
            groups = -(-self.all_features // 32)
            self.inter = 32 * -(-groups // self.tp)
        return self

    def read_scheme(self, scheme):
        self.group, self.zeros, self.ordered, self.awq = 0, False, False, False
        self.producer = ""  # of integers
        self.as_stored = False  # vllm_rules.moe_wna16
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
        elif scheme == "nf3":
            self.key, self.group = "nf3", 32
        elif scheme.startswith("gguf-"):
            self.key, self.blocks = "gguf", scheme[5:]
            self.group = 32 if self.blocks == "q4_0" else 0
        else:
            self.read_integer(scheme.split("-"))

    def read_integer(self, parts):
        producer, bits = parts[0], parts[1]
        self.producer = producer
        self.group = 0 if "channel" in parts else int(parts[2][1:])
        self.awq = producer == "awq"
        self.zeros = self.awq or "asym" in parts
        self.ordered = "actorder" in parts
        if producer != "ct" or bits == "int8":  # one key whatever the group
            self.key = bits
        else:
            self.key = "int4_g32" if self.group == 32 else "int4"
            self.key += "_asym" if self.zeros else ""

    @property
    def integer(self):
        return self.key in INTS


def device_words(device):
    if device.startswith("sm_"):
        return f"CUDA device described {device.partition(':')[0]}"
    return "XPU described xpu" if device == "xpu" else f"CPU described {device}"


def either(words, between=", ", last=" or "):
    """a, b or c"""
    words = list(words)
    return words[0] if len(words) == 1 else between.join(words[:-1]) + last + words[-1]


def version(capability):
    return f"{capability // 10}.{capability % 10}"


def range_words(low, high):
    if high >= 999:
        return version(low) + " or higher"
    return version(low) if low == high else f"{version(low)} to {version(high)}"


def in_order(names, order):
    assert set(names) <= set(order), names
    return [name for name in order if name in names]


class Needs:
    """Collects what a class misses: why, what it needs, and what the layer has."""

    def __init__(self, layer):
        self.layer, self.missing, self.unmet = layer, [], {}

    def add(self, reason, needs, has):
        if (reason, needs, has) not in self.missing:  # two rules may ask for the same
            self.missing.append((reason, needs, has))

    # --- machines
    def on(self, *platforms):
        """Whether it is one of cpu, cuda, xpu."""
        x = self.layer
        if x.platform in platforms:
            return True
        words = {"cpu": "a CPU", "cuda": "a CUDA device", "xpu": "an XPU"}
        self.add("device", either(words[p] for p in ("cpu", "cuda", "xpu") if p in platforms),
                 device_words(x.device))
        return False

    def cuda(self, *ranges):
        x = self.layer
        if self.on("cuda") and ranges and not any(low <= x.sm <= high for low, high in ranges):
            self.add("device", "compute capability " + either(range_words(*r) for r in ranges),
                     f"compute capability {version(x.sm)}")
        return self

    def cuda_from(self, version):
        x = self.layer
        if x.sm and x.cuda_version is not None and x.cuda_version < version:
            self.add("device", f"CUDA {version:.1f} or newer", f"CUDA {x.cuda_version:.1f}")
        return self

    def triton_device(self):
        self.on("cuda", "xpu")
        return self

    def cpu(self):
        self.on("cpu")
        return self

    def amx(self):
        if self.on("cpu") and self.layer.device != "cpu:amx":
            self.add("isa", "amx", self.layer.device[4:])
        return self

    def xpu(self):
        self.on("xpu")
        return self

    # --- weights and activations: rows of (keys, acts, capability ranges or None); acts None: any
    def pairs(self, *rows):
        x = self.layer
        texts, near = [], []
        for keys, acts, ranges in rows:
            keys = (keys,) if isinstance(keys, str) else keys
            acts = (acts,) if isinstance(acts, str) else acts
            forms = either(in_order(acts, ACTS)) if acts else "any"
            text = f"{either(in_order(keys, KEYS))} with {forms} activations"
            if text not in texts:
                texts.append(text)
            if x.key not in keys or (acts and x.acts not in acts):
                continue
            if not (ranges and x.sm) or any(low <= x.sm <= high for low, high in ranges):
                return self
            near += [range_words(*r) for r in ranges]
        pair = f"{x.key} with {x.acts} activations"
        if near:
            self.add("device", f"compute capability {either(near)} for {pair}",
                     f"compute capability {version(x.sm)}")
        else:
            self.add("weight", "weights in " + either(texts, "; ", "; or "), pair)
        return self

    # --- loaders of integers, which refuse before or after a class is asked
    def vllm_loader(self, marlin=False):
        """The configs of GPTQ and AWQ, and what compressed-tensors' method asserts: with 8 bits
        before it asks, the rest when it has a choice other than Marlin."""
        x = self.layer
        self.config_of_gptq_and_awq()
        if x.producer == "ct" and x.key == "int8":
            if x.group:
                self.add("weight",
                         "weights with one scale a channel, as 8-bit compressed-tensors",
                         f"groups of {x.group}")
            self.no_zeros()
        if x.producer == "ct" and not marlin:
            self.no_zeros().no_order()
            if not x.group:
                self.add("weight", "weights with scales a group", "one scale a channel")
        return self

    def sglang_loader(self):
        self.config_of_gptq_and_awq()
        return self.no_zeros() if self.layer.producer == "ct" else self

    def config_of_gptq_and_awq(self):
        x = self.layer
        if x.producer == "gptq":
            self.no_zeros()
        if x.producer == "awq" and x.key == "int8":
            self.add("weight", "weights of 4 bits", "8 bits")

    def no_zeros(self):
        if self.layer.zeros:
            self.add("weight", "weights without stored zero points", "zero points")
        return self

    def no_order(self):
        if self.layer.ordered:
            self.add("weight", "weights without act-order in groups", "act-order")
        return self

    def no_awq(self):
        if self.layer.awq:
            self.add("weight", "weights not packed in AutoAWQ's order", "AutoAWQ's order")
        return self

    def no_declared_bias(self):
        name = {"gptq": "GPTQ", "awq": "AWQ"}.get(self.layer.producer)
        if name:
            self.add("weight", "weights of a format that declares no biases",
                     f"{name}, whose loader always declares biases")
        return self

    def groups(self, *sizes):
        x = self.layer
        if x.integer and x.group not in sizes:
            words = ["one scale a channel" if size == 0 else str(size) for size in sizes]
            self.add("weight", "group size " + either(words),
                     str(x.group) if x.group else "one scale a channel")
        return self

    def no_bias(self, but=()):
        if self.layer.bias and self.layer.key not in but:
            self.add("weight", "experts without biases", "biases")
        return self

    # --- the function
    def functions(self, *names, limits=True):
        x = self.layer
        if x.function not in names:
            self.add("activation", either(names), x.function)
        elif x.limit and not limits:
            self.add("activation", f"{x.function} without a limit", f"limit {x.limit}")
        return self

    def gated(self):
        if not self.layer.gated:
            self.add("activation", "a gated layer", f"no gate, {self.layer.function}")
        return self

    def bf16_from(self, capability):
        if self.layer.sm and self.layer.sm < capability:
            self.add("dtype", "activations in f16", "bf16")
        return self

    # --- ranks and routers
    def exchanges(self, *names):
        if self.layer.exchange not in names:
            self.add("parallel", "token exchange " + either(in_order(names, EXCHANGES)),
                     self.layer.exchange)
        return self

    def in_order(self, but=()):
        return self.exchanges(*(n for n in EXCHANGES if n not in BATCHED + tuple(but)))

    def not_flashinfer(self):
        return self.in_order(but=("flashinfer_one_sided", "flashinfer_two_sided"))

    def batched(self):
        return self.exchanges(*BATCHED)

    def no_expert_parallel(self):
        if self.layer.ep > 1:
            self.add("parallel", "all experts on one rank", f"experts over {self.layer.ep} ranks")
        return self

    def routings(self, *names):
        if self.layer.routing not in names:
            self.add("routing", "routing " + either(in_order(names, ROUTINGS)), self.layer.routing)
        return self

    def f32_logits_only(self, *names):
        x = self.layer
        if x.f32 and x.routing not in names:
            self.add("routing",
                     "router logits in bf16, or routing " + either(in_order(names, ROUTINGS)),
                     f"f32 logits with {x.routing}")
        return self

    def weight_on_output(self):
        if self.layer.on_input:
            self.add("routing", "router weight on the output", "input")
        return self

    def trtllm_router(self):
        x = self.layer
        if x.top_k > 32:
            self.add("routing", "top_k <= 32", str(x.top_k))
        if x.experts % 4:
            self.add("routing", "experts % 4 = 0", str(x.experts))
        if x.experts <= x.top_k:
            self.add("routing", f"more experts than top_k {x.top_k}", str(x.experts))
        if x.routing == "llama4" and x.top_k != 1:
            self.add("routing", "top_k 1 with routing llama4", str(x.top_k))
        if x.routing == "deepseek_v3":
            if x.top_groups > 4:
                self.add("routing", "top_groups <= 4", str(x.top_groups))
            if x.experts % x.groups:
                self.add("routing", f"experts % router groups {x.groups} = 0", str(x.experts))
        return self

    # --- sizes
    def multiple(self, size, *divisors):
        value = self.layer.hidden if size == "hidden_size" else self.layer.inter
        unmet = [self.unmet.get(size, 1)] + [d for d in divisors if d and value % d]
        self.unmet[size] = math.lcm(*unmet)
        if len(unmet) > 1:  # one need a size
            self.missing = [m for m in self.missing if not m[1].startswith(f"{size} % ")]
            self.add("shape", f"{size} % {self.unmet[size]} = 0", str(value))
        return self

    def whole_scales(self):
        """Of every engine: its loader cuts no group or block of scales; act-order's columns are free."""
        x = self.layer
        group = 0 if x.ordered else x.group
        block = 128 if x.key == "fp8_block" else 0
        return self.multiple("hidden_size", group).multiple("intermediate_size", group, block)

    def both(self, *divisors):
        return self.multiple("hidden_size", *divisors).multiple("intermediate_size", *divisors)


ANY = (75, 999)
F100, F110, F120 = (100, 109), (110, 119), (120, 129)
NVFP4_W4A4 = ("nvfp4", "nvfp4", None)
