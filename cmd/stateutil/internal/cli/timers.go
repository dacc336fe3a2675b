package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// timersOutput is the JSON document of timers.
type timersOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// List has each timer, with --list.
	List []timerLine `json:"list,omitempty"`
	// Services are the timer services, once for event and once for processing time.
	Services []timerServiceLine `json:"services"`
}

// timerPlace says which service a timer belongs to.
type timerPlace struct {
	// OperatorID is the operator's ID in hex.
	OperatorID string `json:"operatorId"`
	// OperatorUID is its uid, if known.
	OperatorUID string `json:"operatorUid,omitempty"`
	// OperatorName is its name, if the snapshot has it.
	OperatorName string `json:"operatorName,omitempty"`
	// Service is the name of the timer service.
	Service string `json:"service"`
	// Time is event or processing.
	Time string `json:"time"`
}

// timerLine is one timer in the output of timers.
type timerLine struct {
	timerPlace
	// KeyGroup is that of the key.
	KeyGroup int32 `json:"keyGroup"`
	// Key is the key, in the form of rows.
	Key json.RawMessage `json:"key"`
	// Namespace is the namespace, null if there is only one.
	Namespace json.RawMessage `json:"namespace"`
	// Timestamp is when it fires, in epoch milliseconds.
	Timestamp int64 `json:"timestamp"`
}

// timerServiceLine is one service in the output of timers.
type timerServiceLine struct {
	timerPlace
	// Key is the key's type in words.
	Key string `json:"key,omitempty"`
	// Namespace is the namespace's type in words; omitted if there is only one.
	Namespace string `json:"namespace,omitempty"`
	// Count is the number of timers.
	Count int64 `json:"count"`
	// Earliest is the first timestamp, in epoch milliseconds; omitted if there are none.
	Earliest *int64 `json:"earliest,omitempty"`
	// Latest is the last timestamp.
	Latest *int64 `json:"latest,omitempty"`
	// Histogram has the buckets that are not empty.
	Histogram []timerBucketLine `json:"histogram"`
}

// timerBucketLine is one bucket in the output of timers.
type timerBucketLine struct {
	// From is where it begins, in epoch milliseconds.
	From int64 `json:"from"`
	// Width is its length in milliseconds, the same for all buckets of a service.
	Width int64 `json:"width"`
	// Count is the number of timers in it.
	Count int64 `json:"count"`
}

type timersOptions struct {
	scanFlags
	rowFlags
	list    bool
	limit   int64
	buckets int
}

func newTimers(g *global) *cobra.Command {
	o := &timersOptions{}
	cmd := &cobra.Command{
		Use:     "timers [URL]",
		GroupID: groupRead,
		Short:   "Count timers by when they fire, or list them",
		Long: `Count the timers of each operator, those of event time and those of processing
time: how many, the earliest and the latest, and a histogram. --list prints each
with its key and namespace.

Timestamps of event time are what the job calls time. Those that look like dates
are printed as dates in UTC, others as numbers; JSON has numbers.`,
		Example: `  stateutil timers s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil timers --list --key '"alice"' /savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  stateutil timers --where "timestamp < 1764374400000" /savepoints/savepoint-5f6b2a-02c1f9a4bb1d`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case o.limit > 0 && !o.list:
				return usage("--limit is for --list")
			case o.buckets < 1 || o.buckets > 1024:
				return usage("--buckets is %d: 1 to 1024", o.buckets)
			}
			return o.parse()
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.timers(cmd.Context(), url, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.list, "list", false, "print each timer")
	f.Int64Var(&o.limit, "limit", 0, "stop after `N` timers; 0 is no limit")
	f.IntVar(&o.buckets, "buckets", 12, "have a histogram of at most `N` lines")
	o.scanFlags.add(f)
	o.rowFlags.add(f)
	o.scanFlags.complete(cmd)
	o.rowFlags.complete(cmd)
	for _, flag := range []string{"limit", "buckets"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return cmd
}

func (g *global) timers(ctx context.Context, url string, o *timersOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return err
	}
	named := opts.State
	opts.State = func(st *snapshot.State) bool {
		return st.Kind == snapshot.StateTimer && (named == nil || named(st))
	}
	progress := g.progress()
	defer progress.Stop()
	choose, err := o.chooser(ctx, s, opts)
	if err != nil {
		return err
	}
	w := g.output(progress)
	var doc *terminal.Document
	if g.json {
		doc = terminal.NewDocument(w, schemaTimers)
		doc.Member("snapshot", s.Location.String())
	}
	count := &undecodedCount{}
	if o.list {
		if err := g.listTimers(ctx, s, opts, o, choose, w, doc, count); err != nil {
			return err
		}
		if doc == nil {
			return probs.end(count.rows, count.classes)
		}
		opts.OnProblem = func(*snapshot.ScanProblem) {} // told already
	}
	sums, err := snapshot.Timers(ctx, s, opts, func(int) func(*snapshot.StateRow) bool { return choose.match() })
	if err != nil {
		return err
	}
	progress.Stop()
	if doc != nil {
		doc.Array("services")
		for _, t := range sums {
			if err := doc.Element(serviceLine(t, o.buckets)); err != nil {
				return err
			}
		}
		if err := doc.Close(); err != nil {
			return err
		}
		return probs.end(count.rows, count.classes)
	}
	if err := g.printTimers(w, sums, o); err != nil {
		return err
	}
	return probs.end(0, nil)
}

