# One input: its barrier triggers at once and blocks nothing.
new channels=1
----

barrier channel=0 id=1
----
all barriers of 1 received, alignment 0s, 0 bytes processed in it
trigger barrier 1 (checkpoint aligned), start delay 0s

barrier channel=0 id=2 alignment=unaligned
----
capture channel 0 for 2
trigger barrier 2 (checkpoint unaligned), start delay 0s
capture of channel 0 for 2 ends
all barriers of 2 received, alignment 0s, 0 bytes processed in it

barrier channel=0 id=3 timeout=5s
----
start timer 3 at 8s
stop timer 3
all barriers of 3 received, alignment 0s, 0 bytes processed in it
trigger barrier 3 (checkpoint aligned for 5s), start delay 0s
