package monitor

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tidemark/tidemark/runtime/checkpoint"
)

//go:embed page.html
var pageText string

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": func(n int64) string { return humanize.IBytes(uint64(max(0, n))) },
	"time":  func(millis int64) string { return time.UnixMilli(millis).UTC().Format("2006-01-02 15:04:05.000") },
	"newest": func(list []*checkpoint.Stats) []*checkpoint.Stats {
		list = slices.Clone(list)
		slices.Reverse(list)
		return list
	},
	"type":    typeOf,
	"failure": failureOf,
	"phases":  phases,
	"took":    func(p phase) int64 { return p.End - p.Begin },
	"since":   func(begin, end int64) int64 { return end - begin },
}).Parse(pageText))

type jobPage struct {
	Job Job
	H   *checkpoint.History
}

type checkpointPage struct {
	Job Job
	S   *checkpoint.Stats
}

func servePage(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = b.WriteTo(w) // a client that is gone
}
