#!/usr/bin/env bash
# Make the environment of litellm's proxy, a rival of climb's ingress, apart from ours. From 1.109 on its
# extra asks for a package (litellm-proxy) that the index does not have: and the patch releases of 1.108 for another.
# Usage: scripts/peers/litellm.sh [VENV]   (default .venv-litellm; then: bench --peer .venv-litellm=VENV)
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-.venv-litellm}
python=${PYTHON:-python3}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install 'litellm[proxy]==1.108.0'
"$venv/bin/python" -c 'import importlib.metadata as m; print("litellm is ready:", m.version("litellm"))'
