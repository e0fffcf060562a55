#!/usr/bin/env bash
# install.sh DIR: the programs that `tests/mcp` speaks MCP with, into DIR: the conformance suite,
# the Inspector, servers, and the official SDKs for TypeScript and Python. Versions and hashes are
# those of `peers/`. Needs npm, and python3 with venv; takes about a minute and 600 MB; what is there
# already is kept. Then: CONJURE_MCP_PEERS=DIR cargo nextest run -p conjure-mcp-tests
set -euo pipefail

DIR=${1:?say where: install.sh DIR}
PEERS=$(cd "$(dirname "${BASH_SOURCE[0]}")/peers" && pwd)

main() {
    mkdir -p "$DIR"
    part js npm_packages package.json package-lock.json
    part python python_packages python.txt
    # An SDK of the major version before, which cannot be installed beside the newer one.
    part python-1 python_packages python-1.txt
}

# part NAME COMMAND FILE…: runs it in an empty DIR/NAME, unless that was made of the same files. A
# part that is half done has no stamp and begins anew.
part() {
    local name=$1 command=$2 stamp
    shift 2
    stamp=$(cd "$PEERS" && sha256sum "$@")
    if [ "$(cat "$DIR/$name/.stamp" 2>/dev/null)" = "$stamp" ]; then
        printf '%s: already there\n' "$name"
        return
    fi
    rm -rf "${DIR:?}/$name"
    mkdir "$DIR/$name"
    local file
    for file in "$@"; do
        cp "$PEERS/$file" "$DIR/$name/"
    done
    (cd "$DIR/$name" && "$command" "$@")
    printf '%s\n' "$stamp" >"$DIR/$name/.stamp"
    printf '%s: installed\n' "$name"
}

# The lock file has the hash of each package; no package's own script runs.
npm_packages() {
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
}

python_packages() {
    python3 -m venv .
    bin/pip install --quiet --disable-pip-version-check --no-deps \
        --only-binary :all: --require-hashes -r "$1"
}

main
