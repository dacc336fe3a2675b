# Checkpoints name files of a snapshot that the job does not own. They stay when the
# checkpoints go, also after a restart, when the store does not have the snapshot any
# more, and when an acknowledgement names them late and nobody knows them.
job restored=41:LEGACY
count 1
----

play
0 running all
0 start 0
0 timer trigger
1 ack 42 count[0] shared=file:/old/job/shared/a,b
2 coordinator-dies
3 running all 1
3 start 0
3 timer trigger
4 ack 58 count[0]#1 shared=file:/old/job/shared/a,c
10003 timer trigger
10004 ack 59 count[0]#1 shared=d
10005 ack 58 count[0]#1 shared=file:/old/job/shared/a,c
20003 timer trigger
20004 decline 60 count[0]#1 CHECKPOINT_DECLINED no
20005 ack 60 count[0]#1 shared=file:/old/job/shared/a,e
20006 shutdown canceled
----
0 running all
0 start 0
    start timer trigger at 0
0 timer trigger
    start timer trigger at 10000
    start timer expire 42 at 600000
    location 42 (checkpoint aligned)
    trigger count[0] barrier 42 (checkpoint aligned)
1 ack 42 count[0] shared=file:/old/job/shared/a,b
    stop timer expire 42
    commit 42 1 operators, 1 subtasks with state, store [42]
    notify complete 42 count[0]
2 coordinator-dies
    a new one finds the store [42]
3 running all 1
3 start 0
    start timer trigger at 3
3 timer trigger
    start timer trigger at 10003
    start timer expire 58 at 600003
    location 58 (checkpoint aligned)
    trigger count[0]#1 barrier 58 (checkpoint aligned)
4 ack 58 count[0]#1 shared=file:/old/job/shared/a,c
    stop timer expire 58
    commit 58 1 operators, 1 subtasks with state, store [58]
    notify complete 58 count[0]#1
    delete chk-42/_metadata
    delete shared/b
10003 timer trigger
    start timer trigger at 20003
    start timer expire 59 at 610003
    location 59 (checkpoint aligned)
    trigger count[0]#1 barrier 59 (checkpoint aligned)
10004 ack 59 count[0]#1 shared=d
    stop timer expire 59
    commit 59 1 operators, 1 subtasks with state, store [59]
    notify complete 59 count[0]#1
    delete chk-58/_metadata
    delete shared/c
10005 ack 58 count[0]#1 shared=file:/old/job/shared/a,c
    delete shared/c
20003 timer trigger
    start timer trigger at 30003
    start timer expire 60 at 620003
    location 60 (checkpoint aligned)
    trigger count[0]#1 barrier 60 (checkpoint aligned)
20004 decline 60 count[0]#1 CHECKPOINT_DECLINED no
    stop timer expire 60
    discard location 60
    notify aborted 60 count[0]#1
    failed 60 CHECKPOINT_DECLINED: task count[0]#1: no
    fail job: more checkpoints failed than are tolerable: the last one with CHECKPOINT_DECLINED: task count[0]#1: no
20005 ack 60 count[0]#1 shared=file:/old/job/shared/a,e
    delete shared/e
20006 shutdown canceled
    stop timer trigger
    store []
    ended
    delete chk-59/_metadata
    delete shared/d
