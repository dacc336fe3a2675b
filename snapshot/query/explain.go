package query

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	noTable  = regexp.MustCompile(`no such table: (.*?)(?: \(\d+\))?$`)
	noColumn = regexp.MustCompile(`no such column: (.*?)(?: \(\d+\))?$`)
)

func isUnknownTable(err error) bool { return noTable.MatchString(err.Error()) }

// explain turns an error of SQLite into one for the user: the reason of the scan
// beneath it, or what is wrong with the statement and what may have been meant.
func (r *run) explain(err error) error {
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	r.mu.Lock()
	failed := r.failed
	r.mu.Unlock()
	var own *sqlite.Error
	if failed != nil && !errors.As(failed, &own) {
		return failed
	}
	if errors.Is(err, ErrStatement) {
		return err
	}
	text := err.Error()
	if strings.HasPrefix(text, "missing argument with index") || strings.HasPrefix(text, "missing named argument") {
		return wrong("a statement has no parameters: write the value in place of ?, :name, @name or $name")
	}
	if !errors.As(err, &own) {
		return err
	}
	switch own.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN: // the disk's fault, not the statement's
		return fmt.Errorf("temporary file in %s: %s", tempDir(), strings.TrimSpace(codeAtEnd.ReplaceAllString(text, "")))
	}
	text = strings.TrimPrefix(text, "SQL logic error: ")
	if m := noTable.FindStringSubmatch(text); m != nil {
		var names []string
		for _, t := range r.cat.tables {
			names = append(names, t.Operator+"."+t.State, t.State)
		}
		return wrong("no table %s%s: query without a statement lists them", m[1], r.suggest(m[1], names))
	}
	if m := noColumn.FindStringSubmatch(text); m != nil {
		return wrong("no column %s%s", m[1], r.suggest(afterDot(m[1]), r.columnNames()))
	}
	if r.refused != "" && (strings.Contains(text, "not authorized") || strings.Contains(text, "prohibited")) {
		return wrong("%s is not allowed: a snapshot is only read", r.refused)
	}
	return wrong("%s", strings.TrimSpace(codeAtEnd.ReplaceAllString(text, "")))
}

var codeAtEnd = regexp.MustCompile(` \(\d+\)$`)

func (r *run) suggest(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		for _, t := range r.cat.tables {
			if t.Operator+"."+t.State == n || t.State == n {
				n = t.Name()
				break
			}
		}
		return ", did you mean " + n + "?"
	}
	return ""
}

// columnNames are those of the tables that the statement reads, or of all.
func (r *run) columnNames() []string {
	var names []string
	seen := map[string]bool{}
	for _, t := range r.cat.tables {
		for i := range t.Columns {
			if c := maybeQuote(t.Columns[i].Name); !seen[c] {
				seen[c] = true
				names = append(names, t.Columns[i].Name)
			}
		}
	}
	return names
}

func afterDot(s string) string {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[i+1:]
	}
	return s
}
