#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every rule of docs/errors.md is produced by a small checkpoint of tests/producers, whose test fails
without it, and every rule of the code is listed there, wherever its name stands. Without numpy only
the latter is looked at.

usage: rules_tested.py PROJECT
"""

import re
import sys
from pathlib import Path


def rules_of(document):
    """The names in the first column of every table."""
    columns = [line.split("|")[1] for line in document.splitlines() if line.startswith("|")]
    return sorted({name for column in columns for name in re.findall(r"`([a-z0-9]+(?:[-_][a-z0-9]+)*)`", column)})


def text_of(folder, *patterns):
    return "\n".join(file.read_text() for pattern in patterns for file in sorted(folder.rglob(pattern)))


def produced(folder):
    """What the checkpoints must give: rules of findings, or the beginning of an error's text."""
    sys.path.insert(0, str(folder))
    try:
        import run
    except ImportError as error:
        print(f"checkpoints are not looked up: {error}")
        return None
    return {rule for case in run.all_cases() for rule in (*case.faults, *case.notes)}


# Where a rule's name stands: behind a level, as the first argument of a function that makes a finding
# or an error, compared with one, or before the text of an error. One of two names may stand there.
LEVEL = r"\b(?:(?<!Isa)Level::\w+|level|\w+_level\([^;\"]*\)|level_of\([^;\"]*\))\s*,"
CALL = r"\b(?:fail|differs|add)\((?:\w+,\s*)?|\bcheck_part\([^;\"]*\{"
EITHER = r"\s*(?:[^\";{}]*\?\s*)?(?:\"[a-z0-9-]+\"\s*[:,]\s*)?$"
PLACE = re.compile(f"(?:(?:{LEVEL}|{CALL}){EITHER})|\\brule [=!]= $")
NAME = re.compile(r"\"([a-z0-9]+(?:[-_][a-z0-9]+)*)(\"|: )")


def named_in(code):
    """The rules that the code gives."""
    given = set()
    for match in NAME.finditer(code):
        name, end = match.groups()
        at_place = PLACE.search(code[max(0, match.start() - 240) : match.start()])
        if "-" in name and (end == ": " or at_place):
            given.add(name)
    return given


def is_rule(text, rule):
    return re.match(re.escape(rule) + "(?![a-z0-9_-])", text)


def main():
    project = Path(sys.argv[1])
    rules = rules_of((project / "docs/errors.md").read_text())
    code = "\n".join(text_of(project / part, "*.cpp", "*.hpp") for part in ("src", "cli"))
    wanted = produced(project / "tests/producers")
    found = named_in(code)
    problems = [f"{rule} is a rule of the code, but not in docs/errors.md" for rule in sorted(found - set(rules))]
    hidden = [rule for rule in rules if "-" in rule and rule not in found]
    problems += [f"{rule} is in docs/errors.md, but given at no place that this test knows" for rule in hidden]
    if wanted is not None:
        problems += [f"no checkpoint gives {rule}" for rule in rules if not any(is_rule(text, rule) for text in wanted)]
    print("\n".join([*problems, f"{len(rules)} rules, {len(problems)} problems"]))
    sys.exit(bool(problems) or not rules or not found)


if __name__ == "__main__":
    main()
