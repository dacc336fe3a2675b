# One checkpoint from the timer to the sinks' commit, and the next one, which
# subsumes it: its metadata object goes first, then what only it needed.
job interval=10s hooks=kafka
source 2 coordinator
count 2 < source
sink 1 < count
----

play
0 running all
0 start 10000
10000 timer trigger
10001 coordinator 1 source s1
10002 hook 1 kafka txn-7
10010 ack 1 source[0] list=offsets
10011 ack 1 source[1] list=offsets
10020 ack 1 count[0] shared=a,b
10021 ack 1 count[1] shared=c
10022 ack 1 sink[0]
----
0 running all
0 start 10000
    start timer trigger at 10000
10000 timer trigger
    start timer trigger at 20000
    start timer expire 1 at 610000
    location 1 (checkpoint aligned)
    coordinator 1 source
10001 coordinator 1 source s1
    hook 1 kafka
    start timer hooks 1 at 610001
10002 hook 1 kafka txn-7
    stop timer hooks 1
    trigger source[0] barrier 1 (checkpoint aligned)
    trigger source[1] barrier 1 (checkpoint aligned)
10010 ack 1 source[0] list=offsets
10011 ack 1 source[1] list=offsets
10020 ack 1 count[0] shared=a,b
10021 ack 1 count[1] shared=c
10022 ack 1 sink[0]
    stop timer expire 1
    commit 1 3 operators, 4 subtasks with state, 1 coordinators, 1 master states, store [1]
    notify complete 1 source[0]
    notify complete 1 source[1]
    notify complete 1 count[0]
    notify complete 1 count[1]
    notify complete 1 sink[0]
    coordinator complete 1 source
    hooks complete 1

play
20000 timer trigger
20001 coordinator 2 source s2
20002 hook 2 kafka txn-8
20010 ack 2 source[0] list=offsets
20011 ack 2 source[1] list=offsets
20020 ack 2 count[0] shared=b,d
20021 ack 2 count[1] shared=c
20022 ack 2 sink[0]
----
20000 timer trigger
    start timer trigger at 30000
    start timer expire 2 at 620000
    location 2 (checkpoint aligned)
    coordinator 2 source
20001 coordinator 2 source s2
    hook 2 kafka
    start timer hooks 2 at 620001
20002 hook 2 kafka txn-8
    stop timer hooks 2
    trigger source[0] barrier 2 (checkpoint aligned)
    trigger source[1] barrier 2 (checkpoint aligned)
20010 ack 2 source[0] list=offsets
20011 ack 2 source[1] list=offsets
20020 ack 2 count[0] shared=b,d
20021 ack 2 count[1] shared=c
20022 ack 2 sink[0]
    stop timer expire 2
    commit 2 3 operators, 4 subtasks with state, 1 coordinators, 1 master states, store [2]
    notify complete 2 source[0]
    notify complete 2 source[1]
    notify complete 2 count[0]
    notify complete 2 count[1]
    notify complete 2 sink[0]
    coordinator complete 2 source
    hooks complete 2
    delete chk-1/_metadata
    delete shared/a

history
----
{Restored:0 Total:2 InProgress:0 Completed:2 Failed:0 Rejected:0}
1 checkpoint COMPLETED: 5 of 5 acknowledged, end to end 22 ms, 200 bytes new of 300, discarded
    source 2 of 2, end to end 10/10/11 ms, sync 1, async 5, alignment 2, start delay 3
    count 2 of 2, end to end 20/20/21 ms, sync 1, async 5, alignment 2, start delay 3
    sink 1 of 1, end to end 22/22/22 ms, sync 1, async 5, alignment 2, start delay 3
2 checkpoint COMPLETED: 5 of 5 acknowledged, end to end 22 ms, 200 bytes new of 300
    source 2 of 2, end to end 10/10/11 ms, sync 1, async 5, alignment 2, start delay 3
    count 2 of 2, end to end 20/20/21 ms, sync 1, async 5, alignment 2, start delay 3
    sink 1 of 1, end to end 22/22/22 ms, sync 1, async 5, alignment 2, start delay 3
