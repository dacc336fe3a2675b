// Package channel is the data plane between subtasks: bounded buffers of bytes with
// backpressure, in which records travel in batches and barriers may overtake them,
// so that what is in flight is bytes that can become channel state.
//
//	Partition   output of a subtask: records are serialized into buffers of 32 KiB,
//	            one being filled for each subpartition
//	Gate        input of a subtask: buffers of many channels in turn, records read
//	            in place, channels blocked and unblocked
//	Connect     joins a subpartition and a channel in one process

//	Capture     the channel state of one unaligned checkpoint, written as Flink's
//	Recover     the channel state of a restored checkpoint, redistributed at another
//	            parallelism
//
// docs/design/channels.md tells how it works and names Flink's counterparts.
package channel
