package flinkverify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Wide is what WideDescription makes.
type Wide struct {
	Text []byte
	// MaxParallelism is the least of the operators.
	MaxParallelism int
	// HashOnly: it is for Flink's hashmap. Keys have equal forms of different bytes, such
	// as maps, or there are so many states that a column family for each takes minutes.
	HashOnly bool
}

// WideDescription makes a description from a seed, at the edges of what the format
// allows, which RandomDescription keeps away from: any type as a key, in tuples, rows,
// lists and POJOs, with nulls; each number's and date's bounds, NaN and -0.0;
// unpaired surrogates; types that nest three deep, with 25 or 70 fields; max
// parallelisms of 1 and of 32768, keys in every key group, a thousand states, values of
// megabytes; states, lists and maps without anything in them. sets are of Flink 2.
func WideDescription(seed uint64, sets bool) Wide {
	g := &wideGen{descriptionGen: descriptionGen{rand.New(rand.NewPCG(seed, 7919))}, sets: sets}
	// Each tenth seed has the same speciality.
	g.special = int(seed % 10)
	w := Wide{MaxParallelism: 1 << 15, HashOnly: g.special == wideHashOnly || g.special == wideManyStates}
	operators := make([]any, 1+g.r.IntN(3))
	if g.special == wideManyStates || g.special == wideManyKeys {
		operators = operators[:1]
	}
	for i := range operators {
		o := g.operator(i)
		operators[i] = o
		w.MaxParallelism = min(w.MaxParallelism, o["max_parallelism"].(int))
	}
	b, err := json.Marshal(map[string]any{"format": 1, "comment": fmt.Sprintf("wide seed %d", seed), "watermark": 3000, "operators": operators})
	if err != nil {
		panic(err)
	}
	b = bytes.ReplaceAll(b, []byte(string(highUnit)), []byte(`\ud801`))
	w.Text = bytes.ReplaceAll(b, []byte(string(lowUnit)), []byte(`\udc02`))
	return w
}

// What the seeds of one last digit have.
const (
	wideManyStates = iota
	wideManyKeys
	wideLarge
	wideMostGroups
	wideHashOnly
	wideOperatorState
)

// Stand-ins for surrogates, which no Go string has.
const (
	highUnit = '\uf8ff'
	lowUnit  = '\uf8fe'
)

type wideGen struct {
	descriptionGen
	sets    bool
	special int
	// noSurrogate: the text is to become UTF-8, for Avro.
	noSurrogate bool
	// written: keys have one form in JSON, so that two which are the same are found.
	written bool
}

func pickWide[T any](g *wideGen, list ...T) T { return list[g.r.IntN(len(list))] }

// wideNames are names of states; operators have the same ones.
var wideNames = []string{"state", "a/b", "Zustand ü", "水", "😀", " ", "_", "\"quoted\" \\", "line\nbreak", "..", "VERY-" + strings.Repeat("long-", 400), "state-0", "STATE"}

func (g *wideGen) operator(i int) map[string]any {
	most := pickWide(g, 1, 2, 3, 127, 128, 129, 300, 4096)
	switch g.special {
	case wideMostGroups:
		most = 1 << 15
	case wideManyKeys:
		most = pickWide(g, 127, 128, 300)
	}
	uid := fmt.Sprintf("op/%d %s", i, pickWide(g, "", "é 水", "😀", strings.Repeat("u", 300)))
	o := map[string]any{"uid": uid, "name": pickWide(g, "", "Öperator", strings.Repeat("n", 500), "a -> (b, c)"), "max_parallelism": most, "parallelism": 1 + g.r.IntN(min(most, 5))}
	if o["name"] == "" {
		delete(o, "name")
	}
	if g.special != wideOperatorState {
		o["keyed"] = g.keyed()
	}
	if g.special == wideOperatorState || g.r.IntN(3) == 0 {
		o["operator_states"] = g.operatorStates()
	}
	return o
}

