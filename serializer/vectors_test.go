package serializer

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logical builds the columns that logicalType makes of Java objects.
func column(kind Kind, enc encoding, s slot) *Type {
	return (&Type{Kind: kind, enc: enc, slot: s}).finish()
}

func decimalColumn(p, s int32) *Type {
	return (&Type{Kind: KindDecimal, enc: encDecimal, slot: decimalSlot(p), Precision: p, Scale: s}).finish()
}

func timestampColumn(p int32) *Type {
	return (&Type{Kind: KindTimestamp, enc: encTimestamp, slot: timestampSlot(p), Precision: p}).finish()
}

func rowColumn(cols ...*Type) *Type {
	t := &Type{Kind: KindRow, enc: encBinaryRow, slot: slotRow}
	for _, c := range cols {
		t.Fields = append(t.Fields, Field{Type: c})
	}
	return t.finish()
}

func arrayColumn(elem *Type) *Type {
	return (&Type{Kind: KindArray, enc: encBinaryArray, slot: slotArray, Args: []*Type{elem}}).finish()
}

func mapColumn(k, v *Type) *Type {
	return (&Type{Kind: KindMap, enc: encBinaryMap, slot: slotMap, Args: []*Type{k, v}}).finish()
}

var (
	bigintColumn  = column(KindLong, encI64, slotI64)
	intColumn     = column(KindInt, encI32, slotI32)
	varcharColumn = column(KindString, encUTF8, slotText)
	boolColumn    = column(KindBoolean, encBool, slotBool)
	doubleColumn  = column(KindDouble, encF64, slotF64)
)

