#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a layer takes on a CPU, from its shape and this machine's limits, beside `fewbit bench`.

usage: cost_model.py FEWBIT [--kinds nvfp4,mxfp4] [--tokens 1,4,16,64,512] [--seconds 0.2] [--rounds 3]
       (standard library only)

A layer's time is that of its products and of what activations move beside them.

  products   sum over the matrices of ((bytes / read)^3 + (flops / arithmetic)^3)^(1/3), the larger one
             where they differ and a quarter more where they are equal and wait for each other, where
             bytes       of a matrix's weights, once; of a MoE layer of the experts that tokens reach:
                         experts * (1 - (1 - top_k / experts)^tokens) of them at even routing
             flops       2 * n * k * max(tokens of the expert, decode): decoding a weight takes as
                         long as its products with `decode` tokens; tokens are spread binomially
             read        share of the machine's read limit, arithmetic a share of its multiply-adds
  moved      bytes of activations / read: the routes' rows gathered, activated and added up
  steps      a fixed time for each of the steps that threads begin together

`decode` and both shares are of a kind of weights on a CPU: they are fitted on the times of one
layer, and all others are predicted with them. Limits are of each run.
"""
import argparse
import itertools
import json
import math
import statistics
import subprocess

STEP_SECONDS = 3e-6
FITTED = "Qwen3-30B-A3B"
PREDICTED = ("dense-14336x4096", "dense-4096x4096")
OF_KIND = {"nvfp4": ("gpt-oss-20b/nvfp4", "GLM-4.5-Air"), "mxfp4": ("gpt-oss-20b",)}


def measured(program, shape, args):
    """The layer of `fewbit bench` with medians over the rounds, limits of each round its own."""
    command = [program, "bench", shape, "--tokens", args.tokens, "--seconds", str(args.seconds), "--json"]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["layers"][0]
            for _ in range(args.rounds)]
    layer = runs[0]
    for name in ("read_bytes_per_second", "fma_f32_flops_per_second", "tile_bf16_flops_per_second"):
        if name in layer["limits"]:
            layer["limits"][name] = statistics.median(run["limits"][name] for run in runs)
    for i, timing in enumerate(layer["timings"]):
        timing["median_seconds"] = statistics.median(run["timings"][i]["median_seconds"] for run in runs)
    return layer


def spread(tokens, share):
    """(tokens of an expert, how likely) for those that a token reaches with probability `share`."""
    if share >= 1:
        return [(tokens, 1.0)]
    middle, reach = tokens * share, 8 * math.sqrt(tokens * share) + 8
    lower, upper = max(1, int(middle - reach)), min(tokens, int(middle + reach))
    log = [math.lgamma(tokens + 1) - math.lgamma(j + 1) - math.lgamma(tokens - j + 1) +
           j * math.log(share) + (tokens - j) * math.log1p(-share) for j in range(lower, upper + 1)]
    return [(lower + i, math.exp(value)) for i, value in enumerate(log)]


def predicted(layer, tokens, constants):
    """Seconds of a call and what limits its products."""
    decode, read_share, share = constants
    limits = layer["limits"]
    read = limits["read_bytes_per_second"] * read_share
    arithmetic = limits.get("tile_bf16_flops_per_second", limits["fma_f32_flops_per_second"]) * share
    if "num_experts" in layer:
        experts = layer["num_experts"]
        hidden, wide = layer["hidden_size"], layer["intermediate_size"]
        chosen = layer["top_k"] / experts
        weights = 3 * hidden * wide
        routes = tokens * layer["top_k"]
        # Rows of hidden and of activated values in 2 bytes, of outputs in 4, each written and read.
        moved = routes * (hidden * (2 + 2 + 4 + 4) + wide * (2 + 2))
        steps = 4
    else:
        experts, chosen = 1, 1.0
        weights = layer["out_features"] * layer["in_features"]
        moved = tokens * (layer["in_features"] * 4 + layer["out_features"] * 2)
        steps = 2
    bytes_each = layer["prepared_bytes"] / experts
    reading = computing = products = 0.0
    for count, likely in spread(tokens, chosen):
        one_read = bytes_each / read
        one_computed = 2 * weights * max(count, decode) / arithmetic
        reading += experts * likely * one_read
        computing += experts * likely * one_computed
        products += experts * likely * math.cbrt(one_read**3 + one_computed**3)
    return products + moved / read + steps * STEP_SECONDS, "memory" if reading > computing else "arithmetic"


def errors(layer, constants):
    return [predicted(layer, t["tokens"], constants)[0] / t["median_seconds"] for t in layer["timings"]]


def fit(layer):
    """The constants whose predictions of a layer are nearest by ratio."""
    grid = itertools.product([1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8],
                             [x / 50 for x in range(20, 51)], [x / 50 for x in range(10, 101)])
    return min(grid, key=lambda c: sum(math.log(e) ** 2 for e in errors(layer, c)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kinds", default="nvfp4,mxfp4,gptq-int4-g128,fp8-block")
    parser.add_argument("--tokens", default="1,4,16,64,512")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    worst = []
    for kind in args.kinds.split(","):
        fitted = f"{FITTED}/{kind}"
        layer = measured(args.program, fitted, args)
        constants = fit(layer)
        print(f"{kind}, fitted on {FITTED}: decoding takes as long as {constants[0]:g} tokens, "
              f"{constants[1]:.2f} of reads, {constants[2]:.2f} of multiply-adds", flush=True)
        for shape in [fitted] + [f"{name}/{kind}" for name in PREDICTED] + list(OF_KIND.get(kind, ())):
            if shape != fitted:
                layer = measured(args.program, shape, args)
            cells = []
            for timing in layer["timings"]:
                seconds, limit = predicted(layer, timing["tokens"], constants)
                ratio = seconds / timing["median_seconds"]
                if shape != fitted:
                    worst.append(abs(math.log(ratio)))
                cells.append(f"{timing['tokens']}: {seconds * 1e3:.3g} / "
                             f"{timing['median_seconds'] * 1e3:.3g} ms {ratio:.2f} {limit[0]}")
            print(f"  {shape}: " + "; ".join(cells), flush=True)
    if worst:
        within = sum(value <= math.log(1.15) for value in worst)
        print(f"{within} of {len(worst)} predictions within 15 %, median {math.exp(statistics.median(worst)) - 1:.1%} "
              f"off, the worst {math.exp(max(worst)) - 1:.0%}")


if __name__ == "__main__":
    main()
