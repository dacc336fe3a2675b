package monitor

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// OTLPOptions changes an OTLP. Nil is the default.
type OTLPOptions struct {
	Client  *http.Client // nil is one with a timeout of 10 s
	Service string       // service.name; "" is tidemark
	// Queue is how many checkpoints wait to be sent; one more is dropped. 0 is 64.
	Queue int
	Log   *slog.Logger // nil is slog.Default
}

// OTLP sends spans to an OpenTelemetry collector by OTLP over HTTP, in its JSON form.
// What cannot be sent is dropped and logged: a job does not wait for a collector.
type OTLP struct {
	url   string
	opts  OTLPOptions
	queue chan []Span
	done  sync.WaitGroup
	close sync.Once
}

// NewOTLP begins to send to url, such as http://localhost:4318/v1/traces, until Close.
func NewOTLP(url string, opts *OTLPOptions) *OTLP {
	o := &OTLP{url: url}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.Client == nil {
		o.opts.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if o.opts.Service == "" {
		o.opts.Service = "tidemark"
	}
	if o.opts.Queue <= 0 {
		o.opts.Queue = 64
	}
	if o.opts.Log == nil {
		o.opts.Log = slog.Default()
	}
	o.queue = make(chan []Span, o.opts.Queue)
	o.done.Go(func() {
		for spans := range o.queue {
			if err := o.send(context.Background(), spans); err != nil {
				o.opts.Log.Warn("spans are not sent", "url", o.url, "spans", len(spans), "err", err)
			}
		}
	})
	return o
}

// Export implements Exporter.
func (o *OTLP) Export(spans []Span) {
	select {
	case o.queue <- spans:
	default:
		o.opts.Log.Warn("spans are dropped: the collector is too slow", "url", o.url, "spans", len(spans))
	}
}

// Close sends what waits and ends. Nothing is exported after it.
func (o *OTLP) Close() {
	o.close.Do(func() { close(o.queue) })
	o.done.Wait()
}

func (o *OTLP) send(ctx context.Context, spans []Span) error {
	body, err := json.Marshal(otlpOf(o.opts.Service, spans))
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := o.opts.Client.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	err = errors.Join(err, answer.Body.Close())
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// The JSON form of an ExportTraceServiceRequest; 64-bit numbers are strings, IDs hex.
// Source: opentelemetry-proto, trace.proto and the OTLP specification.

type otlpRequest struct {
	ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
}

type otlpResourceSpans struct {
	Resource   otlpResource     `json:"resource"`
	ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
}

type otlpResource struct {
	Attributes []otlpAttribute `json:"attributes"`
}

type otlpScopeSpans struct {
	Scope otlpScope  `json:"scope"`
	Spans []otlpSpan `json:"spans"`
}

type otlpScope struct {
	Name string `json:"name"`
}

type otlpSpan struct {
	TraceID    string          `json:"traceId"`
	SpanID     string          `json:"spanId"`
	ParentID   string          `json:"parentSpanId,omitempty"`
	Name       string          `json:"name"`
	Kind       int             `json:"kind"` // 1: internal
	Start      string          `json:"startTimeUnixNano"`
	End        string          `json:"endTimeUnixNano"`
	Attributes []otlpAttribute `json:"attributes,omitempty"`
	Status     *otlpStatus     `json:"status,omitempty"`
}

type otlpStatus struct {
	Code    int    `json:"code"` // 2: error
	Message string `json:"message,omitempty"`
}

type otlpAttribute struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

type otlpValue struct {
	String *string `json:"stringValue,omitempty"`
	Int    *string `json:"intValue,omitempty"`
}

func otlpAttributeOf(a Attribute) otlpAttribute {
	if n, ok := a.Value.(int64); ok {
		s := strconv.FormatInt(n, 10)
		return otlpAttribute{a.Key, otlpValue{Int: &s}}
	}
	s := fmt.Sprint(a.Value)
	return otlpAttribute{a.Key, otlpValue{String: &s}}
}

func otlpOf(service string, spans []Span) otlpRequest {
	list := make([]otlpSpan, len(spans))
	for i, s := range spans {
		x := otlpSpan{TraceID: hex.EncodeToString(s.Trace[:]), SpanID: hex.EncodeToString(s.ID[:]), Name: s.Name, Kind: 1,
			Start: strconv.FormatInt(s.Start.UnixNano(), 10), End: strconv.FormatInt(s.End.UnixNano(), 10)}
		if s.Parent != ([8]byte{}) {
			x.ParentID = hex.EncodeToString(s.Parent[:])
		}
		for _, a := range s.Attributes {
			x.Attributes = append(x.Attributes, otlpAttributeOf(a))
		}
		if s.Failure != "" {
			x.Status = &otlpStatus{2, s.Failure}
		}
		list[i] = x
	}
	return otlpRequest{[]otlpResourceSpans{{
		Resource:   otlpResource{[]otlpAttribute{otlpAttributeOf(Attribute{"service.name", service})}},
		ScopeSpans: []otlpScopeSpans{{otlpScope{"github.com/tidemark/tidemark/runtime/checkpoint"}, list}},
	}}}
}
