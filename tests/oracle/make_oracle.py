#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What backends need, fewbit's and other engines', stated a second time, and the tables made from it.

usage: make_oracle.py [--check]     writes the tables *.csv beside itself
                                    --check: exit 1 when they are not what it would write

The rules follow the engines' sources class by class and what docs/backends.md says of fewbit's own,
not the tables of the library: each class is a function that lists what it misses. A row of a table holds a layer
of tests/problems/models.txt (fewbit_kinds: own_kinds.txt), a device, the spread tp/ep/exchange with the sizes of
all tensor ranks' shares where there are some ("8/1/none 4x240+4x224", "not dealt"), the backend chosen ("-": none)
and for each backend that the engine would ask all unmet needs: "name=reason: needs this, has
that / ... | name=...". The words are fewbit's. oracle_test.cpp compares every row with the library.
"""
import math
import pathlib
import sys

from cuda_rules import CARDS, verdict
from needs import FP8, Layer
from other_rules import (
    api_b12x, api_cutedsl, api_cutlass, api_trtllm_fp4, api_trtllm_mxint4, sglang_marlin,
    sglang_trtllm_mxint4,
)
from own_rules import dealt, over_ranks, own_order, together
from vllm_rules import (
    b12x, batched_deep_gemm, batched_marlin, batched_triton, cpu_fp8, cpu_int4, cpu_mxfp4,
    cpu_plain, cutedsl, cutedsl_batched, cutlass_fp4, cutlass_fp8, deep_gemm, deep_gemm_fp4,
    flashinfer_cutlass, humming, int4_emulation, marlin, mx_emulation, nvfp4_emulation, oai_triton,
    oai_triton_unfused, triton, triton_wna16, trtllm_bf16, trtllm_fp8, trtllm_mxfp4, trtllm_mxint4,
    trtllm_nvfp4, xpu_fp8, xpu_int4, xpu_mxfp4, xpu_plain,
)

HERE = pathlib.Path(__file__).resolve().parent
DEVICES = [f"sm_{c}" for c in (75, 80, 86, 89, 90, 100, 120, 121)]
DEVICES += ["cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx", "xpu"]

# (name, rules, asked without being named)
MXINT4 = ("flashinfer_trtllm_mxint4", trtllm_mxint4, False)
MARLIN, BATCHED_MARLIN = ("marlin", marlin, True), ("batched_marlin", batched_marlin, True)
HUMMING = ("humming", humming, True)
CUTLASS = ("flashinfer_cutlass", flashinfer_cutlass, True)
TRITON, BATCHED_TRITON = (("vllm_triton", triton, True),
                          ("vllm_batched_triton", batched_triton, True))


EMULATION_NVFP4 = ("vllm_emulation_nvfp4", nvfp4_emulation, True)
EMULATION_MX = ("vllm_emulation_mx", mx_emulation, True)


def cpu_order(x):
    """Integers and 16 bits have one backend there; FP8's is asked first, and no other runs there."""
    if x.integer:
        return [("vllm_cpu_int4", cpu_int4, True)]
    if x.key == "mxfp4":
        return [("vllm_cpu_mxfp4", cpu_mxfp4, True)]
    if x.key in FP8 + ("mxfp8",):
        return [("vllm_cpu_fp8", cpu_fp8, True)]
    return [("vllm_cpu_plain", cpu_plain, True)] if x.key == "plain" else []


def xpu_order(x):
    """The platform's own first; then what Triton runs of the order for GPUs."""
    if x.integer:
        return [("xpu_int4", xpu_int4, True)]
    if x.key == "mxfp4":
        own = ("xpu_mxfp4", xpu_mxfp4, True)
        return [own] if x.routing == "sqrt_softplus" else [own, EMULATION_MX]
    if x.key == "nvfp4":
        return [EMULATION_NVFP4]
    if x.key in FP8 + ("mxfp8",):
        return [("xpu_fp8", xpu_fp8, True), TRITON, BATCHED_TRITON]
    return [("xpu_plain", xpu_plain, True)] if x.key == "plain" else []


def vllm_order(x):
    x.deal_as_vllm()
    if x.platform == "cpu":
        return cpu_order(x)
    if x.platform == "xpu":
        return xpu_order(x)
    if x.integer:
        return [MXINT4, MARLIN, BATCHED_MARLIN, ("vllm_triton_wna16", triton_wna16, True), HUMMING,
                ("vllm_emulation_int4", int4_emulation, True)]
    if x.key == "nvfp4":
        return [("flashinfer_trtllm_nvfp4", trtllm_nvfp4, True),
                ("flashinfer_cutedsl", cutedsl, True),
                ("flashinfer_cutedsl_batched", cutedsl_batched, True), CUTLASS,
                ("vllm_cutlass_fp4", cutlass_fp4, True), MARLIN, HUMMING,
                EMULATION_NVFP4, ("flashinfer_b12x", b12x, False)]
    if x.key == "mxfp4":
        trt = ("flashinfer_trtllm_mxfp4", trtllm_mxfp4, True)
        if x.routing == "sqrt_softplus":  # DeepSeek-V4
            return [trt, ("vllm_deep_gemm_fp4", deep_gemm_fp4, True), MARLIN, BATCHED_MARLIN]
        if x.acts != "16-bit":
            return [trt, CUTLASS, EMULATION_MX]
        return [trt, ("vllm_oai_triton", oai_triton, True), CUTLASS, MARLIN, BATCHED_MARLIN,
                EMULATION_MX, ("vllm_oai_triton_unfused", oai_triton_unfused, False)]
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
        if x.exchange != "none":  # which implies data parallel
            return [trt, TRITON, BATCHED_TRITON, CUTLASS]
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