func (g *wideGen) keyed() map[string]any {
	keyType := g.keyType(2)
	n := 3 + g.r.IntN(8)
	switch g.special {
	case wideManyStates:
		keyType, n = "string", 3
	case wideManyKeys:
		keyType, n = pickWide(g, "long", "string", "tuple<int,pojo:UserKey>", "row<a:long,b:list<string>>", "bigdec"), 2000
	}
	var keys []any
	seen := map[string]bool{}
	for range n {
		k := g.keyValue(keyType)
		if b, _ := json.Marshal(k); !seen[string(b)] {
			seen[string(b)] = true
			keys = append(keys, k)
		}
	}
	states := 1 + g.r.IntN(6)
	if g.special == wideManyStates {
		states = 1000
	}
	var list []any
	for i := range states {
		name := fmt.Sprintf("state-%d", i)
		if i < len(wideNames) {
			name = wideNames[i]
		}
		list = append(list, g.state(name, keys))
	}
	// One state has nothing, unless it is the only one: keys are needed for timers.
	if last := list[len(list)-1].(map[string]any); len(list) > 1 {
		last["entries"] = []any{}
		delete(last, "namespace_type") // of which flink-verify forgets a state without entries
	}
	out := map[string]any{"key_type": keyType, "states": list}
	if g.r.IntN(3) > 0 {
		var timers []any
		for i, k := range keys {
			if i >= 40 {
				break
			}
			for _, at := range []int64{math.MinInt64, math.MaxInt64, -1, 0, 2999, 3000, 3001, 5_000_000_000_000} {
				if g.r.IntN(4) == 0 {
					timers = append(timers, map[string]any{"key": k, "time": at, "domain": "event"})
				}
				if g.r.IntN(4) == 0 {
					timers = append(timers, map[string]any{"key": k, "time": at, "domain": "processing"})
				}
			}
		}
		if timers != nil {
			out["timers"] = timers
		}
	}
	return out
}

// keyLeaves are the types without parts that a key may have.
var keyLeaves = []string{"string", "long", "int", "short", "byte", "boolean", "char", "float", "double", "bigint", "bigdec", "instant", "date", "sqldate",
	"sqltime", "sqltimestamp", "localdate", "localtime", "localdatetime", "pojo:Address", "pojo:Person", "pojo:UserKey", "pojo:WideKey", "pojo:RecordKey"}

func (g *wideGen) keyType(depth int) string {
	if depth == 0 || g.r.IntN(3) == 0 {
		return pickWide(g, keyLeaves...)
	}
	kinds := 5
	if g.special == wideHashOnly {
		kinds = 7
	}
	switch g.r.IntN(kinds) {
	case 0:
		return "tuple<" + strings.Join(g.keyTypes(1+g.r.IntN(4), depth), ",") + ">"
	case 1:
		return "tuple<" + strings.Join(g.keyTypes(25, 1), ",") + ">"
	case 2:
		return "list<" + g.keyType(depth-1) + ">"
	case 3:
		return "either<" + strings.Join(g.keyTypes(2, depth), ",") + ">"
	case 5:
		return "map<" + strings.Join(g.keyTypes(2, depth), ",") + ">"
	case 6:
		return "row<x:map<" + strings.Join(g.keyTypes(2, depth), ",") + ">,y:int>"
	}
	return g.rowOf(g.keyTypes(pickWide(g, 1, 2, 3, 6, 7, 70), depth))
}

func (g *wideGen) rowOf(types []string) string {
	for i := range types {
		types[i] = fmt.Sprintf("c%d:%s", i, types[i])
	}
	return "row<" + strings.Join(types, ",") + ">"
}

func (g *wideGen) keyTypes(n, depth int) []string {
	types := make([]string, n)
	for i := range types {
		types[i] = g.keyType(depth - 1)
		if n > 8 {
			types[i] = pickWide(g, keyLeaves[:19]...)
		}
	}
	return types
}

