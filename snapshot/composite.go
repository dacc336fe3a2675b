package snapshot

import (
	"errors"

	"github.com/tidemark/tidemark/serializer"
)

// compositeKey takes apart the keys of canonical and RocksDB state:
//
//	keyGroup key [length of key] namespace [length of namespace] [user key]
//
// The two lengths stand there only if key and namespace both have a variable
// length; each is little-endian, as short as it can be. The key group takes 1 byte
// up to a max parallelism of 128, else 2. Source: Flink,
// CompositeKeySerializationUtils.java.
type compositeKey struct {
	prefix         int // bytes of the key group
	key, namespace *serializer.Decoder
	lengths        bool
	mapKey         bool // a user key follows
	fixedNamespace int  // bytes, if the namespace's length never differs; else -1
}

func newCompositeKey(prefix int, key, namespace *serializer.Type, mapKey bool, opts *serializer.DecodeOptions) compositeKey {
	c := compositeKey{prefix: prefix, mapKey: mapKey, fixedNamespace: -1}
	if key != nil {
		c.key = serializer.NewDecoder(key, opts)
	}
	if namespace != nil {
		c.namespace = serializer.NewDecoder(namespace, opts)
		c.fixedNamespace = namespace.Size()
	}
	c.lengths = key != nil && namespace != nil && key.FixedLength() < 0 && namespace.FixedLength() < 0
	return c
}

// split gives the parts of k; ok is false if they cannot be told apart, and then
// key is everything behind the key group.
func (c *compositeKey) split(k []byte) (keyGroup int32, key, namespace, userKey []byte, ok bool) {
	if len(k) < c.prefix {
		return -1, k, nil, nil, false
	}
	if keyGroup = int32(k[0]); c.prefix == 2 {
		keyGroup = keyGroup<<8 | int32(k[1])
	}
	k = k[c.prefix:]
	if c.key == nil || c.namespace == nil {
		return keyGroup, k, nil, nil, false
	}
	n, err := c.key.Skip(k)
	if err != nil {
		// An opaque key can still be cut off if what follows has a fixed length.
		if cut := len(k) - c.fixedNamespace; !c.mapKey && !c.lengths && c.fixedNamespace >= 0 && cut >= 0 {
			return keyGroup, k[:cut:cut], k[cut:], nil, true
		}
		return keyGroup, k, nil, nil, false
	}
	rest := k[n:]
	if c.lengths {
		if rest, ok = trimLength(rest, n); !ok {
			return keyGroup, k, nil, nil, false
		}
	}
	m, err := c.namespace.Skip(rest)
	if err != nil {
		// An opaque namespace ends with the key, or takes a map's key along.
		if isOpaque(err) && !c.lengths {
			return keyGroup, k[:n:n], rest, nil, true
		}
		return keyGroup, k, nil, nil, false
	}
	key, namespace = k[:n:n], rest[:m:m]
	rest = rest[m:]
	if c.lengths {
		if rest, ok = trimLength(rest, m); !ok {
			return keyGroup, k, nil, nil, false
		}
	}
	if !c.mapKey {
		if len(rest) != 0 {
			return keyGroup, k, nil, nil, false
		}
		return keyGroup, key, namespace, nil, true
	}
	return keyGroup, key, namespace, rest, true
}

// isOpaque reports whether err says that a value is not described, not that it is
// damaged.
func isOpaque(err error) bool {
	var o *serializer.OpaqueError
	return errors.As(err, &o)
}

// hasOpaque reports whether t has a part that is not described.
func hasOpaque(t *serializer.Type) bool {
	_, is := t.IsOpaque()
	return is
}

// trimLength takes off the length n in its shortest little-endian form.
func trimLength(b []byte, n int) ([]byte, bool) {
	for {
		if len(b) == 0 || b[0] != byte(n) {
			return b, false
		}
		b = b[1:]
		if n >>= 8; n == 0 {
			return b, true
		}
	}
}
