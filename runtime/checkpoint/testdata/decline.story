# A task declines. The second failure in a row is one too many; a declined barrier
# that a newer one cancelled is not counted.
job interval=10s tolerable=1
source 1
count 2 < source
----

play
0 running all
0 start 0
0 timer trigger
5 ack 1 source[0]
6 ack 1 count[0] own=x
7 decline 1 count[1] CHECKPOINT_ASYNC_EXCEPTION disk full
8 decline 1 count[0] CHECKPOINT_DECLINED
10000 timer trigger
10005 decline 2 count[1] CHECKPOINT_DECLINED_SUBSUMED
20000 timer trigger
20005 decline 3 count[0] CHECKPOINT_DECLINED no
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 1 at 600000
    location 1 (checkpoint aligned)
    trigger source[0] barrier 1 (checkpoint aligned)
5 ack 1 source[0]
6 ack 1 count[0] own=x
7 decline 1 count[1] CHECKPOINT_ASYNC_EXCEPTION disk full
    stop timer expire 1
    discard location 1
    notify aborted 1 source[0]
    notify aborted 1 count[0]
    notify aborted 1 count[1]
    failed 1 CHECKPOINT_ASYNC_EXCEPTION: task count[1]: disk full
    delete chk-1/x
8 decline 1 count[0] CHECKPOINT_DECLINED
10000 timer trigger
    start timer trigger at 20000
    start timer expire 2 at 610000
    location 2 (checkpoint aligned)
    trigger source[0] barrier 2 (checkpoint aligned)
10005 decline 2 count[1] CHECKPOINT_DECLINED_SUBSUMED
    stop timer expire 2
    discard location 2
    notify aborted 2 source[0]
    notify aborted 2 count[0]
    notify aborted 2 count[1]
    failed 2 CHECKPOINT_DECLINED_SUBSUMED: task count[1]: the barrier of a newer checkpoint came first
20000 timer trigger
    start timer trigger at 30000
    start timer expire 3 at 620000
    location 3 (checkpoint aligned)
    trigger source[0] barrier 3 (checkpoint aligned)
20005 decline 3 count[0] CHECKPOINT_DECLINED no
    stop timer expire 3
    discard location 3
    notify aborted 3 source[0]
    notify aborted 3 count[0]
    notify aborted 3 count[1]
    failed 3 CHECKPOINT_DECLINED: task count[0]: no
    fail job: more checkpoints failed than are tolerable: the last one with CHECKPOINT_DECLINED: task count[0]: no

history
----
{Restored:0 Total:3 InProgress:0 Completed:0 Failed:3 Rejected:0}
1 checkpoint FAILED: 2 of 3 acknowledged, end to end 7 ms, 10 bytes new of 10, CHECKPOINT_ASYNC_EXCEPTION: task count[1]: disk full (by count[1])
    source 1 of 1, end to end 5/5/5 ms, sync 1, async 5, alignment 2, start delay 3
    count 1 of 2, end to end 6/6/6 ms, sync 1, async 5, alignment 2, start delay 3
2 checkpoint FAILED: 0 of 3 acknowledged, end to end 5 ms, 0 bytes new of 0, CHECKPOINT_DECLINED_SUBSUMED: task count[1]: the barrier of a newer checkpoint came first (by count[1])
    source 0 of 1, end to end 0/0/0 ms, sync 0, async 0, alignment 0, start delay 0
    count 0 of 2, end to end 0/0/0 ms, sync 0, async 0, alignment 0, start delay 0
3 checkpoint FAILED: 0 of 3 acknowledged, end to end 5 ms, 0 bytes new of 0, CHECKPOINT_DECLINED: task count[0]: no (by count[0])
    source 0 of 1, end to end 0/0/0 ms, sync 0, async 0, alignment 0, start delay 0
    count 0 of 2, end to end 0/0/0 ms, sync 0, async 0, alignment 0, start delay 0
