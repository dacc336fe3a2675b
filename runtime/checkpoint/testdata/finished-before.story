# A source that had finished in the restored checkpoint: its tasks run until the next
# one, only to say so to those behind, and that has it as finished too.
job interval=10s
bounded 2 coordinator
endless 1
sink 1 < bounded endless
----

play
0 running all
0 start 0
0 timer trigger
1 coordinator 1 bounded s1
2 ack 1 bounded[0] finished-before
3 ack 1 endless[0]
4 ack 1 bounded[1] finished-before
5 ack 1 sink[0] own=a
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 bounded
1 coordinator 1 bounded s1
    trigger bounded[0] barrier 1 (checkpoint aligned)
    trigger bounded[1] barrier 1 (checkpoint aligned)
    trigger endless[0] barrier 1 (checkpoint aligned)
2 ack 1 bounded[0] finished-before
3 ack 1 endless[0]
4 ack 1 bounded[1] finished-before
5 ack 1 sink[0] own=a
    stop timer expire 1
    commit 1 3 operators, 1 subtasks with state, 1 operators finished, store [1]
    notify complete 1 bounded[0]
    notify complete 1 bounded[1]
    notify complete 1 endless[0]
    notify complete 1 sink[0]
    coordinator complete 1 bounded

# One of them has ended already.
play
6 finished bounded[1]
10000 timer trigger
10001 coordinator 2 bounded s2
10002 ack 2 bounded[0] finished-before
10003 ack 2 endless[0]
10004 ack 2 sink[0] own=b
----
6 finished bounded[1]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    coordinator 2 bounded
10001 coordinator 2 bounded s2
    trigger bounded[0] barrier 2 (checkpoint aligned)
    trigger endless[0] barrier 2 (checkpoint aligned)
10002 ack 2 bounded[0] finished-before
10003 ack 2 endless[0]
10004 ack 2 sink[0] own=b
    stop timer expire 2
    commit 2 3 operators, 1 subtasks with state, 1 operators finished, store [2]
    notify complete 2 bounded[0]
    notify complete 2 endless[0]
    notify complete 2 sink[0]
    coordinator complete 2 bounded
    delete chk-1/_metadata
    delete chk-1/a
