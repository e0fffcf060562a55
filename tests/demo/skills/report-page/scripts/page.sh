#!/bin/sh
# page.sh REPORT: a web page of a plain-text log report, on standard output.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: page.sh REPORT" >&2
    exit 2
fi
if [ ! -r "$1" ]; then
    echo "page.sh: $1 cannot be read" >&2
    exit 1
fi

awk '
function escaped(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}
function close_section() {
    if (open) print "</pre></section>"
    open = 0
}
BEGIN {
    print "<!doctype html>"
    print "<html lang=\"en\"><head><meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    print "<title>Log report</title><style>"
    print "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#f6f7f9}"
    print "h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1rem;margin:0 0 .5rem;color:#4a5568}"
    print "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:0 0 1.5rem}"
    print "dl div,section{background:#fff;border:1px solid #dde2e9;border-radius:.5rem;padding:.75rem 1rem}"
    print "dt{font-size:.8rem;color:#5b6675}dd{margin:0;font-weight:600}"
    print "section{margin:0 0 1rem}pre{margin:0;overflow-x:auto;font:13px/1.6 ui-monospace,monospace}"
    print "@media(min-width:30rem){.wide{grid-column:span 2}}"
    print ".CRITICAL dd{color:#b3261e}.WARNING dd,.ATTENTION dd{color:#8a5a00}.HEALTHY dd{color:#1b6e3c}"
    print "</style></head><body><main>"
}
NR == 1 { print "<h1>" escaped($0) "</h1><dl>"; figures = 1; next }
/^=+$/ || /^$/ { next }
figures && /^[A-Z][a-z]+: / {
    at = index($0, ":")
    name = substr($0, 1, at - 1)
    value = substr($0, at + 1)
    sub(/^ +/, "", value)
    class = name == "State" ? escaped(value) : (length(value) > 30 ? "wide" : "")
    if (class != "") class = " class=\"" class "\""
    print "<div" class "><dt>" escaped(name) "</dt><dd>" escaped(value) "</dd></div>"
    next
}
/^[^ ]/ {
    if (figures) print "</dl>"
    figures = 0
    close_section()
    print "<section><h2>" escaped($0) "</h2><pre>"
    open = 1
    next
}
{
    if (figures) { print "</dl>"; figures = 0 }
    if (!open) { print "<section><pre>"; open = 1 }
    print escaped($0)
}
END {
    if (figures) print "</dl>"
    close_section()
    print "</main></body></html>"
}
' "$1"
