#!/usr/bin/env bash
# Make the environment of morl-baselines (GPI-LS), a rival of maxmin-morl, apart from ours: it asks for
# wandb, pymoo and cvxpy, and for a torch of its own.
# Usage: scripts/peers/morl.sh [VENV]   (default .venv-morl; then: bench --peer .venv-morl=VENV)
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-.venv-morl}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
# torch first, so that no CUDA build is drawn in.
torch=$(sed -n 's/^\(torch==[^;]*\); sys_platform == "linux"$/\1/p' constraints.txt)
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  if ! "${pip[@]}" install "$torch" 2>/dev/null; then
    index=$(grep -oE 'https://[a-z.]*pytorch\.org/whl/cpu' docs/install.md | head -n 1)
    "${pip[@]}" install --index-url "$index" "$torch"
  fi
fi
"${pip[@]}" install morl-baselines==1.3.0 "mo-gymnasium>=1.3"
"$venv/bin/python" -c 'import morl_baselines, mo_gymnasium, torch; print("morl-baselines is ready:", torch.__version__)'
