# SPDX-License-Identifier: Apache-2.0
"""Which layers fit the streaming CUDA kernel on a card: what its thread blocks hold in shared memory.

A block holds, each part from a multiple of 128 bytes on: 16 bytes for each item (up to 8 tokens of
an expert), 8 for each route, 12 for each expert, 8 tokens' activations in 16 bits for the longer of
both k in whole cells of 32, two tiles of sums of 1 KiB for each of 16 warps where warps share rows, and
for each warp two slots of a cell (512 bytes of codes, and the scales of 16 rows of gate and of up)
or, before that, a count of two bytes for each expert. 4 KiB stay free.

Of integers a slot is four cells, whose 32 rows have 16-bit scales, and a byte of zero point where there
are any, for all 128 k or for every 32 (ternary weights in groups of 64: for every 64); k are filled up
to 128. NF3 has 3 bits a weight and scales for every 32 k. Of FP8 a cell is 1024 bytes of codes
and 16 of scales, of MXFP8 32. Where sharing warps leave no room for these they share no rows.
"""
from needs import FP8

CARDS = {"sm_75": (64, 40), "sm_80": (163, 108), "sm_86": (99, 82), "sm_89": (99, 128),
         "sm_90": (227, 132), "sm_100": (227, 148), "sm_120": (99, 170), "sm_121": (99, 48)}
WARPS = 16


def up(size, multiple):
    return -(-size // multiple) * multiple


def int_bits(x):
    """Of what own_cuda lets through: Q4_0 and Q8_0 are the kinds of blocks among it. 0: no integers."""
    if x.integer:
        return 8 if x.key == "int8" else 4
    if x.key == "nf3":
        return 3
    return {"q4_0": 4, "q8_0": 8, "q2_0": 2, "pq2_0": 2, "tq2_0": 2}.get(x.blocks, 0) if x.key == "gguf" else 0


def shared_cells(x):
    """Cells of 32 k with one scale a row."""
    if x.key == "gguf":
        return {"q2_0": 2, "pq2_0": 4, "tq2_0": 4}.get(x.blocks, 1)
    return 4 if x.key != "nf3" and x.group % 128 == 0 else 1


def bytes_needed(x, tokens, sums):
    routes = tokens * x.top_k
    items = min(routes, x.experts + routes // 8)
    whole = 128 if int_bits(x) else 32
    cells = up(max(x.hidden, x.inter), whole) // 32
    if int_bits(x):
        headers = 4 // shared_cells(x)
        cell = 4 * 128 * int_bits(x) + headers * 32 * (3 if x.zeros else 2)
    elif x.key in FP8 + ("mxfp8",):
        cell = 1024 + (16 if x.key in FP8 else 32)
    else:
        cell = 512 + 2 * 16 * (32 // x.group)
    parts = [16 * items, 8 * routes, 12 * x.experts, 512 * cells, 2 * WARPS * 1024 * sums]
    return sum(up(part, 128) for part in parts) + max(2 * WARPS * cell, 2 * WARPS * x.experts)


def verdict(x, tokens):
    """"fits", why not, or None where it hangs on how warps share rows."""
    for name, size in (("hidden_size", x.hidden), ("intermediate_size", x.inter)):
        if size % 16:
            return f"{name} {size}, expected a multiple of 16 from 16 to 1048576"
    if tokens * x.top_k > 8192:
        return f"tokens {tokens}, expected at most {8192 // x.top_k} with top_k {x.top_k}"
    available = CARDS[x.device][0] * 1024
    fits = [bytes_needed(x, tokens, sums) + 4096 <= available for sums in (0, 1)]
    if all(fits):
        return "fits"
    if any(fits):
        return "fits" if int_bits(x) or x.key in FP8 + ("mxfp8",) else None
    return (f"hidden_size {x.hidden} and intermediate_size {x.inter} need more than the shared "
            f"memory of one thread block, {available} bytes")
