# Each input waits from its barrier on until all barriers are there.
new channels=3
----

clock at=1.2s
----

barrier channel=1 id=1
----
block channel 1

process bytes=100
----

clock at=1.5s
----

barrier channel=0 id=1
----
block channel 0

# The same barrier again says nothing new.
barrier channel=0 id=1
----
nothing

process bytes=50
----

barrier channel=2 id=1
----
all barriers of 1 received, alignment 300ms, 150 bytes processed in it
trigger barrier 1 (checkpoint aligned), start delay 200ms
unblock all

# A late barrier of what is complete is none any more.
barrier channel=2 id=1
----
nothing

# The timer of a checkpoint that has none is nobody's.
timer id=1
----
nothing
