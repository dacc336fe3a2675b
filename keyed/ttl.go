package keyed

import (
	"math"
	"time"

	"github.com/tidemark/tidemark/serializer"
)

// Option changes a state.
type Option func(*options)

type options struct {
	ttl TTLConfig
}

// TTL makes the values of a state expire after a time without being written. See
// TTLConfig for what can be chosen.
func TTL(d time.Duration) Option { return WithTTL(TTLConfig{Duration: d}) }

// WithTTL makes the values of a state expire.
func WithTTL(c TTLConfig) Option { return func(o *options) { o.ttl = c } }

// TTLConfig is how the values of a state expire: each value, element of a list and
// entry of a map for itself, Duration after its time stamp. As in Flink, processing
// time counts; a value is expired when stamp + duration is not after the clock.
type TTLConfig struct {
	// Duration is whole milliseconds, at least one.
	Duration time.Duration
	// OnRead: reading renews the stamp, not only creating and writing.
	OnRead bool
	// ReturnExpired: an expired value that was not cleaned up yet is returned, once,
	// instead of never.
	ReturnExpired bool
	// KeepInSnapshots: full snapshots contain expired values. Otherwise they are
	// left out, as with Flink's cleanupFullSnapshot.
	KeepInSnapshots bool
	// Background is how many entries each access of the state looks at for expired
	// ones; 0 is 5, negative is none.
	Background int
}

func (c *TTLConfig) on() bool { return c.Duration != 0 }

func (c *TTLConfig) expired(stamp, now int64) bool {
	t := stamp + c.Duration.Milliseconds()
	if t < stamp {
		t = math.MaxInt64
	}
	return t <= now
}

// wrapped is a value with its stamp.
type wrapped[V any] = serializer.Expiring[V]
