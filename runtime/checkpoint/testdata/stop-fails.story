# A stop-with-savepoint that a task declines fails the job at once: tasks that
# stopped would wait for ever. One that the coordinator aborts lets the job go on.
job interval=10s tolerable=5
source 1
sink 1 < source
----

play
0 running all
0 start 10000
1 trigger 7 savepoint suspend file:/sp
2 abort 1
3 trigger 8 savepoint suspend file:/sp
4 ack 2 source[0]
5 decline 2 sink[0] CHECKPOINT_DECLINED no
----
0 running all
0 start 10000
    start timer trigger at 10000
1 trigger 7 savepoint suspend file:/sp
    stop timer trigger
    start timer expire 1 at 600001
    location 1 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 1 (canonical savepoint aligned then suspend to file:/sp/savepoint-1)
2 abort 1
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 sink[0]
    failed 1 CHECKPOINT_DECLINED: aborted by a user
    result of request 7: CHECKPOINT_DECLINED: aborted by a user
    start timer trigger at 10002
3 trigger 8 savepoint suspend file:/sp
    stop timer trigger
    start timer expire 2 at 600003
    location 2 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 2 (canonical savepoint aligned then suspend to file:/sp/savepoint-2)
4 ack 2 source[0]
5 decline 2 sink[0] CHECKPOINT_DECLINED no
    stop timer expire 2
    discard location 2
    notify aborted 2 source[0]
    notify aborted 2 sink[0]
    failed 2 CHECKPOINT_DECLINED: task sink[0]: no
    result of request 8: CHECKPOINT_DECLINED: task sink[0]: no
    start timer trigger at 10005
    fail job: the savepoint to stop with failed: CHECKPOINT_DECLINED: task sink[0]: no

# Periodic checkpoints that were stopped meanwhile do not begin again with the failure.
job interval=10s tolerable=5
source 1
sink 1 < source
----

play
0 running all
0 start 10000
1 trigger 7 savepoint suspend file:/sp
2 stop
3 trigger 8 savepoint suspend file:/sp
4 stop
5 timer trigger
----
0 running all
0 start 10000
    start timer trigger at 10000
1 trigger 7 savepoint suspend file:/sp
    stop timer trigger
    start timer expire 1 at 600001
    location 1 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 1 (canonical savepoint aligned then suspend to file:/sp/savepoint-1)
2 stop
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 sink[0]
    failed 1 CHECKPOINT_COORDINATOR_SUSPEND
    result of request 7: CHECKPOINT_COORDINATOR_SUSPEND
3 trigger 8 savepoint suspend file:/sp
    start timer expire 2 at 600003
    location 2 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 2 (canonical savepoint aligned then suspend to file:/sp/savepoint-2)
4 stop
    stop timer expire 2
    discard location 2
    notify aborted 2 source[0]
    notify aborted 2 sink[0]
    failed 2 CHECKPOINT_COORDINATOR_SUSPEND
    result of request 8: CHECKPOINT_COORDINATOR_SUSPEND
5 timer trigger

# Those that were to begin meanwhile do.
job interval=10s tolerable=5
source 1
sink 1 < source
----

play
0 running all
1 trigger 7 savepoint suspend file:/sp
2 start 5000
3 abort 1
10003 timer trigger
----
0 running all
1 trigger 7 savepoint suspend file:/sp
    start timer expire 1 at 600001
    location 1 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 1 (canonical savepoint aligned then suspend to file:/sp/savepoint-1)
2 start 5000
3 abort 1
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 sink[0]
    failed 1 CHECKPOINT_DECLINED: aborted by a user
    result of request 7: CHECKPOINT_DECLINED: aborted by a user
    start timer trigger at 10003
10003 timer trigger
    start timer trigger at 20003
    start timer expire 2 at 610003
    location 2 (checkpoint aligned)
    trigger source[0] barrier 2 (checkpoint aligned)
