# The answer of a commit comes late: meanwhile the next checkpoint is acknowledged
# and waits. Commits are made one after the other, so that the store changes in
# one order; then the first is subsumed by the second. Confirmations that come
# twice, or for a checkpoint that has been subsumed, do nothing.
job interval=10s concurrent=2 manual
source 1
----

play
0 running all
0 start 0
0 timer trigger
1 located 1
2 ack 1 source[0] own=a
10000 timer trigger
10001 located 2
10002 ack 2 source[0] own=b
10003 timer expire 1
10004 timer expire 2
10005 committed 1
10006 committed 1
10007 committed 2
10008 committed 1
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
1 located 1
    trigger source[0] barrier 1 (checkpoint aligned)
2 ack 1 source[0] own=a
    stop timer expire 1
    commit 1 1 operators, 1 subtasks with state, store [1]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
10001 located 2
    trigger source[0] barrier 2 (checkpoint aligned)
10002 ack 2 source[0] own=b
    stop timer expire 2
10003 timer expire 1
10004 timer expire 2
10005 committed 1
    notify complete 1 source[0]
    commit 2 1 operators, 1 subtasks with state, store [2]
10006 committed 1
10007 committed 2
    notify complete 2 source[0]
    delete chk-1/_metadata
    delete chk-1/a
10008 committed 1
