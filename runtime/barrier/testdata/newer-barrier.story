# The barrier of a newer checkpoint cancels the older one, and a late barrier of
# that is passed over.
new channels=2
----

barrier channel=0 id=1
----
block channel 0

barrier channel=1 id=2
----
abort 1: CHECKPOINT_DECLINED_SUBSUMED
unblock all
block channel 1

barrier channel=0 id=2
----
all barriers of 2 received, alignment 0s, 0 bytes processed in it
trigger barrier 2 (checkpoint aligned), start delay 0s
unblock all

barrier channel=1 id=1
----
nothing

# Unaligned: the older one was triggered already; its captures end.
barrier channel=0 id=3 alignment=unaligned
----
capture channel 0 for 3
capture channel 1 for 3
trigger barrier 3 (checkpoint unaligned), start delay 0s
capture of channel 0 for 3 ends

barrier channel=1 id=4 alignment=unaligned
----
abort 3: CHECKPOINT_DECLINED_SUBSUMED
capture channel 0 for 4
capture channel 1 for 4
trigger barrier 4 (checkpoint unaligned), start delay 0s
capture of channel 1 for 4 ends

barrier channel=1 id=3 alignment=unaligned
----
nothing

barrier channel=0 id=4 alignment=unaligned
----
capture of channel 0 for 4 ends
all barriers of 4 received, alignment 0s, 0 bytes processed in it

# A missing barrier: checkpoint 5 never comes from input 1.
barrier channel=0 id=5
----
block channel 0

barrier channel=1 id=6
----
abort 5: CHECKPOINT_DECLINED_SUBSUMED
unblock all
block channel 1

barrier channel=0 id=6
----
all barriers of 6 received, alignment 0s, 0 bytes processed in it
trigger barrier 6 (checkpoint aligned), start delay 0s
unblock all
