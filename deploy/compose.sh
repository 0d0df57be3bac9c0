#!/bin/sh
# The container set-up from the outside; `make up`, `make down` and the tests call it.
#
#   deploy/compose.sh check          is there an engine, and compose?
#   deploy/compose.sh build          the four images, from a base image that is pulled or made here
#   deploy/compose.sh up [OPTION…]   build, start, wait until all is healthy, say where things are
#                                    (PROFILES=observability: Prometheus too, and Grafana where its image can be had)
#   deploy/compose.sh down [ARG…]    stop and remove the containers; --volumes: the table and Kafka's data too,
#                                    which it names, and asks; --yes: without a question
#   deploy/compose.sh -- ARG…        any other command of compose, e.g. `deploy/compose.sh -- logs -f writer`
#
# Reads: DOCKER_HOST; COMPOSE_PROJECT_NAME (tidemark); TIDEMARK_BASE_IMAGE, TIDEMARK_PROMETHEUS_IMAGE (default: the
# official image, and where it cannot be pulled one made by deploy/base-images.sh); TIDEMARK_GRAFANA_IMAGE;
# TIDEMARK_IMAGE_PREFIX, TIDEMARK_VERSION (names of the images); TIDEMARK_…_PORT (docker-compose.yml); PYTHON
# (.venv/bin/python).
set -eu
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-.venv/bin/python}"
PULL_TIMEOUT_S=300
export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-tidemark}"
PREFIX="${TIDEMARK_IMAGE_PREFIX:-tidemark}"
VERSION="${TIDEMARK_VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}"
export TIDEMARK_VERSION="$VERSION"

say() { echo "compose: $*" >&2; }

die() {
    say "$*"
    exit 1
}

# Before anything is built: what is missing, and how to get it.
check() {
    command -v docker >/dev/null ||
        die "docker is missing: install an engine (Debian: apt-get install docker.io docker-compose mmdebstrap)"
    said=$(docker version 2>&1 >/dev/null) ||
        die "no container engine answers${DOCKER_HOST:+ at $DOCKER_HOST}: start one (systemctl start docker), or set" \
            "DOCKER_HOST. The client says: $(echo "$said" | tail -n 1)"
    if docker compose version >/dev/null 2>&1; then
        COMPOSE="docker compose"
    elif command -v docker-compose >/dev/null; then
        COMPOSE=docker-compose
    else
        die "compose is missing: install docker-compose (Debian's package), or compose as docker's plugin"
    fi
}

compose() { $COMPOSE "$@"; }

default_image() { # of compose's variable: what docker-compose.yml falls back to
    sed -n "s/.*\${$1:-\([^}]*\)}.*/\1/p" docker-compose.yml | head -n 1
}

can_be_had() { # image: it is there, or can be pulled
    docker image inspect "$1" >/dev/null 2>&1 || timeout "$PULL_TIMEOUT_S" docker pull --quiet "$1" >/dev/null 2>&1
}

official_or_made() { # variable, name for base-images.sh: prints the image to use
    official=$(default_image "$1")
    if can_be_had "$official"; then
        echo "$official"
        return
    fi
    say "$official cannot be pulled here: one made from Debian packages takes its place"
    deploy/base-images.sh "$2" || return 1
    echo "tidemark-base-$2:bookworm"
}

build() {
    : "${TIDEMARK_BASE_IMAGE:=$(official_or_made TIDEMARK_BASE_IMAGE python)}"
    [ -n "$TIDEMARK_BASE_IMAGE" ] || exit 1
    export TIDEMARK_BASE_IMAGE
    PYTHONPATH="libs:services:stubs${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" tools/image_context.py
    # In the order of the Dockerfile. Each is sent what the stages up to its own copy: the older builder makes all of
    # them, takes those that it made before from its cache, and keeps nothing of what it was sent.
    copied='deploy'
    for target in kafka service spark writer; do
        case "$target" in
            kafka) copied="$copied $(context java kafka-jars)" ;;
            service) copied="$copied $(context python-executor python-service tidemark)" ;;
            spark) copied="$copied $(context python-spark)" ;;
            writer) copied="$copied $(context jars)" ;;
        esac
        say "building $PREFIX/$target:$VERSION"
        # What the engine says is shown only when it fails: the older builder warns of its age each time.
        # shellcheck disable=SC2086  # several folders
        said=$(tar --create --owner=0 --group=0 --exclude=.made-from $copied | docker build --quiet \
            --file deploy/Dockerfile --target "$target" \
            --build-arg "BASE_IMAGE=$TIDEMARK_BASE_IMAGE" --label "org.opencontainers.image.version=$VERSION" \
            --tag "$PREFIX/$target:$VERSION" - 2>&1) || die "$said"
    done
}

