#!/bin/sh
# Makes the base images out of Debian packages, for machines that reach no image registry.
#
#   deploy/base-images.sh [python] [prometheus]      (default: python)
#
# python      -> tidemark-base-python:bookworm      Python 3.11, nothing more than it needs
# prometheus  -> tidemark-base-prometheus:bookworm  Debian's Prometheus
#
# Packages come from where this machine's apt gets its own, in the same way (proxy, retries, checks of dates): its
# sources of bookworm; where it has none, from mmdebstrap's default. An image that is there already is kept; FORCE=1
# makes it anew. Needs: mmdebstrap, docker and root (or unshare'd user namespaces).
set -eu

SUITE=bookworm
DOCKER="${DOCKER:-docker}"

say() { echo "base-images: $*" >&2; }

# Awk: an entry is taken that names no other suite than ours, and `main`.
OURS='function ours(suites, components,    n, i, word) {
    n = split(suites, word, /[ \t\n]+/)
    for (i = 1; i <= n; i++) if (word[i] != "" && word[i] != suite && index(word[i], suite "-") != 1) return 0
    return suites ~ /[^ \t\n]/ && (" " components " ") ~ /[ \t\n]main[ \t\n]/
}'

gather_sources() { # folder: machine.list and machine.sources in it, each only where there is something of its kind
    list='' parts=''
    eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
    for file in "$list" "${parts%/}"/*.list; do
        [ ! -f "$file" ] || awk -v suite="$SUITE" "$OURS"'
            { sub(/#.*/, ""); bare = $0; sub(/\[[^]]*\]/, "", bare); n = split(bare, field, /[ \t]+/) }
            field[1] == "deb" && field[2] !~ /^cdrom:/ {
                rest = ""
                for (i = 4; i <= n; i++) rest = rest " " field[i]
                if (ours(field[3], rest)) print
            }' "$file"
    done >"$1/machine.list"
    for file in "${parts%/}"/*.sources; do
        [ ! -f "$file" ] || awk -v suite="$SUITE" "$OURS"'
            function entry(    key) {
                if ((" " value["types"] " ") ~ /[ \t]deb[ \t]/ && tolower(value["enabled"]) !~ /no|false/ &&
                    ours(value["suites"], value["components"])) print text
                text = ""
                for (key in value) delete value[key]
            }
            /^#/ { next }
            /^[ \t\r]*$/ { entry(); next }
            {
                text = text $0 "\n"
                line = $0
                if (line !~ /^[ \t]/) {
                    name = tolower(substr(line, 1, index(line, ":") - 1))
                    line = substr(line, index(line, ":") + 1)
                }
                value[name] = value[name] " " line
            }
            END { entry() }' "$file"
    done >"$1/machine.sources"
    for file in "$1/machine.list" "$1/machine.sources"; do
        [ -s "$file" ] || rm "$file"
    done
    # Updates alone make no system.
    cat "$1"/machine.* 2>/dev/null | grep -Eq "[[:space:]]$SUITE([[:space:]]|\$)" || rm -f "$1"/machine.*
}

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
    gather_sources "$work"
    # How this machine's apt fetches: for the making alone, no part of the image.
    apt-config dump | grep -Ei '^Acquire::(https?::|Check-|Retries|ForceIPv)' >"$work/fetching" || true
    image=$1 include=$2 hook=$3
    set --
    for file in "$work"/machine.*; do
        [ ! -f "$file" ] || set -- "$@" "$file"
    done
    # What nobody reads in a container: documents, manuals, translations.
    mmdebstrap --quiet --variant=minbase --include="$include" \
        --setup-hook="cp '$work/fetching' \"\$1/etc/apt/apt.conf.d/00fetching\"" \
        --customize-hook='rm "$1/etc/apt/apt.conf.d/00fetching"' --customize-hook="$hook" \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$SUITE" "$work/base.tar" "$@" >&2
    "$DOCKER" import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$work/base.tar" "$image" >/dev/null
    rm -rf "$work"
    trap - EXIT INT TERM
    say "$image: $("$DOCKER" image inspect --format '{{.Size}}' "$image" | awk '{printf "%.0f MB", $1 / 1e6}')"
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
