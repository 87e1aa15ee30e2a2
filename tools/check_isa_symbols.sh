#!/usr/bin/env bash
# check_isa_symbols.sh LIBRARY.a: AVX code may stand only in functions that say so in their name
# (…_avx2, …_avx512, …_amx). Shared symbols that carry it by accident would crash older CPUs.
set -euo pipefail
library=${1:?usage: check_isa_symbols.sh LIBRARY.a}
if [ "$(uname -m)" != x86_64 ]; then
  echo "ISA symbols: only x86-64 has levels to check"
  exit 0
fi
bad=$(objdump -d --no-show-raw-insn "$library" | awk '
  /^[0-9a-f]+ <.*>:$/ { name = $2; tagged = (name ~ /avx2|avx512|amx/); next }
  !tagged && /\t(v[a-z0-9]+ |tile|ldtilecfg)/ && !/\tver[rw] / { print name; tagged = 1 }')
if [ -n "$bad" ]; then
  echo "functions with AVX code and no ISA level in their name:" >&2
  printf '%s\n' "$bad" | c++filt >&2
  exit 1
fi
echo "ISA symbols: fine"
