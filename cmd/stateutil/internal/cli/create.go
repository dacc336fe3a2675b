package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// createOutput is the JSON document of create.
type createOutput struct {
	Schema string `json:"schema"`
	*snapshot.Created
}

type createOptions struct {
	from           string
	classes        string
	snapshot       string
	backend        string
	version        int32
	checkpointID   int64
	maxParallelism int
	parallelism    int
	compress       bool
}

var (
	createKinds = []string{string(snapshot.CreateCanonical), string(snapshot.CreateNative), string(snapshot.CreateCheckpoint)}
	backends    = []string{string(snapshot.CreateForHeap), string(snapshot.CreateForLSM)}
)

func newCreate(g *global) *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:     "create --from FILE URL",
		GroupID: groupMake,
		Short:   "Make a snapshot from a description",
		Long: `Make a new snapshot of what a description file says: operators, states, entries and
timers as JSON, the text that describe writes (docs/format/description.md). A
Flink job restores it like one of its own.

The URL is the folder that gets _metadata and the state files beside it; a name
chk-N gives the checkpoint its ID. What is there already is never overwritten: the
folder is empty, but for state files of a run that was killed, and not inside of a
snapshot's. Nothing is left behind if it fails.

--snapshot canonical is a savepoint for any state backend; native a savepoint and
checkpoint a checkpoint in the format of --backend: heap is Flink's hashmap and our
own heap backend. lsm is our backend on disk, whose Pebble databases Flink cannot
restore, though it reads _metadata and all else; stateutil convert --to canonical
makes a savepoint of them that it does restore.`,
		Example: `  stateutil create --from orders.json /savepoints/savepoint-orders
  stateutil describe -o a.json chk-7 && stateutil create --from a.json --max-parallelism 512 s3://bucket/savepoints/wider
  stateutil create --from orders.json --snapshot checkpoint --backend heap /checkpoints/4c81…07/chk-1`,
		Args:              exactly(1, "URL"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case o.from == "":
				return usage("--from is needed: the description to make a snapshot of; - is standard input")
			case !slices.Contains(createKinds, o.snapshot):
				return usage("--snapshot is %q: one of %s", o.snapshot, strings.Join(createKinds, ", "))
			case !slices.Contains(backends, o.backend):
				return usage("--backend is %q: one of %s", o.backend, strings.Join(backends, ", "))
			case o.backend == string(snapshot.CreateForLSM) && o.compress && o.snapshot != string(snapshot.CreateCanonical):
				return usage("--compress is for the heap backend's and canonical files: those of --backend lsm are compressed in any case")
			case o.version < metadata.MinVersion || o.version > metadata.MaxVersion:
				return usage("--format-version is %d: from %d to %d", o.version, metadata.MinVersion, metadata.MaxVersion)
			case o.checkpointID < 0 || o.maxParallelism < 0 || o.parallelism < 0:
				return usage("--checkpoint-id, --max-parallelism and --parallelism are not negative")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, a []string) error { return g.create(cmd.Context(), a[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the description: a `FILE`, or - for standard input")
	f.StringVar(&o.snapshot, "snapshot", createKinds[0], "make a canonical savepoint, a native savepoint or a checkpoint")
	f.StringVar(&o.backend, "backend", backends[0], "the state backend whose format native and checkpoint mean: heap or lsm")
	f.Int32Var(&o.version, "format-version", metadata.DefaultVersion, "`VERSION` of the metadata format: 3 for Flink 1.11 to 1.15, 4 from 1.16, 5 from 2.0, 6 from 2.1")
	f.IntVar(&o.maxParallelism, "max-parallelism", 0, "`N` instead of the max parallelism of every operator")
	f.IntVar(&o.parallelism, "parallelism", 0, "`N` instead of the parallelism of every operator")
	f.Int64Var(&o.checkpointID, "checkpoint-id", 0, "the checkpoint's `ID`, if the folder is not called chk-ID")
	f.BoolVar(&o.compress, "compress", false, "compress state files, as execution.checkpointing.snapshot-compression does")
	f.StringVar(&o.classes, "classes", "", "read classes that the description does not describe: `FILE` has a type in words on each line, and = its hashCode")
	for flag, values := range map[string][]string{"snapshot": createKinds, "backend": backends} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	for _, flag := range []string{"format-version", "max-parallelism", "parallelism", "checkpoint-id"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return cmd
}

func (g *global) create(ctx context.Context, url string, o *createOptions) error {
	loc, err := g.location(url)
	if err != nil {
		return err
	}
	d, err := readDescription(o)
	if err != nil {
		return err
	}
	made, err := snapshot.CreateFrom(ctx, g.stores(), snapshot.SavepointIn(loc), d, &snapshot.CreateOptions{
		Kind: snapshot.CreateKind(o.snapshot), Backend: snapshot.CreateBackend(o.backend), Version: o.version, CheckpointID: o.checkpointID,
		MaxParallelism: o.maxParallelism, Parallelism: o.parallelism, Compress: o.compress, Now: g.env.Now,
	})
	if err != nil {
		return err
	}
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaCreate)
		doc.Members(made)
		return doc.Close()
	}
	parts := []string{terminal.Plural(int64(made.Operators), "operator", "operators")}
	for _, c := range []struct {
		n         int64
		one, many string
	}{{made.Entries, "entry", "entries"}, {made.Timers, "timer", "timers"}, {made.Elements, "element of operator state", "elements of operator state"}} {
		if c.n > 0 {
			parts = append(parts, terminal.Plural(c.n, c.one, c.many))
		}
	}
	if made.OwnFormat {
		g.note("keyed state is in the LSM backend's own files: Flink cannot restore it; convert --to canonical makes what it can")
	}
	g.note("%s; %s, %s", strings.Join(parts, ", "), terminal.Plural(int64(made.Files)+1, "file", "files"), g.size(made.Bytes))
	return g.printf(g.env.Out, "%s\n", terminal.Clean(made.Dir))
}

// readDescription reads --from with the classes of --classes.
func readDescription(o *createOptions) (*snapshot.Description, error) {
	opts := &snapshot.DescriptionOptions{Name: o.from}
	if o.classes != "" {
		var err error
		if opts.Classes, opts.Hash, err = readClasses(o.classes); err != nil {
			return nil, err
		}
	}
	in := io.Reader(os.Stdin)
	if o.from != "-" {
		f, err := os.Open(o.from)
		if err != nil {
			return nil, unreadable("--from", err)
		}
		defer f.Close()
		in = f
	}
	d, err := snapshot.ReadDescription(in, opts)
	var bad *snapshot.DescriptionError
	if err != nil && !errors.As(err, &bad) {
		return nil, unreadable("--from", err)
	}
	return d, err
}
