# Counts the entries: by level, by message, by host, by service, by minute.
#
# Fills the tables that report.awk prints. Judges nothing.

BEGIN {
    MAX_LINE = 65536
    MAX_LISTED = 20
    text_init(); json_init(); level_init()
    split("ERROR WARN INFO DEBUG TRACE OTHER", LEVEL, " ")
    entries = malformed = 0
    for (l = 1; l <= 6; l++) total[LEVEL[l]] = 0
}

{
    if (NR == 1) sub(/^\357\273\277/, "")
    sub(/\r$/, "")
    if ($0 ~ /^[ \t]*$/) next
    if (length($0) > MAX_LINE || !json_object($0) || !is_entry()) { malformed++; next }
    count_entry()
}

function is_entry() {
    return kind_of("message") == "string" || kind_of("level") == "string" || kind_of("level") == "number"
}

function kind_of(name) {
    return (name in KIND) ? KIND[name] : "none"
}

# A field's text, "" where it has none.
function text_of(name,    k) {
    k = kind_of(name)
    return k == "string" || k == "number" ? FIELD[name] : ""
}

function count_entry(    level, host, service, when) {
    level = level_of(text_of("level"))
    host = clean(text_of("host")); service = clean(text_of("service"))
    when = clean(text_of("timestamp"))
    entries++; total[level]++
    if (when != "") {
        if (first == "" || when < first "") first = when
        if (last == "" || when > last "") last = when
    }
    if (host != "") { host_entries[host]++; host_errors[host] += level == "ERROR"; host_warnings[host] += level == "WARN" }
    if (service != "") { service_entries[service]++; service_errors[service] += level == "ERROR"; service_warnings[service] += level == "WARN" }
    if (level == "ERROR") count_error(common_form(clean(substr(text_of("message"), 1, 2000))), host, when)
}

function count_error(message, host, when,    lower) {
    error_count[message]++
    if (when != "") {
        if (!(message in error_first) || when < error_first[message] "") error_first[message] = when
        if (!(message in error_last) || when > error_last[message] "") error_last[message] = when
        if (when ~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]/) minute_errors[substr(when, 1, 16)]++
    }
    if (host != "" && !((message, host) in error_host)) {
        error_host[message, host] = 1
        error_hosts[message]++
        # A host's name cannot hold this separator: clean() took control characters out.
        if (error_hosts[message] <= MAX_LISTED)
            error_host_list[message] = error_host_list[message] (error_hosts[message] > 1 ? "\034" : "") host
    }
    lower = tolower(message)
    cause["time"] += lower ~ /time[d]?[ -]?out|deadline/
    cause["connection"] += lower ~ /connection|connect |unreachable|refused|reset by peer|broken pipe/
    cause["memory"] += lower ~ /out of memory|outofmemory|oom|heap/
    cause["disk"] += lower ~ /disk|no space|read-only file/
    cause["access"] += lower ~ /unauthori[sz]ed|forbidden|denied|token expired|signature|certificate/
    cause["database"] += lower ~ /database|deadlock|sql|replica|pool/
}

function level_of(name) {
    name = tolower(name)
    return (name in LEVEL_OF) ? LEVEL_OF[name] : "OTHER"
}

function level_init() {
    level_names("ERROR", "error err fatal critical crit severe alert emerg emergency panic 50 60")
    level_names("WARN", "warn warning wrn 40")
    level_names("INFO", "info information informational notice 30")
    level_names("DEBUG", "debug dbg fine 20")
    level_names("TRACE", "trace verbose finer finest 10")
}

function level_names(level, names,    list, i, n) {
    n = split(names, list, " ")
    for (i = 1; i <= n; i++) LEVEL_OF[list[i]] = level
}
