package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidemark/tidemark/snapshot"
)

// timesToLive are the values of --ttl: one for all states with TTL, and those of
// states by name, which come before it.
type timesToLive struct {
	all   time.Duration // 0: not given
	named map[string]time.Duration
}

// parseTTL reads the values of --ttl. Two for the same states are refused: by which of them
// values expire is nothing to guess.
func parseTTL(texts []string) (*timesToLive, error) {
	t := &timesToLive{named: map[string]time.Duration{}}
	for _, text := range texts {
		name, value, hasName := "", text, false
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			name, value, hasName = text[:i], text[i+1:], true
		}
		d, err := parseDuration(value)
		if err != nil || hasName && name == "" {
			return nil, usage("--ttl is %q: a time such as 7d, 12h or 90m, or STATE=TIME", text)
		}
		switch {
		case !hasName && t.all != 0:
			return nil, usage("--ttl %s: there is one for all states already", text)
		case !hasName:
			t.all = d
		case t.named[name] != 0:
			return nil, usage("--ttl %s: there is one for this state already", text)
		default:
			t.named[name] = d
		}
	}
	return t, nil
}

// of is the time to live of a state; 0 if none was given.
func (t *timesToLive) of(st *snapshot.State) time.Duration {
	if d, ok := t.named[st.Name]; ok {
		return d
	}
	return t.all
}

// check refuses names that no state with TTL has. What cannot be read is no reason.
func (t *timesToLive) check(ctx context.Context, s *snapshot.Snapshot) error {
	if len(t.named) == 0 {
		return nil
	}
	unread := false
	states, err := snapshot.States(ctx, s, &snapshot.ScanOptions{OnProblem: func(*snapshot.ScanProblem) { unread = true }})
	if err != nil || unread {
		return err
	}
	var unknown []string
	for name := range t.named {
		if !slices.ContainsFunc(states, func(st *snapshot.State) bool { return st.Name == name && st.TTL }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return usage("--ttl: no state %q in %s has values with TTL: stateutil states lists them", slices.Min(unknown), s.Name)
	}
	return nil
}
