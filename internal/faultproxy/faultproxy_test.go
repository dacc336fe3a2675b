package faultproxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/faultproxy"
)

func TestRules(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 8<<10) // 128 KiB
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, body)
	}))
	defer server.Close()
	p, err := faultproxy.Start("127.0.0.1:0", server.Listener.Addr().String())
	require.NoError(t, err)
	defer p.Close()
	get := func(limit time.Duration) (string, error) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
		r, err := client.Get("http://" + p.Addr())
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	for name, c := range map[string]struct {
		rule  faultproxy.Rule
		limit time.Duration
		ok    bool
		fault bool
	}{
		"none":      {faultproxy.Rule{}, 10 * time.Second, true, false},
		"slow":      {faultproxy.Rule{BytesPerS: 1 << 20}, 10 * time.Second, true, false},
		"reset":     {faultproxy.Rule{ResetAfter: 50_000, Direction: "down"}, 10 * time.Second, false, true},
		"close":     {faultproxy.Rule{CloseAfter: 50_000, Direction: "down"}, 10 * time.Second, false, true},
		"stall":     {faultproxy.Rule{StallAfter: 50_000, Direction: "down"}, 300 * time.Millisecond, false, true},
		"refuse":    {faultproxy.Rule{Refuse: true}, 10 * time.Second, false, true},
		"blackhole": {faultproxy.Rule{Blackhole: true}, 300 * time.Millisecond, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.Stats().Faults
			p.Set(c.rule)
			got, err := get(c.limit)
			if c.ok {
				require.NoError(t, err)
				require.Equal(t, body, got)
			} else {
				require.Error(t, err)
				require.NotEqual(t, body, got)
			}
			require.Equal(t, c.fault, p.Stats().Faults > before)
		})
	}
	t.Run("flip", func(t *testing.T) {
		p.Set(faultproxy.Rule{FlipAt: 100_000, Direction: "down"})
		got, err := get(10 * time.Second)
		require.NoError(t, err)
		require.Len(t, got, len(body))
		require.NotEqual(t, body, got)
	})
	t.Run("limit", func(t *testing.T) {
		p.Set(faultproxy.Rule{Refuse: true, Limit: 1})
		_, err := get(10 * time.Second)
		require.Error(t, err)
		got, err := get(10 * time.Second)
		require.NoError(t, err)
		require.Equal(t, body, got)
	})
	t.Run("gone", func(t *testing.T) {
		require.NoError(t, p.Close())
		_, err := net.DialTimeout("tcp", p.Addr(), time.Second)
		require.Error(t, err)
	})
}
