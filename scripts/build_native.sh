#!/usr/bin/env bash
# Build the compiled library in place, where an editable install puts it; for work on the kernels.
# Usage: scripts/build_native.sh [BUILD_FOLDER]   (default build/native)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/native}
cmake -S src/armillary/native/cpp -B "$build" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$build" --parallel 2
ls -l src/armillary/native/_native.so
