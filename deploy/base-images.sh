#!/bin/sh
# Makes the base images out of Debian packages, for machines that reach no image registry.
#
#   deploy/base-images.sh [python] [prometheus]      (default: python)
#
# python      -> tidemark-base-python:bookworm      Python 3.11, nothing more than it needs
# prometheus  -> tidemark-base-prometheus:bookworm  Debian's Prometheus
#
# Packages come from where this machine's apt gets its own (mmdebstrap reads apt's sources). An image that is
# there already is kept; FORCE=1 makes it anew. Needs: mmdebstrap, docker and root (or unshare'd user namespaces).
set -eu

SUITE=bookworm
DOCKER="${DOCKER:-docker}"

say() { echo "base-images: $*" >&2; }

make_image() { # name, packages, a last command with the new root as $1
    if [ -z "${FORCE:-}" ] && "$DOCKER" image inspect "$1" >/dev/null 2>&1; then
        say "$1 is there"
        return
    fi
    command -v mmdebstrap >/dev/null || {
        say "mmdebstrap is missing: apt-get install --no-install-recommends mmdebstrap"
        exit 1
    }
    say "making $1 (half a minute)"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT INT TERM
    # What nobody reads in a container: documents, manuals, translations.
    mmdebstrap --quiet --variant=minbase --include="$2" --customize-hook="$3" \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$SUITE" "$work/base.tar" >&2
    "$DOCKER" import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$work/base.tar" "$1" >/dev/null
    rm -rf "$work"
    trap - EXIT INT TERM
    say "$1: $("$DOCKER" image inspect --format '{{.Size}}' "$1" | awk '{printf "%.0f MB", $1 / 1e6}')"
}

[ $# -gt 0 ] || set -- python
for image in "$@"; do
    case "$image" in
        python) make_image "tidemark-base-python:$SUITE" ca-certificates,python3.11 true ;;
        prometheus)
            # As in the official image: the data folder belongs to nobody.
            # shellcheck disable=SC2016  # $1 is mmdebstrap's
            make_image "tidemark-base-prometheus:$SUITE" ca-certificates,prometheus \
                'install -d -o 65534 -g 65534 "$1/prometheus"'
            ;;
        *)
            say "no such image: $image (there are: python, prometheus)"
            exit 2
            ;;
    esac
done
