#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with one: tests, compute-sanitizer on a reduced set, then
# the benchmark table.
#
#   tools/gpu_check.sh pack DIR   on the build machine: puts the programs and this script into DIR
#   DIR/gpu_check.sh [quick]      on the GPU machine; quick: tests and table only
#
# Needs no compiler, library or network there; compute-sanitizer is used where it is installed. Exits
# with 1 when anything failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1:-}" = pack ]; then
  build=$here/../build/release
  mkdir -p "$2"
  cp "$here/gpu_check.sh" "$build"/tests/device/device_test "$build"/tests/device/cuda_moe_test \
    "$build"/tests/core/float_convert_device "$build"/bench/bench_gpu_moe "$2"
  strip "$2"/*_test "$2"/float_convert_device "$2"/bench_gpu_moe
  exit 0
fi

cd "$here"
failed=0
step() {
  printf '== %s\n' "$*"
  local log
  log=$(mktemp)
  if timeout 200 "$@" >"$log" 2>&1; then
    tail -n 4 "$log"
  else
    failed=1
    tail -n 60 "$log"
    printf 'FAILED: %s\n' "$*"
  fi
  rm -f "$log"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
step ./float_convert_device
step ./device_test --gtest_brief=1
step ./cuda_moe_test --gtest_brief=1
sanitizer=$(command -v compute-sanitizer || true)
if [ "${1:-}" != quick ] && [ -n "$sanitizer" ]; then
  small='MoeF4Test.SizesThatAreNoMultipleOf32:MoeF4Test.FewTokens'
  for tool in memcheck racecheck synccheck initcheck; do
    options=()
    case $tool in racecheck | synccheck) options=(--num-cuda-barriers 512) ;; esac
    step "$sanitizer" --tool "$tool" --error-exitcode 1 "${options[@]}" ./cuda_moe_test \
      --gtest_brief=1 --gtest_filter="$small"
  done
fi
printf '== %s\n' "./bench_gpu_moe"
timeout 200 ./bench_gpu_moe || failed=1
[ $failed = 0 ] && echo "gpu_check: passed" || echo "gpu_check: FAILED"
exit $failed
