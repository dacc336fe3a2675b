package flinkverify

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemark/tidemark/serializer"
)

// RandomDescription makes a description from a seed, of what flink-verify can hand
// to a real Flink: types and kinds of all sorts, nulls where Flink takes them, NaN,
// texts of any language, empty and large values.
func RandomDescription(seed uint64) []byte {
	g := &descriptionGen{rand.New(rand.NewPCG(seed, 77))}
	n := 1 + g.r.IntN(3)
	operators := make([]any, n)
	for i := range operators {
		operators[i] = g.operator(i)
	}
	b, err := json.Marshal(map[string]any{"format": 1, "comment": fmt.Sprintf("seed %d", seed), "watermark": 3000, "operators": operators})
	if err != nil {
		panic(err)
	}
	return b
}

type descriptionGen struct{ r *rand.Rand }

func pick[T any](g *descriptionGen, list ...T) T { return list[g.r.IntN(len(list))] }

func (g *descriptionGen) operator(i int) map[string]any {
	parallelism := 1 + g.r.IntN(3)
	o := map[string]any{"uid": fmt.Sprintf("op-%d", i), "name": fmt.Sprintf("Operator %d", i), "max_parallelism": pick(g, 4, 128, 128, 129, 300), "parallelism": parallelism}
	keyed := i == 0 || g.r.IntN(3) > 0
	if keyed {
		o["keyed"] = g.keyed()
	}
	if !keyed || g.r.IntN(2) == 0 {
		o["operator_states"] = g.operatorStates()
	}
	return o
}

func (g *descriptionGen) keyed() map[string]any {
	keyType := pick(g, "string", "long", "int", "short", "byte", "double", "instant", "localdate", "bigint", "bigdec",
		"tuple<string,int>", "tuple<long,string,boolean>", "row<a:int,b:string>", "pojo:UserKey", "string", "long",
		"float", "boolean", "char", "date", "sqldate", "sqltime", "sqltimestamp", "localtime", "localdatetime",
		"pojo:Address", "pojo:Person", "either<long,string>", "tuple<localdate,float,char>", "row<a:instant,b:bigdec,c:tuple<short,byte>>")
	keys := []any{}
	seen := map[string]bool{}
	for range 3 + g.r.IntN(12) {
		k := g.key(keyType)
		if b, _ := json.Marshal(k); !seen[string(b)] {
			seen[string(b)] = true
			keys = append(keys, k)
		}
	}
	out := map[string]any{"key_type": keyType}
	var states []any
	for i := range 1 + g.r.IntN(5) {
		states = append(states, g.state(fmt.Sprintf("state-%d", i), keys))
	}
	if keyType != "long" && keyType != "pojo:UserKey" && g.r.IntN(4) == 0 { // package job has no windows of these
		for i := range 1 + g.r.IntN(2) {
			states = append(states, g.windowed(fmt.Sprintf("windowed-%d", i), keys))
		}
	}
	out["states"] = states
	if g.r.IntN(2) == 0 {
		var timers []any
		for i, k := range keys {
			timers = append(timers, map[string]any{"key": k, "time": int64(g.r.IntN(6000)) - 1000, "domain": "event"})
			if i%3 == 0 {
				timers = append(timers, map[string]any{"key": k, "time": 4_102_444_800_000 + int64(i), "domain": "processing"})
			}
		}
		out["timers"] = timers
	}
	return out
}

