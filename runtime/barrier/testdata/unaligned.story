# The first barrier triggers. Each input is captured up to its own barrier.
new channels=3
----

clock at=1s
----

barrier channel=2 id=1 alignment=unaligned
----
capture channel 0 for 1
capture channel 1 for 1
capture channel 2 for 1
trigger barrier 1 (checkpoint unaligned), start delay 0s
capture of channel 2 for 1 ends

process bytes=10
----

clock at=1.1s
----

barrier channel=0 id=1 alignment=unaligned
----
capture of channel 0 for 1 ends

# A barrier that could not overtake, from an exchange that forces alignment, ends
# the capture of its input in its place and blocks nothing: the snapshot is taken.
barrier channel=1 id=1 alignment=forced
----
capture of channel 1 for 1 ends
all barriers of 1 received, alignment 100ms, 10 bytes processed in it

# The other way round: the input with forced alignment waits until the first
# barrier overtakes; then there is nothing to wait for.
barrier channel=1 id=2 alignment=forced
----
block channel 1

barrier channel=0 id=2 alignment=unaligned
----
capture channel 0 for 2
capture channel 2 for 2
trigger barrier 2 (checkpoint unaligned), start delay 0s
capture of channel 0 for 2 ends
unblock all

barrier channel=2 id=2 alignment=unaligned
----
capture of channel 2 for 2 ends
all barriers of 2 received, alignment 0s, 0 bytes processed in it