context() { # folders of what tools/image_context.py gathered
    printf 'build/containers/%s ' "$@"
}

up() { # what to start is an option of compose each
    without=''
    case ",${PROFILES:-}," in
        *,observability,*)
            : "${TIDEMARK_PROMETHEUS_IMAGE:=$(official_or_made TIDEMARK_PROMETHEUS_IMAGE prometheus)}"
            [ -n "$TIDEMARK_PROMETHEUS_IMAGE" ] || exit 1
            export TIDEMARK_PROMETHEUS_IMAGE
            grafana="${TIDEMARK_GRAFANA_IMAGE:-$(default_image TIDEMARK_GRAFANA_IMAGE)}"
            can_be_had "$grafana" || without=grafana
            ;;
    esac
    # Without it the others are named one by one: compose pulls the image of whatever it is not told to leave out.
    services=${without:+$(compose --profile observability config --services | grep -vx "$without")}
    profiles=$(for profile in $(echo "${PROFILES:-}" | tr ',' ' '); do printf -- '--profile %s ' "$profile"; done)
    # shellcheck disable=SC2086  # several words each
    compose $profiles up --detach --no-build "$@" $services || die "not all came up. What did, and why not:
  deploy/compose.sh -- ps
  deploy/compose.sh -- logs --tail 50 SERVICE
\`make up\` goes on from here; \`make down\` takes all away."
    [ -z "$without" ] || say "Grafana is left out: $grafana cannot be pulled here, and Debian has no package of it." \
        "Where a registry has it: TIDEMARK_GRAFANA_IMAGE=REGISTRY/IMAGE:TAG PROFILES=$PROFILES make up"
    tell
}

confirm_volumes() { # names what would be deleted; goes on when the project's name is typed, or there is nothing
    found=$(docker volume ls --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME") ||
        die "the engine does not say which volumes there are: nothing was deleted"
    [ -n "$found" ] || return 0
    # shellcheck disable=SC2086  # several names
    say "this deletes the table and Kafka's data: the volumes" $found
    [ -t 0 ] || die "nobody can be asked here: add --yes if that is meant (make down DOWN_ARGS=\"--volumes --yes\")"
    printf 'Type the name of the project (%s) to go on: ' "$COMPOSE_PROJECT_NAME" >&2
    read -r answer || answer=''
    [ "$answer" = "$COMPOSE_PROJECT_NAME" ] || die "not confirmed: nothing was changed"
}

tell() { # where everything is, for who has just started it
    echo
    echo "Running, all healthy (compose project $COMPOSE_PROJECT_NAME):"
    line() { printf '  %-12s %s\n' "$1" "$2"; }
    line "the page" "http://127.0.0.1:${TIDEMARK_WEB_PORT:-7413}"
    line "Spark" "http://127.0.0.1:${TIDEMARK_SPARK_PORT:-18080}"
    case ",${PROFILES:-}," in
        *,observability,*)
            line Prometheus "http://127.0.0.1:${TIDEMARK_PROMETHEUS_PORT:-19090}"
            [ -n "$without" ] || line Grafana "http://127.0.0.1:${TIDEMARK_GRAFANA_PORT:-13000}"
            ;;
    esac
    line Kafka "127.0.0.1:${TIDEMARK_KAFKA_PORT:-19092}"
    line "the table" "deploy/compose.sh -- exec coordinator tidemark status -c /etc/tidemark/flights.yaml"
    line logs "deploy/compose.sh -- logs -f writer"
    line "the end" "make down   (DOWN_ARGS=--volumes: the table and Kafka's data go, too)"
}

command="${1:-}"
[ $# -eq 0 ] || shift
case "$command" in
    check) check ;;
    build)
        check
        build
        ;;
    up)
        check
        build
        up "$@"
        ;;
    down)
        check
        # --yes is ours; whatever else was given is compose's.
        volumes='' yes=''
        for given in "$@"; do
            shift
            case "$given" in
                --yes) yes=1 ;;
                -v | --volumes | --volumes=*)
                    volumes=1
                    set -- "$@" "$given"
                    ;;
                *) set -- "$@" "$given" ;;
            esac
        done
        [ -z "$volumes" ] || [ -n "$yes" ] || confirm_volumes
        compose --profile observability down --remove-orphans "$@"
        ;;
    --)
        check
        compose "$@"
        ;;
    *)
        sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
        [ "$command" = --help ] || exit 2
        ;;
esac
