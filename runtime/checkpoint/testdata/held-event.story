# An event that a coordinator sends after its state was taken waits until the
# barrier has passed the subtask; one that it sent before goes at once. An aborted
# checkpoint lets go of what it held. A failed subtask gets nothing.
job interval=10s concurrent=2 tolerable=9
source 2 coordinator
----

play
0 running all
0 send source 0 early
0 start 0
0 timer trigger
1 send source 0 before-its-state
2 coordinator 1 source s1
3 send source 0 held
4 send source 1 held-too
5 passed 1 source source[0]
6 send source 0 free
7 ack 1 source[0]
8 ack 1 source[1]
----
0 running all
0 send source 0 early
    deliver "early" to source in source[0]
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 source
1 send source 0 before-its-state
    deliver "before-its-state" to source in source[0]
2 coordinator 1 source s1
    trigger source[0] barrier 1 (checkpoint aligned)
    trigger source[1] barrier 1 (checkpoint aligned)
3 send source 0 held
4 send source 1 held-too
5 passed 1 source source[0]
    deliver "held" to source in source[0]
6 send source 0 free
    deliver "free" to source in source[0]
7 ack 1 source[0]
8 ack 1 source[1]
    deliver "held-too" to source in source[1]
    stop timer expire 1
    commit 1 1 operators, 0 subtasks with state, 1 coordinators, store [1]
    notify complete 1 source[0]
    notify complete 1 source[1]
    coordinator complete 1 source

play
10000 timer trigger
10001 coordinator 2 source s2
10002 send source 0 x
10003 decline 2 source[1] CHECKPOINT_DECLINED no
20000 timer trigger
20001 coordinator 3 source s3
20002 send source 0 lost
20003 failed source[0]
20004 send source 0 nobody-there
----
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    coordinator 2 source
10001 coordinator 2 source s2
    trigger source[0] barrier 2 (checkpoint aligned)
    trigger source[1] barrier 2 (checkpoint aligned)
10002 send source 0 x
10003 decline 2 source[1] CHECKPOINT_DECLINED no
    stop timer expire 2
    discard location 2
    deliver "x" to source in source[0]
    notify aborted 2 source[0]
    notify aborted 2 source[1]
    coordinator aborted 2 source
    failed 2 CHECKPOINT_DECLINED: task source[1]: no
20000 timer trigger
    start timer trigger at 30000
    start timer expire 3 at 620000
    location 3 (checkpoint aligned)
    coordinator 3 source
20001 coordinator 3 source s3
    trigger source[0] barrier 3 (checkpoint aligned)
    trigger source[1] barrier 3 (checkpoint aligned)
20002 send source 0 lost
20003 failed source[0]
    stop timer expire 3
    discard location 3
    notify aborted 3 source[1]
    coordinator aborted 3 source
    failed 3 TASK_FAILURE: task source[0] is failed: no cause was given
20004 send source 0 nobody-there

# An event is held for a checkpoint while the next one takes the coordinator's state,
# in which it has been sent. It must be there before that one's barrier: the tasks are
# triggered only when it was let go.
job interval=10s concurrent=2 tolerable=9
source 1 coordinator
----

play
0 running all
0 start 0
0 timer trigger
1 coordinator 1 source s1
2 send source 0 x
10000 timer trigger
10001 coordinator 2 source s2
10002 send source 0 y
10003 passed 1 source source[0]
10004 passed 2 source source[0]
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 source
1 coordinator 1 source s1
    trigger source[0] barrier 1 (checkpoint aligned)
2 send source 0 x
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    coordinator 2 source
10001 coordinator 2 source s2
10002 send source 0 y
10003 passed 1 source source[0]
    deliver "x" to source in source[0]
    trigger source[0] barrier 2 (checkpoint aligned)
10004 passed 2 source source[0]
    deliver "y" to source in source[0]
