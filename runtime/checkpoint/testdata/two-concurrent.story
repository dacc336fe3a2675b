# Two checkpoints at a time. The newer one completes first: the older one is
# subsumed, and what it brought is deleted; its late acknowledgement too. The third
# has to wait for a place.
job interval=10s concurrent=2
source 1
count 1 < source
----

play
0 running all
0 start 0
0 timer trigger
10000 timer trigger
10001 ack 1 source[0] own=a1
10002 ack 2 source[0] own=a2
20000 timer trigger
20001 ack 2 count[0] own=b2
20002 ack 1 count[0] own=b1
30001 ack 3 source[0] own=a3
30002 ack 3 count[0] own=b3
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    trigger source[0] barrier 2 (checkpoint aligned)
10001 ack 1 source[0] own=a1
10002 ack 2 source[0] own=a2
20000 timer trigger
    start timer trigger at 30000
20001 ack 2 count[0] own=b2
    stop timer expire 2
    commit 2 2 operators, 2 subtasks with state, store [2]
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 count[0]
    failed 1 CHECKPOINT_SUBSUMED: checkpoint 2 completed first
    notify complete 2 source[0]
    notify complete 2 count[0]
    start timer expire 3 at 620001
    location 3 (checkpoint aligned)
    delete chk-1/a1
    trigger source[0] barrier 3 (checkpoint aligned)
20002 ack 1 count[0] own=b1
    delete chk-1/b1
30001 ack 3 source[0] own=a3
30002 ack 3 count[0] own=b3
    stop timer expire 3
    commit 3 2 operators, 2 subtasks with state, store [3]
    notify complete 3 source[0]
    notify complete 3 count[0]
    delete chk-2/_metadata
    delete chk-2/a2
    delete chk-2/b2
