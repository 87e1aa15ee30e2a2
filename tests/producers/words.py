# SPDX-License-Identifier: Apache-2.0
"""Integer codes in words, packed one bit field after another: written for reading."""

import numpy as np

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def pack_stream(codes, bits, container=32):
    """[..., m] codes to [..., ceil(m * bits / container)] words, low bits first, across words."""
    codes = np.asarray(codes, np.uint64)
    words = -(-codes.shape[-1] * bits // container)
    stream = np.zeros((*codes.shape[:-1], words * container), np.uint8)
    for bit in range(bits):
        stream[..., bit : codes.shape[-1] * bits : bits] = (codes >> np.uint64(bit)) & np.uint64(1)
    data = np.packbits(stream, axis=-1, bitorder="little")
    return data.view({16: np.int16, 32: np.int32}[container])


def pack_whole(codes, bits):
    """[..., m] codes to [..., ceil(m / (32 // bits))] words, low bits first, none across words."""
    codes = np.asarray(codes, np.uint64)
    fit = 32 // bits
    short = -codes.shape[-1] % fit
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], short), np.uint64)], axis=-1)
    fields = codes.reshape(*codes.shape[:-1], -1, fit) << np.arange(0, fit * bits, bits, dtype=np.uint64)
    return np.ascontiguousarray(fields.sum(axis=-1).astype(np.uint32).view(np.int32))


def unpack_stream(words, bits, count, whole=False):
    """The first `count` codes of each row; `whole`: as many in a word as fit, none across words."""
    words = np.ascontiguousarray(words, np.int32)
    stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.int64)
    if whole:
        fit = 32 // bits * bits
        stream = stream.reshape(len(words), -1, 32)[..., :fit].reshape(len(words), -1)
    fields = stream[:, : count * bits].reshape(len(words), count, bits)
    return fields @ (1 << np.arange(bits))


def pack_down(codes, bits):
    """[k, n] to [ceil(k * bits / 32), n]: GPTQ's qweight."""
    return np.ascontiguousarray(pack_stream(np.asarray(codes).T.copy(), bits).T)


def pack_awq(codes):
    """[rows, n] to [rows, n / 8]: nibble i of a word is column AWQ_ORDER[i] of its eight."""
    codes = np.asarray(codes)
    order = np.array([8 * block + column for block in range(codes.shape[1] // 8) for column in AWQ_ORDER])
    return pack_stream(codes[:, order], 4)


def pack_gemv_fast(codes):
    """[n, k] to i16 [n / 4, k]."""
    n, k = codes.shape
    blocks = codes.reshape(n, k // 32, 4, 4, 2).swapaxes(2, 3)  # column pairs 0, 8, 16, 24, then 2, 10 …
    blocks = blocks.reshape(n, k // 8, 4, 2).swapaxes(2, 3)  # evens of each eight, then odds
    quads = blocks.reshape(n // 4, 4, k // 64, 64).swapaxes(1, 2)  # four rows by turns, 64 columns each
    return pack_stream(quads.reshape(n // 4, 4 * k), 4, container=16)
