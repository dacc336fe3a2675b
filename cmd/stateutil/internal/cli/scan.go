package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// scanFlags are the flags of all commands that read state.
type scanFlags struct {
	operators []string
	states    []string
	keyGroups string
	classes   string
}

func (f *scanFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.operators, "operator", nil, "only the operator with this `ID`, uid or name, as often as needed")
	flags.StringArrayVar(&f.states, "state", nil, "only the state with this `NAME`, as often as needed")
	flags.StringVar(&f.keyGroups, "key-group", "", "only keyed state of this key group, or `FIRST..LAST`")
	flags.StringVar(&f.classes, "classes", "", "read classes that the snapshot does not describe: `FILE` has a type in words on each line")
}

func (f *scanFlags) complete(cmd *cobra.Command) {
	for _, flag := range []string{"operator", "state", "key-group"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
}

// problems counts what a scan could not read, and tells of it.
type problems struct {
	g       *global
	count   int
	opaque  int
	damaged bool
	hidden  int

	noState func() error // what to say if no state has a name that was asked for
}

// mostProblems is how many problems are printed one by one.
const mostProblems = 20

func (p *problems) add(sp *snapshot.ScanProblem) { p.note("", sp) }

// note is add with a word in front, for a command that reads more than one snapshot.
func (p *problems) note(which string, sp *snapshot.ScanProblem) {
	p.count++
	if sp.Opaque {
		p.opaque++
	} else if exit.Of(sp.Err) == exit.Damage {
		p.damaged = true
	}
	if p.count > mostProblems {
		p.hidden++
		return
	}
	p.g.complain(which + sp.Error())
}

// end says what remains to be said and gives the error that decides the exit
// code: undecoded is how many rows have a part that is shown as bytes.
func (p *problems) end(undecoded int64, classes map[string]int64) error {
	if p.hidden > 0 {
		p.g.complain(terminal.Plural(int64(p.hidden), "more problem", "more problems"))
	}
	if undecoded > 0 {
		words := make([]string, 0, len(classes))
		for _, c := range slices.Sorted(maps.Keys(classes)) {
			words = append(words, fmt.Sprintf("%s (%s)", c, terminal.Count(classes[c])))
		}
		p.g.complain(fmt.Sprintf("%s shown as bytes: no description of %s; --classes can give one",
			terminal.Plural(undecoded, "row is in part", "rows are in part"), strings.Join(words, ", ")))
	}
	if p.count > 0 || undecoded > 0 {
		return &exit.Silent{Code: exit.Partly}
	}
	return p.unknownState()
}

// unknownState is the error for a --state that the snapshot does not have; nil if
// all are there, or if a state may be missing since something could not be read.
func (p *problems) unknownState() error {
	if p.noState == nil || p.count > 0 {
		return nil
	}
	return p.noState()
}

// watchStates lets p tell of the names of states that o selects and that no state has.
func (p *problems) watchStates(ctx context.Context, s *snapshot.Snapshot, o *snapshot.ScanOptions, names []string) {
	var mu sync.Mutex
	met := map[string]bool{}
	o.State = func(st *snapshot.State) bool {
		mu.Lock()
		defer mu.Unlock()
		wanted := slices.Contains(names, st.Name)
		if wanted {
			met[st.Name] = true
		}
		return wanted
	}
	only := *o
	p.noState = func() error {
		missing := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return met[n] })
		}
		if len(missing()) == 0 {
			return nil
		}
		// Handles without a wanted key were not opened: all heads are asked.
		all := snapshot.ScanOptions{Operator: only.Operator, UID: only.UID, Classes: only.Classes, OnProblem: func(*snapshot.ScanProblem) {}}
		states, err := snapshot.States(ctx, s, &all)
		if err != nil {
			return err
		}
		for _, st := range states {
			only.State(st)
		}
		if names := missing(); len(names) > 0 {
			return usage("no state %q in %s: stateutil states lists them", names[0], s.Name)
		}
		return nil
	}
}

// scanOptions are the options of a scan by the flags. The names that select
// nothing at all are bad usage.
func (g *global) scanOptions(ctx context.Context, s *snapshot.Snapshot, f *scanFlags, p *problems) (*snapshot.ScanOptions, error) {
	uids, err := g.uidNames()
	if err != nil {
		return nil, err
	}
	known, err := metadata.NewUIDNames(uids)
	if err != nil {
		return nil, err
	}
	o := &snapshot.ScanOptions{UID: func(id metadata.OperatorID) string { return known[id] }}
	if p != nil {
		o.OnProblem = p.add
	}
	if len(f.operators) > 0 {
		names, err := g.operatorNames(s)
		if err != nil {
			return nil, err
		}
		wanted := map[string]bool{}
		for _, word := range f.operators {
			id := names.find(word)
			if id == "" {
				id = names.find(metadata.OperatorIDFromUID(word).String())
			}
			if id == "" {
				return nil, usage("no operator %q in %s: inspect lists them, --uid names one by its uid", word, s.Name)
			}
			wanted[id] = true
			if id == metadata.OperatorIDFromUID(word).String() && names[id].UID == "" {
				known[mustID(id)] = word // asked for by its uid: shown by it
			}
		}
		o.Operator = func(op *snapshot.StateOperator) bool { return wanted[op.ID] }
	}
	if len(f.states) > 0 && p != nil {
		p.watchStates(ctx, s, o, f.states)
	} else if len(f.states) > 0 {
		wanted := map[string]bool{}
		for _, n := range f.states {
			wanted[n] = true
		}
		o.State = func(st *snapshot.State) bool { return wanted[st.Name] }
	}
	if f.keyGroups != "" {
		r, err := parseKeyGroups(f.keyGroups)
		if err != nil {
			return nil, err
		}
		o.KeyGroups = r
	}
	if f.classes != "" {
		if o.Classes, _, err = readClasses(f.classes); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func mustID(s string) metadata.OperatorID {
	id, err := metadata.ParseOperatorID(s)
	must(err)
	return id
}

func parseKeyGroups(s string) (*metadata.KeyGroupRange, error) {
	first, last, isRange := strings.Cut(s, "..")
	a, err := strconv.ParseUint(first, 10, 15)
	b := a
	if err == nil && isRange {
		b, err = strconv.ParseUint(last, 10, 15)
	}
	if err != nil || b < a {
		return nil, usage("--key-group is %q: a number from 0 to 32767, or FIRST..LAST", s)
	}
	return &metadata.KeyGroupRange{Start: int32(a), Count: int32(b-a) + 1}, nil
}

// readClasses reads type words line by line; later lines may use earlier ones.
func readClasses(file string) (serializer.Classes, serializer.HashRules, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, unreadable("--classes", err)
	}
	defer f.Close()
	classes, hash, err := snapshot.ReadClasses(f)
	if err != nil {
		return nil, nil, usage("--classes: %s %w", file, err)
	}
	return classes, hash, nil
}
