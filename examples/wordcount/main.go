// Wordcount counts the words of generated lines. Kill it at any moment and start it
// again: it goes on from its newest checkpoint, and the counts at the end are right.
//
//	go run ./examples/wordcount -dir /tmp/wordcount
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/monitor"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

// jobID is the same in each run, so that a run finds the checkpoints of the one before.
const jobID = "0badc0de0000000000000000000000aa"

func main() {
	dir := flag.String("dir", "wordcount-checkpoints", "folder of checkpoints")
	lines := flag.Int64("lines", 400_000, "lines to count")
	perSecond := flag.Float64("rate", 100_000, "lines each second and subtask; 0 is as fast as it goes")
	parallelism := flag.Int("parallelism", 2, "subtasks of each operator")
	verbose := flag.Bool("v", false, "log what happens")
	page := flag.String("http", "", "address of a page about the checkpoints, such as localhost:8081; none if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *dir, *lines, *perSecond, *parallelism, *verbose, *page); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

// Count is a word and how often it was seen.
type Count struct {
	Word string
	N    int64
}

func run(ctx context.Context, out io.Writer, dir string, lines int64, rate float64, parallelism int, verbose bool, page string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var result results
	job := stream.NewJob("word count", &stream.JobOptions{Parallelism: parallelism, MaxParallelism: 128})
	numbers := stream.From(job, stream.SlowSequence(0, lines-1, rate), stream.UID("lines"))
	words := stream.FlatMap(numbers, func(i int64, emit func(string)) {
		for _, w := range strings.Fields(text(i)) {
			emit(w)
		}
	}, stream.Name("Split"))
	byWord := stream.KeyBy(words, serializer.String, func(w string) string { return w })
	counts := stream.Process(byWord, func() stream.KeyedFunction[string, string, Count] { return &counter{} }, stream.UID("count"))
	stream.ForEach(counts, result.add, stream.Name("Result"))

	opts := &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), JobID: jobID, Durable: true, Interval: 200 * time.Millisecond, Retained: 2}
	if verbose {
		opts.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	e, err := runtime.Start(ctx, job, opts)
	if err != nil {
		return err
	}
	if page != "" {
		server := &http.Server{Addr: page, Handler: monitor.Handler(e), ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				fmt.Fprintln(os.Stderr, "wordcount: no page:", err)
			}
		}()
		defer server.Close()
	}
	if err := e.Wait(); err != nil {
		return err
	}
	result.print(out)
	fmt.Fprintf(out, "checkpoints are in %s\n", filepath.Join(dir, jobID))
	return nil
}

// counter is the keyed function: it counts each word.
type counter struct {
	n *keyed.ValueState[string, int64]
}

// Open registers the state.
func (c *counter) Open(rt *stream.KeyedRuntime[string]) error {
	c.n = keyed.Value(rt.Keyed, "count", serializer.Int64)
	return nil
}

// Process counts a word.
func (c *counter) Process(x *stream.KeyedContext[string, Count], word string) error {
	n, _, err := c.n.Get(x.Key)
	if err != nil {
		return err
	}
	x.Emit(Count{word, n + 1})
	return c.n.Set(x.Key, n+1)
}

// text is line i: the same in each run, as a source has to be to be read again.
func text(i int64) string {
	v := uint64(i) * 0x9E3779B97F4A7C15
	var b strings.Builder
	for range 5 {
		b.WriteString(dictionary[v%uint64(len(dictionary))])
		b.WriteByte(' ')
		v = (v ^ v>>29) * 0xBF58476D1CE4E5B9
	}
	return b.String()
}

var dictionary = strings.Fields("tide ebb flow barrier stream state key window timer snapshot channel task source sink record")

// results keeps the newest count of each word, of all subtasks.
type results struct {
	mu    sync.Mutex
	count map[string]int64
}

func (r *results) add(c Count) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[string]int64{}
	}
	r.count[c.Word] = max(r.count[c.Word], c.N)
	return nil
}

func (r *results) print(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	words := make([]string, 0, len(r.count))
	var all int64
	for w, n := range r.count {
		words, all = append(words, w), all+n
	}
	slices.Sort(words)
	for _, w := range words {
		fmt.Fprintf(out, "%-10s %9d\n", w, r.count[w])
	}
	fmt.Fprintf(out, "%-10s %9d\n", "all", all)
}
