# SPDX-License-Identifier: Apache-2.0
"""One of two shards, named alone: what its modules lack may be in the other, whatever the order of the
tensors; what no other shard can mend stays an error."""

import re
from dataclasses import replace

from awq import whole as awq
from case import with_fault
from files import FIRST, SECOND, Files
from gptq import whole as gptq
from modelopt_nvfp4 import whole as nvfp4
from named import by_tensors
from small_model import fp8_model


def cut(make, pattern, file):
    """Tensors whose names match are in the second shard."""

    def shard(name):
        case = make(name)
        second = [tensor for tensor in case.tensors if re.search(pattern, tensor)]
        first = [tensor for tensor in case.tensors if tensor not in second]
        return Files(name, case.tensors, case.config, shards={FIRST: first, SECOND: second}, named=file, notes=("shard-alone",))

    return shard


CUTS = {
    "fp8-scales": (fp8_model, "weight_scale$"),
    "gptq-scales": (gptq, "scales$"),
    "gptq-zeros": (gptq, "qzeros$"),
    "gptq-g-idx": (gptq, "g_idx$"),
    "gptq-codes": (gptq, "qweight$"),
    "awq-scales": (awq, "scales$"),
    "awq-zeros": (awq, "qzeros$"),
    "nvfp4-scales": (nvfp4, "weight_scale$"),
    "nvfp4-factors": (nvfp4, "weight_scale_2$"),
}


def cases():
    for name, (make, pattern) in CUTS.items():
        for number, file in enumerate((FIRST, SECOND), 1):
            yield cut(make, pattern, file)(f"no-fault-shard-{number}-of-{name}")
    named = cut(lambda name: replace(next(iter(by_tensors())), name=name), "zero$", FIRST)
    yield replace(named("fault-shard-of-hqq"), faults=("module-unreadable",))
