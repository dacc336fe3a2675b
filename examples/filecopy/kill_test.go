//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/snapshot"
)

// TestKill kills the process that copies files, with numbers, state on disk and
// incremental checkpoints, at random moments and in the middle of each phase. At the
// end each line is there as often as it has to be, and no file too many is left.
//
//	TIDEMARK_KILLS   how often, 5 by default
//	TIDEMARK_SEED    of the moments, which are a matter of chance all the same
//	TIDEMARK_KILL_LOG  file for the log of all processes
func TestKill(t *testing.T) { killLoop(t, numberOf(t, "TIDEMARK_KILLS", 5), localDir) }

func localDir(t *testing.T) (url string) { return t.TempDir() }

func numberOf(t *testing.T, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// killer is one loop over rounds: in a round the input is copied once, however
// many kills that takes.
type killer struct {
	*testing.T
	rng    *rand.Rand
	pool   *blobstore.Pool
	kills  int
	inside [phaseCount]int // kills in the middle of each phase
	none   int             // kills outside of all of them
	early  int             // kills of a process that had not yet come to the takeover
	twice  int             // kills of a process that had not restored its predecessor's state
	claims int
	shared int64 // most files that retained checkpoints had in common
	litter int   // kills that left files which no checkpoint has

	from string
	want []string
}

func killLoop(t *testing.T, kills int, newDir func(*testing.T) string) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TIDEMARK_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("TIDEMARK_SEED=%d", seed)
	k := &killer{T: t, rng: rand.New(rand.NewPCG(seed, 0)), pool: blobstore.NewPool(nil, nil)}
	defer k.pool.Close()
	k.makeInput()
	rounds := 0
	for k.kills < kills {
		k.round(kills, newDir(t))
		rounds++
	}
	var b strings.Builder
	for p, n := range k.inside {
		fmt.Fprintf(&b, ", %d in %s", n, phase(p))
	}
	t.Logf("%d kills in %d rounds: %d before the takeover, %d while nothing of this happened%s; %d of a process that had not restored; %d left files that no checkpoint has; %d changes of the job that claimed a checkpoint; up to %d files shared by checkpoints",
		k.kills, rounds, k.early, k.none, &b, k.twice, k.litter, k.claims, k.shared)
}

// makeInput writes files with lines that are equal in some of them, and the model:
// the numbered lines.
func (k *killer) makeInput() {
	const files, lines = 12, 2500
	k.from = k.TempDir()
	seen := map[string]int{}
	for f := range files {
		var b strings.Builder
		for i := range lines {
			line := fmt.Sprintf("line %d of %s", i, strings.Repeat(strconv.Itoa(f/2), 20+i%40)) // each in two files
			if i%3 == 0 {
				line = fmt.Sprintf("line %d of all", i%300)
			}
			seen[line]++
			k.want = append(k.want, fmt.Sprintf("%d\t%s", seen[line], line))
			b.WriteString(line + "\n")
		}
		require.NoError(k, os.WriteFile(filepath.Join(k.from, fmt.Sprintf("f%02d", f)), []byte(b.String()), 0o600))
	}
	slices.Sort(k.want)
}

func (k *killer) newJob() string { return fmt.Sprintf("%016x%016x", k.rng.Uint64(), k.rng.Uint64()) }

// round copies all once.
func (k *killer) round(kills int, dir string) {
	c := &child{From: k.from, To: k.TempDir(), Dir: dir, Databases: k.TempDir(), Phases: filepath.Join(k.TempDir(), "phases"), Job: k.newJob(),
		PauseMillis: 8, IntervalMillis: 40, Log: os.Getenv("TIDEMARK_KILL_LOG")}
	c.Retained = 2 + k.rng.IntN(2)
	claimAt := -1 // so many kills into the round
	var former []string
	if k.rng.IntN(2) == 0 {
		// A snapshot that is claimed may share files with others of its job only if
		// those go as well.
		claimAt, c.Retained = 1+k.rng.IntN(4), 1
	}
	for n := 0; k.kills < kills; n++ {
		if job := c.Job; n == claimAt && k.claim(c) {
			former = append(former, job)
		}
		c.Parallelism, c.Local, c.Unaligned = 1+k.rng.IntN(3), k.rng.IntN(2) == 0, k.rng.IntN(3) == 0
		if !k.runAndKill(c) {
			break
		}
	}
	k.toTheEnd(c)
	k.check(c, former)
	// Whatever was kept can be restored, by a job that has nothing more to do.
	k.toTheEnd(c)
	k.check(c, former)
}

