#!/usr/bin/env bash
# check_isa_symbols.sh LIBRARY.a: AVX code may stand only in files that say so in their name
# (…_avx2, …_avx512, …_amx), and there only in functions of their own: a shared (weak) symbol that
# carries it, such as a std:: template, could be linked into code that runs on older CPUs.
set -euo pipefail
library=${1:?usage: check_isa_symbols.sh LIBRARY.a}
if [ "$(uname -m)" != x86_64 ]; then
  echo "ISA symbols: only x86-64 has levels to check"
  exit 0
fi
weak=$(mktemp)
trap 'rm -f "$weak"' EXIT
nm --defined-only "$library" 2>/dev/null | awk '$2 ~ /^[WVu]$/ { print $3 }' | sort -u >"$weak"
bad=$(objdump -d --no-show-raw-insn "$library" | awk -v weak="$weak" '
  BEGIN { while ((getline line < weak) > 0) shared[line] = 1 }
  /file format/ { tagged_file = ($1 ~ /avx2|avx512|amx/); next }
  /^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3); done = 0; next }
  !done && /\t(v[a-z0-9]+ |tile|ldtilecfg)/ && !/\tver[rw] / {
    done = 1
    if (!tagged_file || ((name in shared) && name !~ /avx2|avx512|amx/)) print name
  }')
if [ -n "$bad" ]; then
  echo "AVX code outside of the files and functions that are meant for it:" >&2
  printf '%s\n' "$bad" | c++filt >&2
  exit 1
fi
echo "ISA symbols: fine"