func (g *descriptionGen) state(name string, keys []any) map[string]any {
	kind := pick(g, "value", "value", "list", "map", "reducing", "aggregating")
	s := map[string]any{"name": name, "kind": kind}
	var value func() any
	switch kind {
	case "value":
		t := g.valueType(2)
		s["type"], value = t, func() any { return g.value(t, 2) }
	case "list":
		t := g.valueType(1)
		s["type"] = "list<" + t + ">"
		value = func() any { return g.list(t, 1+g.r.IntN(4)) }
	case "map":
		k := pick(g, "string", "long", "int", "localdate", "tuple<string,int>")
		t := pick(g, "string", "string", "pojo:Person", "list<int>", "bytes")
		ttl := g.r.IntN(4) == 0
		s["type"] = "map<" + k + "," + t + ">"
		if ttl {
			s["ttl_ms"] = 864_000_000
		}
		value = func() any { return g.pairs(k, t, 1+g.r.IntN(4), t == "string" && !ttl) }
	case "reducing":
		t := pick(g, "long", "int", "double", "float", "bigint", "bigdec", "string")
		s["type"], s["reduce"] = t, pick(g, "sum", "min", "max", "last")
		value = func() any {
			switch t {
			case "string":
				return g.text()
			case "bigint", "bigdec":
				return g.value(t, 0)
			}
			return g.r.IntN(100_000) - 50_000
		}
	case "aggregating":
		s["type"] = "tuple<long,long>"
		value = func() any { return []any{g.r.IntN(1000), 1 + g.r.IntN(10)} }
	}
	if kind != "map" && g.r.IntN(5) == 0 {
		s["ttl_ms"] = 864_000_000
	}
	entries := []any{}
	for i, k := range keys {
		if i == 0 || g.r.IntN(4) > 0 {
			entries = append(entries, map[string]any{"key": k, "value": value()})
		}
	}
	s["entries"] = entries
	return s
}

// windowed is a state in the namespaces of windows.
func (g *descriptionGen) windowed(name string, keys []any) map[string]any {
	s := g.state(name, keys)
	if s["kind"] == "aggregating" { // there are no values to choose from
		s["kind"], s["type"] = "value", "tuple<long,long>"
	}
	s["namespace_type"] = "timewindow"
	entries := []any{}
	for _, e := range s["entries"].([]any) {
		e := e.(map[string]any)
		for w := range 1 + g.r.IntN(3) {
			start := int64(w)*1000 - 1000
			window := map[string]any{"window_start": start, "window_end": pick(g, start+1000, start+1, math.MaxInt64)}
			entries = append(entries, map[string]any{"key": e["key"], "namespace": window, "value": e["value"]})
		}
	}
	s["entries"] = entries
	return s
}

func (g *descriptionGen) operatorStates() []any {
	var list []any
	for i := range 1 + g.r.IntN(3) {
		s := map[string]any{"name": fmt.Sprintf("operator-state-%d", i)}
		switch mode := pick(g, "list", "union", "broadcast"); mode {
		case "broadcast":
			t := g.valueType(1)
			s["mode"], s["type"], s["entries"] = mode, "map<string,"+t+">", g.pairs("string", t, g.r.IntN(4), false)
		default:
			t := g.valueType(1)
			s["mode"], s["type"], s["entries"] = mode, "list<"+t+">", g.list(t, g.r.IntN(7))
		}
		list = append(list, s)
	}
	return list
}

func (g *descriptionGen) list(t string, n int) []any {
	list := []any{}
	for range n {
		list = append(list, g.value(t, 1))
	}
	return list
}

func (g *descriptionGen) pairs(k, t string, n int, nulls bool) []any {
	list := []any{}
	seen := map[string]bool{}
	for range n {
		key := g.key(k)
		if b, _ := json.Marshal(key); seen[string(b)] {
			continue
		} else {
			seen[string(b)] = true
		}
		v := g.value(t, 1)
		if nulls && g.r.IntN(4) == 0 {
			v = nil
		}
		list = append(list, []any{key, v})
	}
	return list
}

// avroType is a generic record with each kind of field.
const avroType = `avro<{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]},{"name":"n","type":"int"},` +
	`{"name":"f","type":"float"},{"name":"b","type":"boolean"},{"name":"list","type":{"type":"array","items":"string"}},` +
	`{"name":"color","type":{"type":"enum","name":"C","symbols":["RED","BLUE"]}}]}>`

