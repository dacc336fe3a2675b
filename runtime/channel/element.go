package channel

import "encoding/binary"

// Tags of stream elements, as Flink's StreamElementSerializer writes them. What a
// channel carries between events is a sequence of
//
//	int32 length  tag  rest        all big-endian
//
// and docs/format/channel-state.md has what follows each tag. It is what channel
// state holds, so that Flink can read ours and we can read Flink's.
const (
	TagTimestampedRecord byte = 0 // int64 timestamp, value
	TagRecord            byte = 1 // value
	TagWatermark         byte = 2 // int64
	TagLatencyMarker     byte = 3 // int64 time, 16 bytes operator ID, int32 subtask
	TagWatermarkStatus   byte = 4 // int32, 0 active, -1 idle
	TagRecordAttributes  byte = 5 // boolean backlog
	TagInternalWatermark byte = 6 // int32 subpartition, int64
)

// AppendTimestamp begins a record with a timestamp in milliseconds; the value
// follows, as its serializer appends it.
func AppendTimestamp(dst []byte, timestamp int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, TagTimestampedRecord), uint64(timestamp))
}

// AppendWatermark appends a watermark in milliseconds.
func AppendWatermark(dst []byte, watermark int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, TagWatermark), uint64(watermark))
}

// AppendWatermarkStatus appends a watermark status.
func AppendWatermarkStatus(dst []byte, idle bool) []byte {
	var status uint32
	if idle {
		status = 0xffffffff
	}
	return binary.BigEndian.AppendUint32(append(dst, TagWatermarkStatus), status)
}

// AppendRecordAttributes appends record attributes.
func AppendRecordAttributes(dst []byte, backlog bool) []byte {
	if backlog {
		return append(dst, TagRecordAttributes, 1)
	}
	return append(dst, TagRecordAttributes, 0)
}
