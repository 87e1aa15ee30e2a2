#!/usr/bin/env python3
"""Keeps dependencies pointing one way: which folder may include which, and who may use a library.

usage: check_layers.py   (exit 1 and one line per forbidden include)
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

CORE = {"core"}
DEVICE = CORE | {"device"}
READ = CORE | {"checkpoint"}
IDENTIFY = READ | {"scheme"}
CANONICAL = IDENTIFY | {"canonical", "layout"}
BACKENDS = CANONICAL | {"select/backend.hpp", "select/moe_plan.hpp", "layout", "moe", "kernels", "device", "backends"}
SELECT = BACKENDS | {"select"}
# folder -> folders (or single headers) of src/ that it may include
MAY_INCLUDE = {
    "core": CORE,
    "device": DEVICE,
    "checkpoint": READ,
    "scheme": IDENTIFY,
    "canonical": CANONICAL,
    "quantize": CANONICAL | {"quantize"},
    "layout": CORE | {"layout"},
    "moe": CORE | {"moe"},
    "kernels": CORE | {"kernels", "layout/cuda_f4_cells.hpp", "layout/cuda_f4_pack.hpp",
                       "layout/cuda_f8_cells.hpp", "layout/cuda_f8_pack.hpp",
                       "layout/cuda_int_cells.hpp", "layout/cuda_int_pack.hpp",
                       "moe/activation.hpp"},
    "backends": BACKENDS,
    "select": SELECT,
    "moe_layer.cpp": SELECT,
    "linear_layer.cpp": SELECT,
    "prepared": SELECT | {"prepared"},
    "model": SELECT | {"prepared", "model"},
}
# system header prefix -> places that may include it
LIBRARIES = {
    "nlohmann/": {"src/checkpoint/json.cpp"},
    "pcre2": {"src/scheme/pcre2_handles"},
    "xxhash": {"src/prepared/content_hash.cpp"},
    "CLI/": {"cli/"},
    "benchmark/": {"bench/"},
    "gtest/": {"tests/"},
    "gmock/": {"tests/"},
    "immintrin": {"src/kernels/cpu/", "src/layout/pack_fast", "src/core/isa_region"},
    "cuda": {"src/kernels/cuda/", "src/device/", "tests/"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def allowed(target, permitted):
    return target.split("/")[0] in permitted or target in permitted


def library_problem(name, target):
    for prefix, places in LIBRARIES.items():
        if target.startswith(prefix) and not any(name.startswith(p) for p in places):
            return f"<{target}> may be included only in {sorted(places)}"
    return None


def own_problem(name, target):
    if target.startswith("fewbit/"):
        return None
    if name.startswith("include/"):
        return f'a public header may include only "fewbit/…", not "{target}"'
    if not name.startswith("src/"):
        return None
    layer = name.split("/")[1]
    if layer not in MAY_INCLUDE:
        return f"'{layer}' has no entry in tools/check_layers.py"
    if not allowed(target, MAY_INCLUDE[layer]):
        return f'{layer} may not include "{target}"'
    return None


def problems_in(path):
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        problem = library_problem(name, target) if quote == "<" else own_problem(name, target)
        if problem:
            yield f"{name}:{number}: {problem}"


def main():
    found = []
    count = 0
    for folder in ("include", "src", "cli", "bench", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".hpp", ".h", ".cpp", ".cu", ".cuh"}:
                count += 1
                found.extend(problems_in(path))
    if count == 0:
        found.append("no source file found")
    for line in found:
        print(line, file=sys.stderr)
    print(f"layers: {count} files, {len(found)} forbidden includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
