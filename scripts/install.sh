#!/usr/bin/env bash
# Make a virtual environment and install Armillary with all that its tests and evidence need.
# Usage: scripts/install.sh [VENV]   (PYTHON names the interpreter; default python3)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
python=${PYTHON:-python3}

"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Armillary needs Python 3.11 or newer; this is {sys.version.split()[0]}. "
             "Name another with: make PYTHON=python3.12 ...")
PY

if [ ! -x "$venv/bin/python" ]; then
  echo "making $venv with $("$python" --version)"
  "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install 'pip>=24' 2>/dev/null || true

echo "installing packages (a few minutes the first time)"
target=(-c constraints.txt -e '.[all,peers,dev]')
# The pinned torch is a CPU build. Where the configured index does not have it, take it from
# PyTorch's CPU index, whose address the install page holds; never fall back to a CUDA build.
if [ "$(uname -s)" = Linux ] && ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  torch=$(sed -n 's/^\(torch==[^;]*\); sys_platform == "linux"$/\1/p' constraints.txt)
  if ! "${pip[@]}" install "$torch" 2>/dev/null; then
    index=$(grep -oE 'https://[a-z.]*pytorch\.org/whl/cpu' docs/install.md | head -n 1)
    echo "taking $torch from $index"
    "${pip[@]}" install --index-url "$index" --no-deps "$torch"
  fi
fi
"${pip[@]}" install "${target[@]}"
"${pip[@]}" install --no-deps -r requirements/no-deps.txt
# What was installed without its requirements is left out of the check, and nothing else.
without=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' requirements/no-deps.txt | paste -sd'|')
if unmet=$("$venv/bin/python" -m pip --disable-pip-version-check check 2>&1); then
  echo "$unmet"
elif unmet=$(grep -vE "^($without) [^ ]+ (requires|has requirement) " <<<"$unmet"); then
  echo "$unmet" >&2
  exit 1
fi
if ! command -v nvidia-smi >/dev/null && "$venv/bin/python" -m pip list 2>/dev/null | grep -qi '^nvidia-'; then
  echo "CUDA packages came in: see docs/install.md" >&2
  exit 1
fi
echo "ready: $venv/bin/armillary"
