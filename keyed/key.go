package keyed

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"sync"
	"unsafe"

	"github.com/tidemark/tidemark/internal/plaintype"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// Key is a key with what every state needs of it: its hash and its key group,
// computed once. It is made by Backend.Key and is of use for states of backends with
// the same max parallelism in the same process.
type Key[K comparable] struct {
	key   K
	hash  uint32
	group uint16
}

// Value is the key itself.
func (k Key[K]) Value() K { return k.key }

// Group is its key group.
func (k Key[K]) Group() int { return int(k.group) }

// At is a key in a namespace.
type At[K, N comparable] struct {
	Key       K
	Namespace N
}

// seed makes the hashes of this process different from those of others, so that
// nobody can choose keys that collide.
var seed = maphash.MakeSeed()

// Keys makes the Keys of a backend. Methods may be called from any goroutine.
type Keys[K comparable] struct {
	Serializer serializer.Serializer[K]

	max    int
	mask   uint32 // max - 1 if max is a power of two, else 0
	groups metadata.KeyGroupRange
	java   func(K) int32
	long   bool // keys are longs
	codec  codec[K]
}

// NewKeys prepares to make keys for the max parallelism and range of a Config. The
// error is that of a type that is no key in Flink, or of a range out of bounds.
func NewKeys[K comparable](c Config[K]) (*Keys[K], error) {
	if c.Key == nil {
		return nil, fmt.Errorf("keyed: a key serializer is needed")
	}
	java, err := serializer.HashFunc(c.Key, c.HashRules)
	if err != nil {
		return nil, fmt.Errorf("keyed: %w", err)
	}
	k := &Keys[K]{Serializer: c.Key, max: c.MaxParallelism, groups: c.KeyGroups, java: java, codec: codecOf(c.Key)}
	if _, ok := any(c.Key).(serializer.Serializer[int64]); ok && c.Key.Type().Kind == serializer.KindLong {
		k.long = true
	}
	if k.max == 0 {
		k.max = 128
	}
	if k.max < 1 || k.max > 1<<15 {
		return nil, fmt.Errorf("keyed: max parallelism %d is not from 1 to 32768", k.max)
	}
	if k.max&(k.max-1) == 0 {
		k.mask = uint32(k.max - 1)
	}
	if k.groups == (metadata.KeyGroupRange{}) {
		k.groups.Count = int32(k.max)
	}
	if g := k.groups; g.Start < 0 || g.Count < 1 || int64(g.Start)+int64(g.Count) > int64(k.max) {
		return nil, fmt.Errorf("keyed: key groups %d to %d are not in a max parallelism of %d", g.Start, g.End(), k.max)
	}
	return k, nil
}

// Make makes a Key.
func (k *Keys[K]) Make(key K) Key[K] {
	if !k.long {
		return Key[K]{key, k.codec.hash32(key), uint16(serializer.AssignKeyGroup(k.java(key), k.max))}
	}
	// The same, written out for the usual keys: hashWord, Long.hashCode and
	// AssignKeyGroup.
	x := *(*uint64)(unsafe.Pointer(&key))
	hi, lo := bits.Mul64(x^secret[1], secret[0])
	lo ^= hi
	h := uint32(x) ^ uint32(x>>32)
	h *= 0xcc9e2d51
	h = bits.RotateLeft32(h, 15) * 0x1b873593
	h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64 ^ 4
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	h ^= h >> 16
	sign := int32(h) >> 31
	h = (h ^ uint32(sign)) - uint32(sign) // its absolute value
	if k.mask != 0 {
		h &= k.mask
	} else {
		h = h & math.MaxInt32 % uint32(k.max)
	}
	return Key[K]{key, uint32(lo>>32) ^ uint32(lo), uint16(h)}
}

// MaxParallelism is the number of key groups over all subtasks.
func (k *Keys[K]) MaxParallelism() int { return k.max }

// KeyGroups is the range of the backend.
func (k *Keys[K]) KeyGroups() metadata.KeyGroupRange { return k.groups }

// KeyGroupError says that a key belongs to another subtask.
type KeyGroupError struct {
	Key    any
	Group  int
	Groups metadata.KeyGroupRange
}

func (e *KeyGroupError) Error() string {
	return fmt.Sprintf("keyed: key %v is of key group %d, which is not in %d to %d of this subtask", e.Key, e.Group, e.Groups.Start, e.Groups.End())
}

