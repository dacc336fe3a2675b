# An alignment that takes too long goes on unaligned. Input 0 is at its barrier and
# has nothing to capture; the barrier of input 1 waits behind buffers and is called;
# of input 2 nothing was heard.
new channels=3
----

clock at=1s
----

announce channel=0 id=1 timeout=200ms
----
start timer 1 at 1.2s

barrier channel=0 id=1 timeout=200ms
----
block channel 0

announce channel=1 id=1 timeout=200ms
----
nothing

process bytes=1000
----

clock at=1.2s
----

timer id=1
----
capture channel 1 for 1
capture channel 2 for 1
trigger barrier 1 (checkpoint unaligned), start delay 0s
unblock all
convert barrier 1 of channel 1

barrier channel=1 id=1 alignment=unaligned
----
capture of channel 1 for 1 ends

# The announcement that comes after the timeout is called at once.
announce channel=2 id=1 timeout=200ms
----
convert barrier 1 of channel 2

clock at=1.25s
----

barrier channel=2 id=1 alignment=unaligned
----
capture of channel 2 for 1 ends
all barriers of 1 received, alignment 250ms, 1000 bytes processed in it

# All barriers in time: the timer ends. An input whose barrier was only announced
# when the timer fires has its barrier called, and that triggers.
clock at=2s
----

announce channel=0 id=2 timeout=200ms
----
start timer 2 at 2.2s

clock at=2.2s
----

timer id=2
----
convert barrier 2 of channel 0

barrier channel=0 id=2 alignment=unaligned
----
capture channel 0 for 2
capture channel 1 for 2
capture channel 2 for 2
trigger barrier 2 (checkpoint unaligned), start delay 200ms
capture of channel 0 for 2 ends

barrier channel=1 id=2 alignment=unaligned
----
capture of channel 1 for 2 ends

barrier channel=2 id=2 alignment=unaligned
----
capture of channel 2 for 2 ends
all barriers of 2 received, alignment 0s, 0 bytes processed in it

# The barrier itself came too late for its timeout.
clock at=3.5s
----

barrier channel=0 id=3 timeout=200ms
----
capture channel 1 for 3
capture channel 2 for 3
trigger barrier 3 (checkpoint unaligned), start delay 500ms

barrier channel=1 id=3 timeout=200ms
----
capture of channel 1 for 3 ends

barrier channel=2 id=3 timeout=200ms
----
capture of channel 2 for 3 ends
all barriers of 3 received, alignment 0s, 0 bytes processed in it

# Nobody is late.
clock at=4s
----

barrier channel=0 id=4 timeout=200ms
----
start timer 4 at 4.2s
block channel 0

barrier channel=1 id=4 timeout=200ms
----
block channel 1

barrier channel=2 id=4 timeout=200ms
----
stop timer 4
all barriers of 4 received, alignment 0s, 0 bytes processed in it
trigger barrier 4 (checkpoint aligned for 200ms), start delay 0s
unblock all

timer id=4
----
nothing

# A newer checkpoint stops the timer of the older one.
clock at=5s
----

barrier channel=0 id=5 timeout=2s
----
start timer 5 at 7s
block channel 0

barrier channel=1 id=6 timeout=2s
----
stop timer 5
abort 5: CHECKPOINT_DECLINED_SUBSUMED
unblock all
start timer 6 at 8s
block channel 1

cancel channel=1 id=6
----
stop timer 6
abort 6: CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
unblock all
