# A savepoint is neither held up by the limit of one checkpoint at a time, nor
# subsumed, nor kept by the store; tasks are not told of its completion, and a
# checkpoint that completes meanwhile leaves it alone.
job interval=10s
source 1
sink 1 < source
----

play
0 running all
0 start 0
0 timer trigger
1 trigger 7 savepoint file:/sp
2 ack 2 source[0] own=s
3 trigger 8 native file:/sp
4 ack 1 source[0] own=a
5 ack 1 sink[0]
6 ack 2 sink[0]
7 ack 3 source[0] own=n
8 ack 2 source[0] own=s
9 abort 3
10 ack 3 sink[0] own=late
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
1 trigger 7 savepoint file:/sp
    start timer expire 2 at 600001
    location 2 (canonical savepoint aligned to file:/sp)
    trigger source[0] barrier 2 (canonical savepoint aligned to file:/sp/savepoint-2)
2 ack 2 source[0] own=s
3 trigger 8 native file:/sp
    start timer expire 3 at 600003
    location 3 (native savepoint aligned to file:/sp)
    trigger source[0] barrier 3 (native savepoint aligned to file:/sp/savepoint-3)
4 ack 1 source[0] own=a
5 ack 1 sink[0]
    stop timer expire 1
    commit 1 2 operators, 1 subtasks with state, store [1]
    notify complete 1 source[0]
    notify complete 1 sink[0]
6 ack 2 sink[0]
    stop timer expire 2
    commit 2 2 operators, 1 subtasks with state
    result of request 7: 2 file:/sp/savepoint-2/_metadata
7 ack 3 source[0] own=n
8 ack 2 source[0] own=s
9 abort 3
    stop timer expire 3
    discard location 3
    notify aborted 3 source[0]
    notify aborted 3 sink[0]
    failed 3 CHECKPOINT_DECLINED: aborted by a user
    result of request 8: CHECKPOINT_DECLINED: aborted by a user
    delete file:/sp/savepoint-3/n
10 ack 3 sink[0] own=late
    delete file:/sp/savepoint-3/late

# Stop with a savepoint: periodic checkpoints end, what is pending is aborted, and
# this time the tasks are told.
play
10000 timer trigger
10001 trigger 9 savepoint drain file:/sp
10002 ack 5 source[0] own=z finished
10003 timer trigger
10004 trigger 10 checkpoint
10005 ack 5 sink[0] finished
10006 finished source[0]
10007 finished sink[0]
10008 shutdown finished
----
10000 timer trigger
    start timer trigger at 20000
    start timer expire 4 at 610000
    location 4 (checkpoint aligned)
    trigger source[0] barrier 4 (checkpoint aligned)
10001 trigger 9 savepoint drain file:/sp
    stop timer trigger
    stop timer expire 4
    discard location 4
    notify aborted 4 source[0]
    notify aborted 4 sink[0]
    failed 4 CHECKPOINT_COORDINATOR_SUSPEND
    start timer expire 5 at 610001
    location 5 (canonical savepoint aligned then terminate to file:/sp)
    trigger source[0] barrier 5 (canonical savepoint aligned then terminate to file:/sp/savepoint-5)
10002 ack 5 source[0] own=z finished
10003 timer trigger
10004 trigger 10 checkpoint
    result of request 10: PERIODIC_SCHEDULER_SHUTDOWN: the job is being stopped with a savepoint
10005 ack 5 sink[0] finished
    stop timer expire 5
    commit 5 2 operators, 1 subtasks with state, the job stops with it
    result of request 9: 5 file:/sp/savepoint-5/_metadata
    notify complete 5 source[0]
    notify complete 5 sink[0]
10006 finished source[0]
10007 finished sink[0]
10008 shutdown finished
    store []
    ended
    delete chk-1/_metadata
    delete chk-1/a
