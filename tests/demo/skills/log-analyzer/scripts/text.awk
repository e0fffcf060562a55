# Text for output: UTF-8, JSON strings, and the common form of messages.
#
# Works on bytes (LC_ALL=C). What came from a log is cleaned before it is shown, so that it
# can neither steer a terminal nor break the JSON report.

function text_init(    i, h, h4) {
    for (i = 128; i < 256; i++) BYTE[sprintf("%c", i)] = i
    REPLACEMENT = "\357\277\275"
    h = "[0-9a-fA-F]"; h4 = h h h h   # not every awk knows {4}
    UUID = h4 h4 "-" h4 "-" h4 "-" h4 "-" h4 h4 h4
    LONG_HEX = h4 h4 h "*"
}

# The code point as UTF-8. NUL and halves of pairs, which no text can hold, become U+FFFD.
function utf8(n) {
    if (n == 0 || (n >= 55296 && n <= 57343)) return REPLACEMENT
    if (n < 128) return sprintf("%c", n)
    if (n < 2048) return sprintf("%c%c", 192 + int(n / 64), 128 + n % 64)
    if (n < 65536) return sprintf("%c%c%c", 224 + int(n / 4096), 128 + int(n / 64) % 64, 128 + n % 64)
    return sprintf("%c%c%c%c", 240 + int(n / 262144), 128 + int(n / 4096) % 64, 128 + int(n / 64) % 64, 128 + n % 64)
}

# Without control characters and without bytes that are not UTF-8.
function clean(s,    out, i, n, need) {
    gsub(/[[:cntrl:]]+/, " ", s)
    if (s !~ /[^ -~]/) return s
    n = length(s)
    for (i = 1; i <= n; i += need) {
        need = utf8_length(s, i)
        if (need == 0) { out = out REPLACEMENT; need = 1 }
        else out = out substr(s, i, need)
    }
    return out
}

# How many bytes the character at `i` has; 0 where no character begins. Also 0 for the
# controls U+0080 to U+009F, some of which terminals obey.
function utf8_length(s, i,    lead, second, need, k) {
    lead = substr(s, i, 1)
    if (!(lead in BYTE)) return 1
    lead = BYTE[lead]
    if (lead < 194 || lead > 244) return 0
    need = lead < 224 ? 2 : lead < 240 ? 3 : 4
    for (k = 1; k < need; k++) if (continuation(substr(s, i + k, 1)) == 0) return 0
    second = BYTE[substr(s, i + 1, 1)]
    if (lead == 194 && second < 160) return 0
    if (lead == 224 && second < 160) return 0
    if (lead == 237 && second > 159) return 0
    if (lead == 240 && second < 144) return 0
    if (lead == 244 && second > 143) return 0
    return need
}

function continuation(c) {
    return (c in BYTE) && BYTE[c] < 192
}

# A JSON string of text that was cleaned.
#
# Without gsub: awks differ in how many backslashes its replacement needs.
function quoted(s) {
    return "\"" joined(joined(s, "\\", "\\\\"), "\"", "\\\"") "\""
}

# The text with each `sign` replaced.
function joined(s, sign, replacement,    out, at) {
    while ((at = index(s, sign)) > 0) {
        out = out substr(s, 1, at - 1) replacement
        s = substr(s, at + 1)
    }
    return out s
}

# Messages that differ only in numbers have one common form.
function common_form(message) {
    gsub(UUID, "N", message)
    gsub(/0[xX][0-9a-fA-F]+/, "N", message)
    gsub(LONG_HEX, "N", message)
    gsub(/[0-9]+(\.[0-9]+)*/, "N", message)
    gsub(/[[:space:]]+/, " ", message)
    sub(/^ /, "", message); sub(/ $/, "", message)
    return message == "" ? "(no message)" : shortened(message, 300)
}

# At most `limit` bytes, cut between two characters.
function shortened(s, limit) {
    if (length(s) <= limit) return s
    while (continuation(substr(s, limit + 1, 1))) limit--
    return substr(s, 1, limit) "\342\200\246"
}
