# Checkpoints go on after a source has finished. First one of its subtasks, then
# all; the tasks behind it are then triggered themselves.
job interval=10s
bounded 2 coordinator
endless 1
join 1 < bounded endless
sink 1 < join
----

play
0 running all
0 start 0
0 finished bounded[1]
0 timer trigger
1 coordinator 1 bounded s1
2 ack 1 bounded[0] list=splits
3 ack 1 endless[0]
4 ack 1 join[0] own=a
5 ack 1 sink[0]
----
0 running all
0 start 0
    start timer trigger at 0
0 finished bounded[1]
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 bounded
1 coordinator 1 bounded s1
    trigger bounded[0] barrier 1 (checkpoint aligned)
    trigger endless[0] barrier 1 (checkpoint aligned)
2 ack 1 bounded[0] list=splits
3 ack 1 endless[0]
4 ack 1 join[0] own=a
5 ack 1 sink[0]
    stop timer expire 1
    commit 1 4 operators, 2 subtasks with state, 1 coordinators, store [1]
    notify complete 1 bounded[0]
    notify complete 1 endless[0]
    notify complete 1 join[0]
    notify complete 1 sink[0]
    coordinator complete 1 bounded

play
10000 timer trigger
10001 coordinator 2 bounded s2
10002 finished bounded[0]
----
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    coordinator 2 bounded
10001 coordinator 2 bounded s2
    trigger bounded[0] barrier 2 (checkpoint aligned)
    trigger endless[0] barrier 2 (checkpoint aligned)
10002 finished bounded[0]
    stop timer expire 2
    discard location 2
    notify aborted 2 endless[0]
    notify aborted 2 join[0]
    notify aborted 2 sink[0]
    coordinator aborted 2 bounded
    failed 2 CHECKPOINT_DECLINED_TASK_CLOSING: task bounded[0] is finished: no cause was given

play
20000 timer trigger
20001 coordinator 3 bounded s3
20002 ack 3 endless[0] finished
20004 ack 3 join[0] own=b
20005 ack 3 sink[0]
20006 finished endless[0]
30000 timer trigger
30001 coordinator 4 bounded s4
30002 ack 4 join[0] own=c
30003 ack 4 sink[0]
30004 finished join[0]
30005 finished sink[0]
40000 timer trigger
----
20000 timer trigger
    start timer trigger at 30000
    start timer expire 3 at 620000
    location 3 (checkpoint aligned)
    coordinator 3 bounded
20001 coordinator 3 bounded s3
    trigger endless[0] barrier 3 (checkpoint aligned)
20002 ack 3 endless[0] finished
20004 ack 3 join[0] own=b
20005 ack 3 sink[0]
    stop timer expire 3
    commit 3 4 operators, 1 subtasks with state, 1 operators finished, store [3]
    notify complete 3 endless[0]
    notify complete 3 join[0]
    notify complete 3 sink[0]
    coordinator complete 3 bounded
    delete chk-1/_metadata
    delete chk-1/a
20006 finished endless[0]
30000 timer trigger
    start timer trigger at 40000
    start timer expire 4 at 630000
    location 4 (checkpoint aligned)
    coordinator 4 bounded
30001 coordinator 4 bounded s4
    trigger join[0] barrier 4 (checkpoint aligned)
30002 ack 4 join[0] own=c
30003 ack 4 sink[0]
    stop timer expire 4
    commit 4 4 operators, 1 subtasks with state, 2 operators finished, store [4]
    notify complete 4 join[0]
    notify complete 4 sink[0]
    coordinator complete 4 bounded
    delete chk-3/_metadata
    delete chk-3/b
30004 finished join[0]
30005 finished sink[0]
40000 timer trigger
    start timer trigger at 50000

# Union state of a vertex that has finished in part would lose the share of those
# that finished.
job interval=10s
source 2
----

play
0 running all
0 start 0
0 timer trigger
1 ack 1 source[0] union=offsets finished
2 ack 1 source[1] union=offsets
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
    trigger source[1] barrier 1 (checkpoint aligned)
1 ack 1 source[0] union=offsets finished
2 ack 1 source[1] union=offsets
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 source[1]
    failed 1 CHECKPOINT_DECLINED_TASK_CLOSING: some tasks of source have finished and others not, while it has the union list state "offsets": the state of those that finished would be lost
