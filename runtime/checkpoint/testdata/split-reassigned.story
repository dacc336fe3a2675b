# A reader fails alone. What it was assigned since the checkpoint it is restored
# from goes back to the enumerator; what that checkpoint has, it still has.
job interval=10s
source 2 coordinator
----

play
0 running all
0 source source splits a b c d
0 source source register 0
0 source source register 1
1 source source request 0
1 source source request 1
2 start 0
2 timer trigger
3 source source checkpoint 1
4 source source request 0
5 ack 1 source[0] list=splits
6 ack 1 source[1] list=splits
7 source source left
8 failed source[0]
8 source source failed 0
9 failover partly
10 source source reset 0 1
11 source source left
12 running source[0]#1
13 source source request 0
14 source source register 0
15 source source request 0
----
0 running all
0 source source splits a b c d
0 source source register 0
0 source source register 1
1 source source request 0
    deliver "add splits a" to source in source[0]
1 source source request 1
    deliver "add splits b" to source in source[1]
2 start 0
    start timer trigger at 2
2 timer trigger
    start timer trigger at 10002
    start timer expire 1 at 600002
    location 1 (checkpoint aligned)
    coordinator 1 source
3 source source checkpoint 1
    its state is "c d"
    trigger source[0] barrier 1 (checkpoint aligned)
    trigger source[1] barrier 1 (checkpoint aligned)
4 source source request 0
5 ack 1 source[0] list=splits
    deliver "add splits c" to source in source[0]
6 ack 1 source[1] list=splits
    stop timer expire 1
    commit 1 1 operators, 2 subtasks with state, 1 coordinators, store [1]
    notify complete 1 source[0]
    notify complete 1 source[1]
    coordinator complete 1 source
7 source source left
    d
8 failed source[0]
8 source source failed 0
9 failover partly
    stop timer trigger
    store [1]
    restore [1]
10 source source reset 0 1
11 source source left
    c d
12 running source[0]#1
13 source source request 0
    error: reader 0 asks for a split before it registered
14 source source register 0
15 source source request 0
    deliver "add splits c" to source in source[0]#1
