# Judges what count.awk counted and prints it, as text or as one JSON object.

END {
    state = state_of(total["ERROR"], total["WARN"], entries)
    errors = rank(error_count, error_count, error_count, error_order, top)
    hosts = rank(host_entries, host_errors, host_warnings, host_order, MAX_LISTED)
    services = rank(service_entries, service_errors, service_warnings, service_order, MAX_LISTED)
    affected_hosts = affected(host_entries, host_errors, host_warnings)
    affected_services = affected(service_entries, service_errors, service_warnings)
    diagnose()
    if (format == "json") print_json(); else print_text()
}

# On whole numbers, so that exactly 10 % is never taken for more.
function state_of(bad, warned, all) {
    if (all == 0) return "UNKNOWN"
    if (bad * 100 > all * 10) return "CRITICAL"
    if (bad * 100 > all * 5) return "WARNING"
    if (warned * 100 > all * 20) return "ATTENTION"
    return "HEALTHY"
}

function percent(part, whole) {
    return sprintf("%.2f", whole == 0 ? 0 : part * 100 / whole)
}

# Puts up to `limit` names with a count into `order`: most errors, then most warnings, then by
# name. Names without either are left out. Returns how many there are.
function rank(names, bad, warned, order, limit,    name, best, n, used) {
    for (n = 0; n < limit; n++) {
        best = ""
        for (name in names)
            if (!(name in used) && bad[name] + warned[name] > 0 && (best == "" || before(name, best, bad, warned))) best = name
        if (best == "") break
        used[best] = 1
        order[n + 1] = best
    }
    return n
}

function affected(names, bad, warned,    name, n) {
    n = 0
    for (name in names) n += bad[name] + warned[name] > 0
    return n
}

function before(a, b, bad, warned) {
    if (bad[a] != bad[b]) return bad[a] > bad[b]
    if (warned[a] != warned[b]) return warned[a] > warned[b]
    return (a "") < (b "")
}

function say(sentence) {
    diagnostics[++diagnosed] = sentence
}

function diagnose(    bad, all, worst, message, minute) {
    diagnosed = 0
    bad = total["ERROR"]; all = entries
    if (all == 0) say(malformed > 0 ? "No line is a log entry: check that the file holds JSON lines" : "The log is empty: nothing can be said about its source")
    else if (state == "CRITICAL") say("Error rate " percent(bad, all) " % is above 10 %: act now")
    else if (state == "WARNING") say("Error rate " percent(bad, all) " % is above 5 %: look into it today")
    else if (state == "ATTENTION") say("Warning rate " percent(total["WARN"], all) " % is above 20 %: keep an eye on it")
    if (errors > 0) {
        message = error_order[1]
        if (error_count[message] >= 3 && error_count[message] * 100 >= bad * 30)
            say(percent(error_count[message], bad) " % of the errors are one: " message)
        if (error_hosts[message] >= 3)
            say("It comes from " error_hosts[message] " hosts: suspect what they share, not one machine")
    }
    worst = host_order[1]
    if (hosts > 1 && host_errors[worst] >= 3 && host_errors[worst] * 2 > bad)
        say("More than half of the errors come from one host: " worst)
    minute = busiest_minute()
    if (minute != "" && minute_errors[minute] >= 3)
        say("Most errors in one minute: " minute_errors[minute] " at " minute)
    for (message = 1; message <= 6; message++) say_cause(message)
    if (malformed > 0 && all > 0) say(malformed " of " (malformed + all) " lines could not be read and are not in these figures")
    if (total["OTHER"] > 0) say(total["OTHER"] (total["OTHER"] == 1 ? " entry has" : " entries have") " no known level and count as neither errors nor warnings")
}

function say_cause(i,    name, hint) {
    if (i == 1) { name = "time"; hint = "time-outs: look at the slow side, and at limits that are too short" }
    if (i == 2) { name = "connection"; hint = "connections: check that the other side runs, and the network between" }
    if (i == 3) { name = "memory"; hint = "memory: look for a leak or a limit that is too small" }
    if (i == 4) { name = "disk"; hint = "disks: free space, then find what fills it" }
    if (i == 5) { name = "access"; hint = "access: check credentials, permissions and certificates" }
    if (i == 6) { name = "database"; hint = "the database: check its pool, locks and replicas" }
    if (cause[name] > 0) say(cause[name] (cause[name] == 1 ? " error is about " : " errors are about ") hint)
}

function busiest_minute(    minute, best) {
    for (minute in minute_errors)
        if (best == "" || minute_errors[minute] > minute_errors[best] || (minute_errors[minute] == minute_errors[best] && minute "" < best "")) best = minute
    return best
}

