# Waits until the host is gone and then ends the servers that it left running.
#
# Argument: the mark of the instance, which is in the environment of everything it started.
# Standard input: a pipe whose other end only the host holds. It says `+ GROUP` for a server that
# was started and `- GROUP` for one that is gone; the end of the input is the host's end.

trap '' HUP INT QUIT TERM PIPE ALRM USR1 USR2 TSTP TTIN TTOU
mark=$1
groups=' '
while read -r what group; do
    case $what in
    +) groups="$groups$group " ;;
    -)
        case $groups in
        *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
        esac
        ;;
    esac
done

for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=
    if [ -r /proc/self/environ ]; then
        # A number may have been given away again; the mark tells whose it is.
        for file in $(printf '%s\n' /proc/[0-9]*/environ | xargs grep -lsF -e "$mark"); do
            pid=${file#/proc/}
            pid=${pid%/environ}
            if [ "$pid" != "$$" ]; then
                kill -KILL "$pid" && left=yes
            fi
        done
    else
        for group in $groups; do
            kill -KILL "-$group" && left=yes
        done
    fi
    if [ ! "$left" ]; then exit; fi
    sleep 0.1 || sleep 1
done
