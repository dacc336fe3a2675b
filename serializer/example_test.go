package serializer_test

import (
	"fmt"

	"github.com/tidemark/tidemark/serializer"
)

// A type is read from a snapshot's bytes, and values by the type.
func Example() {
	snapshot, _ := serializer.NewMap(serializer.Basic(serializer.KindString), serializer.Basic(serializer.KindLong)).AppendSnapshot(nil)

	t, _, err := serializer.ParseSnapshot(snapshot)
	if err != nil {
		fmt.Println(err)
		return
	}
	value := []byte{0, 0, 0, 1, 3, 'h', 'i', 0, 0, 0, 0, 0, 0, 0, 0, 42}
	js, n, err := serializer.NewDecoder(t, nil).AppendJSON(nil, value)
	fmt.Printf("%s: %s, %d bytes, %v\n", t, js, n, err)
	// Output: map<string, long>: [["hi",42]], 16 bytes, <nil>
}

// A Go struct is a POJO of a Flink job.
func ExampleOf() {
	type Order struct {
		_     struct{} `flink:"pojo=com.example.Order"`
		ID    int64    `flink:"id"`
		Note  *string  `flink:"note"`
		Lines []string `flink:"lines"`
	}
	s, err := serializer.Of[Order]()
	if err != nil {
		fmt.Println(err)
		return
	}
	b := s.Append(nil, Order{ID: 7, Lines: []string{"tea"}})
	js, _, _ := serializer.NewDecoder(s.Type(), nil).AppendJSON(nil, b)
	fmt.Println(s.Type())
	fmt.Println(string(js))
	// Output:
	// pojo:com.example.Order<id long, lines list<string>, note string>
	// {"@class":"com.example.Order","id":7,"lines":["tea"],"note":null}
}

// Whether a job with a new version of a class can restore.
func ExampleCompat() {
	old, _ := serializer.ParseType("pojo:com.example.Order<id long>", nil)
	for _, words := range []string{"pojo:com.example.Order<id long, note string>", "pojo:com.example.Order<id int>"} {
		t, _ := serializer.ParseType(words, nil)
		fmt.Println(serializer.Compat(old, t, nil))
	}
	// Output:
	// after migration: field note was added
	// incompatible: field id: long became int
}

// The key group of a key is Flink's.
func ExampleHashFunc() {
	hash, err := serializer.HashFunc(serializer.String, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(serializer.AssignKeyGroup(hash("hello"), 128))
	// Output: 35
}