func timerPlaceOf(st *snapshot.State) timerPlace {
	service, event := snapshot.TimerService(st)
	p := timerPlace{OperatorID: st.Operator.ID, OperatorUID: st.Operator.UID, OperatorName: st.Operator.Name, Service: service, Time: "processing"}
	if event {
		p.Time = "event"
	}
	return p
}

func (p *timerPlace) operator() string {
	return orElse(p.OperatorUID, orElse(p.OperatorName, p.OperatorID))
}

func serviceLine(t *snapshot.TimerSummary, buckets int) *timerServiceLine {
	l := &timerServiceLine{timerPlace: timerPlaceOf(t.State), Count: t.Count, Histogram: []timerBucketLine{}}
	if t.State.Key != nil {
		l.Key = t.State.Key.String()
	}
	if ns := t.State.Namespace; ns != nil && ns.String() != "voidnamespace" {
		l.Namespace = ns.String()
	}
	if t.Count > 0 {
		l.Earliest, l.Latest = &t.Earliest, &t.Latest
	}
	for _, b := range t.Histogram(buckets) {
		l.Histogram = append(l.Histogram, timerBucketLine(b))
	}
	return l
}

func (g *global) listTimers(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, o *timersOptions, choose *rowChooser, w io.Writer, doc *terminal.Document, count *undecodedCount) error {
	var table *terminal.Table
	if doc != nil {
		doc.Array("list")
	} else {
		table = terminal.NewTable(w, g.screen,
			terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
			terminal.Column{Title: "SERVICE", Cut: terminal.Middle, Min: 8},
			terminal.Column{Title: "TIME"},
			terminal.Column{Title: "KEY GROUP", Right: true},
			terminal.Column{Title: "KEY", Cut: terminal.End, Min: 8},
			terminal.Column{Title: "NAMESPACE", Dull: "-", Cut: terminal.End, Min: 8},
			terminal.Column{Title: "TIMESTAMP", Right: true})
	}
	err := rows(ctx, s, opts, choose, o.limit, func(r *snapshot.StateRow) error {
		l := timerLine{timerPlace: timerPlaceOf(r.State), KeyGroup: r.KeyGroup, Timestamp: r.Timestamp}
		var undecoded [2]string
		l.Key, undecoded[0] = r.AppendKeyJSON(nil)
		l.Namespace, undecoded[1] = r.AppendNamespaceJSON(nil)
		if u := orElse(undecoded[0], undecoded[1]); u != "" {
			count.add(u)
		}
		if doc != nil {
			return doc.Element(&l)
		}
		ns := string(l.Namespace)
		if ns == "null" {
			ns = "-"
		}
		return table.Row(terminal.C(l.operator(), l.Service, l.Time, strconv.Itoa(int(l.KeyGroup)), string(l.Key), ns, timeText(l.Timestamp))...)
	})
	if err != nil && !errors.Is(err, errLimit) {
		return err
	}
	if doc != nil {
		doc.EndArray()
		return nil
	}
	return table.Flush()
}

// barWidth is the length of the longest bar of a histogram.
const barWidth = 40

func (g *global) printTimers(w io.Writer, sums []*snapshot.TimerSummary, o *timersOptions) error {
	if len(sums) == 0 {
		g.note("no timers: no operator has a timer service")
		return nil
	}
	table := terminal.NewTable(w, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "SERVICE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "TIME"},
		terminal.Column{Title: "TIMERS", Right: true},
		terminal.Column{Title: "EARLIEST", Right: true, Dull: "-"},
		terminal.Column{Title: "LATEST", Right: true, Dull: "-"})
	for _, t := range sums {
		p := timerPlaceOf(t.State)
		from, to := "-", "-"
		if t.Count > 0 {
			from, to = timeText(t.Earliest), timeText(t.Latest)
		}
		if err := table.Row(terminal.C(p.operator(), p.Service, p.Time, g.count(t.Count), from, to)...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, t := range sums {
		h := t.Histogram(o.buckets)
		if len(h) < 2 {
			continue
		}
		p := timerPlaceOf(t.State)
		if err := g.printf(w, "\n%s, %s, %s time, by %s\n", terminal.Clean(p.operator()), terminal.Clean(p.Service), p.Time, widthText(h[0].Width)); err != nil {
			return err
		}
		most := int64(1)
		for _, b := range h {
			most = max(most, b.Count)
		}
		bars := terminal.NewTable(w, g.screen,
			terminal.Column{Title: "FROM", Right: true}, terminal.Column{Title: "TIMERS", Right: true}, terminal.Column{Title: ""})
		for _, b := range h {
			bar := strings.Repeat("#", int(max(1, int64(float64(b.Count)/float64(most)*barWidth))))
			if err := bars.Row(terminal.C(timeText(b.From), g.count(b.Count), bar)...); err != nil {
				return err
			}
		}
		if err := bars.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// timeText is a date for what looks like one: from 1973 to 9999. Other timestamps
// are numbers that a job counts with.
func timeText(ms int64) string {
	if ms < 100_000_000_000 || ms > 253_402_300_799_999 {
		return strconv.FormatInt(ms, 10)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// widthText is the length of a bucket.
func widthText(ms int64) string {
	switch day := int64(86_400_000); {
	case ms >= day:
		return terminal.Plural(ms/day, "day", "days")
	case ms >= 3_600_000:
		return terminal.Plural(ms/3_600_000, "hour", "hours")
	case ms >= 60_000:
		return terminal.Plural(ms/60_000, "minute", "minutes")
	case ms >= 1000:
		return terminal.Plural(ms/1000, "second", "seconds")
	}
	return strconv.FormatInt(ms, 10) + " ms"
}
