package serializer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompatibility(t *testing.T) {
	parse := func(words string) *Type {
		typ, err := ParseType(words, Classes{})
		require.NoError(t, err)
		return typ
	}
	avro := func(fields string) string {
		return `avro<{"type":"record","name":"R","fields":[` + fields + `]}>`
	}
	for _, c := range []struct {
		name, old, new string
		want           string
	}{
		{"same", "map<string,list<int>>", "map<string,list<int>>", "as is"},
		{"widened", "int", "long", "incompatible: int became long"},
		{"widened in a list", "list<int>", "list<long>", "incompatible: element: int became long"},
		{"map value", "map<string,int>", "map<string,string>", "incompatible: value: int became string"},
		{"tuple field", "tuple<string,int>", "tuple<string,long>", "incompatible: field f1: int became long"},
		{"tuple size", "tuple<string,int>", "tuple<string>", "incompatible: class org.apache.flink.api.java.tuple.Tuple2 became org.apache.flink.api.java.tuple.Tuple1"},
		{"row field added", "row<a:int>", "row<a:int,b:int>", "incompatible: 1 fields became 2"},
		{"row field renamed", "row<a:int>", "row<b:int>", "as is"},
		{"row field type", "row<a:int>", "row<b:string>", "incompatible: field b: int became string"},
		{"POJO same", "pojo:P<a:int,b:string>", "pojo:P<b:string,a:int>", "as is"},
		{"POJO field added", "pojo:P<a:int>", "pojo:P<a:int,b:string>", "after migration: field b was added"},
		{"POJO field removed", "pojo:P<a:int,b:string>", "pojo:P<a:int>", "after migration: field b was removed"},
		{"POJO field renamed", "pojo:P<a:int,b:string>", "pojo:P<a:int,c:string>", "after migration: field b was removed"},
		{"POJO field type", "pojo:P<a:int>", "pojo:P<a:long>", "incompatible: field a: int became long"},
		{"POJO class", "pojo:P<a:int>", "pojo:Q<a:int>", "incompatible: class P became Q"},
		{"POJO in a list", "list<pojo:P<a:int>>", "list<pojo:P<a:int,b:int>>", "after migration: element: field b was added"},
		{"POJO in a POJO", "pojo:P<a:pojo:Q<x:int>>", "pojo:P<a:pojo:Q<x:int,y:int>>", "after migration: field a: field y was added"},
		{"worst part counts", "pojo:P<a:int,b:int>", "pojo:P<a:long,c:int>", "incompatible: field a: int became long"},
		{"enum constant added", "enum:E<A,B>", "enum:E<A,B,C>", "as is"},
		{"enum reordered", "enum:E<A,B>", "enum:E<B,A>", "as is: the constants' order changed; the old order is kept, new ones are appended"},
		{"enum constant removed", "enum:E<A,B>", "enum:E<A>", "incompatible: constant B was removed"},
		{"enum class", "enum:E<A>", "enum:F<A>", "incompatible: enum E became F"},
		{"TTL on", "long", "ttl<long>", "incompatible: TTL was switched on"},
		{"TTL off", "list<ttl<long>>", "list<long>", "incompatible: element: TTL was switched off"},
		{"TTL kept", "ttl<pojo:P<a:int>>", "ttl<pojo:P<a:int,b:int>>", "after migration: value: field b was added"},
		{"nullable", "string", "string?", "incompatible: string became string?"},
		{"array class", "array<int>", "array<long>", "incompatible: class java.lang.Integer became java.lang.Long"},
		{"list to array", "list<int>", "int[]", "incompatible: list<int> became int[]"},
		{"avro same", avro(`{"name":"a","type":"int"}`), avro(`{"name":"a","type":"int","doc":"x"}`), "as is"},
		{"avro field with default", avro(`{"name":"a","type":"int"}`), avro(`{"name":"a","type":"int"},{"name":"b","type":"int","default":0}`), "after migration: the Avro schema changed"},
		{"avro field without default", avro(`{"name":"a","type":"int"}`), avro(`{"name":"a","type":"int"},{"name":"b","type":"int"}`), "incompatible: the new field b has no default"},
		{"avro field removed", avro(`{"name":"a","type":"int"},{"name":"b","type":"int"}`), avro(`{"name":"a","type":"int"}`), "after migration: the Avro schema changed"},
		{"avro field widened", avro(`{"name":"a","type":"int"}`), avro(`{"name":"a","type":"long"}`), "after migration: the Avro schema changed"},
		{"avro field narrowed", avro(`{"name":"a","type":"long"}`), avro(`{"name":"a","type":"int"}`), "incompatible: field a: long became int"},
		{"avro field renamed by alias", avro(`{"name":"a","type":"int"}`), avro(`{"name":"b","type":"int","aliases":["a"]}`), "after migration: the Avro schema changed"},
		{"avro optional", avro(`{"name":"a","type":"int"}`), avro(`{"name":"a","type":["null","int"]}`), "after migration: the Avro schema changed"},
		{"avro no more optional", avro(`{"name":"a","type":["null","int"]}`), avro(`{"name":"a","type":"int"}`), "incompatible: field a: branch 0: null became int"},
		{"avro enum", avro(`{"name":"a","type":{"type":"enum","name":"E","symbols":["X","Y"]}}`), avro(`{"name":"a","type":{"type":"enum","name":"E","symbols":["X"]}}`), "incompatible: field a: enum E lost the symbol Y"},
		{"avro recursive", avro(`{"name":"a","type":["null","R"]}`), avro(`{"name":"a","type":["null","R"]},{"name":"b","type":"int","default":1}`), "after migration: the Avro schema changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Compat(parse(c.old), parse(c.new), nil).String())
			require.Equal(t, AsIs, Compat(parse(c.old), parse(c.old), nil).Verdict)
		})
	}
	require.Equal(t, AfterMigration, Compat(parse("list<long>"), parse("list<ttl<long>>"), &CompatOptions{TTLMigration: true}).Verdict)
	require.Equal(t, "incompatible: field b was added, and keys are not migrated", CompatKey(parse("pojo:P<a:int>"), parse("pojo:P<a:int,b:int>")).String())

	row := rowColumn(intColumn, varcharColumn)
	row.Class = classRowData
	other := rowColumn(intColumn, (&Type{Kind: KindString, enc: encUTF8, slot: slotText, Length: 5}).finish())
	other.Class = classRowData
	require.Equal(t, AsIs, Compat(row, row, nil).Verdict)
	require.Equal(t, "incompatible: column f1: string became varchar(5)", Compat(row, other, nil).String())
}

