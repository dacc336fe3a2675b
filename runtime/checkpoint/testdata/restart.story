# A task fails while a checkpoint is being written to the store: the restart waits
# for the outcome, and then starts from it. Nothing else may complete behind its back.
job interval=10s concurrent=3 manual
source 1
count 1 < source
----

play
0 running all
0 start 0
0 timer trigger
1 located 1
2 ack 1 source[0] own=a
3 ack 1 count[0] own=b
10000 timer trigger
10001 located 2
10002 ack 2 source[0] own=c
10003 failed count[0]
10004 failover
10005 ack 2 count[0] own=d
10006 committed 1
10006 stored
10007 running all 1
10008 start 0
10008 timer trigger
10009 located 3
10010 ack 3 source[0]
10011 ack 3 source[0]#1 own=e
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
3 ack 1 count[0] own=b
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, store [1]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
10001 located 2
    trigger source[0] barrier 2 (checkpoint aligned)
10002 ack 2 source[0] own=c
10003 failed count[0]
    stop timer expire 2
    discard location 2
    notify aborted 2 source[0]
    failed 2 TASK_FAILURE: task count[0] is failed: no cause was given
    delete chk-2/c
10004 failover
    stop timer trigger
10005 ack 2 count[0] own=d
    delete chk-2/d
10006 committed 1
    store [1]
10006 stored
    restore [1]
10007 running all 1
10008 start 0
    start timer trigger at 10008
10008 timer trigger
    start timer trigger at 20008
    start timer expire 3 at 610008
    location 3 (checkpoint aligned)
10009 located 3
    trigger source[0]#1 barrier 3 (checkpoint aligned)
10010 ack 3 source[0]
10011 ack 3 source[0]#1 own=e