func (g *wideGen) valueType(depth int) string {
	if depth == 0 || g.r.IntN(3) == 0 {
		leaves := append(slices.Clone(keyLeaves), "bytes", "int[]", "long[]", "short[]", "float[]", "double[]", "boolean[]", "char[]", "string[]", "enum:Color", "pojo:Event", wideAvro)
		return pickWide(g, leaves...)
	}
	sub := func() string { return g.valueType(depth - 1) }
	kinds := 8
	if g.sets {
		kinds = 9
	}
	switch g.r.IntN(kinds) {
	case 0:
		types := make([]string, pickWide(g, 1, 2, 3, 25))
		for i := range types {
			types[i] = g.valueType(min(depth-1, 5-len(types)/5))
		}
		return "tuple<" + strings.Join(types, ",") + ">"
	case 1:
		types := make([]string, pickWide(g, 1, 2, 6, 7, 8, 70))
		for i := range types {
			types[i] = g.valueType(0)
		}
		return g.rowOf(types)
	case 2:
		return "list<" + sub() + ">"
	case 3, 4:
		return "map<" + g.keyType(1) + "," + sub() + ">"
	case 5:
		return "either<" + sub() + "," + sub() + ">"
	case 6, 7:
		return "array<" + sub() + ">"
	}
	return "set<" + g.keyType(1) + ">"
}

// nullable are the types without parts whose serializers have a form for null that they
// read again: of sqltimestamp Flink writes twelve bytes and reads eight.
func nullable(t string) bool {
	switch t {
	case "string", "bigint", "bigdec", "instant", "date", "sqldate", "sqltime", "localdate", "localtime", "localdatetime":
		return true
	}
	return strings.HasPrefix(t, "pojo:")
}

func (g *wideGen) state(name string, keys []any) map[string]any {
	kind := pickWide(g, "value", "value", "list", "map", "reducing", "aggregating")
	s := map[string]any{"name": name, "kind": kind}
	depth := 3
	if g.special == wideManyStates || g.special == wideManyKeys {
		depth = 1
	}
	var value func() any
	switch kind {
	case "value":
		t := g.valueType(depth)
		s["type"], value = t, func() any { return g.orNull(t, 8) }
	case "list":
		t := g.valueType(depth - 1)
		s["type"] = "list<" + t + ">"
		value = func() any { return g.some(t, g.r.IntN(5)) }
	case "map":
		k, t := g.keyType(depth-1), g.valueType(depth-1)
		if k == "list" {
			k = "string"
		}
		s["type"] = "map<" + k + "," + t + ">"
		value = func() any { return g.entries(k, t, g.r.IntN(5), nullable(t)) }
	case "reducing":
		t := pickWide(g, "long", "int", "double", "float", "bigint", "bigdec", "string", "tuple<long,int>")
		s["reduce"] = pickWide(g, "sum", "min", "max", "last")
		switch {
		case strings.HasPrefix(t, "tuple"):
			s["reduce"] = pickWide(g, "sum", "last")
		case g.r.IntN(2) == 0:
			s["reduce"] = pickWide(g, "min", "max", "last")
			t = pickWide(g, "short", "byte", "boolean", "char", "instant", "date", "localdate", "localtime", "localdatetime", "sqltimestamp", "enum:Color")
		case g.r.IntN(3) == 0:
			s["reduce"], t = "last", g.valueType(depth)
		}
		s["type"], value = t, func() any { return g.any(t) }
	case "aggregating":
		s["type"] = "tuple<long,long>"
		value = func() any {
			return []any{g.any("long"), pickWide[any](g, 0, 1, -1, math.MaxInt32, math.MaxInt64, int64(math.MinInt64))}
		}
	}
	if g.r.IntN(5) == 0 {
		s["ttl_ms"] = 864_000_000
	}
	windows := g.special != wideManyKeys && g.special != wideManyStates && g.r.IntN(5) == 0
	if windows {
		s["namespace_type"] = "timewindow"
	}
	entries := []any{}
	for i, k := range keys {
		if i > 0 && g.r.IntN(4) == 0 {
			continue
		}
		if !windows {
			entries = append(entries, map[string]any{"key": k, "value": value()})
			continue
		}
		for n, w := range [][2]int64{{math.MinInt64, math.MaxInt64}, {0, 1}, {-1, 0}, {-1000, 1000}, {1_700_000_000_000, 1_700_000_060_000}} {
			if i+n == 0 || g.r.IntN(2) == 0 {
				entries = append(entries, map[string]any{"key": k, "namespace": map[string]any{"window_start": w[0], "window_end": w[1]}, "value": value()})
			}
		}
	}
	s["entries"] = entries
	return s
}