func TestStateCompatibility(t *testing.T) {
	state := func(kind StateKind, stateType string, ns, value *Type) *StateMeta {
		return &StateMeta{Name: "s", Kind: kind, Options: []Option{{OptionStateType, stateType}}, Serializers: []NamedType{{SerializerValue, value}, {SerializerNS, ns}}}
	}
	void, long, str := Basic(KindVoidNamespace), Basic(KindLong), Basic(KindString)
	p1 := NewPOJO("P", Field{Name: "a", Type: long})
	p2 := NewPOJO("P", Field{Name: "a", Type: long}, Field{Name: "b", Type: long})
	for _, c := range []struct {
		name     string
		old, new *StateMeta
		want     string
	}{
		{"same", state(KeyValue, "VALUE", void, long), state(KeyValue, "VALUE", void, long), "as is"},
		{"kind", state(KeyValue, "VALUE", void, long), state(KeyValue, "REDUCING", void, long), "incompatible: value state became reducing state"},
		{"value", state(KeyValue, "VALUE", void, p1), state(KeyValue, "VALUE", void, p2), "after migration: value: field b was added"},
		{"namespace", state(KeyValue, "VALUE", void, long), state(KeyValue, "VALUE", str, long), "incompatible: namespace: voidnamespace became string"},
		{"map value", state(KeyValue, "MAP", void, NewMap(str, p1)), state(KeyValue, "MAP", void, NewMap(str, p2)), "after migration: value.value: field b was added"},
		{"map key", state(KeyValue, "MAP", void, NewMap(p1, str)), state(KeyValue, "MAP", void, NewMap(p2, str)), "incompatible: value.key: field b was added, and keys are not migrated"},
		{"timer key", &StateMeta{Kind: PriorityQueue, Serializers: []NamedType{{SerializerValue, NewTimer(p1, void)}}}, &StateMeta{Kind: PriorityQueue, Serializers: []NamedType{{SerializerValue, NewTimer(p2, void)}}}, "incompatible: value.key: field b was added, and keys are not migrated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, CompatState(c.old, c.new, nil).String())
		})
	}
}

// Operator state is held as objects, so that keys of broadcast state are migrated.
func TestCompatBroadcastKey(t *testing.T) {
	key := func(fields ...Field) *Type { return NewPOJO("com.example.Key", fields...) }
	id, extra := Field{Name: "id", Type: Basic(KindLong)}, Field{Name: "extra", Type: Basic(KindLong)}
	before := NewBroadcastState("b", key(id), Basic(KindLong))
	after := NewBroadcastState("b", key(extra, id), Basic(KindLong))
	require.Equal(t, AfterMigration, CompatState(&before, &after, nil).Verdict)
	require.Equal(t, Incompatible, CompatKey(before.Key(), after.Key()).Verdict)
}

func TestMigrate(t *testing.T) {
	point := func(fields ...Field) *Type { return NewPOJO("com.example.Point", fields...) }
	x, y, z := Field{Name: "x", Type: Basic(KindInt)}, Field{Name: "y", Type: Basic(KindInt)}, Field{Name: "z", Type: Basic(KindString)}
	old, new := NewList(point(x, y)), NewList(point(x, z))
	b, err := old.AppendValue(nil, []any{Object{Class: "com.example.Point", Fields: []NamedValue{{"x", int32(1)}, {"y", int32(2)}}}})
	require.NoError(t, err)
	convert, c := Migrate(old, new, nil)
	require.Equal(t, AfterMigration, c.Verdict)
	require.NotNil(t, convert)
	out, err := convert([]byte("before"), b)
	require.NoError(t, err)
	v, n, err := NewDecoder(new, nil).Decode(out[len("before"):])
	require.NoError(t, err)
	require.Equal(t, len(out)-len("before"), n)
	require.Equal(t, []any{Object{Class: "com.example.Point", Fields: []NamedValue{{"x", int32(1)}, {"z", nil}}}}, v)
	_, err = convert(nil, append(b, 0))
	require.ErrorContains(t, err, "bytes behind it")

	convert, c = Migrate(old, old, nil)
	require.Nil(t, convert)
	require.Equal(t, AsIs, c.Verdict)
	convert, c = Migrate(Basic(KindInt), Basic(KindLong), nil)
	require.Nil(t, convert)
	require.Equal(t, Incompatible, c.Verdict)
	// Both have the constants, in another order.
	convert, c = Migrate(NewEnum("E", "A", "B"), NewEnum("E", "B", "A"), nil)
	require.Equal(t, AsIs, c.Verdict)
	out, err = convert(nil, []byte{0, 0, 0, 1})
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 0}, out)
}
