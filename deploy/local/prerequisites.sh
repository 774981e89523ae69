#!/bin/sh
# What `make demo`, `make test` and `make stack` need on a Debian machine without Docker.
# As root it installs what is missing; for anybody else it prints the line to run, and stops.
#
# Servers that the environment names need no packages here, except for `make test`, whose tests stop
# and kill servers of their own: it says `prerequisites.sh test`.
set -eu

if [ "${1:-}" = test ]; then
    unset DATABASE_URL KAFKA_BROKERS
fi

missing=''
# The server of PostgreSQL is not in PATH on Debian; a PostgreSQL of one's own may have pg_config.
has_postgres() {
    if [ -n "${DATABASE_URL:-}" ]; then return 0; fi
    for initdb in "$(pg_config --bindir 2>/dev/null)/initdb" /usr/lib/postgresql/*/bin/initdb; do
        if [ -x "$initdb" ]; then return 0; fi
    done
    return 1
}

# Kafka 4 needs Java 17: "17.0.15" and "21" are such versions, "1.8.0" and "11.0.2" are not.
has_java() {
    if [ -n "${KAFKA_BROKERS:-}" ]; then return 0; fi
    java=java
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; fi
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

# Maven brings Kafka's jars, once; a Kafka of one's own needs none.
has_maven() {
    [ -n "${KAFKA_BROKERS:-}${KAFKA_HOME:-}" ] || command -v mvn >/dev/null
}

has_package() {
    dpkg-query --show --showformat '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'
}

has_postgres || missing="$missing postgresql"
has_java || missing="$missing default-jdk-headless"
has_maven || missing="$missing maven"
if [ "${1:-}" = test ] && ! python3 -c 'import ensurepip' 2>/dev/null; then missing="$missing python3-venv"; fi
if [ "${1:-}" = test ] && ! command -v openssl >/dev/null; then missing="$missing openssl"; fi
command -v setpriv >/dev/null || missing="$missing util-linux"
command -v curl >/dev/null || missing="$missing curl"
command -v dpkg-query >/dev/null || {
    echo "This is not Debian or a system like it. Install a C compiler, make, pkg-config, the headers of" >&2
    echo "OpenSSL and zlib, PostgreSQL >= 15, a JDK >= 17, Maven and Rust, then run make again." >&2
    exit 1
}
for package in build-essential pkg-config libssl-dev zlib1g-dev; do
    has_package "$package" || missing="$missing $package"
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "These packages are missing; install them, then run make again:" >&2
        echo "  sudo apt-get update && sudo apt-get install --yes --no-install-recommends$missing" >&2
        exit 1
    fi
    echo "Installing$missing"
    apt-get update -q
    case "$missing" in
    *postgresql*)
        # Ours are private clusters: no server of the system's own has to run beside them.
        mkdir -p /etc/postgresql-common/createcluster.d
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/oncebox.conf
        ;;
    esac
    # shellcheck disable=SC2086 # a list of words on purpose
    DEBIAN_FRONTEND=noninteractive apt-get install -q --yes --no-install-recommends $missing
fi

if ! command -v cargo >/dev/null; then
    echo "Rust is missing. Install rustup from https://rustup.rs, open a new shell, then run make again:" >&2
    echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
    exit 1
fi
if ! cargo --version >/dev/null 2>&1; then
    echo "The toolchain of rust-toolchain.toml is missing. Install it, then run make again:" >&2
    echo "  rustup toolchain install" >&2
    exit 1
fi