// valueType chooses a type; depth bounds how far it nests.
func (g *descriptionGen) valueType(depth int) string {
	if depth > 0 && g.r.IntN(2) == 0 {
		a := g.valueType(depth - 1)
		b := g.valueType(depth - 1)
		switch g.r.IntN(7) {
		case 6:
			return "array<" + a + ">"
		case 0:
			return "tuple<" + a + "," + b + ">"
		case 1:
			return "row<x:" + a + ",y:" + b + ",z:string>"
		case 2:
			return "list<" + a + ">"
		case 3:
			return "map<string," + b + ">"
		case 4:
			return "either<" + a + "," + b + ">"
		}
		return "tuple<" + a + ",string," + b + ">"
	}
	return pick(g, "int", "long", "short", "byte", "float", "double", "boolean", "string", "char", "bytes", "bigint", "bigdec", "instant",
		"date", "sqldate", "sqltime", "sqltimestamp", "localdate", "localtime", "localdatetime", "int[]", "long[]", "double[]", "string[]",
		"short[]", "float[]", "boolean[]", "char[]", "pojo:Address", "pojo:UserKey", avroType,
		"enum:Color", "pojo:Person", "pojo:Event")
}

func (g *descriptionGen) text() string {
	words := []string{"", "a", "Tide", "水", "é", "😀", "\u0000", "ß", "\u07ff", "\uffff", "line\nbreak", "\"", "\\", "ü, "}
	var b strings.Builder
	for range g.r.IntN(5) {
		b.WriteString(pick(g, words...))
	}
	if g.r.IntN(60) == 0 {
		b.WriteString(strings.Repeat("large ", 20_000))
	}
	return b.String()
}

func (g *descriptionGen) whole(bits int) int64 {
	switch g.r.IntN(5) {
	case 0:
		return -1 << (bits - 1)
	case 1:
		return 1<<(bits-1) - 1
	case 2:
		return int64(g.r.IntN(3)) - 1
	}
	return int64(g.r.Uint64()) >> (64 - bits)
}

func (g *descriptionGen) key(t string) any {
	switch t {
	case "double", "float":
		return float64(g.r.IntN(2000)-1000) / 8
	case "pojo:UserKey":
		return map[string]any{"region": g.r.IntN(100) - 50, "id": g.text()}
	case "tuple<string,int>":
		return []any{g.text(), g.whole(32)}
	case "tuple<long,string,boolean>":
		return []any{json.Number(fmt.Sprint(g.whole(64))), g.text(), g.r.IntN(2) == 0}
	case "row<a:int,b:string>":
		return map[string]any{"a": g.whole(32), "b": g.text()}
	case "string":
		s := g.text()
		return s[:min(len(s), len(strings.TrimRight(s, "large ")))]
	}
	return g.value(t, 0)
}

func (g *descriptionGen) moment() time.Time {
	return time.Unix(int64(g.r.IntN(2_000_000_000)), int64(pick(g, 0, 0, 123_000_000, 5_000, 7))).UTC()
}

