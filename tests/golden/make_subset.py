#!/usr/bin/env python3
"""Makes the small golden set of tests/golden/data from a whole one. Standard library only.

usage: make_subset.py SOURCE_DIR OUT_DIR [--per-op N] [--max-bytes B]

Keeps, of every operation, the N cases with the fewest bytes of tensors, up to B bytes a case.
"""
import argparse
import hashlib
import json
import pathlib
import struct


def read_file(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, raw[8 + length :]


def references(case):
    return [r for side in ("inputs", "outputs") for r in case[side].values()]


def case_bytes(case, files):
    if case["file"] is None:
        return 0
    header, _ = files[case["file"]]
    names = {r["tensor"] for r in references(case)}
    return sum(header[n]["data_offsets"][1] - header[n]["data_offsets"][0] for n in names)


def choose(cases, files, per_op, max_bytes):
    by_op = {}
    for case in cases:
        by_op.setdefault(case["op"], []).append(case)
    chosen = []
    for group in by_op.values():
        sized = sorted(group, key=lambda c: (case_bytes(c, files), c["name"]))
        chosen += [c for c in sized if case_bytes(c, files) <= max_bytes][:per_op]
    return chosen


def write_file(path, tensors):
    header, body = {}, bytearray()
    for name in sorted(tensors):
        entry, data = tensors[name]
        header[name] = {
            "dtype": entry["dtype"],
            "shape": entry["shape"],
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    raw = struct.pack("<Q", len(text)) + text + bytes(body)
    path.write_bytes(raw)
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), "tensors": len(header)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--per-op", type=int, default=2)
    parser.add_argument("--max-bytes", type=int, default=60_000)
    args = parser.parse_args()
    manifest = json.loads((args.source / "manifest.json").read_text())
    files = {name: read_file(args.source / name) for name in manifest["files"]}
    cases = choose(manifest["cases"], files, args.per_op, args.max_bytes)
    tensors = {}
    for case in cases:
        if case["file"] is None:
            continue
        header, data = files[case["file"]]
        for reference in references(case):
            entry = header[reference["tensor"]]
            begin, end = entry["data_offsets"]
            key = case["file"].removesuffix(".safetensors") + "/" + reference["tensor"]
            tensors[key] = (entry, data[begin:end])
            reference["tensor"] = key
        case["file"] = "golden.safetensors"
    args.out.mkdir(parents=True, exist_ok=True)
    meta = write_file(args.out / "golden.safetensors", tensors)
    out = {
        "schema": manifest["schema"],
        "set": "small",
        "versions": manifest["versions"],
        "files": {"golden.safetensors": meta},
        "cases": cases,
    }
    (args.out / "manifest.json").write_text(json.dumps(out, indent=1) + "\n")
    print(f"{len(cases)} cases, {meta['tensors']} tensors, {meta['bytes']} bytes")


if __name__ == "__main__":
    main()
