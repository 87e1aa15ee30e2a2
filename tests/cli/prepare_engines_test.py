#!/usr/bin/env python3
"""fewbit prepare for the kernels of other engines: written, taken apart and compared.

usage: prepare_engines_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import pathlib
import re
import sys
import unittest

from prepare_case import Scratch, content, run, write_model

# weights, backend, its engine, device, buffers of a layer beside w13 and w2 codes and scales
CASES = [
    ("mxfp4", "marlin", "vllm", "sm_80", "words"),
    ("mxfp4", "sglang_marlin", "sglang", "sm_90", "words"),
    ("mxfp4", "flashinfer_trtllm_mxfp4", "vllm", "sm_100", "codes"),
    ("mxfp4", "trtllm_fp4", "flashinfer", "sm_100", "codes"),
    ("mxfp4", "b12x", "flashinfer", "sm_120", "words"),
    ("fp8-block", "marlin", "vllm", "sm_86", "words"),
    ("nvfp4-w4a4", "flashinfer_cutlass", "vllm", "sm_120", "codes"),
    ("nvfp4-w4a4", "vllm_cutlass_fp4", "vllm", "sm_100", "codes"),
    ("nvfp4-w4a4", "flashinfer_b12x", "vllm", "sm_121", "codes"),
    ("nvfp4-w4a4", "trtllm_fp4", "flashinfer", "sm_103", "codes"),
    ("bf16", "flashinfer_cutlass", "vllm", "sm_90", "codes"),
    ("bf16", "cutlass", "flashinfer", "sm_89", "codes"),
]


class Engines(Scratch):
    def row_of(self, page, backend):
        """What explain says of one backend."""
        found = re.search(rf"^  {backend} +(.*(?:\n    .*)*)", page, re.M)
        self.assertTrue(found, page)
        return found.group(1)

    def layouts_have_one_name(self, out, backend, engine, page):
        """What the manifest has is what backends, explain and the documentation name."""
        buffers = json.loads(run("inspect", out, "--json").stdout)["buffers"]
        written = {b["layout"] for b in buffers}
        listed = {b["name"]: b for b in json.loads(run("backends", "--foreign", "--json").stdout)}
        self.assertLessEqual(written, set(listed[backend]["layouts"]))
        chosen = re.search("^layouts  (.*)$", page, re.M)
        self.assertEqual(set(chosen.group(1).split(", ")), written)
        docs = (pathlib.Path(__file__).parents[2] / "docs/backends.md").read_text()
        table = docs[docs.index("### Layouts"):]
        for name in listed[backend]["layouts"]:
            self.assertIn(f"`{name}`", table)

    def test_what_explain_calls_preparable_is_prepared_and_taken_apart_again(self):
        for form, backend, engine, device, part in CASES:
            with self.subTest(form=form, backend=backend):
                source, out = self.folder / f"{form}-{backend}", self.folder / f"out-{form}-{backend}"
                write_model(source, layers=1, experts=8, hidden=256, inner=128, form=form)
                on = ("--device", device, "--backend", backend)
                page = run("explain", source, *on, "--engine", engine)
                self.assertNotIn("not preparable", self.row_of(page.stdout, backend))
                result = run("prepare", source, "-o", out, *on, "--verify")
                self.assertEqual(result.returncode, 0, result.stderr)
                layer = content(out)["prepared/layer-00000.safetensors"]
                header = layer[8:8 + int.from_bytes(layer[:8], "little")].decode()
                self.layouts_have_one_name(out, backend, engine, page.stdout)
                for matrix in ("w13", "w2"):
                    self.assertIn(f"{matrix}.{part}", header)
                self.assertEqual(run("check", out, "--source", source, "--device", device)
                                 .returncode, 0)

    def test_the_table_of_other_engines_says_which_take_bf16_alone(self):
        docs = (pathlib.Path(__file__).parents[2] / "docs/backends.md").read_text()
        table = docs[docs.index("## Those of other engines"):docs.index("## What is prepared")]
        rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
        for engine in ("vllm", "sglang", "flashinfer"):
            asked = run("explain", "--problem", "Qwen3-30B-A3B/nvfp4", "--engine", engine,
                        "--device", "sm_100", "--activation-dtype", "f16", "--json")
            for candidate in json.loads(asked.stdout)["candidates"]:
                name = candidate["backend"]
                row, = (row for row in rows if f"`{name}`" in row[1])
                alone = any(one["needs"] == "activations in bf16" for one in candidate["refusals"])
                said = row[6].strip().startswith("bf16") and f"but for `{name}`" not in row[6]
                self.assertEqual(said, alone, f"{name}: {row[6]}")

    def test_it_is_said_when_no_number_of_ranks_fits(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=4, hidden=256, inner=352, form="nvfp4-w4a4")
        for ranks, has in ((1, 352), (2, 176)):
            self.expect_error(f"needs intermediate_size % 64 = 0, has {has} (would fit if padded to",
                              "flashinfer_cutlass takes no number of tensor ranks, 1 to 64",
                              args=("prepare", source, "-o", self.out, "--tp", ranks, "--device",
                                    "sm_100", "--backend", "flashinfer_cutlass"))
        self.nothing_left()

    def test_what_no_source_describes_is_said_and_nothing_is_written(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=8, hidden=256, inner=128, form="fp8-block")
        on = ("--device", "sm_90", "--backend", "flashinfer_cutlass")
        why = "in none of the sources that fewbit follows"
        self.assertIn(why, self.row_of(run("explain", source, *on, "--engine", "vllm").stdout,
                                       "flashinfer_cutlass"))
        self.expect_error(why, args=("prepare", source, "-o", self.out, *on))
        self.nothing_left()

    def test_other_engines_layers_of_families_unknown_here_are_prepared(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=8, hidden=256, inner=128, form="bf16")
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "ernie4_5_moe", "moe_use_aux_free": False}))
        own = self.row_of(run("explain", source).stdout, "reference")
        self.assertRegex(own, 'not preparable: .*"ernie4_5_moe"')
        self.expect_error("ernie4_5_moe", args=("prepare", source, "-o", self.out))
        self.nothing_left()
        on = ("--device", "sm_89", "--backend", "cutlass")
        theirs = self.row_of(run("explain", source, *on, "--engine", "flashinfer").stdout, "cutlass")
        self.assertNotIn("not preparable", theirs)
        made = run("prepare", source, "-o", self.out, *on)
        self.assertEqual(made.returncode, 0, made.stderr)
        for command in (("eval", "--text", source / "config.json"), ("generate", "--prompt", "x")):
            refused = run(command[0], self.out, *command[1:])
            self.assertEqual(refused.returncode, 1)
            self.assertIn("was prepared for cutlass of FlashInfer, which fewbit itself does not run; take the "
                          "checkpoint that it was made from", refused.stderr)
        self.assertIn("result: fine; prepared for cutlass of FlashInfer, which fewbit itself does not run",
                      run("check", self.out).stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
