#!/usr/bin/env bash
# Builds frontend/dist; does nothing while its sources are unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 9<frontend/package-lock.json && flock 9

stamp=frontend/dist/.evenkeel-stamp
wanted=$(find frontend -path frontend/node_modules -prune -o -path frontend/dist -prune -o -type f ! -name '*.tsbuildinfo' -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

echo "Building the front end with Node $(scripts/npm.sh --node-version)." >&2
npm=("$PWD/scripts/npm.sh")
cd frontend
lock=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.evenkeel-stamp 2>/dev/null || true)" != "$lock" ]; then
  quiet=(--no-audit --no-fund --loglevel=error)
  "${npm[@]}" ci "${quiet[@]}" </dev/null >&2
  echo "$lock" >node_modules/.evenkeel-stamp
fi
"${npm[@]}" run --silent build </dev/null
echo "$wanted" >dist/.evenkeel-stamp