def shares_words(shares):
    """4x240+4x224"""
    return "+".join(f"{shares.count(size)}x{size}" for size in sorted(set(shares), reverse=True))


def row_of(layer, order):
    chosen, cells = "-", []
    own = order is own_order
    unit = together(layer)
    if own and layer.tp > 1 and dealt(layer.all_features, unit, layer.tp) is None:
        spread = f"{layer.tp}/{layer.ep}/{layer.exchange}"
        return [layer.name, layer.device, spread + " not dealt", "-",
                f"{layer.all_features} in runs of {unit}"]
    for name, rules, by_itself in order(layer):
        if own:
            of_unit, missing = over_ranks(rules, layer)
        else:
            of_unit, missing = unit, rules(layer).whole_scales().missing
        if not missing and by_itself and chosen == "-":
            chosen, unit = name, of_unit
        cells.append(name + "=" + " / ".join(sorted(
            f"{reason}: needs {needs}, has {has}" for reason, needs, has in missing)))
    spread = f"{layer.tp}/{layer.ep}/{layer.exchange}"
    if layer.tp > 1:
        spread += " " + shares_words(dealt(layer.all_features, unit, layer.tp) if own
                                     else [layer.inter] * layer.tp)
    return [layer.name, layer.device, spread, chosen, " | ".join(cells)]


def models(file="models.txt"):
    text = (HERE.parent / "problems" / file).read_text()
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            for scheme in words[7].split(","):
                yield words, scheme


def spreads_of(words, devices):
    """Every device alone; on four GPUs also spread over ranks."""
    for device in devices:
        yield device, (1, 1, "none")
    for device in ("sm_80", "sm_90", "sm_100", "sm_120"):
        for tp in (2, 4, 8):
            if int(words[2]) % tp == 0:
                yield device, (tp, 1, "none")
        if int(words[3]) % 8 == 0:
            yield device, (1, 8, "allgather")
            yield device, (1, 8, "deepep_low_latency")
            yield device, (1, 8, "flashinfer_two_sided")


def table(order, spread_too, devices, file="models.txt"):
    rows = []
    for words, scheme in models(file):
        for device, spread in spreads_of(words, devices):
            if spread != (1, 1, "none") and not spread_too(words[0]):
                continue
            layer = Layer(words, scheme, device, spread)
            rows.append(row_of(layer, order))
    return rows


def cuda_table():
    """The CUDA kernel is no backend yet: whether it could take a layer, at some numbers of tokens."""
    rows = []
    for words, scheme in models():
        for device in CARDS:
            layer = Layer(words, scheme, device, (1, 1, "none"))
            integers = layer.integer and layer.group % 32 == 0
            if not integers and layer.key not in ("nvfp4", "mxfp4", "mxfp8") + FP8:
                continue
            for tokens in (1, 16, 256, 1024):
                text = verdict(layer, tokens)
                if text:
                    rows.append([layer.name, device, str(tokens), text])
    return rows


SPREAD_MODELS = {"Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-120b", "GLM-4.5-Air", "Nemotron-3-Nano",
                 "Kimi-K2-Thinking", "MiniMax-M2"}
OF_CUDA = ["sm_120:cuda12.8", "sm_121:cuda13"]
GPUS = [d for d in DEVICES if d.startswith("sm_")]


def main():
    tables = {
        "vllm": table(vllm_order, lambda name: name in SPREAD_MODELS, DEVICES + OF_CUDA),
        "sglang": table(sglang_order, lambda name: False, ["sm_75", "sm_80", "sm_90", "sm_100"]),
        "fewbit": table(own_order, lambda name: name in SPREAD_MODELS, DEVICES + ["cpu:neon"]),
        "fewbit_kinds": table(own_order, lambda name: name in SPREAD_MODELS, DEVICES + ["cpu:neon"],
                              "own_kinds.txt"),
        "flashinfer": table(flashinfer_order, lambda name: False,
                            ["sm_90", "sm_100", "sm_120"] + OF_CUDA),
    }
    wrong = []
    heads = {name: ["problem", "device", "spread", "choice", "refusals"] for name in tables}
    tables["cuda_moe"], heads["cuda_moe"] = cuda_table(), ["problem", "device", "tokens", "verdict"]
    for engine, rows in tables.items():
        lines = [heads[engine]] + rows
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
