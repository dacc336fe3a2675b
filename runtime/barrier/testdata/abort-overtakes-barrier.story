# The marker that cancels a checkpoint may come before any of its barriers: those
# that follow must block nothing.
new channels=2
----

cancel channel=0 id=1
----
abort 1: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER

barrier channel=1 id=1
----
nothing

# In the middle of an alignment it frees what is blocked.
barrier channel=0 id=2
----
block channel 0

cancel channel=1 id=2
----
abort 2: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
unblock all

cancel channel=0 id=2
----
nothing

# Of a newer checkpoint it also gives up the one that is pending.
barrier channel=0 id=3
----
block channel 0

cancel channel=1 id=4
----
abort 3: CHECKPOINT_DECLINED_SUBSUMED
unblock all
abort 4: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER

barrier channel=1 id=3
----
nothing

barrier channel=0 id=4
----
nothing

# After an unaligned one was triggered, the task has to discard what it captured.
barrier channel=0 id=5 alignment=unaligned
----
capture channel 0 for 5
capture channel 1 for 5
trigger barrier 5 (checkpoint unaligned), start delay 0s
capture of channel 0 for 5 ends

cancel channel=1 id=5
----
abort 5: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER

barrier channel=1 id=5 alignment=unaligned
----
nothing

# An old marker is nobody's.
cancel channel=0 id=3
----
nothing
