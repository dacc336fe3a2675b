# A job is stopped with a savepoint, and a task fails before all have ended. Sinks may
# have committed what the savepoint has, so that the job must not go back to
# checkpoint 1: it fails for good, and its error says where it goes on.
job interval=10s
source 1
sink 1 < source
----

play
0 running all
0 start 0
0 timer trigger
1 ack 1 source[0] own=a
2 ack 1 sink[0] own=b
100 trigger 7 savepoint suspend file:/sp
110 ack 2 source[0] own=c
120 ack 2 sink[0] own=d
130 finished source[0]
140 failed sink[0]
140 failover
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
1 ack 1 source[0] own=a
2 ack 1 sink[0] own=b
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, store [1]
    notify complete 1 source[0]
    notify complete 1 sink[0]
100 trigger 7 savepoint suspend file:/sp
    stop timer trigger
    start timer expire 2 at 600100
    location 2 (canonical savepoint aligned then suspend to file:/sp)
    trigger source[0] barrier 2 (canonical savepoint aligned then suspend to file:/sp/savepoint-2)
110 ack 2 source[0] own=c
120 ack 2 sink[0] own=d
    stop timer expire 2
    commit 2 2 operators, 2 subtasks with state, the job stops with it
    result of request 7: 2 file:/sp/savepoint-2/_metadata
    notify complete 2 source[0]
    notify complete 2 sink[0]
130 finished source[0]
140 failed sink[0]
140 failover
    fail job for good: the job was stopped with a savepoint, and failed before all of its tasks had ended: it goes on from file:/sp/savepoint-2/_metadata

# The failure comes while the savepoint is being completed: the same.
job interval=10s manual
source 1
sink 1 < source
----

play
0 running all
100 trigger 7 savepoint suspend file:/sp
101 located 1
110 ack 1 source[0] own=c
120 ack 1 sink[0] own=d
130 failed sink[0]
130 failover
140 committed 1
----
0 running all
100 trigger 7 savepoint suspend file:/sp
    start timer expire 1 at 600100
    location 1 (canonical savepoint aligned then suspend to file:/sp)
101 located 1
    trigger source[0] barrier 1 (canonical savepoint aligned then suspend to file:/sp/savepoint-1)
110 ack 1 source[0] own=c
120 ack 1 sink[0] own=d
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, the job stops with it
130 failed sink[0]
130 failover
140 committed 1
    result of request 7: 1 file:/sp/savepoint-1/_metadata
    fail job for good: the job was stopped with a savepoint, and failed before all of its tasks had ended: it goes on from file:/sp/savepoint-1/_metadata

# Before it is complete a failure is one as any other, and the job goes on.
job interval=10s manual
source 1
sink 1 < source
----

play
0 running all
100 trigger 7 savepoint suspend file:/sp
101 located 1
110 ack 1 source[0] own=c
130 failed sink[0]
130 failover
131 stored
140 running all 1
150 start 0
----
0 running all
100 trigger 7 savepoint suspend file:/sp
    start timer expire 1 at 600100
    location 1 (canonical savepoint aligned then suspend to file:/sp)
101 located 1
    trigger source[0] barrier 1 (canonical savepoint aligned then suspend to file:/sp/savepoint-1)
110 ack 1 source[0] own=c
130 failed sink[0]
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    failed 1 TASK_FAILURE: task sink[0] is failed: no cause was given
    result of request 7: TASK_FAILURE: task sink[0] is failed: no cause was given
    fail job: the savepoint to stop with failed: TASK_FAILURE: task sink[0] is failed: no cause was given
    delete file:/sp/savepoint-1/c
130 failover
    store []
131 stored
    restore []
140 running all 1
150 start 0
    start timer trigger at 150

# The store notes what the job stops with. A coordinator that was taken over cannot
# have it noted: tasks are not told, and what was written is deleted, its metadata
# first.
job interval=10s manual
source 1
sink 1 < source
----

play
0 running all
100 trigger 7 savepoint drain file:/sp
101 located 1
110 ack 1 source[0] own=c
120 ack 1 sink[0] own=d
140 committed 1 fenced
----
0 running all
100 trigger 7 savepoint drain file:/sp
    start timer expire 1 at 600100
    location 1 (canonical savepoint aligned then terminate to file:/sp)
101 located 1
    trigger source[0] barrier 1 (canonical savepoint aligned then terminate to file:/sp/savepoint-1)
110 ack 1 source[0] own=c
120 ack 1 sink[0] own=d
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, the job stops with it
140 committed 1 fenced
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 sink[0]
    failed 1 FINALIZE_CHECKPOINT_FAILURE: the store failed
    result of request 7: FINALIZE_CHECKPOINT_FAILURE: the store failed
    fail job for good: another coordinator of this job has taken over
    delete file:/sp/savepoint-1/_metadata
    delete file:/sp/savepoint-1/c
    delete file:/sp/savepoint-1/d
