#!/usr/bin/env bash
# Make the environment of litellm's proxy, a rival of climb's ingress, apart from ours.
# Usage: scripts/peers/litellm.sh [VENV]   (default .venv-litellm; then: bench --peer .venv-litellm=VENV)
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-.venv-litellm}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install 'litellm[proxy]==1.110.2'
"$venv/bin/python" -c 'import importlib.metadata as m; print("litellm is ready:", m.version("litellm"))'
