#!/usr/bin/env bash
# Resolves pyproject.toml anew in a throw-away environment and writes requirements.lock: versions only, no addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
"$python" -m venv --without-pip "$scratch/venv"
pip() { "${PIP_PYTHON:-python3}" -m pip --disable-pip-version-check --python "$scratch/venv/bin/python" "$@"; }
.venv/bin/python - >"$scratch/wanted.txt" <<'PYTHON'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["dev"]))
PYTHON
pip install -q -r "$scratch/wanted.txt"
pip freeze --all --exclude setuptools | sed -E 's/\+[a-z0-9.]+$//' | tr 'A-Z_' 'a-z-' | LC_ALL=C sort >requirements.lock