// start begins a process.
func (k *killer) start(c *child) (*exec.Cmd, *bytes.Buffer, *phases) {
	require.NoError(k, os.RemoveAll(c.Phases))
	p, err := openPhases(c.Phases)
	require.NoError(k, err)
	text, err := json.Marshal(c)
	require.NoError(k, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(k, cmd.Start())
	return cmd, &out, p
}

// runAndKill begins a process and kills it. It is false if that had ended before.
func (k *killer) runAndKill(c *child) bool {
	cmd, out, p := k.start(c)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	until := time.Now().Add(time.Duration(k.rng.IntN(600)) * time.Millisecond)
	aim := phase(k.rng.IntN(int(phaseCount) * 3 / 2)) // one in three at any moment
	if aim <= phaseRestore {
		until = time.Now() // they are at the beginning
	} else if aim < phaseCount {
		until = time.Now().Add(time.Duration(k.rng.IntN(250)) * time.Millisecond)
	}
	wait := func(until time.Time, or func() bool) bool {
		for time.Now().Before(until) && !or() {
			select {
			case err := <-ended:
				ended <- err
				return false
			case <-time.After(20 * time.Microsecond):
			}
		}
		return true
	}
	never := func() bool { return false }
	if wait(until, never) && aim < phaseCount {
		alive := wait(time.Now().Add(2*time.Second), func() bool { return p.inside[aim].Load() > 0 })
		if alive && k.rng.IntN(2) == 0 {
			wait(time.Now().Add(time.Duration(k.rng.IntN(2000))*time.Microsecond), never)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		require.ErrorIs(k, err, os.ErrProcessDone)
	}
	err := <-ended
	if err == nil {
		return false // it was faster
	}
	var exit *exec.ExitError
	require.ErrorAs(k, err, &exit)
	require.Equal(k, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "the process ended by itself: %v: %s", err, out)
	k.kills++
	none := true
	for i := range p.inside {
		if p.inside[i].Load() > 0 {
			k.inside[i]++
			none = false
		}
	}
	k.usage(c)
	switch {
	case p.inside[phaseRestore].Load() > 0:
		k.twice++
	case p.entered[phaseTakeOver].Load() == 0:
		k.early++
	case none:
		k.none++
	}
	return true
}

// toTheEnd runs a process that nobody kills.
func (k *killer) toTheEnd(c *child) {
	fast := *c
	fast.PauseMillis = 0
	cmd, out, _ := k.start(&fast)
	require.NoError(k, cmd.Wait(), "%s", out)
}

// claim stops the job and goes on from its checkpoint with another one, whose the
// checkpoint is from then on. It is false if that could not be done.
func (k *killer) claim(c *child) bool {
	cmd, out, p := k.start(c)
	for p.entered[phaseTakeOver].Load() == 0 { // it minds signals by then
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Duration(300+k.rng.IntN(300)) * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		require.ErrorIs(k, err, os.ErrProcessDone)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != childCanceled {
		require.NoError(k, err, "%s", out)
	}
	// It may have been too short to remove what those before it had left, which nobody
	// does once the job is given up.
	litter := 0
	u, err := snapshot.DiskUsage(k.Context(), k.pool, k.root(c).Join(c.Job), &snapshot.UsageOptions{Grace: 1, Each: func(o snapshot.UsageObject) error {
		if o.Verdict != snapshot.VerdictReferenced && o.Verdict != snapshot.VerdictMetadata {
			litter++
		}
		return nil
	}})
	if errors.Is(err, snapshot.ErrNoSnapshot) {
		return false
	}
	require.NoError(k, err)
	if litter > 0 || u.Temporary.Objects > 0 {
		return false
	}
	var newest blobstore.Location
	for ref, err := range snapshot.Find(k.Context(), k.pool, k.root(c).Join(c.Job), nil) {
		require.NoError(k, err)
		if ref.Incomplete {
			return false
		}
		newest = ref.Dir
	}
	if newest == (blobstore.Location{}) {
		return false
	}
	c.Job, c.Restore, c.RestoreMode = k.newJob(), newest.String(), incremental.Claim
	k.claims++
	return true
}

func (k *killer) root(c *child) blobstore.Location {
	loc, err := blobstore.Parse(c.Dir)
	require.NoError(k, err)
	return loc
}

// usage looks, at times, what a killed process has left, and deletes what no
// checkpoint has, which the next one must not mind.
func (k *killer) usage(c *child) {
	if k.rng.IntN(4) > 0 {
		return
	}
	var garbage []string
	u, err := snapshot.DiskUsage(k.Context(), k.pool, k.root(c), &snapshot.UsageOptions{Grace: 1, Each: func(o snapshot.UsageObject) error {
		if o.Verdict == snapshot.VerdictUnreferenced || o.Verdict == snapshot.VerdictIncomplete {
			garbage = append(garbage, o.Name)
		}
		return nil
	}})
	if errors.Is(err, snapshot.ErrNoSnapshot) || err == nil && len(u.Snapshots) == 0 {
		return // nothing is known to be garbage
	}
	require.NoError(k, err)
	require.True(k, u.Conclusive, "%v", u.Warnings)
	require.Zero(k, u.Missing, "a checkpoint lacks files: %+v", u.Snapshots)
	for _, s := range u.Sharings {
		k.shared = max(k.shared, s.Objects)
	}
	if len(garbage) > 0 || u.Temporary.Objects > 0 {
		k.litter++
	}
	if k.rng.IntN(2) == 0 {
		return
	}
	store, name, err := k.pool.Resolve(k.Context(), k.root(c))
	require.NoError(k, err)
	for i := range garbage {
		garbage[i] = strings.TrimPrefix(name+"/"+garbage[i], "/")
	}
	require.NoError(k, store.DeleteAll(k.Context(), garbage))
}

// check compares the copies with the model, and looks for files too many.
func (k *killer) check(c *child, former []string) {
	require.Equal(k, k.want, linesOf(k.T, c.To, "part-*"))
	left, err := filepath.Glob(filepath.Join(c.To, ".*"))
	require.NoError(k, err)
	require.Empty(k, left, "in the folder of the copies")
	databases, err := os.ReadDir(c.Databases)
	require.NoError(k, err)
	require.Empty(k, databases, "in the folder of databases")

	ctx, root := k.Context(), k.root(c)
	var others []string
	u, err := snapshot.DiskUsage(ctx, k.pool, root, &snapshot.UsageOptions{Grace: 1, Each: func(o snapshot.UsageObject) error {
		if o.Verdict != snapshot.VerdictReferenced && o.Verdict != snapshot.VerdictMetadata {
			others = append(others, fmt.Sprintf("%s: %s", o.Verdict, o.Name))
		}
		for _, job := range former {
			// The job that claimed may go on using its shared files.
			if strings.Contains(o.Name, job) && !strings.Contains(o.Name, "/checkpoints-log/") && o.Verdict != snapshot.VerdictReferenced {
				others = append(others, "of a job that ended: "+o.Name)
			}
		}
		return nil
	}})
	require.NoError(k, err)
	require.True(k, u.Conclusive, "%v", u.Warnings)
	require.Empty(k, others)
	if u.Temporary.Objects > 0 {
		store, name, err := k.pool.Resolve(ctx, root)
		require.NoError(k, err)
		for info := range store.(blobstore.TemporaryLister).ListTemporary(ctx, name) {
			k.Errorf("%s was not finished, %v", info.Name, info.ModTime)
		}
	}
	require.Zero(k, u.Missing)
	require.LessOrEqual(k, len(u.Snapshots), c.Retained)
	require.NotEmpty(k, u.Snapshots)
	for _, s := range u.Snapshots {
		loc, err := blobstore.Parse(s.URL)
		require.NoError(k, err)
		v, err := snapshot.VerifyAt(ctx, k.pool, loc, &snapshot.VerifyOptions{Data: &snapshot.DataOptions{}})
		require.NoError(k, err)
		require.Zero(k, v.Damaged, "%v", v.Findings)
	}
	if root.Scheme == "file" {
		require.NoError(k, filepath.WalkDir(c.Dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() != "shared" && d.Name() != "registry" {
				var entries []os.DirEntry
				if entries, err = os.ReadDir(path); err == nil && len(entries) == 0 {
					k.Errorf("%s is empty", path)
				}
			}
			return err
		}))
	}
}
