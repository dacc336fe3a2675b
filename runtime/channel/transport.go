package channel

// Connect joins a subpartition to a channel of a gate in the same process (Flink's
// LocalInputChannel): the gate reads from the subpartition's queue.
func Connect(p *Partition, subpartition int, g *Gate, channel int) {
	g.connect(channel, p.subs[subpartition].q)
}
