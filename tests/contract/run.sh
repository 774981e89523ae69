#!/bin/sh
# The API against its description: schemathesis makes requests of docs/openapi.json, right ones and wrong
# ones, and holds the answers to it. `make test` runs this by `stack exec`, which sets DATABASE_URL.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
bin=${CARGO_TARGET_DIR:-$root/target}/release
tools=$root/.local/contract
wanted=$root/tests/contract/requirements.txt

if ! cmp -s "$wanted" "$tools/installed.txt"; then
    echo "Installing schemathesis into .local/contract"
    rm -rf "$tools"
    python3 -m venv "$tools" || {
        echo "Python's venv is missing. Install it, then run make test again:" >&2
        echo "  sudo apt-get install --yes python3-venv" >&2
        exit 1
    }
    "$tools/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$wanted" || {
        echo "pip could not install tests/contract/requirements.txt (see above). It is fetched once: check the" >&2
        echo "network, or name a mirror with PIP_INDEX_URL or PIP_FIND_LINKS, and run make test again." >&2
        exit 1
    }
    cp "$wanted" "$tools/installed.txt"
fi

ONCEBOX_LOG_LEVEL=warn "$bin/oncebox" migrate >/dev/null
created=$("$bin/oncebox" keys create --tenant contract --name contract --operator contract --json)
key=$(echo "$created" | sed -n 's/.*\(obx_[0-9A-Za-z]*_[0-9A-Za-z_-]*\).*/\1/p' | head -n 1)
[ -n "$key" ] || { echo "no API key in what oncebox said: $created" >&2; exit 1; }
log=$(mktemp)
ONCEBOX_AUTH=api_keys ONCEBOX_HTTP_LISTEN=127.0.0.1:0 ONCEBOX_ADMIN_LISTEN=127.0.0.1:0 \
    ONCEBOX_CHARGES_AMOUNT_MAX=9007199254740991 ONCEBOX_LOG_FORMAT=json "$bin/charge-api" >"$log" 2>&1 &
api=$!
trap 'kill $api 2>/dev/null || :' EXIT

# 10 s: it is there in a fraction of one.
address=
for _ in $(seq 100); do
    address=$(sed -n 's/.*"http":"\([^"]*\)".*/\1/p' "$log")
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || { echo "charge-api did not start; its log:" >&2; cat "$log" >&2; exit 1; }

# What it caches, it caches where it is run. That what the schema allows is accepted is not checked: a
# key that was used is refused, and so are 1.0 for an integer and a cursor that is none of ours.
cd "$tools"
bin/schemathesis run "$root/docs/openapi.json" \
    --url "http://$address" --header "Authorization: Bearer $key" --no-color --warnings off \
    --checks all --exclude-checks positive_data_acceptance --phases examples,coverage,fuzzing --max-examples 40 \
    --generation-deterministic --request-timeout 10 || {
    echo "The API and docs/openapi.json do not agree (see above; each failure has a curl command). Correct the" >&2
    echo "API, or crates/charge-api/src/openapi.rs. The log of the API is $log" >&2
    exit 1
}
rm "$log"