// TestValueVectors checks bytes that Flink's serializers gave, in both directions.
func TestValueVectors(t *testing.T) {
	words := func(s string) *Type {
		typ, err := ParseType(s, nil)
		require.NoError(t, err)
		return typ
	}
	eventID := func() *Type {
		return (&Type{Kind: KindRecord, enc: encEventID, Fields: []Field{{Name: "id", Type: typeInt}, {Name: "timestamp", Type: typeLong}}}).finish()
	}
	dewey := (&Type{Kind: KindList, enc: encDewey, Args: []*Type{typeInt}}).finish()
	node := (&Type{Kind: KindRecord, enc: encNodeID, Args: []*Type{eventID()}}).finish()
	edge := (&Type{Kind: KindRecord, enc: encTuple, Fields: []Field{{Name: "node", Type: node}, {Name: "version", Type: dewey}}}).finish()
	sharedNode := (&Type{Kind: KindList, enc: encList, Args: []*Type{(&Type{Kind: KindRecord, enc: encTuple, Fields: []Field{{Name: "references", Type: typeInt}, {Name: "edge", Type: edge}}}).finish()}}).finish()
	nfa := &Type{Kind: KindRecord, enc: encNFAState, flag: true, Args: []*Type{dewey, node, eventID()}}
	nfaStateFields(nfa)
	linked := (&Type{Kind: KindList, enc: encLinkedList, flag: true, Args: []*Type{typeLong}}).finish()
	for _, c := range []struct {
		name  string
		t     *Type
		hex   string
		json  string
		write bool // AppendFromJSON gives the bytes back
	}{
		{"null string", words("string"), "00", `null`, true},
		{"empty string", words("string"), "01", `""`, true},
		{"ascii string", words("string"), "04616263", `"abc"`, true},
		{"two-byte character", words("string"), "02e901", `"é"`, true},
		{"three-byte character", words("string"), "02b4d801", `"水"`, true},
		{"supplementary character", words("string"), "03bdb00380bc03", `"😀"`, true},
		{"lone surrogate", words("string"), "02bdb003", `"\ud83d"`, false},
		{"string of 126", words("string"), "7f" + strings.Repeat("78", 126), `"` + strings.Repeat("x", 126) + `"`, true},
		{"string of 127", words("string"), "8001" + strings.Repeat("78", 127), `"` + strings.Repeat("x", 127) + `"`, true},
		{"string of 128", words("string"), "8101" + strings.Repeat("78", 128), `"` + strings.Repeat("x", 128) + `"`, true},
		{"long", words("long"), "00000000499602d2", `1234567890`, true},
		{"big integer 0, short", words("bigint"), "00000001", `"0"`, false},
		{"big integer 10, short", words("bigint"), "00000003", `"10"`, false},
		{"big integer 0, long", words("bigint"), "0000000500", `"0"`, true},
		{"big integer 17", words("bigint"), "0000000511", `"17"`, true},
		{"big integer -300", words("bigint"), "00000006fed4", `"-300"`, true},
		{"big integer -128", words("bigint"), "0000000580", `"-128"`, true},
		{"big integer 128", words("bigint"), "000000060080", `"128"`, true},
		{"null big integer", words("bigint"), "00000000", `null`, true},
		{"big decimal", words("bigdec"), "0000000604d200000002", `"12.34"`, true},
		{"big decimal 0, short", words("bigdec"), "0000000100000000", `"0"`, false},
		{"null big decimal", words("bigdec"), "00000000", `null`, true},
		{"date", words("localdate"), "000007e8021d", `"2024-02-29"`, true},
		{"null date", words("localdate"), "800000008000", `null`, true},
		{"time", words("localtime"), "173b3a075bcd15", `"23:59:58.123456789"`, true},
		{"time without seconds", words("localtime"), "0a0f0000000000", `"10:15"`, true},
		{"null time", words("localtime"), "80800080000000", `null`, true},
		{"date and time", words("localdatetime"), "000007e8021d01020300000004", `"2024-02-29T01:02:03.000000004"`, true},
		{"null date and time", words("localdatetime"), "80000000800080800080000000", `null`, true},
		{"instant", words("instant"), "000000006553f10000000005", `"2023-11-14T22:13:20.000000005Z"`, true},
		{"instant before the epoch", words("instant"), "ffffffffffffffff1dcd6500", `"1969-12-31T23:59:59.500Z"`, true},
		{"null instant", words("instant"), "800000000000000080000000", `null`, true},
		{"sql timestamp", words("sqltimestamp"), "000000005e32baf039387000", `{"millis":1580382960,"nanos":960000000}`, true},
		{"null sql timestamp", words("sqltimestamp"), "800000000000000000000000", `null`, true},
		{"null sql date", words("sqldate"), "8000000000000000", `null`, true},
		{"Row of +U, 1, null, 9", words("row<int,string,long>"), "50000000010000000000000009", `{"row_kind":"UPDATE_AFTER","fields":[1,null,9]}`, true},
		{"POJO", words("pojo:P<age int, height double, id int, name string>"), "02000000001b00406599999999999a00000de7040007476f72646f6e", `{"@class":"P","age":27,"height":172.8,"id":911108,"name":"Gordon"}`, true},
		{"nullable list", words("list<long?>?"), "00" + "00000002" + "00" + "0000000000000001" + "01", `[1,null]`, true},
		{"null nullable list", words("list<long?>?"), "01", `null`, true},
		{"map with a null", words("map<long,string>"), "0000000200000000000000010002610000000000000002" + "01", `[[1,"a"],[2,null]]`, true},
		{"ttl", words("ttl<long>"), "0000018bcfe56800000000000000002a", `42`, false},
		{"timer", words("timer<string,voidnamespace>"), "80000000000003e8026b00", `{"timestamp":1000,"key":"k","namespace":null}`, true},
		{"array of nullables", words("array<int>"), "00000002010000000500", `[5,null]`, true},
		{"set", words("set<string>"), "00000002000262000261", `["a","b"]`, false},
		{"either", words("either<string,int>"), "0000000007", `{"right":7}`, true},
		{"enum", words("enum:C<A,B>"), "00000001", `"B"`, true},
		{"window", words("timewindow"), "00000000000000010000000000000002", `{"window_start":1,"window_end":2}`, true},
		{"tuple 0", words("tuple<>"), "2a", `[]`, true},

		{"sql row, inline text", rowColumn(bigintColumn, varcharColumn), "00000018" + "0000000000000000" + "0500000000000000" + "68656c6c6f000085", `{"row_kind":"INSERT","fields":[5,"hello"]}`, true},
		{"sql row, longer text", rowColumn(bigintColumn, varcharColumn), "00000028" + "0001000000000000" + "0000000000000000" + "0b00000018000000" + "68656c6c6f20776f726c640000000000", `{"row_kind":"INSERT","fields":[null,"hello world"]}`, true},
		{"sql row, deletion", rowColumn(bigintColumn, varcharColumn), "00000018" + "0302000000000000" + "0100000000000000" + "0000000000000000", `{"row_kind":"DELETE","fields":[1,null]}`, true},
		{"sql row without columns", rowColumn(), "00000008" + "0000000000000000", `{"row_kind":"INSERT","fields":[]}`, true},
		{"sql row, wide types", rowColumn(intColumn, decimalColumn(20, 2), timestampColumn(3), timestampColumn(9), boolColumn, doubleColumn),
			"00000050" + "0000000000000000" + "0700000000000000" + "0800000038000000" + "e803000000000000" + "e703000048000000" + "0100000000000000" + "000000000000f83f" + "112210f47de98115" + "0000000000000000" + "e803000000000000",
			`{"row_kind":"INSERT","fields":[7,"12345678901234567.89","1970-01-01T00:00:01","1970-01-01T00:00:01.000000999",true,1.5]}`, true},
		{"sql array", arrayColumn(intColumn), "00000018" + "03000000" + "02000000" + "01000000" + "00000000" + "03000000" + "00000000", `[1,null,3]`, true},
		{"sql map", mapColumn(varcharColumn, bigintColumn), "00000024" + "10000000" + "01000000" + "00000000" + "6b00000000000081" + "01000000" + "00000000" + "0300000000000000", `[["k",3]]`, true},
		{"sql row, nested", rowColumn(arrayColumn(intColumn), mapColumn(varcharColumn, bigintColumn), rowColumn(intColumn, varcharColumn)),
			"00000088" + "0000000000000000" + "1800000020000000" + "2400000038000000" + "2800000060000000" +
				"03000000" + "02000000" + "01000000" + "00000000" + "03000000" + "00000000" +
				"10000000" + "01000000" + "00000000" + "6b00000000000081" + "01000000" + "00000000" + "0300000000000000" + "00000000" +
				"0000000000000000" + "0400000000000000" + "0a00000018000000" + "6162636465666768" + "696a000000000000",
			`{"row_kind":"INSERT","fields":[[1,null,3],[["k",3]],{"row_kind":"INSERT","fields":[4,"abcdefghij"]}]}`, true},
		{"sql decimal, large", decimalColumn(20, 2), "000000019c", `"-1.00"`, true},
		{"sql decimal, compact", decimalColumn(10, 2), "ffffffffffffff9c", `"-1.00"`, true},
		{"sql timestamp 3", timestampColumn(3), "00000000000003e8", `"1970-01-01T00:00:01"`, true},
		{"sql timestamp 9", timestampColumn(9), "00000000000003e8000003e7", `"1970-01-01T00:00:01.000000999"`, true},
		{"sql text", varcharColumn, "0000000368c3a9", `"hé"`, true},
		{"linked list", linked, "000000034000000000000000010000000000000003", `[1,null,3]`, true},

		{"CEP node id", node, "0100000001000000000000000202" + "70", `{"event":{"id":1,"timestamp":2},"page":"p"}`, false},
		{"CEP null node id", node, "00", `null`, false},
		{"CEP shared node", sharedNode, "0000000100000000" + "0100000001000000000000000202" + "70" + "0000000100000001", `[{"references":0,"edge":{"node":{"event":{"id":1,"timestamp":2},"page":"p"},"version":[1]}}]`, false},
		{"CEP NFA state", nfa, "00000001037374" + "0100000001000000000000000202" + "70" + "0000000100000001" + "0000000000000007" + "0000000000000008" + "01" + "000000010000000000000002" + "00000000",
			`{"partial_matches":[{"state":"st","node":{"event":{"id":1,"timestamp":2},"page":"p"},"version":[1],"start":7,"previous":8,"start_event":{"id":1,"timestamp":2}}],"completed_matches":[]}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := mustHex(c.hex)
			d := NewDecoder(c.t, &DecodeOptions{Strict: true})
			n, err := d.Skip(b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			js, n, err := d.AppendJSON(nil, b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			require.Equal(t, c.json, string(js))
			require.True(t, json.Valid(js))
			v, n, err := d.Decode(b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			if c.write {
				got, err := c.t.AppendFromJSON(nil, js)
				require.NoError(t, err)
				require.Equal(t, b, got)
				got, err = c.t.AppendValue(nil, v)
				require.NoError(t, err)
				require.Equal(t, b, got)
			}
			for k := range b { // every cut is noticed
				_, err := d.Skip(b[:k])
				require.ErrorIs(t, err, ErrShort, "of %d bytes %d", len(b), k)
				_, _, err = d.AppendJSON(nil, b[:k])
				require.ErrorIs(t, err, ErrShort)
			}
		})
	}
}

func TestTwosComplement(t *testing.T) {
	for _, s := range []string{"0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "-32768", "32767", "1267650600228229401496703205376", "-1267650600228229401496703205376"} {
		x, _ := new(big.Int).SetString(s, 10)
		b := twosOf(x)
		require.Equal(t, s, bigOf(b).String())
		if len(b) > 1 { // minimal
			require.False(t, b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80, s)
		}
	}
}

// TestJavaNumbers pins the text forms of Java's Double.toString, Float.toString and
// BigDecimal.toString.
func TestJavaNumbers(t *testing.T) {
	for want, v := range map[string]float64{
		"0.0": 0, "1.0": 1, "-1.5": -1.5, "100.0": 100, "1234567.0": 1234567, "9999999.0": 9999999, "1.0E7": 1e7, "1.2345678E7": 12345678,
		"0.001": 0.001, "9.0E-4": 0.0009, "1.0E23": 1e23, "4.9E-324": 5e-324, "1.7976931348623157E308": 1.7976931348623157e308, "0.1": 0.1, "123.456": 123.456,
	} {
		require.Equal(t, want, string(appendFloat(nil, v, 64)))
	}
	require.Equal(t, "1.4E-45", string(appendFloat(nil, float64(float32(1e-45)), 32)))
	require.Equal(t, "3.4028235E38", string(appendFloat(nil, float64(float32(3.4028235e38)), 32)))
	for _, s := range []string{"0", "0.00", "0E+3", "0E-8", "1E-8", "0.000001", "1.2E-7", "123", "-12.34", "1.23E+5", "5.265E-10", "0E-7", "9.21251536271812912829019739992E+34"} {
		x, scale, ok := parseDecimal(s)
		require.True(t, ok)
		require.Equal(t, s, BigDecimal{x, scale}.String())
	}
}
