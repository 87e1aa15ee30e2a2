#!/usr/bin/env python3
"""fewbit prepare for every rank of a split: what explain says of it, what each rank holds.

usage: prepare_ranks_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import re
import shutil
import sys
import unittest

from cli_case import legal_ranks
from prepare_case import (Scratch, bf16, content, rewrite_header, run, run_json,
                          write_gpt_oss_model, write_gptq_model, write_model)


def buffers(out):
    """Name without layout: the bytes of each expert."""
    file = content(out)["prepared/layer-00000.safetensors"]
    length = int.from_bytes(file[:8], "little")
    header, data = json.loads(file[8:8 + length]), file[8 + length:]
    found = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        each = (end - begin) // tensor["shape"][0]
        found[name.split(".experts.")[1].split(":")[0]] = [
            data[begin + e * each:begin + (e + 1) * each] for e in range(tensor["shape"][0])]
    return found


def round_up(size, multiple):
    return -(-size // multiple) * multiple


class MarlinMxfp4:
    """Marlin's closed form of one MXFP4 matrix, from lists of codes, scale bytes and biases a row.

    16 k x 64 n codes are 128 words; x = n % 64, word 16 (x % 8) + 4 (k % 8 / 2) + x / 16, nibble
    4 (k % 2) + 2 (x / 8 % 2) + k % 16 / 8. Columns of scales and biases in an order of their own.
    """

    def __init__(self, codes, scales, columns):
        self.rows, self.columns = len(codes), columns
        words = bytearray(self.rows * columns // 2)
        of_k = [((k // 16) * (self.rows // 64) * 128 + 4 * (k % 8 // 2), 4 * (k % 2) + k % 16 // 8)
                for k in range(columns)]
        for n, row in enumerate(codes):
            x = n % 64
            word, slot = n // 64 * 128 + 16 * (x % 8) + x // 16, 2 * (x // 8 % 2)
            for (at, nibble), code in zip(of_k, row):
                nibble += slot
                words[4 * (word + at) + nibble // 2] |= code << (4 * (nibble % 2))
        grid = bytearray(self.rows * columns // 32)
        for n, row in enumerate(scales):
            at = n - n % 64 + 8 * (n % 8) + n % 64 // 8
            at += {1: 1, 2: -1}.get(at % 4, 0)
            for group, scale in enumerate(row):
                grid[group * self.rows + at] = scale
        self.words, self.scales = bytes(words), bytes(grid)

    @staticmethod
    def bias(values):
        out = [0] * len(values)
        for n, value in enumerate(values):
            x = n % 32
            out[n - x + 8 * (x % 8 // 2) + 2 * (x // 8) + x % 2] = value
        return bf16(out)


def padded(rows, count, width):
    rows = [row + [0] * (width - len(row)) for row in rows]
    return rows + [[0] * width for _ in range(count - len(rows))]


def marlin_expert(expert, first, features, share, hidden, with_bias):
    """Features first to first + features of an expert, as many rows as `share` in vLLM's padding."""
    wide, long = round_up(hidden, 256), round_up(share, 128)
    codes, scales, bias = [], [], []
    for matrix in (expert["gate"], expert["up"]):
        rows = slice(first, first + features)
        codes += padded(matrix["codes"][rows], long, wide)
        scales += padded(matrix["scales"][rows], long, wide // 32)
        bias += matrix["bias"][rows] + [0] * (long - features)
    down = expert["down"]
    w13 = MarlinMxfp4(codes, scales, wide)
    w2 = MarlinMxfp4(
        padded([row[first:first + features] for row in down["codes"]], wide, long),
        padded([row[first // 32:(first + features) // 32] for row in down["scales"]], wide,
               long // 32), long)
    own = down["bias"] if with_bias else [0] * hidden
    return {"w13.words": w13.words, "w13.scales": w13.scales, "w13.bias": MarlinMxfp4.bias(bias),
            "w2.words": w2.words, "w2.scales": w2.scales,
            "w2.bias": MarlinMxfp4.bias(own + [0] * (wide - hidden))}


class Ranks(Scratch):
    def rank(self, source, split, rank, *options):
        out = self.folder / f"rank-{rank}"
        shutil.rmtree(out, ignore_errors=True)
        made = run("prepare", source, "-o", out, *split, "--rank", rank, *options, "--verify")
        self.assertEqual(made.returncode, 0, f"rank {rank}: {made.stderr}")
        checked = run("check", out, "--source", source)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        return out

    def test_padded_ranks_of_gpt_oss_hold_what_their_kernels_read(self):
        """Shares of whole groups, the last one padded: all ranks are prepared, byte by byte."""
        hidden = 128
        for inner, ranks, share, last in ((2880, 4, 736, 672), (2880, 8, 384, 192),
                                          (352, 4, 96, 64), (2880, 12, 256, 64)):
            source = self.folder / f"source-{inner}-{ranks}"
            experts = write_gpt_oss_model(source, hidden=hidden, inner=inner)
            on = ("--backend", "marlin", "--device", "sm_90")
            split = ("--tp", ranks)
            page = run("explain", source, "--engine", "vllm", *on, *split)
            self.assertEqual(page.returncode, 0, page.stderr)
            self.assertIn("chosen   marlin, forced", page.stdout)
            for rank in range(ranks):
                with self.subTest(inner=inner, ranks=ranks, rank=rank):
                    found = buffers(self.rank(source, split, rank, *on))
                    features = last if rank == ranks - 1 else share
                    want = marlin_expert(experts[1], rank * share, features, share, hidden, rank == 0)
                    self.assertEqual(sorted(found), sorted(want))
                    for name, data in want.items():
                        self.assertTrue(found[name][1] == data, name)

    def test_padded_ranks_of_other_kernels_are_prepared_and_taken_apart(self):
        source = self.folder / "source"
        write_gpt_oss_model(source, hidden=128, inner=352)
        for backend, engine, device in (("flashinfer_trtllm_mxfp4", "vllm", "sm_100"),
                                        ("batched_marlin", "vllm", "sm_80"),
                                        ("sglang_marlin", "sglang", "sm_90")):
            on = ("--backend", backend, "--device", device)
            page = run("explain", source, "--engine", engine, *on, "--tp", 4)
            with self.subTest(backend=backend):
                prepared = [run("prepare", source, "-o", self.folder / f"{backend}-{rank}", *on,
                                "--tp", 4, "--rank", rank, "--verify") for rank in range(4)]
                self.assertEqual({made.returncode for made in prepared}, {page.returncode},
                                 page.stderr + prepared[-1].stderr)
                sizes = {sum(len(e) for of in buffers(self.folder / f"{backend}-{rank}").values()
                             for e in of) for rank in range(4) if page.returncode == 0}
                self.assertLessEqual(len(sizes), 1)

    def test_a_family_that_prepare_refuses_is_refused_by_explain_at_every_tp(self):
        source = self.folder / "source"
        write_gpt_oss_model(source, hidden=128, inner=352)
        why = 'model_type "gpt_oss" is not known; known: qwen3_moe, mixtral, olmoe'
        for tp in (1, 4, 7, 8):
            said = run_json(self, "explain", source, "--tp", tp)
            self.assertEqual(said["prepare"], {"writes": False, "refused": why})
            self.assertTrue(run("explain", source, "--tp", tp).stdout.endswith(
                f"\nprepare  refuses it: {why}\n"))
            self.expect_error(why, args=("prepare", source, "-o", self.out, "--tp", tp))
        self.nothing_left()

    def test_every_kind_of_layer_is_decided(self):
        """Layer 1 has floats of 32 bits, which other engines' kernels do not take."""
        source = self.folder / "source"
        write_model(source, layers=3, experts=4, hidden=256, inner=128, form="bf16")

        def widen(header, data):
            out = b""
            for name, tensor in header.items():
                if name == "__metadata__":
                    continue
                begin, end = tensor["data_offsets"]
                raw = data[begin:end]
                if ".layers.1.mlp.experts." in name:
                    tensor["dtype"] = "F32"
                    raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
                tensor["data_offsets"] = [len(out), len(out) + len(raw)]
                out += raw
            return header, out

        rewrite_header(source / "model.safetensors", widen)
        own = run_json(self, "explain", source)
        self.assertEqual([own["layers"]] + [o["layers"] for o in own["other_layers"]], [[0, 2], [1]])
        self.prepared(source=source)
        layers = json.loads((self.out / "fewbit_prepared.json").read_text())["layers"]
        said = {n: part["chosen"] for part in (own, *own["other_layers"]) for n in part["layers"]}
        self.assertEqual({layer["layer"]: layer["backend"] for layer in layers}, said)
        self.assertTrue(own["prepare"]["writes"])
        on = ("--device", "sm_90", "--backend", "flashinfer_cutlass")
        theirs = run("explain", source, "--engine", "vllm", *on)
        self.assertEqual(theirs.returncode, 1)
        self.assertIn("\nprepare  refuses it: layer 1: ", theirs.stdout)
        self.assertIn("layer    layers 0, 2, which are alike\n", theirs.stdout)
        shutil.rmtree(self.out)
        refused = re.search("prepare  refuses it: layer 1: (.*)", theirs.stdout).group(1)
        self.expect_error(refused, args=("prepare", source, "-o", self.out, *on))
        self.nothing_left()

    def test_what_only_one_layers_weights_tell_is_said_of_it(self):
        """Kernels with one global scale for gate and up: layer 0 has one, layer 2 two."""
        source = self.folder / "source"
        made = []

        def one_global(rng):
            made.append(rng.random())
            return made[-1] if len(made) > 2 * 4 * 3 else 0.25

        write_model(source, layers=3, experts=4, hidden=256, inner=128, global_scale=one_global)
        on = ("--device", "sm_90", "--backend", "marlin")
        said = run_json(self, "explain", source, "--engine", "vllm", *on)
        self.assertEqual([said["layers"]] + [o["layers"] for o in said["other_layers"]], [[0, 1], [2]])
        self.assertFalse(said["prepare"]["writes"])
        self.assertRegex(said["prepare"]["refused"], "^layer 2: ")
        refused = said["prepare"]["refused"].removeprefix("layer 2: ")
        self.expect_error("layers.2.", refused, args=("prepare", source, "-o", self.out, *on))
        self.nothing_left()
        own = run_json(self, "explain", source)
        self.assertTrue(own["prepare"]["writes"])

    def said_and_prepared(self, source, tp, *backend):
        """Backend and sizes of all ranks, as explain says and as prepare makes them; once each."""
        on = ("--device", "cpu:generic", *backend)
        said = run_json(self, "explain", source, *on, "--tp", tp)
        shares = said["shares"]["features"]
        self.assertEqual(len(shares), tp)
        begin = 0
        for rank in range(tp):
            out = self.rank(source, ("--tp", tp), rank, *on)
            layer, = json.loads((out / "fewbit_prepared.json").read_text())["layers"]
            self.assertEqual(layer["backend"], said["chosen"], f"rank {rank}")
            self.assertEqual((layer["first_feature"], layer["problem"]["intermediate_size"]),
                             (begin, shares[rank]), f"rank {rank}")
            begin += shares[rank]
        self.assertEqual(begin, layer["all_features"])
        # The page that lists legal numbers says the same of this one.
        self.assertTrue(legal_ranks(said, said["chosen"], "tensor_parallel")[tp])
        return said["chosen"], shares

    def test_one_scale_a_row_is_dealt_in_the_runs_that_all_ranks_backend_needs(self):
        """Packed words are runs of 8 features, kernels take 16: no rank falls back to another."""
        generic = ("--backend", "cpu_generic")
        for inner, tp, backend, want in (
                (768, 5, (), ("cpu_generic", [160, 160, 160, 144, 144])),
                (768, 5, generic, ("cpu_generic", [160, 160, 160, 144, 144])),
                (768, 5, ("--backend", "reference"), ("reference", [160, 152, 152, 152, 152])),
                (1408, 3, (), ("cpu_generic", [480, 464, 464])),
                (64, 4, (), ("cpu_generic", [16, 16, 16, 16])),
                (64, 5, (), ("reference", [16, 16, 16, 8, 8])),
                (200, 3, (), ("reference", [72, 64, 64]))):
            with self.subTest(inner=inner, tp=tp, backend=backend):
                source = self.folder / f"source-{inner}"
                if not source.exists():
                    write_gptq_model(source, inner=inner, group=None)
                self.assertEqual(self.said_and_prepared(source, tp, *backend), want)

    def test_a_forced_backend_is_refused_with_the_same_words_for_every_rank(self):
        source = self.folder / "source"
        write_gptq_model(source, inner=64, group=None)
        on = ("--device", "cpu:generic", "--backend", "cpu_generic", "--tp", 5)
        page = run("explain", source, *on)
        self.assertEqual(page.returncode, 1)
        why = "needs intermediate_size % 16 = 0, has 8"
        self.assertIn(why, page.stderr)
        for rank in range(5):
            self.expect_error(why, "cpu_generic takes 1 to 4 tensor ranks",
                              args=("prepare", source, "-o", self.out, *on, "--rank", rank))
        self.nothing_left()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
