package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// stores is the pool of this run, made at first use: a command that opens no
// store pays for none.
func (g *global) stores() *blobstore.Pool {
	if g.pool == nil {
		g.pool = blobstore.NewPool(&blobstore.Options{Config: g.store, Logger: g.log}, g.decorate)
	}
	return g.pool
}

// decorate gives a store the budget of --retries, --timeout and --max-rps. Every
// try counts for the rate. --timeout bounds a call with all its tries: none begins
// after two thirds of it, and each may take a third. Local files need neither.
func (g *global) decorate(s blobstore.Store) blobstore.Store {
	if g.maxRPS > 0 {
		s = blobstore.RateLimit(s, g.maxRPS, 1)
	}
	if loc, err := blobstore.Parse(s.URL()); err == nil && (loc.Scheme == "file" || loc.Scheme == "mem") {
		return s
	}
	return blobstore.Retry(s, &blobstore.RetryOptions{
		Attempts:    g.retries + 1,
		MaxElapsed:  2 * g.timeout / 3,
		CallTimeout: g.timeout / 3,
		OnRetry: func(e blobstore.RetryEvent) {
			g.log.Info("trying again", "op", e.Op, "url", e.URL, "try", e.Try, "in", e.Delay, "after", g.redact(e.Err.Error()))
		},
	})
}

// location parses a URL that the user wrote.
func (g *global) location(url string) (blobstore.Location, error) {
	loc, err := blobstore.Parse(url)
	return loc, exit.With(exit.Usage, err)
}

// options are the rules by which handles are followed.
func (g *global) options() (*snapshot.Options, error) {
	o := &snapshot.Options{Trust: g.trust, NoRelocate: g.noRelocate}
	for _, m := range g.relocate {
		from, to, ok := strings.Cut(m, "=")
		if !ok || from == "" || to == "" {
			return nil, usage("--map is %q: OLD=NEW, two URL prefixes", m)
		}
		o.Map = append(o.Map, snapshot.Mapping{Old: from, New: to})
	}
	return o, nil
}

// uidNames are the lines of --uids and the values of --uid, checked.
func (g *global) uidNames() ([]string, error) {
	names := g.uids
	if g.uidFile != "" {
		b, err := os.ReadFile(g.uidFile)
		if err != nil {
			return nil, unreadable("--uids", err)
		}
		names = append(strings.Split(string(b), "\n"), names...)
	}
	if _, err := metadata.NewUIDNames(names); err != nil {
		return nil, usage("--uids, --uid: %w", err)
	}
	return names, nil
}

// progress begins the progress line of long work, if anybody watches.
func (g *global) progress() *terminal.Progress {
	if g.noProgress || g.quiet || !terminal.IsTerminal(g.env.Err) {
		return nil
	}
	return terminal.NewProgress(g.env.Err)
}

// watch turns what a library function reports into a progress line.
func watch(p *terminal.Progress) func(snapshot.Progress) {
	if p == nil {
		return nil
	}
	return func(at snapshot.Progress) {
		p.Update(func() string {
			var parts []string
			for _, c := range []struct {
				n         int64
				one, many string
			}{{at.Folders, "folder", "folders"}, {at.Objects, "object", "objects"}, {at.Snapshots, "snapshot", "snapshots"}} {
				if c.n > 0 {
					parts = append(parts, terminal.Plural(c.n, c.one, c.many))
				}
			}
			return strings.Join(parts, ", ")
		})
	}
}

// output is where data goes. While a progress line stands on the same screen,
// the first byte of data removes it.
func (g *global) output(p *terminal.Progress) io.Writer {
	if p == nil || !terminal.IsTerminal(g.env.Out) {
		return g.env.Out
	}
	return &afterProgress{g.env.Out, p}
}

type afterProgress struct {
	io.Writer
	p *terminal.Progress
}

func (w *afterProgress) Write(b []byte) (int, error) {
	w.p.Stop()
	return w.Writer.Write(b)
}

// size prints bytes as --bytes says; negative is unknown.
func (g *global) size(n int64) string {
	if g.bytes && n >= 0 {
		return strconv.FormatInt(n, 10)
	}
	return terminal.Bytes(n)
}

// sizeOr is size with another word for unknown.
func (g *global) sizeOr(n int64, unknown string) string {
	if n < 0 {
		return unknown
	}
	return g.size(n)
}

// count prints an integer; exact and without separators with --bytes.
func (g *global) count(n int64) string {
	if g.bytes {
		return strconv.FormatInt(n, 10)
	}
	return terminal.Count(n)
}

// relocated says in one line that a snapshot is read where it lies.
func (g *global) relocated(name string, r *snapshot.Relocation) {
	if r != nil {
		g.note("%s: read where it lies: %s → %s (%s; --no-relocate forbids it)", name, r.From, r.To, terminal.Plural(int64(r.Handles), "handle", "handles"))
	}
}

func (g *global) printf(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}
