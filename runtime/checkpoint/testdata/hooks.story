# A master hook that does not answer in time, and one that fails. The tasks have
# not been triggered then, so that nobody is told but the coordinators.
job interval=10s hook-timeout=1s hooks=(kafka,files) tolerable=9
source 1 coordinator
----

play
0 running all
0 start 0
0 timer trigger
1 coordinator 1 source s
2 hook 1 kafka k1
1000 timer hooks 1
1001 hook 1 files late
10000 timer trigger
10001 coordinator 2 source error it is closed
20000 timer trigger
20001 coordinator 3 source s
20002 hook 3 kafka k3
20003 hook 3 files error broken pipe
30000 timer trigger
30001 coordinator 4 source s
30002 hook 4 files f4
30003 hook 4 kafka k4
30004 ack 4 source[0]
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 source
1 coordinator 1 source s
    hook 1 kafka
    hook 1 files
    start timer hooks 1 at 1001
2 hook 1 kafka k1
1000 timer hooks 1
    stop timer expire 1
    stop timer hooks 1
    discard location 1
    coordinator aborted 1 source
    failed 1 TRIGGER_CHECKPOINT_FAILURE: master hooks ["files"] gave no state within 1000 ms
1001 hook 1 files late
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    coordinator 2 source
10001 coordinator 2 source error it is closed
    stop timer expire 2
    discard location 2
    coordinator aborted 2 source
    failed 2 TRIGGER_CHECKPOINT_FAILURE: the coordinator of source: it is closed
20000 timer trigger
    start timer trigger at 30000
    start timer expire 3 at 620000
    location 3 (checkpoint aligned)
    coordinator 3 source
20001 coordinator 3 source s
    hook 3 kafka
    hook 3 files
    start timer hooks 3 at 21001
20002 hook 3 kafka k3
20003 hook 3 files error broken pipe
    stop timer expire 3
    stop timer hooks 3
    discard location 3
    coordinator aborted 3 source
    failed 3 TRIGGER_CHECKPOINT_FAILURE: master hook files: broken pipe
30000 timer trigger
    start timer trigger at 40000
    start timer expire 4 at 630000
    location 4 (checkpoint aligned)
    coordinator 4 source
30001 coordinator 4 source s
    hook 4 kafka
    hook 4 files
    start timer hooks 4 at 31001
30002 hook 4 files f4
30003 hook 4 kafka k4
    stop timer hooks 4
    trigger source[0] barrier 4 (checkpoint aligned)
30004 ack 4 source[0]
    stop timer expire 4
    commit 4 1 operators, 0 subtasks with state, 1 coordinators, 2 master states, store [4]
    notify complete 4 source[0]
    coordinator complete 4 source
    hooks complete 4
