#!/usr/bin/env bash
# Writes what the API description says of requests and answers as typed dictionaries for the Python client.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/datamodel-codegen --input portal/api/openapi.yaml --input-file-type openapi --output "$1" \
  --output-model-type typing.TypedDict --no-use-closed-typed-dict --enum-field-as-literal all \
  --use-standard-collections --use-union-operator --target-python-version 3.11 --disable-timestamp --formatters builtin
.venv/bin/ruff format --quiet "$1"
