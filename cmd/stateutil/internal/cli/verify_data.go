package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// dataOptions are the options of verify --data by the flags; nil without it.
func (g *global) dataOptions(o *verifyOptions) (*snapshot.DataOptions, error) {
	if !o.data {
		for flag, set := range map[string]bool{"sample": o.sample != "", "around": len(o.around) > 0, "no-others": o.noOthers, "classes": o.classes != ""} {
			if set {
				return nil, usage("--%s needs --data", flag)
			}
		}
		return nil, nil
	}
	if o.noObjects {
		return nil, usage("--no-objects and --data exclude each other")
	}
	d := &snapshot.DataOptions{NoOthers: o.noOthers, Cache: &snapshot.DataCache{}}
	var err error
	if o.sample != "" {
		if d.Sample, err = snapshot.ParseSample(o.sample, uint64(g.env.Now().UnixNano())); err != nil {
			return nil, usage("--sample: %w", err)
		}
	}
	if o.classes != "" {
		if d.Classes, _, err = readClasses(o.classes); err != nil {
			return nil, err
		}
	}
	for _, url := range o.around {
		loc, err := g.location(url)
		if err != nil {
			return nil, err
		}
		d.Around = append(d.Around, loc)
	}
	uids, err := g.uidNames()
	if err != nil {
		return nil, err
	}
	known, err := metadata.NewUIDNames(uids)
	if err != nil {
		return nil, err
	}
	d.UID = func(id metadata.OperatorID) string { return known[id] }
	return d, nil
}

// watchData turns what verification has read into a progress line.
func watchData(p *terminal.Progress) func(snapshot.DataProgress) {
	if p == nil {
		return nil
	}
	var read, of atomic.Int64
	return func(at snapshot.DataProgress) {
		read.Store(at.Bytes)
		of.Store(at.Of)
		p.Update(func() string {
			return "read " + terminal.Bytes(read.Load()) + " of " + terminal.Bytes(of.Load())
		})
	}
}

// partly says that a verification met what it could not decode.
func partly(res *snapshot.Verification) bool {
	if res.Data == nil {
		return false
	}
	for i := range res.Findings {
		switch res.Findings[i].Code {
		case "opaque-state", "unsupported-data":
			return true
		}
	}
	return res.Data.Undecoded > 0
}

// dataPlace is whose data a finding is about.
func dataPlace(f *snapshot.Finding) string {
	if f.State == "" && f.KeyGroups == nil {
		return ""
	}
	var parts []string
	if f.Operator != "" {
		parts = append(parts, "operator "+f.Operator)
	}
	if f.State != "" {
		parts = append(parts, "state "+f.State)
	}
	if f.Subtask != nil {
		parts = append(parts, fmt.Sprintf("subtask %d", *f.Subtask))
	}
	if k := f.KeyGroups; k != nil {
		if k.First == k.Last {
			parts = append(parts, fmt.Sprintf("key group %d", k.First))
		} else {
			parts = append(parts, fmt.Sprintf("key groups %d..%d", k.First, k.Last))
		}
	}
	return strings.Join(parts, ", ")
}

// printData prints what is to be said of the data beside the findings.
func (v *verifier) printData(d *snapshot.DataReport) error {
	g := v.g
	line := func(format string, args ...any) error { return g.printf(v.out, format+"\n", args...) }
	for _, s := range d.SharedBy {
		names := s.Snapshots
		more := ""
		if len(names) > 5 {
			more = fmt.Sprintf(" and %d more", len(names)-5)
			names = names[:5]
		}
		if err := line("shared: %s is also named by %s%s", terminal.Clean(s.File), terminal.Clean(strings.Join(names, ", ")), more); err != nil {
			return err
		}
	}
	switch {
	case d.NewestClean != "":
		if err := line("newest clean: %s", terminal.Clean(d.NewestClean)); err != nil {
			return err
		}
	case d.Searched > 0:
		if err := line("newest clean: none among %s nearby", terminal.Plural(int64(d.Searched), "snapshot", "snapshots")); err != nil {
			return err
		}
	}
	if d.SearchError != "" {
		g.note("the search for other snapshots is not complete: %s", d.SearchError)
	}
	if d.Undecoded > 0 {
		if err := line("not decoded: %s of %s", terminal.Plural(d.Undecoded, "record", "records"), classList(d.Classes)); err != nil {
			return err
		}
	}
	for _, n := range d.NoChecksum {
		if err := line("without checksum: %s in %s: %s", g.size(n.Bytes), terminal.Plural(n.Files, "file", "files"), n.Kind); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) dataFacts(d *snapshot.DataReport) []string {
	facts := []string{terminal.Plural(d.Records, "record", "records")}
	if d.Blocks > 0 {
		facts = append(facts, terminal.Plural(d.Blocks, "data block", "data blocks"))
	}
	if d.Sample != "" {
		facts = append(facts, "sample "+d.Sample)
	}
	return facts
}

// classList is "com.acme.Order (12), com.acme.Item (3)".
func classList(classes map[string]int64) string {
	words := make([]string, 0, len(classes))
	for _, c := range slices.Sorted(maps.Keys(classes)) {
		words = append(words, fmt.Sprintf("%s (%s)", c, terminal.Count(classes[c])))
	}
	return terminal.Clean(strings.Join(words, ", "))
}
