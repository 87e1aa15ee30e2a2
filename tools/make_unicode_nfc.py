#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/model/unicode_nfc_*.cpp, the tables of Unicode normalization form C.

They come from the Unicode database of the Python that runs this (3.11 has version 14).
"""
import pathlib
import sys
import unicodedata

FOLDER = pathlib.Path(__file__).parent.parent / "src" / "model"
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic


def write(name, comment, declaration, entries):
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {comment} Unicode {unicodedata.unidata_version}; made by tools/make_unicode_nfc.py.",
        '#include "model/unicode_nfc.hpp"',
        "",
        "namespace fewbit {",
        "namespace {",
        "",
        "// clang-format off",
        f"constexpr {declaration} entries[] = {{",
    ]
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    lines += [line, "};", "// clang-format on", "", "}  // namespace", ""]
    lines += [f"const std::span<const {declaration}> {name} = entries;", "", "}  // namespace fewbit"]
    (FOLDER / f"{name}.cpp").write_text("\n".join(lines) + "\n")


def main():
    compositions, decompositions, classes = [], [], []
    for code in range(sys.maxunicode + 1):
        text = unicodedata.decomposition(chr(code))
        if text and not text.startswith("<") and code not in HANGUL:
            parts = [int(part, 16) for part in text.split()]
            composes = unicodedata.normalize("NFC", chr(code)) == chr(code)
            target = compositions if composes else decompositions
            target.append((code, *parts, *[0] * (2 - len(parts))))
        order = unicodedata.combining(chr(code))
        if order and classes and classes[-1][0] + classes[-1][1] == code and classes[-1][2] == order:
            classes[-1][1] += 1
        elif order:
            classes.append([code, 1, order])
    text = [f"{{{c:#x},{a:#x},{b:#x}}}" for c, a, b in compositions]
    write("unicode_nfc_compositions", "Characters that NFC composes, by code.", "Decomposition", text)
    text = [f"{{{c:#x},{a:#x},{b:#x}}}" if b else f"{{{c:#x},{a:#x},0}}" for c, a, b in decompositions]
    write("unicode_nfc_exclusions", "Characters that NFC only takes apart, by code.", "Decomposition", text)
    text = [f"{{{c:#x},{n},{order}}}" for c, n, order in classes]
    write("unicode_nfc_classes", "Canonical combining classes but 0, by code.", "CombiningRange", text)


main()
