#!/usr/bin/env bash
# gpu_check.sh [FOLDER]: runs the self-contained GPU test programs of FOLDER (default: the release
# build's) on a machine with a GPU and no internet. Their results belong in docs/gpu_results.md.
set -euo pipefail
folder=${1:-$(dirname "${BASH_SOURCE[0]}")/../build/release/tests/core}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$folder/float_convert_device"
echo "gpu check: passed"
