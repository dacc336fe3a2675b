# A task fails after another coordinator has taken over, which this one does not know
# yet. It asks the store before tasks restart: their sinks would drop what those of
# the other one have begun.
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
3 ack 1 sink[0] own=b
4 committed 1
100 failed sink[0]
100 failover
110 stored fenced
111 running all 1
112 timer trigger
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
3 ack 1 sink[0] own=b
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, store [1]
4 committed 1
    notify complete 1 source[0]
    notify complete 1 sink[0]
100 failed sink[0]
100 failover
    stop timer trigger
    store [1]
110 stored fenced
    fail job for good: another coordinator of this job has taken over
111 running all 1
112 timer trigger

# A store that does not answer is no reason not to restart.
job interval=10s manual
source 1
sink 1 < source
----

play
0 running all
0 start 0
100 failed sink[0]
100 failover
110 stored error no answer
111 running all 1
112 start 0
----
0 running all
0 start 0
    start timer trigger at 0
100 failed sink[0]
100 failover
    stop timer trigger
    store []
110 stored error no answer
    restore []
111 running all 1
112 start 0
    start timer trigger at 112
