#!/usr/bin/env bash
# Resolves pyproject.toml anew in a throw-away environment and writes requirements.lock, requirements-local.lock and
# requirements-plots.lock with what these extras need beyond it, and requirements-cuda.lock with what the CUDA build of
# that torch needs beyond all of them: versions and hashes, no addresses. `lock.sh --hashes` keeps the versions of all
# lock files and writes their hashes anew.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
write() { # pins on standard input
  .venv/bin/python scripts/lock_hashes.py >"$scratch/lock" && mv "$scratch/lock" "$1"
}
if [ "${1:-}" = --hashes ]; then
  for name in requirements*.lock; do grep '==' "$name" | sed 's/ *\\$//' | write "$name"; done
  exit 0
fi

python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
"$python" -m venv --without-pip "$scratch/venv"
pip() { "${PIP_PYTHON:-python3}" -m pip --disable-pip-version-check --python "$scratch/venv/bin/python" "$@"; }
.venv/bin/python - "$scratch" >"$scratch/wanted.txt" <<'PYTHON'
import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["dev"]))
print("async-timeout")  # redis needs it on Python before 3.11.3
print("setuptools")  # builds the client
for extra in ("local", "plots"):
    with open(f"{sys.argv[1]}/{extra}.txt", "w") as file:
        print(*project["optional-dependencies"][extra], sep="\n", file=file)
PYTHON
pip install -q -r "$scratch/wanted.txt" -r "$scratch/local.txt" -r "$scratch/plots.txt"
pip freeze --all | sed -E 's/\+[a-z0-9.]+$//' | tr 'A-Z_' 'a-z-' | LC_ALL=C sort >"$scratch/pins"

# Of all that was resolved together each file names what it needs beyond those before it.
: >"$scratch/named"
part() { # FILE REQUIREMENTS...
  local file=$1
  shift
  pip install -q --dry-run --ignore-installed -c "$scratch/pins" --report "$scratch/report.json" "$@"
  .venv/bin/python - "$scratch" <<'PYTHON' >"$scratch/part"
import json, sys
from packaging.utils import canonicalize_name
read = lambda name: open(f"{sys.argv[1]}/{name}").read()
needed = {canonicalize_name(one["metadata"]["name"]) for one in json.loads(read("report.json"))["install"]}
named = read("named").split()
pins = [pin for pin in read("pins").split() if pin not in named and canonicalize_name(pin.partition("==")[0]) in needed]
print(*pins, sep="\n")
PYTHON
  cat "$scratch/part" >>"$scratch/named"
  write "$file" <"$scratch/part"
}
part requirements.lock -r "$scratch/wanted.txt"
part requirements-local.lock -r "$scratch/local.txt"
part requirements-plots.lock -r "$scratch/plots.txt"

# The torch that the public index has for Linux is built for CUDA; a local build without it would hide what that needs.
PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' pip install -q --dry-run --ignore-installed -c "$scratch/pins" \
  --report "$scratch/report.json" "$(grep '^torch==' "$scratch/pins")"
.venv/bin/python - "$scratch/report.json" "$scratch/pins" <<'PYTHON' | write requirements-cuda.lock
import json, sys
from packaging.utils import canonicalize_name
report, pins = json.load(open(sys.argv[1])), {line.partition("==")[0] for line in open(sys.argv[2])}
found = [one["metadata"] for one in report["install"]]
beyond = sorted(f"{canonicalize_name(one['name'])}=={one['version']}" for one in found if canonicalize_name(one["name"]) not in pins)
print("\n".join(beyond))
PYTHON
