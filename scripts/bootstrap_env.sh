#!/usr/bin/env bash
# Makes .venv from the lock files and the client; does nothing while they are unchanged. With EVENKEEL_LOCAL=0 it leaves
# out PyTorch and matplotlib, which a control plane that only schedules never imports (requirements-local.lock,
# requirements-plots.lock). With EVENKEEL_RAY=1 also what the ray executor needs (requirements-ray.lock), with
# EVENKEEL_S3=1 what s3:// stores and their tests need; where that cannot be had it says so and goes on without. Only
# files whose SHA-256 a lock names are installed.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 9<requirements.lock && flock 9 # two makes at once: the second waits

stamp=.venv/.evenkeel-stamp
core=(requirements.lock client/pyproject.toml)
full=("${core[@]}" requirements-local.lock requirements-plots.lock requirements-cuda.lock)
stamp_of() { cat "$@" | sha256sum; }
# The locks name everything, so nothing else is resolved, and nothing without a hash is installed.
locked=(install --disable-pip-version-check --no-input --no-deps --require-hashes)
if [ "${EVENKEEL_LOCAL:-1}" = 0 ]; then wanted=("${core[@]}"); else wanted=("${full[@]}"); fi
if [ "${EVENKEEL_RAY:-}" = 1 ]; then wanted+=(requirements-ray.lock); fi
# An environment with more than is wanted serves as well.
enough=$(for more in "" requirements-ray.lock; do
  stamp_of "${wanted[@]}" $more
  stamp_of "${full[@]}" $more
done)
made=$(cat "$stamp" 2>/dev/null || true)
add_s3() { # has a stamp of its own, for it changes nothing of the rest
  local wanted
  wanted=$(cat requirements-s3.lock requirements-s3-test.lock | sha256sum)
  if [ "${EVENKEEL_S3:-}" != 1 ] || [ "$(cat .venv/.evenkeel-s3-stamp 2>/dev/null || true)" = "$wanted" ]; then return 0; fi
  if .venv/bin/python -m pip "${locked[@]}" -qq -r requirements-s3.lock -r requirements-s3-test.lock </dev/null; then
    echo "$wanted" >.venv/.evenkeel-s3-stamp
  else
    say "s3fs and moto could not be installed: tests of S3 stores will be skipped."
  fi
}
say() { echo "$*" >&2; }

if [ -x .venv/bin/python ] && [ -n "$made" ] && grep -qxF "$made" <<<"$enough" && .venv/bin/python -c '' 2>/dev/null; then
  add_s3
  exit 0
fi

# Python 3.11 or newer. As root one that other accounts can run too, since training and the databases run under such.
suits() {
  "$1" - "$2" 2>/dev/null <<'PYTHON'
import os, pathlib, sys
real = pathlib.Path(os.path.realpath(sys.executable))
reachable = all(parent.stat().st_mode & 1 for parent in real.parents)
sys.exit(sys.version_info < (3, 11) or (sys.argv[1] == "reachable" and not reachable))
PYTHON
}

candidates=("${PYTHON:-python3}" /usr/bin/python3 /usr/local/bin/python3 python3.14 python3.13 python3.12 python3.11)
choose() {
  local candidate
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" >/dev/null && suits "$candidate" "$1"; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}
python=""
if [ "$(id -u)" = 0 ]; then python=$(choose reachable || true); fi
if [ -z "$python" ]; then python=$(choose any || true); fi
if [ -z "$python" ]; then say "Evenkeel needs Python 3.11 or newer; none was found."; exit 1; fi

# Some distributions ship Python without the parts that put pip into an environment; any pip at hand does as well.
find_pip() {
  local candidate
  for candidate in "$python" "${candidates[@]}"; do
    if command -v "$candidate" >/dev/null && "$candidate" -m pip --python "$python" --version >/dev/null 2>&1; then
      pip=("$candidate" -m pip --python .venv/bin/python)
      return 0
    fi
  done
  return 1
}

say "Making the environment with $python ($("$python" -V)); a few minutes the first time."
if [ -e .venv ] && ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  rm -rf .venv
fi
if ! { "$python" -c 'import ensurepip, venv' 2>/dev/null || find_pip; }; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends python3-venv python3-pip </dev/null >/dev/null
  else
    say "$python has neither pip nor venv; install them (on Debian: python3-venv) and try again."
    exit 1
  fi
fi
if [ ! -x .venv/bin/python ]; then
  if "$python" -c 'import ensurepip' 2>/dev/null; then "$python" -m venv .venv; else "$python" -m venv --without-pip .venv; fi
fi
if .venv/bin/python -m pip --version >/dev/null 2>&1; then pip=(.venv/bin/python -m pip); else find_pip; fi
locks=(requirements.lock)
if [ "${EVENKEEL_LOCAL:-1}" != 0 ]; then locks+=(requirements-local.lock requirements-plots.lock); fi
lock=("${locked[@]}" "${locks[@]/#/-r}")
packages=$(cat "${locks[@]}" | grep -c '==')
# On a terminal it says how far it is.
progress() {
  local line got=0
  while IFS= read -r line; do # not awk: Debian's reads in blocks
    case $line in
      Collecting*) printf '\r  package %d of %d' $((got += 1)) "$packages" ;;
      Installing*) printf '\r  installing %d packages; a minute\n' "$packages" ;;
    esac
  done >&2
}
# Asked for hashes, pip prefers files whose hash an index names, and so the public torch to a build for processors that
# is at hand: the one that it would take otherwise goes first, if the lock names it.
torch=$(mktemp -d)
awk '/^torch==/ { found = 1 } found { print } found && !/\\$/ { exit }' requirements-local.lock >"$torch/torch.lock"
pin=$(sed -n '1s/ .*//p' "$torch/torch.lock")
if [ "${EVENKEEL_LOCAL:-1}" != 0 ] && ! .venv/bin/python -c 'import importlib.metadata as m, sys; sys.exit("torch==" + m.version("torch").partition("+")[0] != sys.argv[1])' "$pin" 2>/dev/null; then
  "${pip[@]}" download -qq --disable-pip-version-check --no-input --no-deps -d "$torch" "$pin" </dev/null &&
    "${pip[@]}" "${locked[@]}" -qq --no-index --find-links "$torch" -r "$torch/torch.lock" </dev/null ||
    say "requirements-local.lock does not name the build of $pin that is at hand; the public index's is taken."
fi
rm -rf "$torch"
if [ -t 2 ]; then "${pip[@]}" "${lock[@]}" </dev/null | progress; else "${pip[@]}" "${lock[@]}" -qq </dev/null; fi
# A torch that was built for CUDA needs NVIDIA's packages; builds for processors need none of them.
if [ "${EVENKEEL_LOCAL:-1}" != 0 ] && .venv/bin/python - <<'PYTHON'
import importlib.metadata, sys
from packaging.requirements import Requirement
needs = map(Requirement, importlib.metadata.requires("torch") or ())
cuda = [need for need in needs if need.name.startswith(("nvidia-", "cuda-"))]
sys.exit(not any(need.marker is None or need.marker.evaluate() for need in cuda))
PYTHON
then
  "${pip[@]}" "${locked[@]}" -qq -r requirements-cuda.lock </dev/null
fi
"${pip[@]}" install -qq --disable-pip-version-check --no-input --no-deps --no-build-isolation -e client </dev/null
if [ "${EVENKEEL_RAY:-}" = 1 ]; then
  "${pip[@]}" "${locked[@]}" -qq -r requirements-ray.lock </dev/null ||
    say "Ray could not be installed: its tests will be skipped."
fi
stamp_of "${wanted[@]}" >"$stamp"
add_s3
