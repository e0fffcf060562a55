# Reads one JSON object of a line into FIELD (name -> value) and KIND (name -> type).
#
# A real parser, since messages hold quotes, braces and colons. Nested values are checked and
# skipped. Works on bytes (LC_ALL=C); keeps no more than one line.

function json_init(    i) {
    for (i = 0; i < 10; i++) HEX[i ""] = i
    for (i = 0; i < 6; i++) { HEX[substr("abcdef", i + 1, 1)] = 10 + i; HEX[substr("ABCDEF", i + 1, 1)] = 10 + i }
}

# 1 if `line` is one JSON object, else 0 and JSON_ERROR says why.
function json_object(line,    name, c) {
    split("", FIELD); split("", KIND)
    TEXT = line; AT = 1; JSON_ERROR = ""
    skip_space()
    if (substr(TEXT, AT, 1) != "{") return json_fail("not an object")
    AT++; skip_space()
    if (substr(TEXT, AT, 1) == "}") { AT++; return json_end() }
    while (1) {
        if (substr(TEXT, AT, 1) != "\"") return json_fail("a name is missing")
        name = json_string()
        if (JSON_ERROR != "") return 0
        if (!json_colon()) return 0
        VALUE = ""
        c = json_value(1)
        if (JSON_ERROR != "") return 0
        FIELD[name] = VALUE; KIND[name] = c
        c = json_separator("}")
        if (c == "") return 0
        if (c == "}") return json_end()
    }
}

function json_end() {
    skip_space()
    return AT > length(TEXT) ? 1 : json_fail("text after the object")
}

# Reads a value at AT; VALUE gets text of a string or number. Returns the type.
function json_value(depth,    c, rest) {
    c = substr(TEXT, AT, 1)
    if (c == "\"") { VALUE = json_string(); return "string" }
    if (c == "{" || c == "[") {
        if (depth > 64) return json_fail("nested too deep")
        json_skip(c, depth); VALUE = ""
        return c == "{" ? "object" : "array"
    }
    # Numbers and words are short: no need to look at the rest of a long line.
    rest = substr(TEXT, AT, 64)
    if (match(rest, /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/)) {
        VALUE = substr(rest, 1, RLENGTH); AT += RLENGTH
        return "number"
    }
    if (match(rest, /^(true|false|null)/)) {
        VALUE = substr(rest, 1, RLENGTH); AT += RLENGTH
        return VALUE == "null" ? "null" : "boolean"
    }
    return json_fail("a value is missing")
}

# Checks and passes over an object or array at AT.
function json_skip(open, depth,    close_sign, c) {
    close_sign = open == "{" ? "}" : "]"
    AT++; skip_space()
    if (substr(TEXT, AT, 1) == close_sign) { AT++; return }
    while (JSON_ERROR == "") {
        if (open == "{") {
            if (substr(TEXT, AT, 1) != "\"") { json_fail("a name is missing"); return }
            json_string()
            if (JSON_ERROR != "" || !json_colon()) return
        }
        json_value(depth + 1)
        if (JSON_ERROR != "") return
        c = json_separator(close_sign)
        if (c == "" || c == close_sign) return
    }
}

function json_colon() {
    skip_space()
    if (substr(TEXT, AT, 1) != ":") return json_fail("a colon is missing")
    AT++; skip_space()
    return 1
}

# After a value: a comma or the closing sign, which is returned; "" for anything else.
function json_separator(close_sign,    c) {
    skip_space()
    c = substr(TEXT, AT, 1)
    if (c == "," || c == close_sign) {
        AT++
        if (c == ",") skip_space()
        return c
    }
    json_fail("a comma is missing")
    return ""
}

# The string whose opening quote is at AT, without escapes.
function json_string(    out, rest, c) {
    AT++
    while (1) {
        rest = substr(TEXT, AT)
        if (!match(rest, /["\\]/)) { json_fail("a string does not end"); return "" }
        out = out substr(rest, 1, RSTART - 1)
        c = substr(rest, RSTART, 1)
        AT += RSTART
        if (c == "\"") return out
        c = substr(TEXT, AT, 1); AT++
        if (c == "\"" || c == "\\" || c == "/") out = out c
        else if (c == "n") out = out "\n"
        else if (c == "t") out = out "\t"
        else if (c == "r") out = out "\r"
        else if (c == "b") out = out "\b"
        else if (c == "f") out = out "\f"
        else if (c == "u") out = out json_unicode()
        else json_fail("an escape is wrong")
        if (JSON_ERROR != "") return ""
    }
}

# The character of \uXXXX (AT is behind the u), with its second half if it has one.
function json_unicode(    high, low) {
    high = json_hex4()
    if (JSON_ERROR != "") return ""
    if (high >= 55296 && high <= 56319 && substr(TEXT, AT, 2) == "\\u") {
        AT += 2
        low = json_hex4()
        if (JSON_ERROR != "") return ""
        if (low >= 56320 && low <= 57343) return utf8(65536 + (high - 55296) * 1024 + low - 56320)
        return utf8(high) utf8(low)
    }
    return utf8(high)
}

function json_hex4(    i, c, n) {
    n = 0
    for (i = 0; i < 4; i++) {
        c = substr(TEXT, AT + i, 1)
        if (!(c in HEX)) { json_fail("an escape is wrong"); return 0 }
        n = n * 16 + HEX[c]
    }
    AT += 4
    return n
}

function skip_space() {
    while (index(" \t\r\n", substr(TEXT, AT, 1)) > 0 && AT <= length(TEXT)) AT++
}

function json_fail(why) {
    if (JSON_ERROR == "") JSON_ERROR = why
    return 0
}
