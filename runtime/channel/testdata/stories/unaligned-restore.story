# Two subtasks had data in flight from three writers when an unaligned checkpoint was
# taken. By key group the old subtask 0 has the groups 0 to 7, subtask 1 has 8 to 15.
snapshot up=3
0.0 g0-a g7-b
0.2 g3-c g4-d
1.0 g8-e
1.1 g15-f g12-g g8-h
----

# At the same parallelism everything comes back where it was.
restore mapper=range up=3 down=2
----
subtask 0: 0:g0-a 0:g7-b 2:g3-c 2:g4-d
subtask 1: 0:g8-e 1:g15-f 1:g12-g 1:g8-h

# Scaled out: each record goes to the subtask that has its key group now, once, and
# those of one channel stay in order.
restore mapper=range up=3 down=3
----
subtask 0: 0:g0-a 2:g3-c 2:g4-d
subtask 1: 0:g7-b 0:g8-e 1:g8-h
subtask 2: 1:g15-f 1:g12-g

# Scaled in, with fewer writers too: channels that are gone come back in others.
restore mapper=range up=1 down=1
----
subtask 0: 0:g0-a 0:g7-b 0:g3-c 0:g4-d 0:g8-e 0:g15-f 0:g12-g 0:g8-h

# Where any subtask may take any record, old subtasks are dealt out as a whole.
restore mapper=round-robin up=2 down=3
----
subtask 0: 0:g0-a 0:g7-b 0:g3-c 0:g4-d
subtask 1: 0:g8-e 1:g15-f 1:g12-g 1:g8-h
subtask 2:

restore mapper=round-robin up=2 down=1
----
subtask 0: 0:g0-a 0:g7-b 0:g3-c 0:g4-d 0:g8-e 1:g15-f 1:g12-g 1:g8-h
