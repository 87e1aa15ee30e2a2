# SPDX-License-Identifier: Apache-2.0
"""llm_int8_skip_modules: runs of whole components, each read so by vLLM, transformers 4 or 5; what it does not list
is replaced, what transformers 5 alone skips by a part of a component too."""

import named
from layer_rules import plain, right, wrong


def cases():
    module = named.MODULE
    parent, last = module.rsplit(".", 1)
    holder = parent.rsplit(".", 1)[-1]
    expects = ("config-expects-quantized",)

    def made(name, entries, beside=None):
        case = named.int8(f"skip-{name}")
        case.config["quantization_config"] |= {} if entries is None else {"llm_int8_skip_modules": entries}
        if beside:
            plain(case, beside, (40, 24))
        return case

    beside = f"{parent}.down_proj"
    for number, entry in enumerate((module, last, holder, f"{holder}.{last}", parent, "layers.0")):
        yield wrong(made(f"quantized-{number}", ["lm_head", entry]), ("config-excludes-quantized",), (module,))
    for number, entries in enumerate((None, [], ["lm_head"])):
        yield wrong(made(f"plain-{number}", entries, beside), expects, (beside,))
    tenth = module.replace("layers.0", "layers.10")
    number = made("plain-number", ["model.layers.1"], tenth)
    plain(number, module.replace("layers.0", "layers.1"), (24, 40))
    yield wrong(number, expects, (tenth,))
    part = made("part-of-a-word", ["lm_head", last[1:]])
    part.notes = ("pattern-unmatched",)
    yield right(part)
    yield right(made("none", None))
    yield right(made("listed", ["lm_head", "down_proj"], beside))
