// Fraud finds suspicious transactions by rules that can change while it runs: a small
// amount, to try a stolen card, and a large one soon after it. It shows broadcast
// state (the rules), timers (a trial is forgotten after a minute of event time) and
// expiry (what is known of an account that is quiet for a day).
//
//	go run ./examples/fraud -to /tmp/alerts -dir /tmp/fraud
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

const jobID = "0badc0de0000000000000000000000cc"

func main() {
	var c config
	flag.StringVar(&c.to, "to", "", "folder of the alerts")
	flag.StringVar(&c.dir, "dir", "fraud-checkpoints", "folder of checkpoints")
	flag.Int64Var(&c.transactions, "transactions", 200_000, "number of transactions")
	flag.Float64Var(&c.rate, "rate", 50_000, "transactions each second; 0 is as fast as it goes")
	flag.IntVar(&c.parallelism, "parallelism", 2, "subtasks of each operator")
	verbose := flag.Bool("v", false, "log what happens")
	flag.Parse()
	if c.to == "" {
		fmt.Fprintln(os.Stderr, "fraud: -to is needed")
		os.Exit(64)
	}
	if *verbose {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fraud:", err)
		os.Exit(1)
	}
}

type config struct {
	to, dir      string
	transactions int64
	rate         float64
	parallelism  int
	log          *slog.Logger
}

// Transaction is a payment.
type Transaction struct {
	Account string
	Cents   int64
	Millis  int64 // of the epoch
}

// Rule is what is suspicious: an amount up to Small, and soon after it one from Large on.
type Rule struct {
	Name         string
	Small, Large int64 // cents
}

const soon = time.Minute

func (c *config) run(ctx context.Context) error {
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return err
	}
	job := stream.NewJob("fraud", &stream.JobOptions{Parallelism: c.parallelism, MaxParallelism: 128})
	// One subtask reads, so that event time has an order that the rest can count on.
	numbers := stream.From(job, stream.SlowSequence(0, c.transactions-1, c.rate), stream.UID("transactions"), stream.Parallelism(1))
	made := stream.Map(numbers, transaction, stream.Name("Make"), stream.Parallelism(1))
	transactions := stream.Watermarks(made, stream.WatermarkStrategy[Transaction]{
		Timestamp: func(t Transaction, _ int64) int64 { return t.Millis }, IdleAfter: time.Second}, stream.Parallelism(1))
	updates := stream.From(job, stream.Sequence(0, int64(len(rules)-1)), stream.UID("rules"), stream.Parallelism(1))
	changes := stream.Map(updates, func(i int64) Rule { return rules[i] }, stream.Name("Read Rules"), stream.Parallelism(1))

	byAccount := stream.KeyBy(transactions, serializer.String, func(t Transaction) string { return t.Account })
	alerts := stream.ConnectBroadcast(byAccount, changes, func() stream.BroadcastFunction[string, Transaction, Rule, string] { return &detector{} }, stream.UID("detector"))
	stream.To(alerts, stream.Lines(c.to), stream.UID("alerts"))
	return runtime.Run(ctx, job, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), JobID: jobID, Durable: true, Interval: 200 * time.Millisecond, Log: c.log})
}

// rules are what the stream of rules brings: the second replaces the first.
var rules = []Rule{{"trial", 100, 1_000_000}, {"trial", 100, 50_000}, {"greedy", 500, 90_000}}

// detector is the keyed broadcast function.
type detector struct {
	rules *operatorstate.BroadcastState[string, Rule]
	trial *keyed.ValueState[string, int64] // cents of the last small amount
	until *keyed.ValueState[string, int64] // the timer that forgets it
	count *keyed.ValueState[string, int64] // transactions of an account that is not quiet
}

var ruleState = stream.BroadcastDescriptor[string, Rule]{Name: "rules", Key: serializer.String, Value: serializer.MustOf[Rule]()}

// Open registers the states.
func (d *detector) Open(rt *stream.KeyedRuntime[string]) (err error) {
	d.trial = keyed.Value(rt.Keyed, "trial", serializer.Int64)
	d.until = keyed.Value(rt.Keyed, "until", serializer.Int64)
	d.count = keyed.Value(rt.Keyed, "transactions", serializer.Int64, keyed.TTL(24*time.Hour))
	d.rules, err = ruleState.Open(&rt.Runtime)
	return err
}

// ProcessBroadcast takes a new or changed rule.
func (d *detector) ProcessBroadcast(_ *stream.Context[string], r Rule) error {
	d.rules.Put(r.Name, r)
	return nil
}

// Process judges a transaction.
func (d *detector) Process(c *stream.KeyedContext[string, string], t Transaction) error {
	n, _, err := d.count.Get(c.Key)
	if err != nil {
		return err
	}
	if err := d.count.Set(c.Key, n+1); err != nil {
		return err
	}
	trial, tried, err := d.trial.Get(c.Key)
	if err != nil {
		return err
	}
	until, _, err := d.until.Get(c.Key)
	if err != nil {
		return err
	}
	// The timer frees the state; it fires with a watermark, so a moment after its time.
	tried = tried && t.Millis < until
	largest := int64(0)
	for _, r := range d.rules.All() {
		if tried && trial <= r.Small && t.Cents >= r.Large {
			c.Emit(fmt.Sprintf("%d %s: %d after %d, rule %s, transaction %d of the account", t.Millis, t.Account, t.Cents, trial, r.Name, n+1))
		}
		largest = max(largest, r.Small)
	}
	if t.Cents > largest {
		return nil
	}
	// The timer of an earlier trial must not forget this one.
	if until != 0 {
		if err := c.Unset(until); err != nil {
			return err
		}
	}
	at := t.Millis + soon.Milliseconds()
	if err := d.trial.Set(c.Key, t.Cents); err != nil {
		return err
	}
	if err := d.until.Set(c.Key, at); err != nil {
		return err
	}
	return c.At(at)
}

// OnTimer forgets a trial.
func (d *detector) OnTimer(c *stream.KeyedContext[string, string], _ int64, _ stream.TimeDomain) error {
	if err := d.trial.Clear(c.Key); err != nil {
		return err
	}
	return d.until.Clear(c.Key)
}

// transaction makes the i-th transaction, the same in each run: 10 ms after the one
// before, of one of 500 accounts.
func transaction(i int64) Transaction {
	v := uint64(i) * 0x9E3779B97F4A7C15
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	v ^= v >> 31
	t := Transaction{Account: fmt.Sprintf("account-%03d", v%500), Millis: 1_700_000_000_000 + i*10, Cents: int64(v>>32%9_000) + 1_000}
	switch v >> 16 % 50 {
	case 0:
		t.Cents = int64(v >> 40 % 600)
	case 1:
		t.Cents += 100_000
	}
	return t
}
