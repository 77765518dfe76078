#!/usr/bin/env bash
# What `make demo` does once everything is installed: quick evidence, then the report.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}

echo
echo "1. What is here"
"$bin/armillary" list
echo
echo "2. Running the quick evidence of both methods beside their rivals (about two minutes on two idle cores)"
ARMILLARY_BUSY_SECONDS=${ARMILLARY_BUSY_SECONDS:-10} "$bin/armillary" bench recalibration radar --profile quick
echo
echo "3. Building the report"
open=()
if [ -t 1 ] && [ -z "${CI:-}" ] && { [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || [ "$(uname -s)" = Darwin ]; }; then
  open=(--open)
fi
"$bin/armillary" report ${open[@]+"${open[@]}"}
echo
echo
echo "Three splits decide little: what was measured with more stands in the report as committed evidence."
echo "Next: $bin/armillary info recalibration; the tutorial on your own data is docs/tutorial.md"