func (g *descriptionGen) value(t string, depth int) any {
	if t == avroType {
		return map[string]any{"id": json.Number(fmt.Sprint(g.whole(64))), "name": pick[any](g, nil, g.text()), "n": g.whole(32), "f": pick[any](g, 0.5, "NaN", -2),
			"b": g.r.IntN(2) == 0, "list": g.list("string", g.r.IntN(3)), "color": pick(g, "RED", "BLUE")}
	}
	head, inner, nested := strings.Cut(t, "<")
	if nested {
		args := splitWords(inner[:len(inner)-1])
		switch head {
		case "tuple":
			list := []any{}
			for _, a := range args {
				list = append(list, g.value(a, depth-1))
			}
			return list
		case "row":
			row := map[string]any{}
			for _, a := range args {
				name, typ, _ := strings.Cut(a, ":")
				if row[name] = g.value(typ, depth-1); g.r.IntN(4) == 0 {
					row[name] = nil
				}
			}
			return row
		case "list", "array":
			return g.list(args[0], g.r.IntN(4))
		case "map":
			return g.pairs(args[0], args[1], g.r.IntN(4), false)
		case "either":
			if g.r.IntN(2) == 0 {
				return map[string]any{"left": g.value(args[0], depth-1)}
			}
			return map[string]any{"right": g.value(args[1], depth-1)}
		}
		panic(t)
	}
	switch t {
	case "int":
		return g.whole(32)
	case "long":
		return json.Number(fmt.Sprint(g.whole(64)))
	case "short":
		return g.whole(16)
	case "byte":
		return g.whole(8)
	case "float", "double":
		return pick[any](g, 0.5, -1.25, 1e10, "NaN", "Infinity", "-Infinity", 0.0, float64(g.r.IntN(1000))/4)
	case "boolean":
		return g.r.IntN(2) == 0
	case "string":
		return g.text()
	case "char":
		return pick(g, "a", "é", "水", "\u0001")
	case "bytes":
		b := make([]byte, g.r.IntN(5))
		if g.r.IntN(40) == 0 {
			b = make([]byte, 50_000)
		}
		for i := range b {
			b[i] = byte(g.r.Uint32())
		}
		return fmt.Sprintf("%x", b)
	case "bigint":
		return new(big.Int).Mul(big.NewInt(g.whole(64)), big.NewInt(g.whole(64))).String()
	case "bigdec":
		return serializer.BigDecimal{Unscaled: big.NewInt(g.whole(40)), Scale: int32(g.r.IntN(5))}.String()
	case "instant":
		return g.moment().Format("2006-01-02T15:04:05.999999999Z")
	case "date":
		return g.moment().UnixMilli()
	case "sqldate":
		return 1_700_000_000_000 + int64(g.r.IntN(1000))*86_400_000
	case "sqltime":
		return int64(g.r.IntN(86_400)) * 1000
	case "sqltimestamp":
		return g.moment().Format("2006-01-02T15:04:05.000Z")
	case "localdate":
		return g.moment().Format("2006-01-02")
	case "localtime":
		return g.moment().Format("15:04:05.000000007")
	case "localdatetime":
		return g.moment().Format("2006-01-02T15:04:05.000000007")
	case "int[]", "long[]", "short[]", "float[]", "double[]", "boolean[]", "char[]":
		return g.list(strings.TrimSuffix(t, "[]"), g.r.IntN(4))
	case "string[]":
		list := g.list("string", g.r.IntN(4))
		for i := range list {
			if g.r.IntN(4) == 0 {
				list[i] = nil
			}
		}
		return list
	case "enum:Color":
		return pick(g, "RED", "GREEN", "BLUE")
	case "pojo:Address":
		return map[string]any{"street": pick[any](g, nil, g.text()), "zip": g.whole(32)}
	case "pojo:UserKey":
		return g.key(t)
	case "pojo:Person":
		return map[string]any{"name": pick[any](g, nil, g.text()), "age": g.whole(32), "balance": pick[any](g, nil, g.whole(32)),
			"address": pick[any](g, nil, g.value("pojo:Address", 0))}
	case "pojo:Event":
		return map[string]any{"id": g.whole(32), "open": g.r.IntN(2) == 0, "weight": pick(g, 0.5, 1e-3, -2.0), "small": g.whole(16), "kind": pick[any](g, nil, g.text()),
			"at": pick[any](g, nil, g.value("instant", 0)), "amount": pick[any](g, nil, g.value("bigdec", 0)), "payload": g.value("bytes", 0), "color": pick[any](g, nil, "RED", "BLUE")}
	}
	panic("no value of " + t)
}

// splitWords cuts type words at the commas that are not inside of others.
func splitWords(s string) (parts []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '<':
			depth++
		case c == '>':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}