func (g *wideGen) operatorStates() []any {
	var list []any
	n := 1 + g.r.IntN(4)
	for i := range n {
		s := map[string]any{"name": wideNames[i], "mode": pickWide(g, "list", "union", "broadcast")}
		t := g.valueType(2)
		size := pickWide(g, 0, 1, 2, 7, 60)
		if s["mode"] == "broadcast" {
			k := g.keyType(1)
			s["type"], s["entries"] = "map<"+k+","+t+">", g.entries(k, t, size, nullable(t))
		} else {
			s["type"], s["entries"] = "list<"+t+">", g.some(t, size)
		}
		list = append(list, s)
	}
	return list
}

// some is the content of a list state, in which Flink has no null.
func (g *wideGen) some(t string, n int) []any {
	list := []any{}
	for range n {
		list = append(list, g.any(t))
	}
	return list
}

func (g *wideGen) elements(t string, n int) []any {
	list := []any{}
	for range n {
		list = append(list, g.orNull(t, 6))
	}
	return list
}

// orNull is a value or, one time in n, null where the type has a form for it.
func (g *wideGen) orNull(t string, n int) any {
	if nullable(t) && g.r.IntN(n) == 0 {
		return nil
	}
	return g.any(t)
}

func (g *wideGen) entries(k, t string, n int, nulls bool) []any {
	list := []any{}
	seen := map[string]bool{}
	for range n {
		key := g.keyValue(k)
		if b, _ := json.Marshal(key); seen[string(b)] {
			continue
		} else {
			seen[string(b)] = true
		}
		v := g.any(t)
		if nulls {
			v = g.orNull(t, 5)
		}
		list = append(list, []any{key, v})
	}
	return list
}

// keyValue is a value of a key. No key is null, nor is its left or right.
func (g *wideGen) keyValue(t string) any {
	if g.special == wideManyKeys && t == "long" {
		return json.Number(fmt.Sprint(int64(g.r.Uint64())))
	}
	defer func(before bool) { g.written = before }(g.written)
	g.written = true
	return g.any(t)
}

// wideAvro has each type of Avro that flink-verify reads.
const wideAvro = `avro<{"type":"record","name":"W","namespace":"a.b","fields":[{"name":"d","type":"double"},{"name":"raw","type":"bytes"},` +
	`{"name":"four","type":{"type":"fixed","name":"F","size":4}},{"name":"m","type":{"type":"map","values":"long"}},` +
	`{"name":"in","type":["null",{"type":"record","name":"In","fields":[{"name":"s","type":["string","null"]},{"name":"f","type":"float"}]}]},` +
	`{"name":"all","type":{"type":"array","items":"In"}},{"name":"c","type":{"type":"enum","name":"E","symbols":["A","B"]}},{"name":"ok","type":"boolean"},{"name":"i","type":"int"}]}>`

func (g *wideGen) avro() any {
	g.noSurrogate = true
	defer func() { g.noSurrogate = false }()
	in := func() any {
		return map[string]any{"s": pickWide[any](g, nil, g.any("string")), "f": g.any("float")}
	}
	all := []any{}
	for range g.r.IntN(3) {
		all = append(all, in())
	}
	m := map[string]any{}
	for range g.r.IntN(3) {
		m[g.any("string").(string)] = g.any("long")
	}
	return map[string]any{"d": g.any("double"), "raw": g.any("bytes"), "four": "00ff80" + pickWide(g, "00", "7f"), "m": m, "in": pickWide(g, nil, in()), "all": all,
		"c": pickWide(g, "A", "B"), "ok": g.any("boolean"), "i": g.any("int")}
}

