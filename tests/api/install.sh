#!/usr/bin/env bash
# install.sh DIR: schemathesis, which `tests/api` lets loose on the API, into DIR. Versions and hashes
# are those of `peers/`. Needs python3 with venv; what is there already is kept. Then:
# CONJURE_API_PEERS=DIR cargo nextest run -p conjure-api-tests
set -euo pipefail

DIR=${1:?say where: install.sh DIR}
PEERS=$(cd "$(dirname "${BASH_SOURCE[0]}")/peers" && pwd)

stamp=$(sha256sum <"$PEERS/python.txt")
if [ "$(cat "$DIR/python/.stamp" 2>/dev/null)" = "$stamp" ]; then
    printf 'schemathesis: already there\n'
    exit
fi
rm -rf "${DIR:?}/python"
mkdir -p "$DIR/python"
python3 -m venv "$DIR/python"
"$DIR/python/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes -r "$PEERS/python.txt"
printf '%s\n' "$stamp" >"$DIR/python/.stamp"
printf 'schemathesis: installed\n'
