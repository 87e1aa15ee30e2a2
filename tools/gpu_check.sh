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
    "$build"/tests/device/cuda_{backend,router}_test "$build"/fewbit \
    "$build"/tests/core/float_convert_device "$build"/bench/bench_gpu_{moe,linear} "$2"
  cp -r "$here/../models/tiny-moe" "$2"
  # Libraries that the other machine may lack.
  mkdir -p "$2/lib"
  ldd "$build"/fewbit "$build"/tests/device/cuda_backend_test |
    awk '/lib(fmt|pcre2|xxhash|stdc|gcc_s)/ { print $3 }' | sort -u | xargs cp -Lt "$2/lib"
  strip "$2"/fewbit "$2"/*_test "$2"/float_convert_device "$2"/bench_gpu_*
  exit 0
fi

cd "$here"
export LD_LIBRARY_PATH=$here/lib
failed=0
# COMMAND…, or shards COMMAND…: the tests of a program side by side, since most of their time goes into
# exact arithmetic on the CPU.
run() {
  if [ "$1" != shards ]; then
    timeout 200 "$@"
    return
  fi
  shift
  local shard pids=() status=0
  for shard in 0 1 2 3 4 5 6 7; do
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard timeout 200 "$@" &
    pids+=($!)
  done
  for shard in "${pids[@]}"; do wait "$shard" || status=1; done
  return "$status"
}
step() {
  printf '== %s\n' "$*"
  local log
  log=$(mktemp)
  if run "$@" >"$log" 2>&1; then
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
step shards ./cuda_moe_test --gtest_brief=1
step ./cuda_backend_test --gtest_brief=1
step ./cuda_router_test --gtest_brief=1
# The same text by the CPU and by the card: perplexities to compare.
for device in cpu cuda; do
  step ./fewbit eval tiny-moe --text tiny-moe/val.txt --device $device
done
step ./fewbit bench tiny-moe Qwen3-30B-A3B Qwen3-30B-A3B/gptq-int4-g128 Qwen3-30B-A3B/fp8-block \
  --device cuda --tokens 1,64,1024
sanitizer=$(command -v compute-sanitizer || true)
if [ "${1:-}" != quick ] && [ -n "$sanitizer" ]; then
  small='MoeF4Test.SizesThatAreNoMultipleOf32:MoeF4Test.FewTokens:GroupedTest.FewTokens:MoeF16Test.FewTokens'
  for tool in memcheck racecheck synccheck initcheck; do
    options=()
    case $tool in racecheck | synccheck) options=(--num-cuda-barriers 512) ;; esac
    step "$sanitizer" --tool "$tool" --error-exitcode 1 "${options[@]}" ./cuda_moe_test \
      --gtest_brief=1 --gtest_filter="$small"
    step "$sanitizer" --tool "$tool" --error-exitcode 1 ./cuda_router_test --gtest_brief=1 \
      --gtest_filter='RouterTest.ChoosesAnd*:RouterTest.TellsThe*:RouterTest.Divides*'
  done
fi
for program in ./bench_gpu_moe ./bench_gpu_linear; do
  printf '== %s\n' "$program"
  timeout 200 "$program" || failed=1
done
[ $failed = 0 ] && echo "gpu_check: passed" || echo "gpu_check: FAILED"
exit $failed
