#!/bin/sh
# The container set-up from the outside; `make up`, `make down` and the tests call it.
#
#   deploy/compose.sh build          the four images, from a base image that is pulled or made here
#   deploy/compose.sh up [ARG…]      build, start, wait until all is healthy   (PROFILES=observability: with it)
#   deploy/compose.sh down [ARG…]    stop and remove the containers; --volumes: the table and Kafka's data too
#   deploy/compose.sh -- ARG…        any other command of compose, e.g. `deploy/compose.sh -- logs -f writer`
#
# Reads: DOCKER_HOST; COMPOSE_PROJECT_NAME (tidemark); TIDEMARK_BASE_IMAGE, TIDEMARK_PROMETHEUS_IMAGE (default: the
# official image, and where it cannot be pulled one made by deploy/base-images.sh); TIDEMARK_IMAGE_PREFIX,
# TIDEMARK_VERSION (names of the images); PYTHON (.venv/bin/python).
set -eu
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-.venv/bin/python}"
PULL_TIMEOUT_S=300
export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-tidemark}"
PREFIX="${TIDEMARK_IMAGE_PREFIX:-tidemark}"
VERSION="${TIDEMARK_VERSION:-0.1.0}"

say() { echo "compose: $*" >&2; }

die() {
    say "$*"
    exit 1
}

docker version >/dev/null 2>&1 || die "no container engine answers${DOCKER_HOST:+ at $DOCKER_HOST}: start one, or set DOCKER_HOST"

compose() {
    if docker compose version >/dev/null 2>&1; then
        docker compose "$@"
    elif command -v docker-compose >/dev/null; then
        docker-compose "$@"
    else
        die "compose is missing: install docker-compose, or compose as docker's plugin"
    fi
}

default_image() { # of compose's variable: what docker-compose.yml falls back to
    sed -n "s/.*\${$1:-\([^}]*\)}.*/\1/p" docker-compose.yml | head -n 1
}

official_or_made() { # variable, name for base-images.sh: prints the image to use
    official=$(default_image "$1")
    if docker image inspect "$official" >/dev/null 2>&1 ||
        timeout "$PULL_TIMEOUT_S" docker pull --quiet "$official" >/dev/null 2>&1; then
        echo "$official"
        return
    fi
    say "$official cannot be pulled here: making a base image from Debian packages"
    deploy/base-images.sh "$2" || return 1
    echo "tidemark-base-$2:bookworm"
}

build() {
    : "${TIDEMARK_BASE_IMAGE:=$(official_or_made TIDEMARK_BASE_IMAGE python)}"
    [ -n "$TIDEMARK_BASE_IMAGE" ] || exit 1
    export TIDEMARK_BASE_IMAGE
    PYTHONPATH="libs:services${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" tools/image_context.py
    for target in kafka service spark writer; do
        say "building $PREFIX/$target:$VERSION"
        # What the engine says is shown only when it fails: the older builder warns of its age each time.
        said=$(docker build --quiet --file deploy/Dockerfile --target "$target" \
            --build-arg "BASE_IMAGE=$TIDEMARK_BASE_IMAGE" --tag "$PREFIX/$target:$VERSION" . 2>&1) || die "$said"
    done
}

profiles() { # the options of compose for $PROFILES
    for profile in $(echo "${PROFILES:-}" | tr ',' ' '); do
        printf -- '--profile %s ' "$profile"
    done
}

command="${1:-}"
[ $# -eq 0 ] || shift
case "$command" in
    build) build ;;
    up)
        build
        case ",${PROFILES:-}," in
            *,observability,*)
                : "${TIDEMARK_PROMETHEUS_IMAGE:=$(official_or_made TIDEMARK_PROMETHEUS_IMAGE prometheus)}"
                export TIDEMARK_PROMETHEUS_IMAGE
                ;;
        esac
        # shellcheck disable=SC2046  # options are several words
        compose $(profiles) up --detach --no-build "$@"
        ;;
    down) compose --profile observability down --remove-orphans "$@" ;;
    --) compose "$@" ;;
    *)
        sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
        [ "$command" = --help ] || exit 2
        ;;
esac
