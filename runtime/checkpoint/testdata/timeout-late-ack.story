# A checkpoint times out. What was acknowledged is deleted at once, what comes
# later when it comes; what the last completed checkpoint has, stays.
job interval=10s timeout=5s tolerable=1
source 1
count 2 < source
----

play
0 running all
0 start 0
0 timer trigger
5 ack 1 source[0]
6 ack 1 count[0] shared=a
7 ack 1 count[1] own=x
10000 timer trigger
10005 ack 2 source[0]
10006 ack 2 count[0] shared=a,b
15000 timer expire 2
15100 ack 2 count[1] own=late
15101 ack 2 count[0] shared=a,b
15102 decline 2 count[1] CHECKPOINT_DECLINED too late
15103 timer expire 2
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 5000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
5 ack 1 source[0]
6 ack 1 count[0] shared=a
7 ack 1 count[1] own=x
    stop timer expire 1
    commit 1 2 operators, 2 subtasks with state, store [1]
    notify complete 1 source[0]
    notify complete 1 count[0]
    notify complete 1 count[1]
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 15000
    location 2 (checkpoint aligned)
    trigger source[0] barrier 2 (checkpoint aligned)
10005 ack 2 source[0]
10006 ack 2 count[0] shared=a,b
15000 timer expire 2
    stop timer expire 2
    discard location 2
    notify aborted 2 source[0]
    notify aborted 2 count[0]
    notify aborted 2 count[1]
    failed 2 CHECKPOINT_EXPIRED: not complete after 5000 ms: no acknowledgement of count[1]
    delete shared/b
15100 ack 2 count[1] own=late
    delete chk-2/late
15101 ack 2 count[0] shared=a,b
    delete shared/b
15102 decline 2 count[1] CHECKPOINT_DECLINED too late
15103 timer expire 2

history
----
{Restored:0 Total:2 InProgress:0 Completed:1 Failed:1 Rejected:0}
1 checkpoint COMPLETED: 3 of 3 acknowledged, end to end 7 ms, 110 bytes new of 110
    source 1 of 1, end to end 5/5/5 ms, sync 1, async 5, alignment 2, start delay 3
    count 2 of 2, end to end 6/6/7 ms, sync 1, async 5, alignment 2, start delay 3
2 checkpoint FAILED: 2 of 3 acknowledged, end to end 5000 ms, 100 bytes new of 200, CHECKPOINT_EXPIRED: not complete after 5000 ms: no acknowledgement of count[1]
    source 1 of 1, end to end 5/5/5 ms, sync 1, async 5, alignment 2, start delay 3
    count 1 of 2, end to end 6/6/6 ms, sync 1, async 5, alignment 2, start delay 3
