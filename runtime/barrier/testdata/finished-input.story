# The end of an input stands for its barrier.
new channels=3
----

barrier channel=0 id=1
----
block channel 0

end channel=2
----
nothing

barrier channel=1 id=1
----
all barriers of 1 received, alignment 0s, 0 bytes processed in it
trigger barrier 1 (checkpoint aligned), start delay 0s
unblock all

# From then on two barriers are all.
barrier channel=0 id=2
----
block channel 0

barrier channel=1 id=2
----
all barriers of 2 received, alignment 0s, 0 bytes processed in it
trigger barrier 2 (checkpoint aligned), start delay 0s
unblock all

# The last one that is waited for ends: that completes the alignment.
barrier channel=0 id=3
----
block channel 0

end channel=1
----
all barriers of 3 received, alignment 0s, 0 bytes processed in it
trigger barrier 3 (checkpoint aligned), start delay 0s
unblock all

# An input ends in the middle of a capture.
new channels=2
----

barrier channel=0 id=1 alignment=unaligned
----
capture channel 0 for 1
capture channel 1 for 1
trigger barrier 1 (checkpoint unaligned), start delay 0s
capture of channel 0 for 1 ends

end channel=1
----
capture of channel 1 for 1 ends
all barriers of 1 received, alignment 0s, 0 bytes processed in it

# Nothing comes from an input that ended.
barrier channel=1 id=2
----
nothing

# Its own barrier was the last.
barrier channel=0 id=2
----
all barriers of 2 received, alignment 0s, 0 bytes processed in it
trigger barrier 2 (checkpoint aligned), start delay 0s

# An input that is blocked cannot end; one that is captured can, and be the last.
barrier channel=0 id=3
----
all barriers of 3 received, alignment 0s, 0 bytes processed in it
trigger barrier 3 (checkpoint aligned), start delay 0s

end channel=0
----
nothing

# All inputs finished before their tasks' checkpoint: the coordinator triggers by
# RPC, and no input is blocked for it.
new channels=2
----

barrier channel=0 id=1 rpc
----
nothing

barrier channel=1 id=1 rpc
----
all barriers of 1 received, alignment 0s, 0 bytes processed in it
trigger barrier 1 (checkpoint aligned), start delay 0s
