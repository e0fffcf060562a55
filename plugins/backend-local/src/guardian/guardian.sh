# Waits until the host is gone and then ends what its commands left running.
#
# Argument: the mark of the instance, which is in the environment of everything it started.
# Standard input: a pipe whose other end only the host holds, and on which it never says anything;
# the end of the input is the host's end. Standard output: a file to read, with a line
# `LEADER TIME` for every command that runs and blank ones besides. LEADER is the number of the
# process and of its group, TIME a moment after its start, in the unit of /proc: what has this
# number and began later is another process.

trap '' HUP INT QUIT TERM PIPE ALRM USR1 USR2 TSTP TTIN TTOU
mark=$1
echo ready >&2
exec 2>/dev/null

while read -r _; do :; done
leaders=' '
while read -r leader time; do
    if [ "$leader" ]; then leaders="$leaders$leader:$time "; fi
done <&1
exec </dev/null >/dev/null

# The processes that were found so far, as NUMBER:START: a number that was given away again does
# not count.
known=' '
# The groups of commands that are certainly still theirs.
groups=' '

# Sets `found` to the numbers of the processes to end, and `left` if there is anything to end.
search() {
    found=' ' left=
    if [ ! -r /proc/self/stat ]; then
        groups=' '
        for entry in $leaders; do
            if kill -0 "-${entry%%:*}"; then
                groups="$groups${entry%%:*} " left=yes
            fi
        done
        return
    fi
    marked=' '
    for file in $(printf '%s\n' /proc/[0-9]*/environ | xargs grep -lsF -e "$mark"); do
        file=${file#/proc/}
        marked="$marked${file%/environ} "
    done
    if [ "$marked$known$leaders" = '   ' ]; then return; fi
    table=
    for dir in /proc/[0-9]*; do
        read -r line <"$dir/stat" || continue
        # The name in parentheses may hold anything, also parentheses and blanks.
        case $line in *') '*) ;; *) continue ;; esac
        set -- ${line##*') '}
        case $1 in Z | X | x) continue ;; esac
        table="$table ${dir#/proc/}:${20}:$2:$3"
    done
    # Who is known, marked, in a group or a child of such a process; again for their children.
    grew=yes
    while [ "$grew" ]; do
        grew=
        for entry in $table; do
            pid=${entry%%:*} rest=${entry#*:}
            start=${rest%%:*} rest=${rest#*:}
            parent=${rest%%:*} group=${rest#*:}
            case "$found 1 $$ " in *" $pid "*) continue ;; esac
            belongs=
            case $leaders in
            *" $pid:"*)
                time=${leaders#*" $pid:"}
                if [ "$start" -le "${time%% *}" ]; then belongs=yes; fi
                ;;
            esac
            case $known in *" $pid:$start "*) belongs=yes ;; esac
            case $marked in *" $pid "*) belongs=yes ;; esac
            case $groups in *" $group "*) belongs=yes ;; esac
            case $found in *" $parent "*) belongs=yes ;; esac
            if [ ! "$belongs" ]; then continue; fi
            grew=yes left=yes
            found="$found$pid "
            known="$known$pid:$start "
            case $leaders in
            *" $group:"*)
                case $groups in
                *" $group "*) ;;
                *) groups="$groups$group " ;;
                esac
                ;;
            esac
        done
    done
}

# Groups as a whole too: what forks at this moment is not in the list.
signal() {
    for group in $groups; do kill "-$1" "-$group"; done
    if [ "$found" != ' ' ]; then kill "-$1" $found; fi
}

search
if [ "$left" ]; then
    signal TERM
    sleep 0.5 || sleep 1
fi
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    if [ ! "$left" ]; then exit; fi
    search
    signal KILL
    sleep 0.1 || sleep 1
done
