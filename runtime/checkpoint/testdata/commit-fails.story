# The store fails in every way it can. Not written: nothing is there. Not added:
# the metadata object is, and goes first. In doubt: nothing is touched.
job interval=10s manual tolerable=9
source 1
----

play
0 running all
0 start 0
0 timer trigger
1 located 1
2 ack 1 source[0] own=a
3 committed 1 not written
10000 timer trigger
10001 located 2
10002 ack 2 source[0] own=b
10003 committed 2 not added
20000 timer trigger
20001 located 3
20002 ack 3 source[0] own=c
20003 committed 3
30000 timer trigger
30001 located 4
30002 ack 4 source[0] own=d
30003 committed 4 in doubt
30004 trigger 9 checkpoint
30005 ack 4 source[0] own=d
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
3 committed 1 not written
    discard location 1
    notify aborted 1 source[0]
    failed 1 FINALIZE_CHECKPOINT_FAILURE: the store failed
    delete chk-1/a
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
10001 located 2
    trigger source[0] barrier 2 (checkpoint aligned)
10002 ack 2 source[0] own=b
    stop timer expire 2
    commit 2 1 operators, 1 subtasks with state, store [2]
10003 committed 2 not added
    discard location 2
    notify aborted 2 source[0]
    failed 2 FINALIZE_CHECKPOINT_FAILURE: the store failed
    delete chk-2/_metadata
    delete chk-2/b
20000 timer trigger
    start timer trigger at 30000
    start timer expire 3 at 620000
    location 3 (checkpoint aligned)
20001 located 3
    trigger source[0] barrier 3 (checkpoint aligned)
20002 ack 3 source[0] own=c
    stop timer expire 3
    commit 3 1 operators, 1 subtasks with state, store [3]
20003 committed 3
    notify complete 3 source[0]
30000 timer trigger
    start timer trigger at 40000
    start timer expire 4 at 630000
    location 4 (checkpoint aligned)
30001 located 4
    trigger source[0] barrier 4 (checkpoint aligned)
30002 ack 4 source[0] own=d
    stop timer expire 4
    commit 4 1 operators, 1 subtasks with state, store [4]
30003 committed 4 in doubt
    failed 4 FINALIZE_CHECKPOINT_FAILURE: the store failed
    stop timer trigger
    fail job for good: checkpoint 4: not known whether the checkpoint was completed: the store failed
30004 trigger 9 checkpoint
    result of request 9: CHECKPOINT_COORDINATOR_SHUTDOWN
30005 ack 4 source[0] own=d

# Another coordinator has taken over.
job interval=10s manual tolerable=9
source 1
----

play
0 running all
0 start 0
0 timer trigger
1 located 1
2 ack 1 source[0] own=a
3 committed 1 fenced
10000 timer trigger
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
3 committed 1 fenced
    discard location 1
    notify aborted 1 source[0]
    failed 1 FINALIZE_CHECKPOINT_FAILURE: the store failed
    stop timer trigger
    fail job for good: another coordinator of this job has taken over
    delete chk-1/_metadata
    delete chk-1/a
10000 timer trigger
