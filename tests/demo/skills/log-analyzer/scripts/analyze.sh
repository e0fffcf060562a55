#!/bin/sh
# Analyses log entries in JSON lines and prints a report; see ../SKILL.md.
# Needs a POSIX shell and awk only. AWK names another awk, such as AWK='busybox awk'.
set -eu

usage() {
    cat <<'USAGE'
Usage: sh analyze.sh [--json] [--top N] [--output FILE] FILE|-

Reports totals by level, error and warning rates, frequent errors, affected hosts and
services, diagnostics and the state of a log in JSON lines (- reads standard input).

  --json          one JSON object instead of text
  --top N         how many of the most frequent errors to list (1 to 1000, default 5)
  --output FILE   write the report to FILE, and say so
  --help          this text

Exit codes: 0 a report was made, 1 input or output failed, 2 wrong usage.
USAGE
}

wrong_usage() {
    printf 'analyze.sh: %s; --help shows how it is used\n' "$1" >&2
    exit 2
}

fail() {
    printf 'analyze.sh: %s\n' "$1" >&2
    exit 1
}

input='' output='' format=text top=5
while [ $# -gt 0 ]; do
    case $1 in
        --json) format=json ;;
        --top | --output)
            [ $# -ge 2 ] || wrong_usage "$1 needs a value"
            if [ "$1" = --top ]; then top=$2; else output=$2; fi
            shift ;;
        --top=*) top=${1#*=} ;;
        --output=*) output=${1#*=} ;;
        --help | -h) usage; exit 0 ;;
        -) [ -z "$input" ] || wrong_usage 'only one input can be given'; input=- ;;
        -*) wrong_usage "there is no option $1" ;;
        *) [ -z "$input" ] || wrong_usage 'only one input can be given'; input=$1 ;;
    esac
    shift
done

case $top in
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | 1000) ;;
    *) wrong_usage "--top needs a number from 1 to 1000, not '$top'" ;;
esac
[ -n "$input" ] || wrong_usage 'a file is needed, or - for standard input'
if [ "$input" != - ]; then
    [ -e "$input" ] || fail "there is no file '$input' here ($(pwd))"
    [ ! -d "$input" ] || fail "'$input' is a directory; name a file"
    [ -r "$input" ] || fail "'$input' cannot be read; check its permissions"
fi

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Bytes, not characters, so that every awk sees the same; and a point in decimal numbers.
LC_ALL=C
export LC_ALL

# The input comes by redirection: awk would take a name like `a=b` for an assignment.
# AWK may be two words, so it is not quoted.
report() {
    ${AWK:-awk} -v format="$format" -v top="$top" \
        -f "$here/json.awk" -f "$here/text.awk" -f "$here/count.awk" -f "$here/report.awk"
}
analyse() {
    if [ "$input" = - ]; then report; else report <"$input"; fi
}

if [ -z "$output" ]; then
    analyse
else
    # Written beside its place and moved, so that nobody reads half a report.
    part=$output.part.$$
    trap 'rm -f -- "$part"' EXIT
    trap 'exit 1' HUP INT TERM
    (analyse) >"$part" || fail "the report could not be written to '$output'"
    mv -f -- "$part" "$output" || fail "the report could not be written to '$output'"
    printf 'Report written to %s\n' "$output"
fi