func (g *wideGen) any(t string) any {
	if t == wideAvro {
		return g.avro()
	}
	head, inner, nested := strings.Cut(t, "<")
	if !nested {
		return g.leaf(t)
	}
	args := splitWords(inner[:len(inner)-1])
	switch head {
	case "tuple":
		list := []any{}
		for _, a := range args {
			list = append(list, g.orNull(a, 6))
		}
		return list
	case "row":
		row := map[string]any{}
		for _, a := range args {
			name, typ, _ := strings.Cut(a, ":")
			if row[name] = g.any(typ); g.r.IntN(4) == 0 {
				row[name] = nil
			}
		}
		return row
	case "list":
		return g.elements(args[0], g.r.IntN(4))
	case "array":
		list := []any{}
		for range g.r.IntN(4) {
			list = append(list, pickWide(g, nil, g.any(args[0]), g.any(args[0])))
		}
		return list
	case "set":
		list := []any{}
		for _, e := range g.entries(args[0], "int", g.r.IntN(4), false) {
			list = append(list, e.([]any)[0])
		}
		if g.r.IntN(4) == 0 {
			list = append(list, nil)
		}
		return list
	case "map":
		return g.entries(args[0], args[1], g.r.IntN(4), true)
	case "either":
		if g.r.IntN(2) == 0 {
			return map[string]any{"left": g.any(args[0])}
		}
		return map[string]any{"right": g.any(args[1])}
	}
	panic(t)
}

func (g *wideGen) text() string {
	if g.special == wideLarge && g.r.IntN(30) == 0 {
		return strings.Repeat(pickWide(g, "x", "水", "😀"), 1_000_000)
	}
	words := []string{"", "a", "\u0000", "\u007f", "\u0080", "\u07ff", "\u0800", "\uffff", "\ufeff", "😀", "\U0010ffff", "\u2028", "\"\\/\b\f\n\r\t", "null", "水", "İ", string(highUnit), string(lowUnit)}
	if g.noSurrogate {
		words = words[:len(words)-2]
	}
	var b strings.Builder
	for range g.r.IntN(5) {
		b.WriteString(pickWide(g, words...))
	}
	if g.r.IntN(20) == 0 { // where the length takes another byte
		b.WriteString(strings.Repeat("-", pickWide(g, 126, 127, 128, 16381, 16382, 16383)-min(b.Len(), 100)))
	}
	return b.String()
}

func (g *wideGen) leaf(t string) any {
	// Whole numbers at their bounds, of which the least and greatest must not be bumped
	// beyond: Java wraps them as we do.
	whole := func(bits int) any { return json.Number(fmt.Sprint(g.whole(bits))) }
	millis := func() any {
		return pickWide[any](g, 0, -1, json.Number("-9223372036854775807"), json.Number("9223372036854775806"), 1_700_000_000_123, g.whole(40))
	}
	switch t {
	case "string":
		return g.text()
	case "long":
		return whole(64)
	case "int":
		return whole(32)
	case "short":
		return whole(16)
	case "byte":
		return whole(8)
	case "boolean":
		return g.r.IntN(2) == 0
	case "char":
		c := pickWide(g, "a", "\u0000", "\uffff", "\"", "水", string(highUnit), string(lowUnit))
		return c
	case "float":
		return pickWide[any](g, 0.0, "-0.0", "NaN", "Infinity", "-Infinity", json.Number("3.4028235e38"), json.Number("1.4e-45"), json.Number("-1.17549435e-38"), 0.1, 16777217, g.r.IntN(1000))
	case "double":
		return pickWide[any](g, 0.0, "-0.0", "NaN", "Infinity", "-Infinity", math.MaxFloat64, math.SmallestNonzeroFloat64, 2.2250738585072014e-308, 0.1, 1e23, -9007199254740993.0, g.r.Float64())
	case "bigint":
		return pickWide(g, "0", "1", "10", "-1", "-128", "128", "255", "256", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
			"-4294967296", strings.Repeat("9", 300), "-1"+strings.Repeat("0", 77), fmt.Sprint(int64(g.r.Uint64())))
	case "bigdec":
		return pickWide(g, "0", "1", "10", "0.00", "-0.1", "1E+30", "1E-30", "0E-10", "0E+5", "-3", "9223372036854775807.5", "-9223372036854775808", "4294967296E+2", strings.Repeat("7", 60)+".25", fmt.Sprint(g.whole(40), ".", g.r.IntN(10)))
	case "instant":
		return pickWide(g, "-1000000000-01-01T00:00:00Z", "+1000000000-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "-0001-02-03T04:05:06.7Z", "+10000-01-01T00:00:00Z",
			"1970-01-01T00:00:00Z", "1582-10-10T00:00:00Z", g.value("instant", 0).(string))
	case "date", "sqldate", "sqltime":
		return millis()
	case "sqltimestamp":
		return pickWide(g, "1969-12-31T23:59:59.123456789Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z", "1582-10-10T00:00:00.5Z", g.value("sqltimestamp", 0).(string))
	case "localdate":
		return pickWide(g, "+999999999-12-01", "-999999999-01-01", "0000-02-29", "-0004-02-29", "+12345-06-07", "1582-10-10", g.value("localdate", 0).(string))
	case "localtime":
		return pickWide(g, "00:00", "23:59:59.999999999", "12:34", "12:34:56", "00:00:00.000000001", g.value("localtime", 0).(string))
	case "localdatetime":
		return pickWide(g, "+999999999-12-31T23:59:59.999999", "-999999999-01-01T00:00", "1969-12-31T23:59:59.999999999", "0000-02-29T12:00", g.value("localdatetime", 0).(string))
	case "bytes":
		b := make([]byte, pickWide(g, 0, 1, 3, 300))
		if g.special == wideLarge && g.r.IntN(20) == 0 {
			b = make([]byte, 3<<20)
		}
		for i := range b {
			b[i] = byte(g.r.Uint32())
		}
		return fmt.Sprintf("%x", b)
	case "int[]", "long[]", "short[]", "float[]", "double[]", "boolean[]", "char[]":
		list := []any{}
		for range pickWide(g, 0, 1, 3, 200) {
			list = append(list, g.leaf(strings.TrimSuffix(t, "[]")))
		}
		return list
	case "string[]":
		list := []any{}
		for range pickWide(g, 0, 1, 3, 50) {
			list = append(list, pickWide[any](g, nil, g.text(), g.text()))
		}
		return list
	case "enum:Color":
		return pickWide(g, "RED", "GREEN", "BLUE")
	}
	return g.pojo(t)
}