function print_text(    i, line) {
    print "LOG REPORT"
    print "=========="
    print "State:    " state
    print "Entries:  " entries (malformed > 0 ? " (and " malformed (malformed == 1 ? " line" : " lines") " that could not be read)" : "")
    if (first != "") print "Period:   " first " to " last
    if (entries == 0) print "\nNo log entries: there is nothing to analyse."
    else {
        print "Errors:   " total["ERROR"] " (" percent(total["ERROR"], entries) " %)"
        print "Warnings: " total["WARN"] " (" percent(total["WARN"], entries) " %)"
        print "\nLevels"
        for (i = 1; i <= 6; i++) if (i <= 4 || total[LEVEL[i]] > 0)
            printf "  %-6s %7d  %6s %%\n", LEVEL[i], total[LEVEL[i]], percent(total[LEVEL[i]], entries)
        print "\nMost frequent errors"
        if (errors == 0) print "  none"
        for (i = 1; i <= errors; i++) print_error(error_order[i])
        print_group("Affected hosts", affected_hosts, hosts, host_order, host_entries, host_errors, host_warnings)
        print_group("Affected services", affected_services, services, service_order, service_entries, service_errors, service_warnings)
    }
    print "\nDiagnostics"
    if (diagnosed == 0) print "  - nothing stands out"
    for (i = 1; i <= diagnosed; i++) print "  - " diagnostics[i]
}

function print_error(message,    list) {
    printf "  %5d x  %s\n", error_count[message], message
    list = error_host_list[message]
    gsub(/\034/, ", ", list)
    if (error_hosts[message] > MAX_LISTED) list = list " and " error_hosts[message] - MAX_LISTED " more"
    if (list != "") print "           on " list
}

function print_group(title, in_all, n, order, all, bad, warned,    i, name) {
    print "\n" title
    if (n == 0) print "  none"
    else printf "  %8s %8s %8s\n", "errors", "warnings", "entries"
    for (i = 1; i <= n; i++) {
        name = order[i]
        printf "  %8d %8d %8d  %s\n", bad[name], warned[name], all[name], name
    }
    if (in_all > n) print "  and " in_all - n " more"
}

function print_json(    i, message) {
    printf "{\"state\":%s,\"entries\":%d,\"malformed\":%d,\"levels\":{", quoted(state), entries, malformed
    for (i = 1; i <= 6; i++) printf "%s%s:%d", comma(i), quoted(LEVEL[i]), total[LEVEL[i]]
    printf "},\"error_rate\":%s,\"warning_rate\":%s,", percent(total["ERROR"], entries), percent(total["WARN"], entries)
    if (first == "") printf "\"period\":null,"
    else printf "\"period\":{\"first\":%s,\"last\":%s},", quoted(first), quoted(last)
    printf "\"top_errors\":["
    for (i = 1; i <= errors; i++) {
        message = error_order[i]
        printf "%s{\"message\":%s,\"count\":%d,\"share\":%s,\"host_count\":%d,\"hosts\":%s,\"first\":%s,\"last\":%s}", comma(i), quoted(message), error_count[message], percent(error_count[message], total["ERROR"]), error_hosts[message], quoted_list(error_host_list[message]), quoted_or_null(error_first[message]), quoted_or_null(error_last[message])
    }
    printf "],\"affected_hosts\":%d,\"hosts\":", affected_hosts
    json_group(hosts, host_order, host_entries, host_errors, host_warnings)
    printf ",\"affected_services\":%d,\"services\":", affected_services
    json_group(services, service_order, service_entries, service_errors, service_warnings)
    printf ",\"diagnostics\":["
    for (i = 1; i <= diagnosed; i++) printf "%s%s", comma(i), quoted(diagnostics[i])
    print "]}"
}

function json_group(n, order, all, bad, warned,    i) {
    printf "["
    for (i = 1; i <= n; i++)
        printf "%s{\"name\":%s,\"entries\":%d,\"errors\":%d,\"warnings\":%d}", comma(i), quoted(order[i]), all[order[i]], bad[order[i]], warned[order[i]]
    printf "]"
}

# What stands before the i-th of a list. (`>` in a bare printf would write to a file.)
function comma(i) {
    return i > 1 ? "," : ""
}

function quoted_list(list,    parts, n, i, out) {
    n = list == "" ? 0 : split(list, parts, "\034")
    for (i = 1; i <= n; i++) out = out comma(i) quoted(parts[i])
    return "[" out "]"
}

function quoted_or_null(s) {
    return s == "" ? "null" : quoted(s)
}
