package keyed

import (
	"fmt"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/serializer"
)

// Descriptor is a state that is to be registered. Only backends use it: one that
// keeps native values calls Native, one that keeps rows of bytes calls Bytes, and the
// handle is ready.
type Descriptor[K comparable] struct {
	// Meta is the state's declaration, as snapshots have it.
	Meta serializer.StateMeta
	// Keys are the backend's, set by it before it calls Native.
	Keys *Keys[K]

	err    error
	native func(env *engine.Env) engine.State
	bytes  func(env *engine.BytesEnv, id uint16) engine.BytesState
}

// Native makes the state of native values and connects the handle with it.
func (d *Descriptor[K]) Native(env *engine.Env) engine.State { return d.native(env) }

// Bytes makes the state of decoded entries in front of rows of bytes, whose keys have
// the state's number, and connects the handle with it.
func (d *Descriptor[K]) Bytes(env *engine.BytesEnv, id uint16) engine.BytesState {
	return d.bytes(env, id)
}

// Check tells what is wrong with the descriptor itself.
func (d *Descriptor[K]) Check() error {
	if d.err != nil {
		return fmt.Errorf("keyed: state %s: %w", d.Meta.Name, d.err)
	}
	if d.Meta.Name == "" {
		return fmt.Errorf("keyed: a state needs a name")
	}
	return nil
}

func apply(opts []Option) (o options, err error) {
	for _, f := range opts {
		f(&o)
	}
	if o.ttl.on() && o.ttl.Duration.Milliseconds() < 1 {
		err = fmt.Errorf("a TTL of %v is less than a millisecond", o.ttl.Duration)
	}
	return o, err
}
