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
api_types() {
  [ -d frontend/node_modules ] || { echo "SKIPPED: the front end is not installed."; return 0; }
  (cd frontend && ../scripts/npm.sh run --silent check-api </dev/null) ||
    { echo "frontend/src/api/schema.ts is out of date: run npm run gen-api in frontend/."; return 1; }
}
client_types() {
  local made
  made=$(mktemp --suffix .py) && scripts/client_types.sh "$made" && diff -u client/evenkeel/schemas.py "$made" && rm "$made" ||
    { echo "client/evenkeel/schemas.py is out of date: run make openapi."; return 1; }
}
deploy() { EVENKEEL_HTTPS=1 .venv/bin/python -W ignore manage.py check --deploy --fail-level WARNING; }
audit() {
  local said locks=(-r requirements.lock -r requirements-local.lock -r requirements-plots.lock)
  said=$(.venv/bin/pip-audit --progress-spinner off --no-deps --disable-pip "${locks[@]}" 2>&1) && {
    grep -q 'could not be audited' <<<"$said" && echo "SKIPPED in part: advisories of some packages cannot be reached from here."
    return 0
  }
  grep -qE 'vulnerabilit(y|ies) found|Found [0-9]+ known' <<<"$said" && { echo "$said"; return 1; }
  echo "SKIPPED: no advisories can be reached from here."
}
check .venv/bin/ruff check .
check .venv/bin/ruff format --check .
check .venv/bin/mypy
check .venv/bin/lint-imports
check .venv/bin/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
check openapi
check api_types
check client_types
check .venv/bin/bandit -q -c pyproject.toml -r manage.py portal accounts scheduling client/evenkeel
check deploy
check audit
exit $status
