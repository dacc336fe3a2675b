# Barriers are counted; nothing is blocked. Two checkpoints overlap.
new channels=2 at-least-once
----

clock at=1s
----

barrier channel=0 id=1 alignment=at-least-once
----
nothing

process bytes=10
----

barrier channel=0 id=2 alignment=at-least-once
----
nothing

clock at=1.3s
----

barrier channel=1 id=1 alignment=at-least-once
----
all barriers of 1 received, alignment 300ms, 10 bytes processed in it
trigger barrier 1 (checkpoint at-least-once), start delay 0s

barrier channel=1 id=2 alignment=at-least-once
----
all barriers of 2 received, alignment 300ms, 0 bytes processed in it
trigger barrier 2 (checkpoint at-least-once), start delay 0s

# A barrier goes missing: the newer checkpoint gives the older one up.
barrier channel=0 id=3 alignment=at-least-once
----
nothing

barrier channel=0 id=4 alignment=at-least-once
----
nothing

barrier channel=1 id=4 alignment=at-least-once
----
abort 3: CHECKPOINT_DECLINED_SUBSUMED
all barriers of 4 received, alignment 0s, 0 bytes processed in it
trigger barrier 4 (checkpoint at-least-once), start delay 0s

barrier channel=1 id=3 alignment=at-least-once
----
nothing

# Cancelled before and after its first barrier.
cancel channel=0 id=5
----
abort 5: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER

barrier channel=1 id=5 alignment=at-least-once
----
nothing

barrier channel=0 id=6 alignment=at-least-once
----
nothing

barrier channel=0 id=7 alignment=at-least-once
----
nothing

cancel channel=1 id=7
----
abort 6: CHECKPOINT_DECLINED_SUBSUMED
abort 7: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER

cancel channel=1 id=6
----
nothing

# The end of an input counts for all that wait.
barrier channel=0 id=8 alignment=at-least-once
----
nothing

barrier channel=0 id=9 alignment=at-least-once
----
nothing

end channel=1
----
all barriers of 8 received, alignment 0s, 0 bytes processed in it
trigger barrier 8 (checkpoint at-least-once), start delay 0s
all barriers of 9 received, alignment 0s, 0 bytes processed in it
trigger barrier 9 (checkpoint at-least-once), start delay 0s

barrier channel=0 id=10 alignment=at-least-once
----
all barriers of 10 received, alignment 0s, 0 bytes processed in it
trigger barrier 10 (checkpoint at-least-once), start delay 0s
