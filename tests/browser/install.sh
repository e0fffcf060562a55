#!/usr/bin/env bash
# install.sh DIR: what the tests of the page run with: Playwright, axe-core and html-validate, into DIR.
# Versions and hashes are those of package-lock.json. The browser is Debian's: chromium, and the font of
# the pictures, are installed where they are missing and this is root. Needs npm with Node 18 or newer,
# and the tests need python3; what is there already is kept.
# Then: CONJURE_BROWSER_PEERS=DIR cargo xtask browser
set -euo pipefail

DIR=${1:?say where: install.sh DIR}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The pictures were taken with this font: with another one there is nothing to compare.
FONTS=fonts-dejavu-core

# there PACKAGE: whether Debian has it installed.
there() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q ' ok installed$'
}

browser() {
    local packages=()
    command -v chromium >/dev/null || packages+=(chromium)
    there "$FONTS" || packages+=("$FONTS")
    if [ ${#packages[@]} = 0 ]; then
        printf 'chromium and %s: already there\n' "$FONTS"
        return
    fi
    if [ "$(id -u)" != 0 ]; then
        printf 'missing here: %s; `apt-get install %s` installs it\n' "${packages[*]}" "${packages[*]}" >&2
        # Without the font the tests run, and compare no pictures.
        command -v chromium >/dev/null
        return
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o Acquire::Retries=3 update -qq
    apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
    printf '%s: installed\n' "${packages[*]}"
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
