// Package stream is how jobs are written: streams of Go values, typed by generics,
// and the operators on them.
//
//	job := stream.NewJob("word count", nil)
//	lines := stream.From(job, source, stream.UID("lines"))
//	words := stream.FlatMap(lines, func(line string, emit func(string)) {
//		for _, w := range strings.Fields(line) {
//			emit(w)
//		}
//	})
//	counts := stream.Process(stream.KeyBy(words, serializer.String, func(w string) string { return w }),
//		func() stream.KeyedFunction[string, string, Count] { return &counter{} }, stream.UID("count"))
//	stream.To(counts, sink, stream.UID("result"))
//
// A job is a graph that package runtime runs. Names and meaning are Flink's, and so
// is the state: an operator with the same uid in a Flink job continues from the
// savepoint of one here, and the reverse, where both register the same states.
//
// # Functions
//
// Functions that are given as such, to Map for example, are called by all subtasks at
// the same time, so what they share they must guard. A function with state is an
// object; each subtask makes its own. It is called from one goroutine, and a panic in
// it fails the task, not the process.
//
// # Records
//
// Records are handed on by value within a chain; what they point to must not be
// changed. Between tasks they travel as bytes of the stream's serializer, which
// serializer.Of makes of the type unless Stream.As sets another.
package stream
