#!/usr/bin/env bash
# Everything that can be said about the code without running it. All checks run; the first failure decides the status.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
check() {
  echo "-- $*"
  "$@" || status=1
}
openapi() {
  .venv/bin/python manage.py spectacular --validate --fail-on-warn | diff -u portal/api/openapi.yaml - ||
    { echo "portal/api/openapi.yaml is out of date: run make openapi."; return 1; }
}
check .venv/bin/ruff check .
check .venv/bin/ruff format --check .
check .venv/bin/mypy
check .venv/bin/lint-imports
check .venv/bin/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
check openapi
exit $status
