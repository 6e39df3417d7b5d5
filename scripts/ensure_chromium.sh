#!/usr/bin/env bash
# Browser tests drive the system's Chromium. As root on Debian it is installed; elsewhere one line says what is skipped.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium for the browser tests." >&2
  export DEBIAN_FRONTEND=noninteractive
  if apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core </dev/null >/dev/null; then
    exit 0
  fi
  echo "SKIPPED: browser tests, because Chromium could not be installed." >&2
  exit 0
fi
echo "SKIPPED: browser tests, because there is no Chromium and only root on Debian can install it here." >&2
