# The coordinator dies after all have acknowledged and before the store has the
# checkpoint. The next coordinator does not know it, uses no ID of its life again,
# and takes no acknowledgement of it.
job interval=10s manual
source 1
sink 1 < source
----

play
0 running all
0 start 0
0 timer trigger
1 located 1
2 ack 1 source[0] own=a
3 ack 1 sink[0]
4 committed 1
10000 timer trigger
10001 located 2
10002 ack 2 source[0] own=b
10003 ack 2 sink[0]
10004 coordinator-dies
10005 running all 1
10006 start 0
10006 timer trigger
10007 located 17
10007 ack 2 source[0] own=b
10008 ack 17 source[0]#1 own=c
10009 ack 17 sink[0]#1
10010 committed 17
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
3 ack 1 sink[0]
    stop timer expire 1
    commit 1 2 operators, 1 subtasks with state, store [1]
4 committed 1
    notify complete 1 source[0]
    notify complete 1 sink[0]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
10001 located 2
    trigger source[0] barrier 2 (checkpoint aligned)
10002 ack 2 source[0] own=b
10003 ack 2 sink[0]
    stop timer expire 2
    commit 2 2 operators, 1 subtasks with state, store [2]
10004 coordinator-dies
    a new one finds the store [1]
10005 running all 1
10006 start 0
    start timer trigger at 10006
10006 timer trigger
    start timer trigger at 20006
    start timer expire 17 at 610006
    location 17 (checkpoint aligned)
10007 located 17
    trigger source[0]#1 barrier 17 (checkpoint aligned)
10007 ack 2 source[0] own=b
10008 ack 17 source[0]#1 own=c
10009 ack 17 sink[0]#1
    stop timer expire 17
    commit 17 2 operators, 1 subtasks with state, store [17]
10010 committed 17
    notify complete 17 source[0]#1
    notify complete 17 sink[0]#1
    delete chk-1/_metadata
    delete chk-1/a

# It dies after the commit and before anybody was told: the checkpoint counts.
play
20006 timer trigger
20007 located 18
20008 ack 18 source[0]#1 own=d
20009 ack 18 sink[0]#1
20010 durable 18
20011 coordinator-dies
----
20006 timer trigger
    start timer trigger at 30006
    start timer expire 18 at 620006
    location 18 (checkpoint aligned)
20007 located 18
    trigger source[0]#1 barrier 18 (checkpoint aligned)
20008 ack 18 source[0]#1 own=d
20009 ack 18 sink[0]#1
    stop timer expire 18
    commit 18 2 operators, 1 subtasks with state, store [18]
20010 durable 18
20011 coordinator-dies
    a new one finds the store [18]
