#!/bin/sh
# Build the image where there is no registry to take a base from, and try it: Debian's archive gives the base, Buildah
# builds. scripts/build_image.sh [lean|gpu] [OPTION OF buildah build]...
# An option worth having: --volume /etc/pip.conf:/etc/pip.conf:ro, for an index of your own.
set -eu
cd "$(dirname "$0")/.."

for program in buildah mmdebstrap git; do
  command -v "$program" >/dev/null || {
    echo "image: $program is not on PATH; install it: apt-get install --no-install-recommends buildah mmdebstrap git uidmap" >&2
    exit 69 # sysexits.h, EX_UNAVAILABLE
  }
done

# A user namespace is enough, so root is not needed; and no OCI runtime has to be there.
export BUILDAH_ISOLATION=chroot
BASE=localhost/gameday-base:bookworm
target=lean
case "${1-}" in lean | gpu) target=$1 && shift ;; esac
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
scratch=$(mktemp -d)
container=
trap 'test -z "$container" || buildah rm "$container" >/dev/null; rm -rf "$scratch"' EXIT

# The release of the Dockerfile's own BASE; a base that is there is kept: buildah rmi gets a new one.
if ! buildah inspect --type image "$BASE" >/dev/null 2>&1; then
  echo "image: making the base $BASE"
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    bookworm "$scratch/base.tar"
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$scratch/base.tar" / >/dev/null
  buildah commit --quiet "$container" "$BASE" >/dev/null
  buildah rm "$container" >/dev/null
  container=
  rm "$scratch/base.tar"
fi

image=localhost/gameday:$VERSION
test "$target" = lean || image=$image-$target
buildah build --pull=never --iidfile "$scratch/id" --target "$target" --build-arg BASE="$BASE" \
  --build-arg VERSION="$VERSION" --build-arg REVISION="$(git rev-parse HEAD)" "$@" .

# As the image's own user, whom `buildah run` takes from it.
echo "image: trying it"
container=$(buildah from --pull=never "$(cat "$scratch/id")")
for command in "gameday --version" "gameday plans" "gameday fleet --help" "gameday health --help" "prefect version" \
  "python -m gameday_health --help"; do
  # shellcheck disable=SC2086 # the command's words
  buildah run "$container" -- $command >"$scratch/output" || {
    cat "$scratch/output"
    echo "image: \`$command\` failed in it" >&2
    exit 1
  }
done
buildah tag "$(cat "$scratch/id")" "$image"
buildah images --format 'image: {{.Name}}:{{.Tag}}, {{.Size}}' "$image"