// pojo leaves some fields out, which then are null or zero.
func (g *wideGen) pojo(t string) any {
	fields := map[string]string{}
	switch t {
	case "pojo:UserKey": // whose hashCode needs an id
		return map[string]any{"region": g.leaf("int"), "id": g.text()}
	case "pojo:Address":
		fields = map[string]string{"street": "string", "zip": "int"}
	case "pojo:Person":
		fields = map[string]string{"name": "string", "age": "int", "balance": "long", "address": "pojo:Address"}
	case "pojo:Event":
		fields = map[string]string{"id": "long", "open": "boolean", "weight": "double", "small": "short", "kind": "string", "at": "instant", "amount": "bigdec", "payload": "bytes", "color": "enum:Color"}
	case "pojo:RecordKey":
		fields = map[string]string{"id": "long", "name": "string", "inner": "pojo:WideKey", "user": "pojo:UserKey"}
	case "pojo:WideKey":
		fields = map[string]string{"flag": "boolean", "tiny": "byte", "small": "short", "number": "int", "big": "long", "ratio": "float", "real": "double", "letter": "char",
			"maybeFlag": "boolean", "maybeTiny": "byte", "maybeSmall": "short", "maybeNumber": "int", "maybeBig": "long", "maybeRatio": "float", "maybeReal": "double", "maybeLetter": "char",
			"text": "string", "bigInteger": "bigint", "decimal": "bigdec", "at": "instant", "date": "date", "sqlDate": "sqldate", "sqlTime": "sqltime", "sqlTimestamp": "sqltimestamp",
			"address": "pojo:Address"}
	}
	o := map[string]any{}
	for _, name := range sortedNames(fields) {
		typ := fields[name]
		switch boxed := strings.HasPrefix(name, "maybe") || name == "balance" || nullable(typ) || typ == "sqltimestamp" || typ == "enum:Color" || typ == "bytes"; {
		case boxed && g.r.IntN(4) == 0:
			o[name] = nil
		case (nullable(typ) || !boxed) && !g.written && g.r.IntN(8) == 0: // left out
		default:
			o[name] = g.leaf(typ)
		}
	}
	return o
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