// codec is a serializer with a hash and an equality of its values. Where == is not
// that of the serialized form (times, floats, pointers), both go by the bytes.
type codec[T comparable] struct {
	ser   serializer.Serializer[T]
	plain bool
	empty bool // all values are the same
	word  bool // plain, of 8 bytes without pointers and padding
}

func codecOf[T comparable](s serializer.Serializer[T]) codec[T] {
	var zero T
	t := reflect.TypeFor[T]()
	c := codec[T]{ser: s, plain: plaintype.Is(t), empty: unsafe.Sizeof(zero) == 0}
	c.word = c.plain && unsafe.Sizeof(zero) == 8 && !table.HasPointers(t) && !plaintype.Padded(t)
	return c
}

// cheap tells whether the hash of a value is computed without following pointers.
func (c *codec[T]) cheap() bool {
	return c.empty || c.word || c.plain && !table.HasPointers(reflect.TypeFor[T]())
}

var scratch = sync.Pool{New: func() any { return new([2][]byte) }}

// secret makes the hashes of words those of this process, like seed.
var secret = [2]uint64{maphash.String(seed, "a") | 1, maphash.String(seed, "b")}

// hashWord folds the product of a word and a secret. Without knowing the secrets
// nobody can choose words of which many have the same hash.
func hashWord(x uint64) uint32 {
	hi, lo := bits.Mul64(x^secret[1], secret[0])
	lo ^= hi
	return uint32(lo>>32) ^ uint32(lo)
}

func (c *codec[T]) hash32(v T) uint32 {
	if c.word {
		return hashWord(*(*uint64)(unsafe.Pointer(&v)))
	}
	return c.hashSlow(v)
}

func (c *codec[T]) hashSlow(v T) uint32 {
	if c.empty {
		return 0
	}
	var h uint64
	if c.plain {
		h = maphash.Comparable(seed, v)
	} else {
		s := scratch.Get().(*[2][]byte)
		s[0] = c.ser.Append(s[0][:0], v)
		h = maphash.Bytes(seed, s[0])
		scratch.Put(s)
	}
	return uint32(h) ^ uint32(h>>32)
}

func (c *codec[T]) equal(a, b T) bool {
	if c.plain || c.empty {
		return a == b
	}
	s := scratch.Get().(*[2][]byte)
	defer scratch.Put(s)
	s[0], s[1] = c.ser.Append(s[0][:0], a), c.ser.Append(s[1][:0], b)
	return string(s[0]) == string(s[1])
}

// order compares by the serialized form, byte by byte: the order in which a map
// state is iterated, and that of RocksDB.
func (c *codec[T]) order() func(a, b T) int {
	for _, f := range []any{
		func(a, b int64) int { return compare(uint64(a), uint64(b)) },
		func(a, b int32) int { return compare(uint32(a), uint32(b)) },
		func(a, b int16) int { return compare(uint16(a), uint16(b)) },
		func(a, b int8) int { return compare(uint8(a), uint8(b)) },
		orderStrings,
	} {
		if f, ok := f.(func(a, b T) int); ok && basicOrder(c.ser.Type().Kind) {
			return f
		}
	}
	ser := c.ser
	return func(a, b T) int {
		s := scratch.Get().(*[2][]byte)
		defer scratch.Put(s)
		s[0], s[1] = ser.Append(s[0][:0], a), ser.Append(s[1][:0], b)
		return compare(string(s[0]), string(s[1]))
	}
}

func basicOrder(k serializer.Kind) bool {
	switch k {
	case serializer.KindLong, serializer.KindInt, serializer.KindShort, serializer.KindByte, serializer.KindString:
		return true
	}
	return false
}

func compare[T uint8 | uint16 | uint32 | uint64 | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// orderStrings is the order of StringSerializer's bytes: the varint of the length
// first. ASCII strings of up to 126 bytes, the usual ones, are compared as they are.
func orderStrings(a, b string) int {
	if len(a) < 127 && len(b) < 127 && isASCII(a) && isASCII(b) {
		if len(a) != len(b) {
			return compare(uint8(len(a)), uint8(len(b)))
		}
		return compare(a, b)
	}
	s := scratch.Get().(*[2][]byte)
	defer scratch.Put(s)
	s[0], s[1] = serializer.AppendString(s[0][:0], a), serializer.AppendString(s[1][:0], b)
	return compare(string(s[0]), string(s[1]))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
