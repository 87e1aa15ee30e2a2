#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of the tool on headers made to take much of it, against the bound of docs/fuzzing.md.

usage: hostile_memory_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

FEWBIT = sys.argv[1]
MB = 1_000_000
HEADER = 40 * MB
MOST_TENSORS, MOST_PAIRS = 1 << 18, 1 << 16


def bound(header_bytes, tensors, config_bytes=0):
    """As docs/fuzzing.md states it."""
    return 64 * MB + 5 * header_bytes + 1500 * min(tensors, MOST_TENSORS) + 40 * config_bytes


def entry(name, shape=b"0"):
    return b'"%s":{"dtype":"U8","shape":[%s],"data_offsets":[0,0]}' % (name, shape)


def repeated(head, piece, tail, size=HEADER):
    block = piece * (1 + MB // len(piece))
    yield head
    for _ in range(size // len(block)):
        yield block
    yield tail


def entries(count, shape=b"0", size=HEADER):
    yield b"{"
    written = 1
    for i in range(count):
        text = (b"," if i else b"") + entry(b"%x" % i, shape)
        written += len(text)
        if written > size:
            break
        yield text
    yield b"}"


def text(value):
    return struct.pack("<Q", len(value)) + value


def pairs(count, value):
    for i in range(count):
        yield text(b"%x" % i) + value


def gguf_tensors(count):
    for i in range(count):
        yield text(b"%x" % i) + struct.pack("<IQIQ", 1, 1, 0, 32 * i)


def strings(count):
    yield text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, count)
    for _ in range(count // 1000):
        yield struct.pack("<Q", 0) * 1000


class HostileHeaders(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def within(self, path, header_bytes, tensors, *texts, config_bytes=0):
        for command in (("check",), ("inspect",), ("explain",)):
            process = subprocess.Popen([FEWBIT, *command, path], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            errors = process.stderr.read()
            process.stderr.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertIn(process.returncode, (0, 1), errors)
            peak = usage.ru_maxrss * 1024
            self.assertLessEqual(peak, bound(header_bytes, tensors, config_bytes), (path.name, command))
            for part in texts:
                self.assertIn(part, errors.decode(errors="replace"))

    def safetensors(self, pieces, tensors, *texts):
        path = self.folder / "model.safetensors"
        with open(path, "wb") as out:
            out.write(bytes(8))
            for piece in pieces:
                out.write(piece)
            size = out.tell() - 8
            out.seek(0)
            out.write(struct.pack("<Q", size))
        self.within(path, size, tensors, *texts)

    def config(self, pieces):
        header = b"{" + entry(b"a.weight") + b"}"
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        path = self.folder / "config.json"
        with open(path, "wb") as out:  # piece by piece: the tool's peak begins with this process's
            out.writelines(pieces)
        self.within(self.folder, len(header), 1, config_bytes=path.stat().st_size)

    def gguf(self, pair_count, pair_pieces, tensor_count, tensor_pieces, *texts):
        path = self.folder / "model.gguf"
        with open(path, "wb") as out:
            out.write(struct.pack("<4sIQQ", b"GGUF", 3, tensor_count, pair_count))
            for pieces in (pair_pieces, tensor_pieces):
                for piece in pieces:
                    out.write(piece)
            size = out.tell()
            out.truncate((size + 31) // 32 * 32 + 32 * tensor_count)
        self.within(path, size, tensor_count, *texts)

    def test_many_tiny_tensors(self):
        self.safetensors(entries(MOST_TENSORS), MOST_TENSORS)
        self.safetensors(entries(1 << 30), MOST_TENSORS, "tensor-count", "262144")

    def test_many_dimensions(self):
        self.safetensors(entries(1 << 30, b",".join([b"0"] * 32)), MOST_TENSORS)
        self.safetensors(repeated(b'{"a":{"dtype":"U8","shape":[0', b",0", b'],"data_offsets":[0,0]}}'), 1,
                         "65536 values")

    def test_deep_and_wide_nesting(self):
        self.safetensors(repeated(b'{"a":', b"[", b""), 0, "nested deeper than 16")
        self.safetensors(repeated(b'{"a":[[]', b",[]", b"]}"), 0, "65536 values")

    def test_long_strings(self):
        self.safetensors(repeated(b'{"__metadata__":{"a":"', b"x", b'"}}'), 0)
        name = b"y" * (HEADER // 20)
        self.safetensors([b"{", *(entry(b"%d" % i + name) + b"," for i in range(20)), entry(b"z"), b"}"], 21)

    def test_much_metadata(self):
        def members(count):
            yield b'{"__metadata__":{"a":""'
            for i in range(count):
                yield b',"%x":""' % i
            yield b"}}"

        self.safetensors(members(65_000), 0)
        self.safetensors(members(4_000_000), 0, "65536 values")

    def test_configs(self):
        self.config(repeated(b'{"a":[1', b",1", b"]}", 7 * MB))
        self.config(repeated(b'{"a":[{}', b",{}", b"]}", 10 * MB))
        self.config(repeated(b'{"a":[[]', b",[]", b"]}", 10 * MB))

        def keys():
            yield b'{"a":0'
            for i in range(1_000_000):
                yield b',"%x":1' % i
            yield b"}"

        self.config(keys())

    def patterns(self, texts):
        """A list of regular expressions beside matrices that they are tried on."""
        header = b"{" + b",".join(entry(b"model.layers.%d.a.weight" % i) for i in range(64)) + b"}"
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        path = self.folder / "config.json"
        with open(path, "wb") as out:
            out.write(b'{"quantization_config":{"quant_method":"compressed-tensors","ignore":["lm_head"')
            out.writelines(b',"re:%s"' % text for text in texts)
            out.write(b"]}}")
        before = os.times()
        self.within(self.folder, len(header), 64, config_bytes=path.stat().st_size)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        # Of three commands that take 2 seconds together; sanitizers make that ten times as long.
        self.assertLess(spent, 45)

    def test_patterns(self):
        self.patterns(b"(a*)*" * i + b"$" for i in range(1, 300))
        self.patterns(b"(a*)*" * 3200 + b"%d$" % i for i in range(300))
        self.patterns(b"m(?:ab?){0,3000}%d" % i for i in range(2000))  # 50 KB each when compiled
        self.patterns(b".*" + rb"\\w+" * 500 + b"%d" % i for i in range(1000))  # 400 KB of machine code
        self.patterns(b"(?i)" + rb"[^\\u0100-\\uffffk]" * 700 + b"%d" % i for i in range(50))
        self.patterns(b"".join(b"(?P<n%d>)" % k for k in range(1300)) + b"%d" % i for i in range(300))

    def test_small_tensors_between_codes(self):
        """Values that identification looks at, each in pages of its own: these do not add up."""
        def parts(at):
            for suffix, dtype, shape, size in (
                (b"packed", b"I32", b"[16,4096]", 1 << 18),
                (b"scale", b"F16", b"[16,1]", 32),
                (b"shape", b"I64", b"[2]", 16),
                (b"g_idx", b"I32", b"[32768]", 1 << 17),
                (b"zero_point", b"I8", b"[16,1]", 16),
            ):
                yield suffix, dtype, shape, at, at + size
                at += size

        modules, pieces, end = 6000, [], 0
        for i in range(modules):
            for suffix, dtype, shape, begin, end in parts(end):
                name = b"model.layers.0.mlp.experts.%d.up_proj.weight_%s" % (i, suffix)
                pieces.append(b'"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (name, dtype, shape, begin, end))
        header = b"{" + b",".join(pieces) + b"}"
        path = self.folder / "model.safetensors"
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(header)) + header)
            out.truncate(8 + len(header) + end)
        (self.folder / "config.json").write_text(
            '{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":'
            '{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"strategy":"channel","symmetric":true}}}}}')
        self.within(self.folder, len(header), 5 * modules)

    def test_gguf_pairs(self):
        empty_array = struct.pack("<IIQ", 9, 8, 0)
        self.gguf(MOST_PAIRS, pairs(MOST_PAIRS, empty_array), 0, ())
        self.gguf(MOST_PAIRS + 1, pairs(MOST_PAIRS + 1, empty_array), 0, (), "kv-count", "65536")
        self.gguf(600, pairs(600, struct.pack("<I", 8) + text(b"v" * 65_000)), 0, ())
        self.gguf(1, strings(HEADER // 8000 * 1000), 0, ())

    def test_gguf_tensors(self):
        self.gguf(0, (), MOST_TENSORS, gguf_tensors(MOST_TENSORS))
        self.gguf(0, (), MOST_TENSORS + 1, gguf_tensors(MOST_TENSORS + 1), "tensor-count", "262144")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
