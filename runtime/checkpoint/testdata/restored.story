# A job that was started from a snapshot that it does not own: its first checkpoint
# builds on nothing, and then the snapshot is not needed any more and not deleted.
job restored=41:NO_CLAIM
source 1
----

play
0 running all
0 start 0
0 timer trigger
1 ack 42 source[0] own=a
10000 timer trigger
10001 ack 43 source[0] own=b
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 42 at 600000
    location 42 (full checkpoint aligned)
    trigger source[0] barrier 42 (full checkpoint aligned)
1 ack 42 source[0] own=a
    stop timer expire 42
    commit 42 1 operators, 1 subtasks with state, store [42]
    notify complete 42 source[0]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 43 at 610000
    location 43 (checkpoint aligned)
    trigger source[0] barrier 43 (checkpoint aligned)
10001 ack 43 source[0] own=b
    stop timer expire 43
    commit 43 1 operators, 1 subtasks with state, store [43]
    notify complete 43 source[0]
    delete chk-42/_metadata
    delete chk-42/a

# One that it claimed is deleted when it is subsumed.
job restored=41:CLAIM
source 1
----

play
0 running all
0 start 0
0 timer trigger
1 ack 42 source[0] own=a
2 shutdown canceled
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 42 at 600000
    location 42 (checkpoint aligned)
    trigger source[0] barrier 42 (checkpoint aligned)
1 ack 42 source[0] own=a
    stop timer expire 42
    commit 42 1 operators, 1 subtasks with state, store [42]
    notify complete 42 source[0]
    delete file:/old/job/chk-41/_metadata
2 shutdown canceled
    stop timer trigger
    store []
    ended
    delete chk-42/_metadata
    delete chk-42/a
