# Not before all tasks run; not within the minimum pause; one at a time; savepoints
# before manual checkpoints before the periodic one.
job interval=10s pause=4s
source 1
count 1 < source
----

play
0 start 0
0 running source[0]
0 timer trigger
1 running count[0]
10000 timer trigger
10001 trigger 5 checkpoint
17000 ack 1 source[0]
18000 ack 1 count[0]
18001 ack 2 source[0]
18002 ack 2 count[0]
20000 timer trigger
22002 timer trigger
22003 stop
22004 timer trigger
----
0 start 0
    start timer trigger at 0
0 running source[0]
0 timer trigger
    start timer trigger at 10000
1 running count[0]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 1 at 610000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
10001 trigger 5 checkpoint
17000 ack 1 source[0]
18000 ack 1 count[0]
    stop timer expire 1
    commit 1 2 operators, 0 subtasks with state, store [1]
    notify complete 1 source[0]
    notify complete 1 count[0]
    start timer expire 2 at 618000
    location 2 (checkpoint aligned)
    trigger source[0] barrier 2 (checkpoint aligned)
18001 ack 2 source[0]
18002 ack 2 count[0]
    stop timer expire 2
    commit 2 2 operators, 0 subtasks with state, store [2]
    result of request 5: 2 file:/ckp/job/chk-2/_metadata
    notify complete 2 source[0]
    notify complete 2 count[0]
    delete chk-1/_metadata
20000 timer trigger
    start timer trigger at 30000
    start timer trigger at 22002
22002 timer trigger
    start timer trigger at 32002
    start timer expire 3 at 622002
    location 3 (checkpoint aligned)
    trigger source[0] barrier 3 (checkpoint aligned)
22003 stop
    stop timer trigger
    stop timer expire 3
    discard location 3
    notify aborted 3 source[0]
    notify aborted 3 count[0]
    failed 3 CHECKPOINT_COORDINATOR_SUSPEND
22004 timer trigger

# While a source works through a backlog there is another interval; none if it is 0.
job interval=10s backlog-interval=60s
source 1 coordinator
----

play
0 running all
0 backlog source on
0 start 0
0 timer trigger
1 coordinator 1 source s
2 ack 1 source[0]
1000 backlog source off
11000 timer trigger
----
0 running all
0 backlog source on
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 60000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    coordinator 1 source
1 coordinator 1 source s
    trigger source[0] barrier 1 (checkpoint aligned)
2 ack 1 source[0]
    stop timer expire 1
    commit 1 1 operators, 0 subtasks with state, 1 coordinators, store [1]
    notify complete 1 source[0]
    coordinator complete 1 source
1000 backlog source off
    start timer trigger at 11000
11000 timer trigger
    start timer trigger at 21000
    start timer expire 2 at 611000
    location 2 (checkpoint aligned)
    coordinator 2 source
