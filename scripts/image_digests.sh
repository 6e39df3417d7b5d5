#!/usr/bin/env bash
# Writes the digests that the tags of the base images have today into docker/; needs docker and a way to the registry.
set -euo pipefail
cd "$(dirname "$0")/.."
files=(docker/Dockerfile docker/compose.yaml)
for image in $(grep -ohE '[a-z]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}' "${files[@]}" | sort -u); do
  tag=${image%@*}
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$tag")
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "$tag: no digest but '$digest'" >&2; exit 1; }
  sed -i "s|$image|$tag@$digest|" "${files[@]}"
  echo "$tag $digest"
done
