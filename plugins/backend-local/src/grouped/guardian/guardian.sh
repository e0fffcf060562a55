# Waits until the host is gone and then ends what its commands left running.
#
# Standard input: a pipe whose other end only the host holds, and on which it never says anything;
# the end of the input is the host's end. Standard output: a file to read, with a line for the
# process group of every command that runs and blank ones besides.

trap '' HUP INT QUIT TERM PIPE ALRM USR1 USR2 TSTP TTIN TTOU
echo ready >&2
exec 2>/dev/null

while read -r _; do :; done
groups=
while read -r group; do
    if [ "$group" ]; then groups="$groups $group"; fi
done <&1
exec </dev/null >/dev/null

if [ ! "$groups" ]; then exit; fi
for group in $groups; do kill -TERM "-$group"; done
sleep 0.5 || sleep 1
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    for group in $groups; do
        if kill -KILL "-$group"; then left=yes; fi
    done
    if [ ! "$left" ]; then exit; fi
    sleep 0.1 || sleep 1
done
