#!/usr/bin/env bash
# install.sh DIR: what the tests of the page run with: Playwright, axe-core and html-validate, into DIR.
# Versions and hashes are those of package-lock.json. The browser is Debian's: chromium is installed
# where there is none and this is root. Needs npm with Node 18 or newer; what is there already is kept.
# Then: CONJURE_BROWSER_PEERS=DIR cargo xtask browser
set -euo pipefail

DIR=${1:?say where: install.sh DIR}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The fonts are for the pictures: a system without any shows boxes.
PACKAGES=(chromium fonts-dejavu-core)

browser() {
    if command -v chromium >/dev/null; then
        printf 'chromium: already there\n'
        return
    fi
    if [ "$(id -u)" != 0 ]; then
        printf 'there is no chromium here; `apt-get install %s` installs it\n' "${PACKAGES[*]}" >&2
        return 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o Acquire::Retries=3 update -qq
    apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends "${PACKAGES[@]}" >/dev/null
    printf 'chromium: installed\n'
}

# The lock file has the hash of each package; no package's own script runs.
npm_packages() {
    local stamp
    stamp=$(cd "$HERE" && sha256sum .npmrc package.json package-lock.json)
    if [ "$(cat "$DIR/.stamp" 2>/dev/null)" = "$stamp" ]; then
        printf 'Playwright: already there\n'
        return
    fi
    rm -rf "${DIR:?}"
    mkdir -p "$DIR"
    cp "$HERE/.npmrc" "$HERE/package.json" "$HERE/package-lock.json" "$DIR/"
    (cd "$DIR" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    printf '%s\n' "$stamp" >"$DIR/.stamp"
    printf 'Playwright: installed\n'
}

browser
npm_packages
